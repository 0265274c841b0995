"""A session and its nodes in a real ZooKeeper, and the errors without one."""

from __future__ import annotations

import selectors
import sys
import threading
import uuid
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from foundation.zookeeper.errors import ZookeeperError, require_kazoo
from foundation.zookeeper.session import ZookeeperSession
from foundation.zookeeper.url import ZookeeperUrl
from tests.support.java import ZooKeeper
from tests.support.ports import free_port

SESSION_S = 60.0


class Listener:
    """Notes every change of a session."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self.reconnected = threading.Event()

    def connected(self, *, new_session: bool) -> None:
        self.changes.append("new session" if new_session else "same session")
        self.reconnected.set()

    def disconnected(self) -> None:
        self.changes.append("disconnected")

    def expired(self) -> None:
        self.changes.append("expired")


@pytest.fixture
def session(zookeeper: ZooKeeper) -> Iterator[ZookeeperSession]:
    opened = ZookeeperSession.connect(ZookeeperUrl(zookeeper.address, f"/{uuid.uuid4().hex[:8]}"), SESSION_S)
    opened.nodes.ensure(opened.url.root)
    yield opened
    opened.close()


def test_require_kazoo_names_the_key_and_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    require_kazoo("metadataStoreUrl")
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(ZookeeperError, match=r"^aKey: .*pip install 'WHEEL\[zookeeper\]'$"):
        require_kazoo("aKey")


def test_a_request_makes_no_selector(session: ZookeeperSession, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[selectors.BaseSelector] = []

    class Counted(selectors.SelectSelector):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(selectors, "DefaultSelector", Counted)
    session.nodes.ensure(f"{session.url.root}/a")
    # The wait that was under way when the class was replaced has ended; this request is after it.
    session.nodes.ensure(f"{session.url.root}/b")
    assert not made


def test_connect_fails_with_the_servers_when_none_answers() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ZookeeperError, match=f"no ZooKeeper at {address} within 0.2 s"):
        ZookeeperSession.connect(ZookeeperUrl(address, ""), 0.2)


@pytest.mark.peer
@pytest.mark.slow
def test_missing_node_is_a_value(session: ZookeeperSession) -> None:
    nodes, path = session.nodes, f"{session.url.root}/missing"
    assert nodes.get(path) is None
    assert not nodes.exists(path)
    assert nodes.owner(path) is None
    assert nodes.children(path) == []
    assert list(nodes.get_many([path])) == []
    assert nodes.wait_until_gone(path, 0)
    nodes.delete(path)


@pytest.mark.peer
@pytest.mark.slow
def test_nodes_are_created_once_and_read_together(session: ZookeeperSession) -> None:
    nodes, root = session.nodes, session.url.root
    assert nodes.create(f"{root}/a/b", b"value", parents=True)
    assert not nodes.create(f"{root}/a/b", b"another")
    assert nodes.create(f"{root}/e", b"mine", ephemeral=True)
    assert (nodes.owner(f"{root}/e"), nodes.owner(f"{root}/a/b")) == (session.id, None)
    read = list(nodes.get_many([f"{root}/e", f"{root}/none", f"{root}/a", f"{root}/a/b"]))
    assert [(node.path.removeprefix(root), node.value, node.children) for node in read] == [
        ("/e", b"mine", 0),
        ("/a", b"", 1),
        ("/a/b", b"value", 0),
    ]
    assert not nodes.wait_until_gone(f"{root}/e", 0.05)
    with pytest.raises(ZookeeperError, match="NotEmptyError"):
        nodes.delete(f"{root}/a")


@pytest.mark.peer
@pytest.mark.slow
def test_more_nodes_than_a_request_takes_are_read_in_order(session: ZookeeperSession) -> None:
    nodes, root = session.nodes, session.url.root
    paths = [f"{root}/{number:03}" for number in range(120)]
    for number, path in enumerate(paths):
        if number % 2:
            nodes.create(f"{path}/below", b"", parents=True)
    assert [node.path for node in nodes.get_many(paths)] == paths[1::2]
    assert [names for _, names in nodes.children_many(paths)] == [[], ["below"]] * 60
    closed = ZookeeperSession.connect(session.url, SESSION_S)
    closed.close()
    with pytest.raises(ZookeeperError):
        list(closed.nodes.get_many(paths))


@pytest.mark.peer
@pytest.mark.slow
def test_listener_is_told_of_an_expired_session_and_the_next(session: ZookeeperSession) -> None:
    listener, before = Listener(), session.id
    session.listen(listener)
    # A client that takes a session over and ends it, ends it for its owner too.
    thief = KazooClient(hosts=session.url.hosts, client_id=session.client.client_id)
    thief.start()
    thief.stop()
    thief.close()
    assert listener.reconnected.wait(60)
    assert listener.changes[-2:] == ["expired", "new session"]
    assert session.id != before
