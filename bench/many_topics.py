"""Memory of a topic, by part: dormant, open, with a subscription, with clients, and busy: with clients and messages.

`python -m bench.many_topics [--topics 4000] [--only dormant open subscribed connected busy stored] [--parts 40]`, a minute
`python -m bench.many_topics --topics 100000 --store zookeeper`, six minutes; needs Java and Maven, and starts a ZooKeeper

With more than 100,000 topics or on ZooKeeper, and without `--only`, the topics on disk alone (`stored_topics.py`): 600,000
open ones would take 12 GB.

Starts a broker in a process of its own for each kind, opens the topics, and prints

- the growth of the resident memory for each topic, and
- Python's objects for each topic by part, over PART_TOPICS further topics, and
- the time in which a dormant topic wakes for a producer: LOOKUP and PRODUCER over a connection.

A part is an attribute of one of Magnetar's classes, with the containers and numbers below it, or the instances of such a
class themselves, which have the rest. An object that several topics share counts once, so it nearly vanishes.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from multiprocessing import Process
from pathlib import Path
from types import MemberDescriptorType
from typing import Final, NamedTuple

from bench import processes, stored_topics
from bookie_stub.compose.bookie import Bookie
from bookkeeper.client.embedded import EmbeddedLedgerClient
from bookkeeper.ensembles.ledger_id_stock import LedgerIdStock
from bookkeeper.ensembles.zookeeper_ledger_ids import ZookeeperLedgerIds
from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore
from broker.compose.broker_service import BrokerService
from broker.service.topics import ended_topics
from broker.service.topics.dormant_topic import NOT_KNOWN
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.loop import clock
from foundation.loop.turn import Turn
from foundation.model.position import LATEST
from foundation.model.topic_name import TopicName, parse_topic_name
from protocol.pulsar_api_pb2 import MessageMetadata
from tests.support.bookie_settings import for_directory
from tests.support.command_json import Json
from tests.support.java import ZooKeeper, class_path
from tests.support.memory_broker import broker_with
from tests.support.raw_client import RawConnection, build_command, payload_frame

PART_TOPICS: Final = 500
WARM_TOPICS: Final = 200
"""Topics before the first measurement, so that what is made once is made."""
OWN: Final = ("bookie_stub", "bookkeeper", "broker", "entry_cache", "foundation", "magnetar", "protocol")
"""Packages whose classes are parts."""
PERMITS: Final = 1_000
MESSAGES: Final = 10
"""Of a busy topic; all of them are acknowledged."""
BODY: Final = bytes(100)
SETTLE_S: Final = 5
"""Time after which the cache has no entry of a busy topic any more, and its acknowledgements are stored: what stays is the
topic's own."""
OPEN_MAX: Final = 100_000
"""Topics of each kind that are opened without being asked for."""
STORED: Final = "stored"
"""The kind of topics that are on disk when the broker starts."""
ZOOKEEPER: Final = "zookeeper"
POM: Final = Path(__file__).parents[1] / "tests/bookie_stub/java/pom.xml"


@asynccontextmanager
async def embedded_broker(folder: Path, *settings: str, zookeeper: str = "") -> AsyncIterator[BrokerService]:
    """A broker with its bookie in `folder`, and its metadata store there or in ZooKeeper."""
    loop = asyncio.get_running_loop()
    turn = Turn(loop.call_soon, clock.monotonic_ns)
    metadata = await stored_topics.store_of(folder, zookeeper)
    bookie = Bookie.open(for_directory(folder), loop.call_soon_threadsafe, at_end_of_turn=turn.commit)
    client = EmbeddedLedgerClient(bookie)
    usual = ("brokerDeleteInactiveTopicsEnabled=false", *settings)
    ids = None
    if isinstance(metadata, ZookeeperMetadataStore):
        ids = LedgerIdStock(ZookeeperLedgerIds(metadata.requests))
    async with broker_with(metadata, client, turn, *usual, ids=ids) as service:
        yield service


