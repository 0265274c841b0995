"""`make cluster`: its processes start, survive the loss of a broker, and all end with Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from magnetar.commands.local_cluster import LocalCluster, main
from tests.interop.support import Admin, connect, numbered, publish, receive, wait_until
from tests.support.java import ZooKeeper
from tests.support.ports import accepts, free_port


def free_offset() -> int:
    """Returns an offset with which all ports of a cluster are free."""
    while True:
        offset = free_port() - 6650
        ports = [first + offset + number for first in (3181, 6650, 8001, 8080) for number in range(3)]
        if not any(accepts("127.0.0.1", port) for port in ports):
            return offset


class Running:
    """The command as a process of its own; `said` is what it has printed so far."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.offset = free_offset()
        self._output = folder / "output"
        command = [sys.executable, "-m", "magnetar.commands.local_cluster", "--data", str(folder / "data")]
        command += ["--port-offset", str(self.offset), *words]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)

    @property
    def said(self) -> str:
        return self._output.read_text()

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.said or self.process.poll() is not None, text, 300)
        assert text in self.said, self.said

    def pids(self) -> dict[str, int]:
        """The processes of brokers by name, as the command has told them last."""
        found = re.findall(r"(broker-\d)(?: is back,)? +process (\d+)", self.said)
        return {name: int(pid) for name, pid in found}

    def press_enter(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def start(*words: str) -> Running:
        running.append(Running(tmp_path, *words))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.process.send_signal(signal.SIGINT)
            one.process.wait(120)


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def use_and_lose_one(cluster: Running) -> None:
    """Publishes over all brokers, kills one, publishes on, and has it started again."""
    cluster.wait_for("Ctrl-C ends all")
    ports = [6650 + cluster.offset + number for number in range(3)]
    admin = Admin(f"http://127.0.0.1:{8080 + cluster.offset}")
    wait_until(lambda: len(admin.get("brokers/local") or ()) == 3, "three brokers")  # type: ignore[arg-type]
    client = connect("pulsar://" + ",".join(f"127.0.0.1:{port}" for port in ports))
    try:
        topics = [f"t{number}" for number in range(6)]
        consumers = [client.subscribe(topic, "s") for topic in topics]
        producers = [client.create_producer(topic) for topic in topics]
        for producer in producers:
            publish(producer, numbered(10))
        pids = cluster.pids()
        assert sorted(pids) == ["broker-1", "broker-2", "broker-3"]
        os.kill(pids["broker-3"], signal.SIGKILL)
        cluster.wait_for("broker-3 has ended with status -9; press Enter to start it again")
        for producer in producers:
            publish(producer, numbered(10, 10))
        for consumer in consumers:
            found: set[bytes] = set()
            while not found.issuperset(numbered(10, 10)):
                found.update(receive(consumer, 1))
        cluster.press_enter()
        cluster.wait_for("broker-3 is back, process ")
        wait_until(lambda: len(admin.get("brokers/local") or ()) == 3, "three brokers again")  # type: ignore[arg-type]
    finally:
        client.close()
    pids = cluster.pids()
    cluster.process.send_signal(signal.SIGINT)
    assert cluster.process.wait(120) == 0, cluster.said
    assert not any(map(lives, pids.values()))
    assert not any(accepts("127.0.0.1", 3181 + cluster.offset + number) for number in range(3))


@pytest.mark.slow
def test_cluster_serves_clients_and_survives_a_kill_and_ends_with_ctrl_c(
    started: Callable[..., Running],
) -> None:
    use_and_lose_one(started())


@pytest.mark.slow
@pytest.mark.peer
def test_cluster_uses_a_zookeeper_that_runs_already(
    started: Callable[..., Running], zookeeper: ZooKeeper
) -> None:
    use_and_lose_one(started("--zookeeper", f"{zookeeper.address}/local"))


def test_cluster_names_the_port_that_is_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offset = free_offset()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 8081 + offset))
        other.listen()
        assert main(["--data", str(tmp_path), "--port-offset", str(offset)]) == 1
    assert f"port {8081 + offset} of broker-2 is in use; --port-offset" in capsys.readouterr().err


def test_folder_of_a_cluster_on_another_store_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "store").write_text("zk.example.com:2181")
    assert main(["--data", str(tmp_path)]) == 1
    assert "another store (zk.example.com:2181); name another folder" in capsys.readouterr().err


def test_conf_files_share_the_store_and_the_bookies(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, "", 100)
    assert [member.name for member in cluster.members] == [
        "metadata",
        *(f"bookie-{number}" for number in (1, 2, 3)),
        *(f"broker-{number}" for number in (1, 2, 3)),
    ]
    texts = [(tmp_path / f"broker-{number}.conf").read_text() for number in (1, 2, 3)]
    for text in texts:
        assert f"metadataStoreUrl=unix:{tmp_path}/metadata.sock\n" in text
        assert "bookieAddress=127.0.0.1:3281,127.0.0.1:3282,127.0.0.1:3283\n" in text
    registered = LocalCluster(tmp_path, "127.0.0.1:2181/local", 100)
    assert not registered.store
    assert "bookieAddress=registered\n" in (tmp_path / "broker-1.conf").read_text()
    assert (
        "metadataServiceUri=zk+hierarchical://127.0.0.1:2181/local/ledgers\n"
        in (tmp_path / "bookie-3.conf").read_text()
    )
