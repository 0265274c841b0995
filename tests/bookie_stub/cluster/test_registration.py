"""The bookie's registration: cookies, and its available node in a real ZooKeeper."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from bookie_stub.base.errors import ForeignDirectory, RegistrationError
from bookie_stub.cluster.registration import LAYOUT, Registration
from bookie_stub.compose.bookie import Bookie
from foundation.zookeeper.url import ZookeeperUrl
from protocol.bookie_frame import AddResponse, ReadResponse, encode_add_request, encode_read_request
from protocol.bookie_service_info import service_info
from protocol.ledger_path import ledger_path
from tests.bookie_stub.bookie_process import ROOT, Process, answer
from tests.bookie_stub.conftest import MASTER_KEY, entry_of
from tests.support.bookie_settings import for_directory
from tests.support.java import ZooKeeper
from tests.support.ports import free_port

INSTANCE: Final = "6f2f4a52-6d3c-4a3e-9f6c-0d0a4f1f7d11"
SESSION_S: Final = 60.0
"""How long a process waits for ZooKeeper when it starts; ZooKeeper shortens the session itself to 10 s here."""
HELD_S: Final = 10.0
"""The same for one that waits twice as long for a node that another process holds."""


# Cookies.


class Cluster:
    def __init__(self, instance_id: str = INSTANCE) -> None:
        self.instance_id = instance_id
        self.cookie: str | None = None

    def keep_cookie(self, cookie: str) -> None:
        assert self.cookie is None
        self.cookie = cookie


def open_and_close(directory: Path, cluster: Cluster | None, bookie_id: str = "a:3181") -> None:
    settings = for_directory(directory, bookie_id=bookie_id)
    Bookie.open(settings, lambda _: None, cluster=cluster).close()


def test_cluster_and_directories_get_the_same_cookie(tmp_path: Path) -> None:
    cluster = Cluster()
    open_and_close(tmp_path, cluster)
    assert cluster.cookie == (tmp_path / "ledgers/current/VERSION").read_text()
    assert f'instanceId: "{INSTANCE}"' in cluster.cookie
    open_and_close(tmp_path, cluster)


def test_interrupted_first_start_is_completed(tmp_path: Path) -> None:
    cluster = Cluster()
    open_and_close(tmp_path, cluster)
    kept, cluster.cookie = cluster.cookie, None
    open_and_close(tmp_path, cluster)
    assert cluster.cookie == kept


def test_start_is_refused_when_a_known_bookie_has_no_data(tmp_path: Path) -> None:
    cluster = Cluster()
    open_and_close(tmp_path / "old", cluster)
    with pytest.raises(ForeignDirectory, match="data missing"):
        open_and_close(tmp_path / "new", cluster)
    assert not (tmp_path / "new").exists()


def test_start_is_refused_with_the_data_of_another_cluster(tmp_path: Path) -> None:
    open_and_close(tmp_path, None)
    with pytest.raises(ForeignDirectory, match=f"instanceId is {INSTANCE}"):
        open_and_close(tmp_path, Cluster())


def test_start_is_refused_with_the_data_of_another_bookie(tmp_path: Path) -> None:
    one, other = Cluster(), Cluster()
    open_and_close(tmp_path / "one", one, "a:3181")
    open_and_close(tmp_path / "other", other, "b:3181")
    with pytest.raises(ForeignDirectory, match="not the cookie that the cluster has"):
        open_and_close(tmp_path / "one", other, "b:3181")


# A real ZooKeeper.


@pytest.fixture
def uri(zookeeper: ZooKeeper, request: pytest.FixtureRequest) -> ZookeeperUrl:
    """A cluster of its own for each test."""
    return ZookeeperUrl(zookeeper.address, f"/{request.node.name}".replace("[", "-").replace("]", ""))


@pytest.fixture
def observer(zookeeper: ZooKeeper) -> Iterator[Any]:
    """A client of kazoo, which has no types."""
    client: Any = connect(zookeeper.address)
    yield client
    client.stop()
    client.close()


def connect(address: str) -> object:
    from kazoo.client import KazooClient

    client = KazooClient(hosts=address)
    client.start()
    return client


def wait_until(condition: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(6000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("not within 60 s")


class Registered(Process):
    def __init__(self, directory: Path, uri: ZookeeperUrl) -> None:
        super().__init__(directory)
        self._settings = (
            f"bookiePort={free_port()}",
            "bookieId=the-bookie",
            "advertisedAddress=127.0.0.1",
            f"metadataServiceUri=zk+hierarchical://{uri.hosts}{uri.root}",
            f"zkTimeout={int(SESSION_S * 1000)}",
        )

    def begin(self, *settings: str) -> None:
        self.start(*self._settings, *settings)


@pytest.fixture
def process(tmp_path: Path, uri: ZookeeperUrl) -> Iterator[Registered]:
    process = Registered(tmp_path / "data", uri)
    yield process
    if process.process is not None and process.process.poll() is None:
        process.process.kill()
        process.process.communicate()


@pytest.mark.peer
@pytest.mark.slow
def test_available_node_exists_while_the_bookie_listens(
    observer: Any, process: Registered, uri: ZookeeperUrl
) -> None:
    process.begin()
    port = int(process.addresses["bookie"].split(":")[1])
    assert observer.get(f"{uri.root}/LAYOUT")[0] == LAYOUT
    value, stat = observer.get(f"{uri.root}/available/the-bookie")
    assert (value, stat.owner_session_id != 0) == (service_info("127.0.0.1", port), True)
    cookie = observer.get(f"{uri.root}/cookies/the-bookie")[0].decode()
    assert cookie == (process.directory / "bookie/ledgers/current/VERSION").read_text()
    assert f'instanceId: "{observer.get(f"{uri.root}/INSTANCEID")[0].decode()}"' in cookie
    assert process.end(signal.SIGTERM)[0] == 0
    assert observer.exists(f"{uri.root}/available/the-bookie") is None
    # Again, now read-only.
    process.begin("forceReadOnlyBookie=true")
    assert observer.exists(f"{uri.root}/available/readonly/the-bookie") is not None
    assert observer.exists(f"{uri.root}/available/the-bookie") is None


@pytest.mark.peer
@pytest.mark.slow
def test_start_after_a_kill_waits_for_the_old_session(
    observer: Any, process: Registered, uri: ZookeeperUrl
) -> None:
    process.begin()
    node = f"{uri.root}/available/the-bookie"
    first = observer.exists(node).owner_session_id
    process.end(signal.SIGKILL)
    process.begin()
    assert observer.exists(node).owner_session_id != first


@pytest.mark.peer
@pytest.mark.slow
def test_available_node_is_made_again_in_a_new_session(observer: Any, uri: ZookeeperUrl) -> None:
    from kazoo.client import KazooClient

    registration = Registration.connect(uri, "the-bookie", SESSION_S)
    registration.announce("127.0.0.1", 3181, read_only=False)
    node = f"{uri.root}/available/the-bookie"
    first = observer.exists(node).owner_session_id
    # A client that takes a session over and ends it, ends it for its owner too.
    thief = KazooClient(hosts=uri.hosts, client_id=registration.session.client.client_id)
    thief.start()
    thief.stop()
    wait_until(lambda: (stat := observer.exists(node)) is not None and stat.owner_session_id != first)
    assert observer.get(node)[0] == service_info("127.0.0.1", 3181)
    registration.close()
    wait_until(lambda: observer.exists(node) is None)


@pytest.mark.peer
@pytest.mark.slow
def test_announce_fails_while_another_process_has_the_id(uri: ZookeeperUrl) -> None:
    first = Registration.connect(uri, "the-bookie", SESSION_S)
    first.announce("127.0.0.1", 3181, read_only=False)
    second = Registration.connect(uri, "the-bookie", HELD_S)
    assert second.instance_id == first.instance_id
    with pytest.raises(RegistrationError, match="held by another process"):
        second.announce("127.0.0.1", 3182, read_only=False)
    first.close()
    second.announce("127.0.0.1", 3182, read_only=False)
    second.close()


@pytest.mark.peer
@pytest.mark.slow
def test_read_only_bookie_moves_its_node(observer: Any, uri: ZookeeperUrl) -> None:
    registration = Registration.connect(uri, "the-bookie", SESSION_S)
    for read_only in (False, True, True, False):
        registration.announce("127.0.0.1", 3181, read_only=read_only)
        assert observer.get_children(f"{uri.root}/available/readonly") == ["the-bookie"] * read_only
        assert (observer.exists(f"{uri.root}/available/the-bookie") is None) == read_only
    registration.close()


@pytest.mark.peer
@pytest.mark.slow
async def test_bookie_serves_adds_while_zookeeper_is_away(mortal: ZooKeeper, tmp_path: Path) -> None:
    process = Registered(tmp_path / "bookie", ZookeeperUrl(mortal.address, "/ledgers"))
    process.begin()
    try:
        mortal.stop()
        reader, writer = await process.connect()
        writer.write(encode_add_request(entry_of(1, 0), MASTER_KEY))
        assert await asyncio.wait_for(answer(reader), 60) == AddResponse(0, 1, 0)
        writer.close()
    finally:
        code, _ = process.end(signal.SIGTERM)
    assert code == 0


@pytest.mark.peer
@pytest.mark.slow
def test_available_node_exists_after_zookeeper_restarts(mortal: ZooKeeper) -> None:
    registration = Registration.connect(ZookeeperUrl(mortal.address, "/ledgers"), "the-bookie", SESSION_S)
    try:
        registration.announce("127.0.0.1", 3182, read_only=False)
        mortal.stop()
        wait_until(lambda: not registration.session.nodes.connected)
        mortal.start()
        wait_until(lambda: registration.session.nodes.connected and registration.has_node())
    finally:
        registration.close()


# ZooKeeper or kazoo is missing.


def test_start_fails_with_the_reason_without_zookeeper(tmp_path: Path) -> None:
    uri = f"zk://127.0.0.1:{free_port()}/ledgers"
    words = ["--data", str(tmp_path / "data")]
    for setting in ("bookiePort=3181", f"metadataServiceUri={uri}", "zkTimeout=200"):
        words += ["--set", setting]
    ended = subprocess.run(
        [sys.executable, "-m", "bookie_stub", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "no ZooKeeper at 127.0.0.1" in ended.stderr
    assert not (tmp_path / "data").exists()


def test_connect_names_the_package_to_install_without_kazoo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(RegistrationError, match=r"WHEEL\[zookeeper\]"):
        Registration.connect(ZookeeperUrl("127.0.0.1:1", "/ledgers"), "a:3181", 1.0)


@pytest.mark.peer
@pytest.mark.slow
async def test_ledger_is_collected_after_its_metadata_is_deleted(
    observer: Any, process: Registered, uri: ZookeeperUrl
) -> None:
    process.begin("gcWaitTime=100", "flushInterval=50")
    for ledger in (7, 8):
        observer.create(f"{uri.root}/{ledger_path(ledger)}", b"metadata", makepath=True)
    reader, writer = await process.connect()
    for ledger in (7, 8):
        writer.write(encode_add_request(entry_of(ledger, 0), MASTER_KEY))
        assert await answer(reader) == AddResponse(0, ledger, 0)
    observer.delete(f"{uri.root}/{ledger_path(7)}")

    async def read(ledger: int) -> int:
        writer.write(encode_read_request(ledger, 0))
        found = await answer(reader)
        assert isinstance(found, ReadResponse)
        return found.rc

    async with asyncio.timeout(60):
        while await read(7) != 1:  # noqa: ASYNC110 - another process does it in its own time
            await asyncio.sleep(0.02)
    assert await read(8) == 0
    writer.close()


@pytest.mark.peer
@pytest.mark.slow
def test_full_disk_moves_the_node_to_read_only_and_back(
    observer: Any, process: Registered, uri: ZookeeperUrl
) -> None:
    """The disk is full because the threshold is set below its present use."""
    process.begin("diskUsageThreshold=0.001", "diskUsageWarnThreshold=0.001", "diskCheckInterval=20")
    assert observer.exists(f"{uri.root}/available/readonly/the-bookie") is not None
    assert observer.exists(f"{uri.root}/available/the-bookie") is None
    assert process.end(signal.SIGTERM)[0] == 0
    process.begin("diskUsageThreshold=1", "diskUsageWarnThreshold=1")
    assert observer.exists(f"{uri.root}/available/the-bookie") is not None
