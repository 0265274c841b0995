"""Watches of a ZooKeeper in the test: each path has one, however often it is watched and left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from kazoo.exceptions import NoAuthError, NoNodeError

from bookkeeper.metadata.zookeeper_requests import Pending, ZookeeperRequests
from bookkeeper.metadata.zookeeper_watches import ZookeeperWatches
from foundation.model.errors import MetadataError
from foundation.zookeeper.session import ZookeeperSession
from foundation.zookeeper.url import ZookeeperUrl

Watcher = Callable[[object], None]


class Answered:
    """A request that has its answer."""

    def __init__(self, value: object = None, exception: BaseException | None = None) -> None:
        self._value, self.exception = value, exception

    def get_nowait(self) -> object:
        return self._value

    def rawlink(self, callback: Callable[[Pending], object]) -> None:
        callback(self)


class World:
    """Nodes, and the watchers that kazoo keeps: sets that a change empties."""

    def __init__(self) -> None:
        self.nodes: dict[str, list[str]] = {}
        self.of_values: dict[str, set[Watcher]] = {}
        self.of_names: dict[str, set[Watcher]] = {}
        self.refusal: BaseException | None = None
        self.before_children: Callable[[], None] = lambda: None
        self.before_exists: Callable[[], None] = lambda: None
        client = SimpleNamespace(
            client_id=(1, b""), get_children_async=self._children, exists_async=self._exists
        )
        self.watches = ZookeeperWatches(ZookeeperRequests(ZookeeperSession(client, ZookeeperUrl("zk", ""))))
        self.told: list[str] = []

    def _children(self, path: str, watch: Watcher) -> Answered:
        self.before_children()
        if self.refusal is not None:
            return Answered(exception=self.refusal)
        if path not in self.nodes:
            return Answered(exception=NoNodeError())
        self.of_names.setdefault(path, set()).add(watch)
        return Answered(self.nodes[path])

    def _exists(self, path: str, watch: Watcher) -> Answered:
        self.before_exists()
        self.of_values.setdefault(path, set()).add(watch)
        return Answered("stat" if path in self.nodes else None)

    def make(self, path: str) -> None:
        """Makes a node, or one below a node that exists."""
        parent, _, name = path.rpartition("/")
        self.nodes.setdefault(path, [])
        if parent in self.nodes:
            self.nodes[parent].append(name)
        for watcher in [*self.of_values.pop(path, ()), *self.of_names.pop(parent, ())]:
            watcher("event")

    @property
    def count(self) -> int:
        """Watches that are set."""
        return sum(len(watchers) for kind in (self.of_values, self.of_names) for watchers in kind.values())

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def changed(self, name: str) -> Callable[[], None]:
        return lambda: self.told.append(name)


@pytest.mark.parametrize("names", [True, False])
async def test_path_has_one_watch_however_often_it_is_watched_and_left(*, names: bool) -> None:
    world = World()
    world.make("/a")
    add = world.watches.add_children if names else world.watches.add
    for _ in range(100):
        (await add("/a", world.changed("left")))()
    await add("/a", world.changed("one"))
    await add("/a", world.changed("other"))
    assert world.count == 1
    for told in range(2):
        world.make(f"/a/{told}" if names else "/a")
        await world.settle()
        assert world.told == ["one", "other"] * (told + 1)
        assert world.count == 1


async def test_watch_without_watchers_is_not_set_again_after_a_change() -> None:
    world = World()
    world.make("/a")
    stop = await world.watches.add_children("/a", world.changed("left"))
    stop()
    world.make("/a/b")
    await world.settle()
    assert (world.told, world.count, world.watches._set) == ([], 0, {})


async def test_watch_that_was_forgotten_while_it_was_set_again_is_not_doubled() -> None:
    world = World()
    world.make("/a")
    stop = await world.watches.add_children("/a", world.changed("left"))
    (watcher,) = world.of_names["/a"]

    def broken() -> None:
        world.before_children = lambda: None
        stop()
        watcher("connection lost")

    world.before_children = broken
    world.make("/a/b")
    await world.settle()
    assert (world.count, world.watches._set) == (1, {})
    await world.watches.add_children("/a", world.changed("stays"))
    for told in range(1, 3):
        world.make(f"/a/{told}")
        await world.settle()
        assert world.told == ["stays"] * told
        assert world.count == 1


async def test_names_below_a_node_that_is_made_while_it_is_watched_for_are_watched() -> None:
    world = World()
    world.before_exists = lambda: world.make("/a")
    await world.watches.add_children("/a", world.changed("names"))
    world.make("/a/b")
    await world.settle()
    assert world.told == ["names"]


async def test_refused_watch_leaves_no_watcher() -> None:
    world = World()
    world.refusal = NoAuthError()
    with pytest.raises(MetadataError):
        await world.watches.add_children("/a", world.changed("refused"))
    world.refusal = None
    world.make("/a")
    await world.watches.add_children("/a", world.changed("watches"))
    world.make("/a/b")
    await world.settle()
    assert world.told == ["watches"]


async def test_names_of_the_root_are_watched() -> None:
    world = World()
    world.nodes["/"] = []
    await world.watches.add_children("/", world.changed("root"))
    for watcher in world.of_names.pop("/"):
        watcher("event")
    await world.settle()
    assert world.told == ["root"]
