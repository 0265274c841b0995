"""Topics on disk: what a start, a minute of idleness, waking and the work over all of them cost.

`python -m bench.many_topics --topics 600000`; the store is written first, as a broker leaves it that has
let each topic with its one subscription fall asleep. Pauses are those of the event loop: a probe that runs every
millisecond notes the time since its last run, by the clock and in CPU time of the loop's thread. Where other programs use
the machine, the CPU time tells more.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Final

from aiohttp import ClientSession

from bench import processes
from bookkeeper.metadata.metadata_store import ABSENT, Put
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore
from broker.compose.broker_service import BrokerService
from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.managed_ledger_info import (
    CursorInfo,
    ManagedLedgerInfo,
    cursor_key,
    managed_ledger_key,
)
from broker.managed_ledger.records.pulsar_records import StoredCursor, encode_cursor, encode_ledger_list
from broker.net.topic_list_watcher import WatchedList
from broker.service.policies import table
from broker.service.topics.topic_list_hash import TopicListHash
from broker.service.topics.topic_lists import TopicsPattern
from foundation.model.position import Position
from foundation.model.topic_name import parse_topic_name
from foundation.zookeeper.url import ZookeeperUrl
from magnetar.process.standalone import (
    GC_FULL_PASSES,
    GC_MIDDLE_PASSES,
    GC_YOUNG_OBJECTS,
    SWITCH_INTERVAL_S,
)
from tests.support.raw_client import RawConnection

PER_NAMESPACE: Final = 100_000
AT_ONCE: Final = 1_000
IDLE_S: Final = 20
IDLE_PARTS: Final = 6
PARTITIONS: Final = 10_000
ENTRIES: Final = 10
DAY_MS: Final = 86_400_000
EXPIRY_S: Final = 60
WATCHERS: Final = 1_000
WOKEN: Final = 500
EXPIRING: Final = ("messageExpiryIgnoresDeliveryTime=true", "messageExpiryCheckIntervalInMinutes=1")
"""Without the first, expiry reads entries for their delivery time. Nothing is due before an interval has passed."""
ASLEEP: Final = "dormantTopicsAfterSeconds=60"
SCRAPES: Final[dict[str, dict[str, str]]] = {
    "first scrape": {},
    "second scrape": {},
    "a scrape of one namespace": {"namespace": "public/default"},
}


class Pauses:
    """The longest pauses of the loop since `begin`."""

    def __init__(self) -> None:
        self.clock_ms = self.cpu_ms = 0.0

    def begin(self) -> None:
        """Forgets the pauses of before."""
        self.clock_ms = self.cpu_ms = 0.0

    async def run(self) -> None:
        """Probes until it is cancelled."""
        while True:
            clock, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.001)
            self.clock_ms = max(self.clock_ms, (time.perf_counter() - clock) * 1000 - 1)
            self.cpu_ms = max(self.cpu_ms, (time.thread_time() - cpu) * 1000)


async def make_namespaces(count: int, service: BrokerService) -> None:
    """Makes the namespaces that so many topics need."""
    for number in range(PER_NAMESPACE, count, PER_NAMESPACE):
        await service.namespaces.create(f"public/{_namespace(number)}")


async def store_of(folder: Path, zookeeper: str) -> SqliteMetadataStore | ZookeeperMetadataStore:
    """Opens ZooKeeper at this address, or the embedded store of the folder where there is none."""
    if zookeeper:
        url = ZookeeperUrl(zookeeper, "/bench")
        return await ZookeeperMetadataStore.open(url, session_timeout_s=60, timeout_s=60)
    return SqliteMetadataStore(folder / "metadata.db")


async def write_topics(
    count: int, folder: Path, *, backlog: bool = False, first: int = 0, zookeeper: str = ""
) -> None:
    """Writes the nodes of so many topics with a subscription each; their numbers, and so their namespaces, begin at `first`.

    `folder` and `zookeeper` as in `store_of`.
    `backlog`: with a ledger that was closed a day ago, of which the subscription has acknowledged nothing. Its entries are
    nowhere: expiry acknowledges a ledger that is old enough without a read.
    """
    store, now_ms = await store_of(folder, zookeeper), int(time.time() * 1000)
    began = time.perf_counter()

    def nodes(number: int) -> tuple[bytes, bytes]:
        old = LedgerInfo(number + 1, ENTRIES, ENTRIES * 1024, now_ms - DAY_MS)
        ledgers, last = ([old], ENTRIES - 1) if backlog else ([], -1)
        info = ManagedLedgerInfo(ledgers, {"index": str(last)}, created_ms=now_ms)
        acked = Position(number + 1, -1) if backlog else Position(-1, -1)
        return encode_ledger_list(info), encode_cursor(StoredCursor(CursorInfo(acked)))

    end = first + count
    for start in range(first, end, AT_ONCE):
        puts = []
        for number in range(start, min(start + AT_ONCE, end)):
            name = f"public/{_namespace(number)}/persistent/topic-{number}"
            of_topic, of_cursor = nodes(number)
            cursor = Put(cursor_key(name, "subscription"), of_cursor, ABSENT)
            puts.append(store.put_all((Put(managed_ledger_key(name), of_topic, ABSENT), cursor)))
        await asyncio.gather(*puts)
    print(f"{count:,} topics written, {count / (time.perf_counter() - began):,.0f} a second", flush=True)
    await store.close()


def _namespace(number: int) -> str:
    return "default" if number < PER_NAMESPACE else f"more-{number // PER_NAMESPACE}"


async def expire(service: BrokerService, pauses: Pauses) -> None:
    """Gives every topic's messages a time to live that is over, and looks for EXPIRY_S at what comes of it."""
    dormant, namespaces = service.registry.dormant, service.namespaces
    before = dormant.backlog
    async with shown(f"expiry, of {before // ENTRIES:,} topics that are due at once", pauses):
        for tenant in namespaces.tenants():
            for namespace in list(namespaces.names(tenant)):
                if namespace != "pulsar/system":
                    await namespaces.set_policy(namespace, table.MESSAGE_TTL.name, 60)
        await asyncio.sleep(EXPIRY_S)
    resident = processes.memory(os.getpid()).rss
    print(
        f"  {(before - dormant.backlog) // ENTRIES:,} of them expired in {EXPIRY_S} s; {resident:,.0f} MiB resident"
    )


