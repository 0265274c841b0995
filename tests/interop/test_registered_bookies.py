"""A broker that finds its bookies in ZooKeeper: one comes, one is killed, and nothing is missing."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.interop.support import Admin, connect, wait_until
from tests.interop.test_three_bookies import Load, received
from tests.support.bookies import ROOT, BookieProcesses
from tests.support.java import ZooKeeper
from tests.support.log_file import wait_for_lines
from tests.support.ports import free_port
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


@pytest.mark.peer
@pytest.mark.slow
def test_console_shows_registered_bookies_and_those_that_are_read_only(
    tmp_path: Path, zookeeper: ZooKeeper
) -> None:
    root = f"{zookeeper.address}/{uuid.uuid4().hex[:8]}"
    settings = {
        "metadataServiceUri": f"zk+hierarchical://{root}/ledgers",
        "advertisedAddress": "127.0.0.1",
        "zkTimeout": "10000",
    }
    (tmp_path / "broker").mkdir()
    processes = BookieProcesses(tmp_path / "bookies", 3)
    ports = [free_port() for _ in processes.bookies]
    for bookie, port in zip(processes.bookies, ports, strict=True):
        bookie.settings = {**settings, "prometheusStatsHttpPort": str(port)}
    full, silent, _ = processes.bookies
    full.settings = {**full.settings, "forceReadOnlyBookie": "true"}
    # Its HTTP server has any free port, which it does not register.
    silent.settings = {**silent.settings, "prometheusStatsHttpPort": "0"}
    broker = BrokerProcess(
        tmp_path / "broker", {"bookieAddress": "registered", "metadataStoreUrl": f"zk:{root}"}
    )
    try:
        for bookie in processes.bookies:
            bookie.spawn()
        for bookie in processes.bookies:
            bookie.wait_ready()
        # Two bookies take new entries, and the usual quorum is two.
        with broker:
            admin = Admin(broker.addresses.admin)

            def shown() -> dict[str, Any]:
                found: Any = admin.get("magnetar/console/bookies")
                return {one["id"]: one for one in found["bookies"]}

            wait_until(lambda: shown()[full.address]["connected"], "a connection to the read-only bookie")
            found = shown()
            states = [found[bookie.address]["state"] for bookie in processes.bookies]
            assert states == ["readonly", "writable", "writable"]
            assert [found[bookie.address]["journal"] is None for bookie in processes.bookies] == [
                False,
                True,
                False,
            ]
            assert found[silent.address]["disks"][0]["freeBytes"] > 0
            assert "prometheusStatsHttpPort" in found[silent.address]["notes"][0]
    finally:
        processes.kill()


@pytest.mark.peer
@pytest.mark.slow
def test_broker_command_uses_registered_bookies_and_says_when_they_are_too_few(
    tmp_path: Path, zookeeper: ZooKeeper
) -> None:
    """`magnetar broker` with nothing but `metadataStoreUrl`, as on the ZooKeeper of a cluster."""
    root = f"{zookeeper.address}/{uuid.uuid4().hex[:8]}"
    settings = {"metadataServiceUri": f"zk+hierarchical://{root}/ledgers", "advertisedAddress": "127.0.0.1"}
    processes = BookieProcesses(tmp_path / "bookies", 2, settings)
    first, second = processes.bookies
    log_path, ready_path = tmp_path / "broker.log", tmp_path / "ready.json"
    given = [f"metadataStoreUrl=zk:{root}", "brokerServicePort=0", "webServicePort=0"]
    command = [sys.executable, "-m", "magnetar", "broker", "--data", str(tmp_path / "data")]
    command += ["--ready-file", str(ready_path), *(word for one in given for word in ("--set", one))]
    try:
        first.spawn()
        first.wait_ready()
        with (
            log_path.open("ab") as log,
            subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log) as broker,
        ):
            try:
                [line] = wait_for_lines(log_path, "the start waits for 2 bookies", first.address)
                assert "registered in the ZooKeeper of metadataStoreUrl: " in line
                second.spawn()
                second.wait_ready()
                wait_until(ready_path.exists, "the broker is ready")
                client = connect(json.loads(ready_path.read_text())["pulsar"])
                client.create_producer("t").send(b"stored by both")
                client.close()
            finally:
                broker.terminate()
                broker.wait(60)
        assert broker.returncode == 0
    finally:
        processes.kill()
