"""A broker whose metadata store is newer than its bookie's files: wiped beside them. What is published then is not mixed
with what was there before.
"""

from __future__ import annotations

from pathlib import Path

import pulsar
import pytest

from tests.interop.support import Admin, connect, nothing_comes, numbered, publish, receive
from tests.vectors.broker_process import BrokerProcess

OWN_BOOKIE = {"bookieAddress": "embedded"}
"""Only a bookie in the broker's process can say which ids it has had."""


def send(broker: BrokerProcess, topic: str, bodies: list[bytes]) -> None:
    client = connect(broker.addresses.pulsar)
    try:
        publish(client.create_producer(topic), bodies)
    finally:
        client.close()


def all_of(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    """Returns the messages of the topic. AssertionError when there are more than `count`."""
    client = connect(broker.addresses.pulsar)
    try:
        consumer = client.subscribe(topic, "all", initial_position=pulsar.InitialPosition.Earliest)
        bodies = receive(consumer, count)
        assert nothing_comes(consumer)
        return bodies
    finally:
        client.close()


@pytest.mark.parametrize("before", ["there", "deleted"])
def test_a_wiped_metadata_store_does_not_begin_with_ids_that_the_bookie_has(
    tmp_path: Path, before: str
) -> None:
    with BrokerProcess(tmp_path, OWN_BOOKIE) as broker:
        send(broker, "before", numbered(20))
        if before == "deleted":
            Admin(broker.addresses.admin).delete("persistent/public/default/before")
        assert broker.stop() == 0
        for path in (tmp_path / "data").glob("metadata.sqlite*"):
            path.unlink()
        broker.start()
        send(broker, "after", numbered(10, 100))
        broker.logged(
            "the bookie has had ids up to"
        )  # Before the kill: log lines are written a little later.
        broker.kill()  # So that the end of the ledger is what the bookie says.
        broker.start()
        assert all_of(broker, "after", 10) == numbered(10, 100)
