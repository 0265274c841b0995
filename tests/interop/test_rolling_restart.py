"""Three brokers on one ZooKeeper under the official Python client: each restarted in turn, and one killed.

Both tests print the figures of docs/reference/benchmarks.md. `MAGNETAR_RESTARTS_RATE` is the number of messages a second,
`MAGNETAR_RESTARTS_ROUNDS` how often each broker is restarted, `MAGNETAR_RESTARTS_TOPICS` the number of topics that a killed
broker and its two peers share, and `MAGNETAR_RESTARTS_URL=living` leaves the killed broker out of the client's service URL.
"""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pulsar
import pytest

from tests.interop.counting import LINES_S, TOPICS, CountingClient, milliseconds, python_program
from tests.interop.support import Admin, connect, wait_until
from tests.interop.test_cluster import Brokers
from tests.interop.test_unloads import Cut
from tests.support.java import ZooKeeper
from tests.vectors.broker_process import BrokerProcess

RATE: Final = int(os.environ.get("MAGNETAR_RESTARTS_RATE", "200"))
ROUNDS: Final = int(os.environ.get("MAGNETAR_RESTARTS_ROUNDS", "1"))
COUNT: Final = int(os.environ.get("MAGNETAR_RESTARTS_TOPICS", "60"))
URL: Final = os.environ.get("MAGNETAR_RESTARTS_URL", "all")
NAMESPACE: Final = "public/killed"
BUNDLES: Final = 64
PARTITIONS: Final = 3
AT_ONCE: Final = 16
"""Requests of this test that are out at the same time."""

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout((3 + ROUNDS) * LINES_S)]


@pytest.fixture
def brokers(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Brokers]:
    found = Brokers(tmp_path, zookeeper, 3)
    found.cluster.start_bookie()
    with ExitStack() as stack:
        stack.callback(found.cluster.kill)
        for broker in found.brokers:
            stack.callback(broker.kill)
            broker.start()
        yield found


def wait_until_listed(brokers: Brokers, count: int) -> None:
    """Waits until every broker that runs lists `count` brokers."""
    for broker in brokers.brokers:
        Cut.wait_for_list(broker, lambda found: len(found) == count)


def test_restart_of_each_broker_loses_nothing_and_doubles_only_what_had_no_receipt(
    tmp_path: Path, brokers: Brokers
) -> None:
    admin = Admin(brokers.brokers[0].addresses.admin)
    for topic in TOPICS:
        admin.create_partitioned(f"python-{topic}", PARTITIONS)
    client = CountingClient([*python_program(), brokers.url, "python-", str(RATE)], tmp_path / "events")
    counts = client.counts
    try:
        client.wait_for("ready")
        for broker in brokers.brokers * ROUNDS:
            client.wait_for("confirmed", counts.said["confirmed"] + RATE)
            assert broker.stop() == 0
            broker.start()
            wait_until_listed(brokers, 3)
        client.wait_for("confirmed", counts.said["confirmed"] + RATE)
        client.stop()
        client.wait_for("stopped")
        client.wait_until_complete()
    finally:
        client.end()
        print(counts.summary())
    for topic, waits_s in counts.waits_s.items():
        print(f"sends to the {topic} topic: {milliseconds(waits_s)}")
    assert counts.said["failed"] == 0
    assert counts.findings() == []
    assert counts.confirmed_before() == []


class Load:
    """Sends a numbered message to one topic after the other until it is left; one client, no batches."""

    def __init__(self, client: pulsar.Client, topics: Sequence[str]) -> None:
        self.sent = dict.fromkeys(topics, 0)
        self.receipts: dict[str, list[tuple[float, int]]] = {topic: [] for topic in topics}
        """By topic: the time of each receipt, and the number of its message."""
        self.failed: list[str] = []
        with ThreadPoolExecutor(AT_ONCE) as pool:
            opened = pool.map(partial(_producer, client), topics)
            self._producers = dict(zip(topics, opened, strict=True))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        due_s = time.monotonic()
        while True:
            for topic, producer in self._producers.items():
                if self._stopping.is_set():
                    return
                number, self.sent[topic] = self.sent[topic], self.sent[topic] + 1
                producer.send_async(b"%d" % number, partial(self._receipt, topic, number))
                due_s += 1 / RATE
                self._stopping.wait(max(0.0, due_s - time.monotonic()))

    def _receipt(self, topic: str, number: int, result: pulsar.Result, _: pulsar.MessageId) -> None:
        if result == pulsar.Result.Ok:
            self.receipts[topic].append((time.monotonic(), number))
        else:
            self.failed.append(f"{topic} {number} {result}")

    def is_complete(self) -> bool:
        """True once each send has its receipt."""
        return all(len(self.receipts[topic]) == count for topic, count in self.sent.items())


def _producer(client: pulsar.Client, topic: str) -> pulsar.Producer:
    return client.create_producer(topic, send_timeout_millis=0, batching_enabled=False)


def owned_by(broker: BrokerProcess, topics: Sequence[str]) -> set[str]:
    """Returns the topics that the broker has."""

    def has(topic: str) -> bool:
        path = topic.replace("://", "/")
        with urllib.request.urlopen(f"{broker.addresses.admin}/lookup/v2/topic/{path}") as answer:
            return bool(json.loads(answer.read())["brokerUrl"] == broker.addresses.pulsar)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return {topic for topic, found in zip(topics, pool.map(has, topics), strict=True) if found}


def read_back(client: pulsar.Client, topic: str, count: int) -> list[int]:
    """Returns the numbers of the topic's messages as they came first, until all are there."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found: dict[int, None] = {}
    while len(found) < count:
        # A message without a receipt at the kill may be there twice.
        found[int(reader.read_next(timeout_millis=60_000).data())] = None
    reader.close()
    return list(found)


def test_topics_of_a_killed_broker_are_served_again_and_lose_nothing(brokers: Brokers) -> None:
    Admin(brokers.brokers[0].addresses.admin).put(
        f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": BUNDLES}}
    )
    topics = [f"persistent://{NAMESPACE}/t{number}" for number in range(COUNT)]
    killed = brokers.brokers[2]
    living = ",".join(one.addresses.pulsar.removeprefix("pulsar://") for one in brokers.brokers[:2])
    client = connect(f"pulsar://{living}" if URL == "living" else brokers.url)
    load = Load(client, topics)
    theirs = owned_by(killed, topics)
    assert theirs
    with load:
        wait_until(lambda: all(load.receipts.values()), "a receipt of each topic", LINES_S)
        killed_s = time.monotonic()
        killed.kill()
        # Receipts of earlier messages may be on their way.
        first = dict(load.sent)

        def served_s(topic: str) -> float | None:
            receipts = load.receipts[topic]
            return next((at_s - killed_s for at_s, number in receipts if number >= first[topic]), None)

        wait_until(
            lambda: all(map(served_s, theirs)), "a receipt of each topic of the killed broker", LINES_S
        )
    waits_s = [wait_s for wait_s in map(served_s, theirs) if wait_s is not None]
    wait_until(load.is_complete, "a receipt of each message", LINES_S)
    sent = sum(load.sent.values())
    print(
        f"{len(theirs)} of {COUNT} topics were the killed broker's and served again after "
        f"{statistics.median(waits_s):.1f} s at the median, {max(waits_s):.1f} s at most; "
        f"{sent} of {sent} confirmed, service URL of {URL} brokers"
    )
    assert load.failed == []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        read = pool.map(lambda topic: read_back(client, topic, load.sent[topic]), topics)
        for topic, numbers in zip(topics, read, strict=True):
            assert numbers == list(range(load.sent[topic])), topic
    client.close()