class Topics:
    """Makes topics of each kind."""

    def __init__(self, service: BrokerService, connection: RawConnection) -> None:
        self._registry = service.registry
        self._connection = connection
        self._made = 0

    def _next_name(self) -> TopicName:
        self._made += 1
        return parse_topic_name(f"persistent://public/default/topic-{self._made}")

    async def open(self) -> None:
        """Opens a topic without a client."""
        await self._registry.get(self._next_name(), create=True)

    async def subscribed(self) -> None:
        """Opens one with a subscription that has no consumer."""
        await self._subscribed()

    async def _subscribed(self) -> PersistentTopic:
        topic = await self._registry.get(self._next_name(), create=True)
        assert isinstance(topic, PersistentTopic)
        await topic.subscribing.create("subscription", LATEST)
        return topic

    async def dormant(self) -> None:
        """Makes one with a subscription and lets it fall asleep."""
        await self._registry.fall_asleep(await self._subscribed(), NOT_KNOWN)
        for _ in self._registry.ended.take_apart():
            pass

    async def connected(self) -> None:
        """Opens one with a subscription, a producer and a consumer that has sent its permits."""
        connection, name = self._connection, str(self._next_name())
        connection.send("PRODUCER", topic=name, producer_id=self._made, request_id=self._made)
        await connection.receive("PRODUCER_SUCCESS")
        connection.send(
            "SUBSCRIBE",
            topic=name,
            subscription="subscription",
            subType="Shared",
            consumer_id=self._made,
            request_id=self._made,
        )
        await connection.receive("SUCCESS")
        connection.send("FLOW", consumer_id=self._made, messagePermits=PERMITS)

    async def busy(self) -> None:
        """Opens one as `connected`, through which messages go that its consumer acknowledges."""
        await self.connected()
        connection, number, found = self._connection, self._made, list[Json]()
        for sequence_id in range(MESSAGES):
            command = build_command("SEND", {"producer_id": number, "sequence_id": sequence_id})
            metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
            connection.send_bytes(payload_frame(command, metadata, BODY))
        while len(found) < MESSAGES:
            frame = await connection.receive("MESSAGE", "SEND_RECEIPT")
            if frame.type_name == "SEND_RECEIPT":
                continue
            position = frame.command.message.message_id
            found.append({"ledgerId": position.ledgerId, "entryId": position.entryId})
        connection.send("ACK", consumer_id=number, ack_type="Individual", message_id=found, request_id=number)
        while (await connection.receive("ACK_RESPONSE", "SEND_RECEIPT")).type_name == "SEND_RECEIPT":
            pass


KINDS: Final[dict[str, Callable[[Topics], Awaitable[None]]]] = {
    "dormant": Topics.dormant,
    "open": Topics.open,
    "subscribed": Topics.subscribed,
    "connected": Topics.connected,
    "busy": Topics.busy,
}


class Parts(NamedTuple):
    """Bytes of new objects by part."""

    own: Counter[str]
    """Instances of a class of ours, without their attributes."""
    attributes: Counter[str]
    """Containers, numbers, texts and functions below an attribute, as `Class.attribute`."""
    others: Counter[str]
    """Objects below none of these, by type."""


def new_parts(before: dict[int, object]) -> Parts:
    """Divides the objects that are not in `before`, as `all_objects` returned it, by part."""
    # The numbers that are the keys of `before` are new, too, and only it refers to them.
    new = {key: each for key, each in all_objects(besides=before).items() if key not in before}
    parts = Parts(Counter(), Counter(), Counter())
    counted: set[int] = set()
    owners = [each for each in new.values() if is_own(each)]
    for owner in owners:
        counted.add(id(owner))
        parts.own[type(owner).__name__] += sys.getsizeof(owner)
    for owner in owners:
        for name, value in attributes_of(owner):
            parts.attributes[f"{type(owner).__name__}.{name}"] += _below(value, new, counted)
    for key, each in new.items():
        if key not in counted:
            parts.others[type(each).__qualname__] += sys.getsizeof(each)
    return parts


def _below(value: object, new: dict[int, object], counted: set[int]) -> int:
    """The bytes of new objects from `value` on, down to instances of our classes."""
    size = 0
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if id(each) in new and id(each) not in counted and not is_own(each):
            counted.add(id(each))
            size += sys.getsizeof(each)
            waiting += gc.get_referents(each)
    return size


def is_own(each: object) -> bool:
    """Returns True for an instance of one of Magnetar's classes that is no tuple, number or text."""
    kind = type(each)
    return kind.__module__.partition(".")[0] in OWN and not isinstance(each, tuple | int | str | bytes | type)


def attributes_of(owner: object) -> Iterator[tuple[str, object]]:
    """Yields names and values of an object's slots and of its dict, which counts as an attribute itself."""
    for kind in type(owner).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, MemberDescriptorType):
                try:
                    yield name, member.__get__(owner)
                except AttributeError:
                    continue
    for name, value in getattr(owner, "__dict__", {}).items():
        yield name, value
    for each in gc.get_referents(owner):
        # Parts without a name: the dict itself, and the content of a class with a container as its base.
        yield "(itself)", each


def all_objects(besides: object = None) -> dict[int, object]:
    """Returns the objects that the collector knows and those that they refer to, by id; they stay alive by this."""
    gc.collect()
    found = {id(each): each for each in gc.get_objects() if each is not besides}
    waiting = list(found.values())
    while waiting:
        below = gc.get_referents(*waiting)
        waiting = []
        for each in below:
            if id(each) not in found and each is not besides:
                found[id(each)] = each
                waiting.append(each)
    return found


