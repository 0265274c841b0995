"""A broker that finds its bookies in ZooKeeper: one comes, one is killed, and nothing is missing."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.interop.support import connect
from tests.interop.test_three_bookies import Load, received
from tests.support.bookies import BookieProcesses
from tests.support.java import ZooKeeper
from tests.vectors.broker_process import BrokerProcess


@pytest.mark.peer
@pytest.mark.slow
def test_bookies_are_found_as_they_come_and_go(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    root = f"{zookeeper.address}/{uuid.uuid4().hex[:8]}"
    settings = {
        "metadataServiceUri": f"zk+hierarchical://{root}/ledgers",
        "advertisedAddress": "127.0.0.1",
        "zkTimeout": "10000",
    }
    (tmp_path / "broker").mkdir()
    processes = BookieProcesses(tmp_path / "bookies", 3, settings)
    first, second, third = processes.bookies
    broker = BrokerProcess(
        tmp_path / "broker", {"bookieAddress": "registered", "metadataStoreUrl": f"zk:{root}"}
    )
    try:
        first.spawn()
        second.spawn()
        first.wait_ready()
        second.wait_ready()
        with broker:
            client = connect(broker.addresses.pulsar)
            client.subscribe("t", "s").close()
            load = Load(client.create_producer("t", batching_enabled=False))
            load.wait_for(20)
            third.spawn()
            third.wait_ready()
            broker.logged("bookies that take adds", third.address)
            broker.logged("+ bookie", third.address)
            first.kill()
            load.wait_for(load.sent + 50)
            broker.logged("goes on at entry", third.address)
            sent = load.stop()
            assert received(client.subscribe("t", "s"), sent) == list(range(sent))
            client.close()
    finally:
        processes.kill()
