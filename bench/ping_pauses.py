"""The longest wait of a real PING while lists of many topics are answered and their metrics are scraped.

`python -m bench.ping_pauses [--topics 100000] [--clients 1000] [--rounds 3]`, two minutes

The broker, in a process of its own, starts on topics on disk, which are dormant but for those with clients. A thread of this
process sends a PING each millisecond on a connection of its own and waits for the PONG, while another process asks. Where
other programs use the machine, the second figure tells more: the longest CPU time of the loop's thread between two runs of a
probe in the broker. The idle row is the wait without any request.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from bench import stored_topics
from bench.many_topics import PERMITS, embedded_broker, prepare_stored
from bench.probe import StallProbe
from broker.service.topics.topic_ownership import Addresses
from tests.support.raw_client import RawConnection

WAYS: Final = {
    "topics with clients": "exposeIdleTopicsInPrometheus=false",
    "sums of namespaces": "exposeTopicLevelMetricsInPrometheus=false",
    "every topic": "exposeTopicLevelMetricsInPrometheus=true",
}
"""By title, the setting of a scrape; a broker each."""
LIST: Final = "/admin/v2/persistent/public/default"
IDLE_S: Final = 5
SETTLE_S: Final = 0.05
ASK: Final = """
import sys, urllib.request
asked = urllib.request.Request(sys.argv[1], headers={"Accept-Encoding": "gzip"})
size = 0
with urllib.request.urlopen(asked) as answer:
    while part := answer.read(1 << 20):
        size += len(part)
print(size)
"""
"""The program of the process that asks."""


def run(folder: Path, setting: str, parent: Connection) -> None:
    """A process with one broker."""
    asyncio.run(serve(folder, setting, parent))


async def serve(folder: Path, setting: str, parent: Connection) -> None:
    """Runs a broker; answers each question with the longest pause since the last one, in ms of CPU, until it is None."""
    async with embedded_broker(folder, stored_topics.ASLEEP, setting) as broker:
        while broker.registry.dormant.filling:  # noqa: ASYNC110 - nobody waits for it
            await asyncio.sleep(0.05)
        stored_topics.collect_as_a_process()
        pauses = stored_topics.Pauses()
        probe = asyncio.create_task(pauses.run())
        parent.send(broker.addresses)
        while await asyncio.to_thread(parent.recv):
            parent.send(pauses.cpu_ms)
            pauses.begin()
        probe.cancel()


async def connect(connection: RawConnection, clients: int) -> None:
    """Makes a producer and a consumer on each of so many topics."""
    for number in range(clients):
        topic = f"persistent://public/default/topic-{number}"
        connection.send("PRODUCER", topic=topic, producer_id=number, request_id=number)
        await connection.receive("PRODUCER_SUCCESS")
        connection.send(
            "SUBSCRIBE",
            topic=topic,
            subscription="subscription",
            subType="Shared",
            consumer_id=number,
            request_id=number,
        )
        await connection.receive("SUCCESS")
        connection.send("FLOW", consumer_id=number, messagePermits=PERMITS)


async def ask(url: str) -> str:
    """Gets a page in another process; returns its size."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ASK, url, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return f"{int(out):,} B"


class Requests:
    """The requests to one broker."""

    def __init__(self, addresses: Addresses, connection: RawConnection) -> None:
        self._admin = addresses.admin_url
        self._connection = connection
        self._watchers = 0

    async def none(self) -> str:
        """Waits."""
        await asyncio.sleep(IDLE_S)
        return ""

    async def names(self) -> str:
        """Lists the topics over REST."""
        return await ask(self._admin + LIST)

    async def scrape(self) -> str:
        """Scrapes the metrics."""
        return await ask(self._admin + "/metrics/")

    async def names_of_namespace(self) -> str:
        """Lists the topics in the binary protocol."""
        self._connection.send("GET_TOPICS_OF_NAMESPACE", request_id=1, namespace="public/default")
        answer = await self._connection.receive("GET_TOPICS_OF_NAMESPACE_RESPONSE", timeout_s=60)
        return f"{len(answer.command.getTopicsOfNamespaceResponse.topics):,} names"

    async def watch(self) -> str:
        """Makes a watcher of all topics."""
        self._watchers += 1
        self._connection.send(
            "WATCH_TOPIC_LIST",
            request_id=1,
            watcher_id=self._watchers,
            namespace="public/default",
            topics_pattern="public/default/.*",
        )
        answer = await self._connection.receive("WATCH_TOPIC_LIST_SUCCESS", timeout_s=60)
        return f"{len(answer.command.watchTopicListSuccess.topic):,} names"


async def measure(title: str, folder: Path, clients: int, rounds: int) -> None:
    """Prints the waits at a broker whose scrape is of this kind."""
    ours, theirs = Pipe()
    process = Process(target=run, args=(folder, WAYS[title], theirs))
    process.start()
    addresses = await asyncio.to_thread(ours.recv)
    connection = await RawConnection.open(addresses.service_url)
    await connection.connect()
    await connect(connection, clients)
    requests, place = Requests(addresses, connection), urlsplit(addresses.service_url)
    lists: dict[str, Callable[[], Awaitable[str]]] = {
        "idle": requests.none,
        "list over REST": requests.names,
        "GET_TOPICS_OF_NAMESPACE": requests.names_of_namespace,
        "WATCH_TOPIC_LIST": requests.watch,
    }
    kinds = lists if title == next(iter(WAYS)) else {"idle": requests.none}
    with StallProbe(str(place.hostname), int(place.port or 0)) as probe:
        for name, request in {**kinds, f"scrape of {title}": requests.scrape}.items():
            for number in range(rounds):
                ours.send(True)
                ours.recv()
                probe.take_worst_ms()
                began = time.perf_counter()
                answer = await request()
                took_s = time.perf_counter() - began
                # A PING that waits at this moment counts.
                await asyncio.sleep(SETTLE_S)
                wait_ms = probe.take_worst_ms()
                ours.send(True)
                cpu_ms = await asyncio.to_thread(ours.recv)
                print(
                    f"{wait_ms:7.1f} ms, {cpu_ms:6.1f} ms of CPU  {name} {number + 1}: {answer}, {took_s:.1f} s",
                    flush=True,
                )
    await connection.close()
    ours.send(None)
    await asyncio.to_thread(process.join)


async def main(topics: int, clients: int, rounds: int, only: list[str], folder: Path) -> None:
    """Writes the topics, and measures each kind of scrape."""
    await prepare_stored(topics, folder, backlog=False)
    print(f"{topics:,} topics, {clients:,} with clients; the longest wait of a PING, and pause in CPU")
    for title in only:
        await measure(title, folder, clients, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The longest wait of a PING beside lists and scrapes.")
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=[*WAYS], default=[*WAYS])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(given.topics, given.clients, given.rounds, given.only, Path(name)))