def collect_as_a_process() -> None:
    """Freezes what there is and sets the thresholds of collector and threads, as the process of a broker does it."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG_OBJECTS, GC_MIDDLE_PASSES, GC_FULL_PASSES)


async def show_idle() -> None:
    """Prints the CPU of a broker that nobody asks for anything."""
    idle = []
    for _ in range(IDLE_PARTS):
        cpu = time.process_time()
        await asyncio.sleep(IDLE_S)
        idle.append(f"{(time.process_time() - cpu) / IDLE_S * 100:.2f}")
    # In one of the first, the metrics' first window makes the sums over the new records.
    print(f"idle, {IDLE_S} s after {IDLE_S} s: {', '.join(idle)} % of a core")


async def wake(service: BrokerService, pauses: Pauses) -> None:
    """Prints the times in which dormant topics wake for a producer on a connection, one after the other."""
    connection = await RawConnection.open(service.addresses.service_url)
    await connection.connect()
    times: list[tuple[float, float, float]] = []
    names = [name for name, _ in islice(service.registry.dormant, WOKEN)]
    async with shown(f"{len(names)} dormant topics woken", pauses):
        for number, name in enumerate(names):
            began = time.perf_counter()
            connection.send("LOOKUP", topic=name, request_id=number)
            await connection.receive("LOOKUP_RESPONSE")
            found = time.perf_counter()
            connection.send("PRODUCER", topic=name, producer_id=number, request_id=number)
            await connection.receive("PRODUCER_SUCCESS")
            times.append((found - began, time.perf_counter() - found, time.perf_counter() - began))
    for title, some in zip(("LOOKUP", "PRODUCER", "both"), zip(*times, strict=True), strict=True):
        half, most = sorted(some)[len(some) // 2], sorted(some)[len(some) * 99 // 100]
        print(f"  {title}: {half * 1000:.2f} ms (median), {most * 1000:.2f} ms (99 %)")
    await connection.close()


async def measure(service: BrokerService, topics: int, started_s: float, pid: int) -> None:
    """Prints the numbers of a broker that has just started on so many topics."""
    collect_as_a_process()
    registry, pauses = service.registry, Pauses()
    probe = asyncio.create_task(pauses.run())
    print(f"start to ready: {started_s:.2f} s, {processes.memory(pid).rss:,.0f} MiB resident")
    async with shown("records filled", pauses):
        # On ZooKeeper the broker gets its bundles after 30 s, as nobody looks their topics up.
        while registry.dormant.filling or registry.dormant.count < topics:  # noqa: ASYNC110 - nobody waits for it
            await asyncio.sleep(0.05)
    gc.collect()
    print(f"{registry.dormant.count:,} dormant topics, {processes.memory(pid).rss:,.0f} MiB resident")
    # The probe is not idle.
    probe.cancel()
    await show_idle()
    probe = asyncio.create_task(pauses.run())
    if registry.dormant.backlog:
        await expire(service, pauses)
        probe.cancel()
        return
    await wake(service, pauses)
    url = f"{service.addresses.admin_url}/metrics/"
    async with ClientSession() as client:
        for name, query in SCRAPES.items():
            async with shown(name, pauses), client.get(url, params=query) as answer:
                size = len(await answer.read())
            print(f"  {size:,} bytes")
    async with shown("a policy of a namespace", pauses):
        await service.namespaces.set_policy("public/default", table.MESSAGE_TTL.name, 3_600)
        await asyncio.sleep(2)
    async with shown("reconfigure", pauses):
        service.reconfigure(service.settings)
        await asyncio.sleep(5)
    async with shown(f"{PARTITIONS:,} partitions created", pauses):
        await service.partitioned.create(parse_topic_name("persistent://public/default/parts"), PARTITIONS)
    async with shown("a list of the namespace", pauses):
        names = await registry.names("public/default")
    watched = WatchedList(TopicsPattern(".*"), TopicListHash(names), lambda: None)
    told = [0]

    def tell(frame: bytes) -> None:
        told[0] += len(frame)

    for number in range(WATCHERS):
        service.net.topic_list_watchers.add(number, tell, "public/default", ".*", watched)
    # The probe counts from its last run, and the list was made since.
    await asyncio.sleep(0.01)
    async with shown(f"{PARTITIONS:,} more, told to {WATCHERS:,} watchers of {len(names):,} names", pauses):
        await service.partitioned.create(parse_topic_name("persistent://public/default/more"), PARTITIONS)
        await asyncio.sleep(5)
    print(f"{told[0] / 1_000_000:,.0f} MB of updates")
    async with shown("a full collection", pauses):
        gc.collect()
        await asyncio.sleep(0.01)
    probe.cancel()


@asynccontextmanager
async def shown(title: str, pauses: Pauses) -> AsyncIterator[None]:
    """Prints time, CPU and the longest pause of the work inside."""
    pauses.begin()
    began, cpu = time.perf_counter(), time.process_time()
    yield
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    print(
        f"{title}: {took_s:.2f} s, {cpu_s:.2f} s of CPU,"
        f" longest pause {pauses.clock_ms:.0f} ms, {pauses.cpu_ms:.0f} ms of CPU",
        flush=True,
    )
