"""Locks when sessions change, with a ZooKeeper in memory; `tests/interop/test_rereplication.py` has the real one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.protocol.states import ZnodeStat

from bookkeeper.metadata.zookeeper_requests import ZookeeperAnswer, ZookeeperRequests
from bookkeeper.repair.zookeeper_locks import ZookeeperLocks


class Nodes:
    """Ephemeral nodes by path, and the session that asks."""

    def __init__(self, session_id: int) -> None:
        self.owners: dict[str, int] = {}
        self.session = SimpleNamespace(id=session_id)
        self.session_after: int | None = None
        """The session in which the next request is carried out; None for the present one."""
        self.url = SimpleNamespace(root="")
        self.client = self

    async def ask(self, request: Callable[[], object]) -> ZookeeperAnswer:
        if self.session_after is not None:
            self.session.id, self.session_after = self.session_after, None
        try:
            return ZookeeperAnswer(request(), None, 1)
        except KazooException as refusal:
            return ZookeeperAnswer(None, refusal, 1)

    def create_async(self, path: str, value: bytes, **_: bool) -> str:
        if path in self.owners:
            raise NodeExistsError
        self.owners[path] = self.session.id
        return path

    def exists_async(self, path: str) -> ZnodeStat | None:
        owner = self.owners.get(path)
        return None if owner is None else ZnodeStat(0, 0, 0, 0, 0, 0, 0, owner, 0, 0, 0)

    def delete_async(self, path: str, version: int) -> None:
        if self.owners.pop(path, None) is None:
            raise NoNodeError


def locks_in(nodes: Nodes) -> ZookeeperLocks:
    return ZookeeperLocks(cast(ZookeeperRequests, nodes), "10.0.0.1:3181")


async def test_lock_is_held_until_its_release() -> None:
    nodes = Nodes(4)
    lock = await locks_in(nodes).take(7)
    assert lock is not None
    assert await lock.is_held()
    await lock.release()
    assert nodes.owners == {}


async def test_lock_of_another_session_is_not_taken() -> None:
    nodes = Nodes(4)
    await locks_in(nodes).take(7)
    nodes.session.id = 5
    assert await locks_in(nodes).take(7) is None
    assert list(nodes.owners.values()) == [4]


async def test_lock_that_waited_for_a_new_session_belongs_to_it() -> None:
    # Kept under the number 0 it would stay until this process ends, and no worker could take the ledger.
    for before in (0, 4):
        nodes = Nodes(before)
        nodes.session_after = 5
        lock = await locks_in(nodes).take(7)
        assert lock is not None
        assert await lock.is_held()
        await lock.release()
        assert nodes.owners == {}


async def test_lock_that_this_session_has_left_is_taken_again() -> None:
    nodes = Nodes(4)
    assert await locks_in(nodes).take(7) is not None
    lock = await locks_in(nodes).take(7)
    assert lock is not None
    await lock.release()
    assert nodes.owners == {}


async def test_lock_is_lost_with_its_session() -> None:
    nodes = Nodes(4)
    lock = await locks_in(nodes).take(7)
    assert lock is not None
    nodes.owners.clear()
    nodes.session.id = 5
    assert not await lock.is_held()
    other = await locks_in(nodes).take(7)
    await lock.release()
    assert other is not None
    assert await other.is_held()
