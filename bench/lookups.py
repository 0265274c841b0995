"""Lookups a second at one of three brokers on a ZooKeeper, over one connection with a bounded number in flight.

`python -m bench.lookups [--lookups 20000]`

Topics are the asked broker's own, others', or all. Brokers, one bookie and ZooKeeper (ticks of 500 ms, sessions of 6 s) are
processes of their own on this machine; ZooKeeper comes by Maven, as for the tests. The CPU of the asked broker says more
than the rate where other programs use the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import struct
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.processes import cpu_s
from protocol.pulsar_api_pb2 import BaseCommand, CommandLookupTopicResponse
from tests.support.bookies import BookieProcesses, ensemble_settings
from tests.support.java import ZooKeeper, class_path
from tests.support.ports import free_port
from tests.support.raw_client import build_command, simple_frame
from tests.vectors.broker_process import BrokerProcess

POM: Final = Path(__file__).resolve().parents[1] / "tests/compose/java/pom.xml"
NAMESPACE: Final = "public/bench"
BUNDLES: Final = 64
IN_FLIGHT: Final = 200
"""Lookups that wait for their answers at a time."""
ROUNDS: Final = 3
_SIZE: Final = struct.Struct(">I")


class Cluster:
    """Running brokers with the namespace of the benchmark."""

    def __init__(self, brokers: list[BrokerProcess]) -> None:
        self.brokers = brokers

    def make_namespace(self) -> None:
        """Makes it, with its bundles."""
        self.ask(0, "PUT", f"admin/v2/namespaces/{NAMESPACE}", {"bundles": {"numBundles": BUNDLES}})

    def ask(self, number: int, method: str, path: str, body: object = None) -> object:
        """Returns the answer of a broker's admin port."""
        request = urllib.request.Request(
            f"{self.brokers[number].addresses.admin}/{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        found: object = json.loads(text) if text else None
        return found

    def owner(self, topic: str) -> str:
        """The binary address of a topic's owner."""
        found = self.ask(0, "GET", f"lookup/v2/topic/persistent/{NAMESPACE}/{topic}")
        assert isinstance(found, dict)
        return str(found["brokerUrl"])


@contextlib.contextmanager
def running(count: int, classes: str) -> Iterator[Cluster]:
    """Runs a cluster of `count` brokers until the block ends."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="magnetar-bench-")))
        (folder / "zookeeper").mkdir()
        zookeeper = ZooKeeper(classes, folder / "zookeeper")
        zookeeper.start()
        stack.callback(zookeeper.stop)
        bookies = stack.enter_context(BookieProcesses(folder / "bookies", 1))
        brokers = []
        for number in range(count):
            (folder / f"broker-{number}").mkdir()
            settings = {
                **ensemble_settings(bookies.addresses),
                "metadataStoreUrl": f"zk:{zookeeper.address}",
                "metadataStoreSessionTimeoutMillis": "6000",
                "brokerServicePort": str(free_port()),
                "webServicePort": str(free_port()),
                # A benchmark of owners, not of what is left to them.
                "brokerDeleteInactiveTopicsEnabled": "false",
            }
            broker = BrokerProcess(folder / f"broker-{number}", settings)
            stack.callback(broker.kill)
            broker.start()
            brokers.append(broker)
        cluster = Cluster(brokers)
        cluster.make_namespace()
        yield cluster


def measure(count: int, classes: str) -> None:
    """Prints the lookups of each kind and round."""
    with running(3, classes) as cluster:
        owners = {f"t{number}": cluster.owner(f"t{number}") for number in range(1000)}
        asked = cluster.brokers[1]
        own = [topic for topic, owner in owners.items() if owner == asked.addresses.pulsar]
        foreign = [topic for topic in owners if topic not in own]
        print(f"{len(own)} topics are the asked broker's, {len(foreign)} are others'")
        for round_number in range(ROUNDS):
            for title, topics in (("own", own), ("others'", foreign), ("all", list(owners))):
                names = list(itertools.islice(itertools.cycle(topics), count))
                before_s = cpu_s(asked.pid)
                took_s, kinds = asyncio.run(look_up(asked.addresses.pulsar, names))
                cpu_us = (cpu_s(asked.pid) - before_s) / len(names) * 1e6
                print(
                    f"round {round_number + 1}  {title:8} {len(names) / took_s:8,.0f} lookups/s"
                    f"  {cpu_us:6.0f} µs of the broker's CPU each  {dict(kinds)}",
                    flush=True,
                )


async def look_up(url: str, topics: Sequence[str]) -> tuple[float, Counter[str]]:
    """Returns the seconds that the lookups took, and the kinds of their answers."""
    host, _, port = url.removeprefix("pulsar://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**24)
    writer.write(simple_frame(build_command("CONNECT", {"client_version": "bench", "protocol_version": 19})))
    await _frame(reader)
    frames = [
        simple_frame(
            build_command("LOOKUP", {"topic": f"persistent://{NAMESPACE}/{topic}", "request_id": number})
        )
        for number, topic in enumerate(topics)
    ]
    answers: list[bytes] = []
    began_s = time.perf_counter()
    sent = min(IN_FLIGHT, len(frames))
    writer.writelines(frames[:sent])
    while len(answers) < len(frames):
        answers.append(await _frame(reader))
        if sent < len(frames):
            writer.write(frames[sent])
            sent += 1
    took_s = time.perf_counter() - began_s
    writer.close()
    kinds: Counter[str] = Counter()
    for answer in answers:
        command = BaseCommand.FromString(answer[_SIZE.size :])
        response = command.lookupTopicResponse.response
        kinds[CommandLookupTopicResponse.LookupType.Name(response)] += 1
    return took_s, kinds


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
    return await reader.readexactly(size)


def main() -> None:
    """Starts the cluster and prints a line for each round and kind of topics."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lookups", type=int, default=20_000, help="of each kind and round")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        classes = class_path(POM, Path(folder))
    measure(arguments.lookups, classes)


if __name__ == "__main__":
    main()