def resident_bytes() -> int:
    """Returns the resident memory of this process, after free memory has gone back to the kernel."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(processes.memory(os.getpid()).rss * 1024 * 1024)


async def prepare_stored(topics: int, folder: Path, zookeeper: str, *, backlog: bool) -> None:
    """Writes topics into an empty folder, or into ZooKeeper."""
    async with embedded_broker(folder, zookeeper=zookeeper) as service:
        await stored_topics.make_namespaces(topics, service)
    await stored_topics.write_topics(topics, folder, backlog=backlog, zookeeper=zookeeper)


async def measure_stored(topics: int, folder: Path, zookeeper: str, *, backlog: bool) -> None:
    """Measures a broker that starts on these topics (`stored_topics.py`)."""
    began = time.perf_counter()
    sums = "exposeTopicLevelMetricsInPrometheus=false"
    settings = (stored_topics.ASLEEP, sums, *(stored_topics.EXPIRING if backlog else ()))
    async with embedded_broker(folder, *settings, zookeeper=zookeeper) as service:
        await stored_topics.measure(service, topics, time.perf_counter() - began, os.getpid())


async def measure(
    kind: str, topics: int, parts_shown: int, folder: Path, zookeeper: str, settings: Sequence[str]
) -> None:
    """Makes topics of one kind and prints their memory; `settings` as `KEY=VALUE`."""
    make, settle_s = KINDS[kind], SETTLE_S if kind == "busy" else 0
    # As two minutes later: closed topics stay whole for as long.
    ended_topics.KEPT_NS = 0  # type: ignore[misc]
    async with embedded_broker(folder, *settings, zookeeper=zookeeper) as service:
        connection = await RawConnection.open(service.addresses.service_url)
        await connection.connect()
        made = Topics(service, connection)
        for number in range(100):  # Names in every bundle: on ZooKeeper this takes them.
            name = parse_topic_name(f"persistent://public/default/{number}")
            await service.registry.ownership.owner_of(name, authoritative=True)
        for _ in range(WARM_TOPICS):
            await make(made)
        await asyncio.sleep(settle_s)
        before_bytes = resident_bytes()
        for _ in range(topics):
            await make(made)
        await asyncio.sleep(settle_s)
        each_bytes = (resident_bytes() - before_bytes) / topics
        before = all_objects()
        for _ in range(PART_TOPICS):
            await make(made)
        await asyncio.sleep(settle_s)
        parts = new_parts(before)
        del before
        _print(kind, topics, each_bytes, parts, parts_shown)
        if kind == "dormant":
            await stored_topics.wake(service, stored_topics.Pauses())
        await connection.close()


def _print(kind: str, topics: int, each_bytes: float, parts: Parts, shown: int) -> None:
    total = sum(sum(counter.values()) for counter in parts) / PART_TOPICS
    print(f"{kind}: {each_bytes:,.0f} B of resident memory for each of {topics:,} topics")
    print(f"  {total:,.0f} B of objects for each of {PART_TOPICS} more:")
    by_class: Counter[str] = Counter(parts.own)
    for name, size in parts.attributes.items():
        by_class[name.partition(".")[0]] += size
    by_class.update(parts.others)
    for owner, size in by_class.most_common(shown):
        inside = [
            (each, name.partition(".")[2])
            for name, each in [(f"{owner}.itself", parts.own[owner]), *parts.attributes.items()]
            if name.partition(".")[0] == owner
        ]
        words = ", ".join(
            f"{name} {each / PART_TOPICS:.0f}" for each, name in sorted(inside, reverse=True) if each
        )
        print(f"  {size / PART_TOPICS:7.0f}  {owner}{words and ': '}{words}")


def in_process(work: Callable[[], Coroutine[object, object, None]]) -> None:
    """Runs the work in a process: memory that another one has freed would hide what this one takes."""
    process = Process(target=lambda: asyncio.run(work()))
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(process.exitcode)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Memory of a topic, by part.")
    parser.add_argument("--topics", type=int, default=4_000)
    parser.add_argument("--only", nargs="+", choices=[*KINDS, STORED])
    parser.add_argument("--store", choices=["embedded", ZOOKEEPER], default="embedded")
    parser.add_argument("--parts", type=int, default=60, help="classes that are printed")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of the broker")
    parser.add_argument("--backlog", action="store_true", help="topics on disk have messages, which expire")
    given = parser.parse_args()
    stored_alone = given.topics > OPEN_MAX or given.store == ZOOKEEPER
    kinds = given.only or ([STORED] if stored_alone else [*KINDS, STORED])
    print(f"kinds: {', '.join(kinds)}; store: {given.store}", flush=True)
    with tempfile.TemporaryDirectory() as name, ExitStack() as ended:
        zookeeper = ""
        if given.store == ZOOKEEPER:
            server = ZooKeeper(class_path(POM, Path(name)), Path(name))
            ended.callback(server.stop)
            server.start()
            zookeeper = server.address
        for kind in kinds:
            folder = Path(name) / kind
            folder.mkdir()
            if kind == STORED:
                for work in (prepare_stored, measure_stored):
                    in_process(partial(work, given.topics, folder, zookeeper, backlog=given.backlog))
            else:
                in_process(partial(measure, kind, given.topics, given.parts, folder, zookeeper, given.set))
