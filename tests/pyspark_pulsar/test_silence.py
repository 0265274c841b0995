"""A broker that stands still for longer than a reader waits: its entries do not count as absent. No Spark is needed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from protocol import requests
from pyspark_pulsar.client.cluster import PEEK_QUIET_S, ReaderStart, open_cluster
from pyspark_pulsar.options import source_options
from tests.pyspark_pulsar.conftest import Publish
from tests.vectors.broker_process import Addresses

STANDS_STILL_S = 2 * PEEK_QUIET_S
STANDING = pytest.mark.one_broker("stops the process that has the topic")


@pytest.fixture
def stand_still(addresses: Addresses, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets the broker stop before the next FLOW reaches it, and go on after some seconds."""
    pid = addresses.pid
    if pid is None:
        pytest.skip("needs a broker that the test has started")
    flow = requests.flow

    def stopping(consumer_id: int, permits: int) -> bytes:
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(STANDS_STILL_S, os.kill, (pid, signal.SIGCONT)).start()
        return flow(consumer_id, permits)

    return lambda: monkeypatch.setattr(requests, "flow", stopping)


@STANDING
def test_first_entry_of_a_broker_that_stood_still_is_found(
    broker_url: str, topic: str, publish: Publish, stand_still: Callable[[], None]
) -> None:
    publish(topic, [b"0"])
    name = f"persistent://public/default/{topic}"
    with open_cluster(
        source_options({"service.url": broker_url, "topic": name}, streaming=False).cluster
    ) as cluster:
        stand_still()
        found = cluster.first_entry(name, (-1, -1), "test")
    assert found is not None
    assert found.entry == 0


@STANDING
def test_first_chunks_are_found_when_a_broker_stood_still(
    broker_url: str, topic: str, publish: Publish, stand_still: Callable[[], None]
) -> None:
    publish(topic, [b"%d" % number for number in range(5)], batching_enabled=False)
    name = f"persistent://public/default/{topic}"
    with open_cluster(
        source_options({"service.url": broker_url, "topic": name}, streaming=False).cluster
    ) as cluster:
        (last,) = cluster.last_entries([name], "test")
        stand_still()
        found = [
            entry
            for _, entries in cluster.run_before(name, (last.ledger, last.entry), 4, "test")
            for entry in entries.entry_ids.tolist()
        ]
    assert found[:4] == [0, 1, 2, 3]


def test_nothing_is_found_behind_the_last_entry(broker_url: str, topic: str, publish: Publish) -> None:
    publish(topic, [b"0"])
    name = f"persistent://public/default/{topic}"
    with open_cluster(
        source_options({"service.url": broker_url, "topic": name}, streaming=False).cluster
    ) as cluster:
        (last,) = cluster.last_entries([name], "test")
        behind = ReaderStart(name, (last.ledger, last.entry + 1))
        assert cluster.first_entries([behind], "test") == [None]
