"""Topics that others store and remove are announced once each, with one read a second at most."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.managed_ledger.managed_ledger_info import ROOT
from broker.service.topics.stored_changes import StoredChanges
from broker.service.topics.topic_events import TopicEvents
from foundation.model.errors import MetadataError

NAMESPACE = "public/default"


class Store(MemoryMetadataStore):
    def __init__(self) -> None:
        super().__init__()
        self.is_shared = True
        self.reads = 0
        self.refusals = 0

    async def children(self, key: str) -> list[str]:
        self.reads += 1
        if self.refusals:
            self.refusals -= 1
            raise MetadataError("refused by the test")
        return await super().children(key)


class Followed:
    """A namespace's changes, and the timer that waits."""

    def __init__(self) -> None:
        self.store, self.told = Store(), list[tuple[str, bool]]()
        self._tasks: list[asyncio.Task[object]] = []
        self._timers: list[Callable[[], None]] = []
        events = TopicEvents()
        events.watch(NAMESPACE, lambda name, exists: self.told.append((name.local, exists)))
        self.changes = StoredChanges(self.store, events, self._spawn, self._call_later)

    def _spawn(self, work: Coroutine[object, object, None], _: str) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    def _call_later(self, _: float, callback: Callable[[], None]) -> Callable[[], None]:
        self._timers.append(callback)
        return lambda: None

    async def put(self, *names: str) -> None:
        for name in names:
            await self.store.put(f"{ROOT}/{NAMESPACE}/persistent/{name}", b"x")
        await self.settle()

    async def delete(self, name: str) -> None:
        await self.store.delete(f"{ROOT}/{NAMESPACE}/persistent/{name}")
        await self.settle()

    async def settle(self) -> None:
        # A watch calls back in the next turn.
        await asyncio.sleep(0)
        tasks, self._tasks = self._tasks, []
        await asyncio.gather(*tasks)

    async def rest(self) -> None:
        timers, self._timers = self._timers, []
        for timer in timers:
            timer()
        await self.settle()


async def test_changes_during_a_rest_are_announced_by_one_read_after_it() -> None:
    followed = Followed()
    await followed.put("old")
    await followed.changes.follow(NAMESPACE)
    await followed.put("x%2Fy", "%C3%A4")
    assert followed.told == [("ä", True)]
    reads = followed.store.reads
    await followed.put("c", "d")
    await followed.delete("old")
    assert (followed.told[1:], followed.store.reads) == ([], reads)
    await followed.rest()
    assert (followed.told[1:], followed.store.reads) == (
        [("c", True), ("d", True), ("old", False)],
        reads + 1,
    )


async def test_refused_read_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    followed = Followed()
    await followed.changes.follow(NAMESPACE)
    followed.store.refusals = 1
    await followed.put("a")
    assert followed.told == []
    assert "cannot be read: refused by the test" in caplog.text
    await followed.rest()
    assert followed.told == [("a", True)]


async def test_namespace_is_watched_until_its_last_follower_ends() -> None:
    followed = Followed()
    followed.store.refusals = 1
    with pytest.raises(MetadataError):
        await followed.changes.follow(NAMESPACE)
    assert not followed.store._watches
    one, other = await followed.changes.follow(NAMESPACE), await followed.changes.follow(NAMESPACE)
    one()
    await followed.put("a")
    assert followed.told == [("a", True)]
    other()
    assert not followed.store._watches
    await followed.rest()
    await followed.put("b")
    assert followed.told == [("a", True)]


async def test_store_of_one_broker_is_not_watched() -> None:
    followed = Followed()
    followed.store.is_shared = False
    stop = await followed.changes.follow(NAMESPACE)
    assert not followed.store._watches
    stop()


async def test_changes_after_a_defect_of_a_read_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = Followed()
    await followed.changes.follow(NAMESPACE)
    with monkeypatch.context() as patch:

        async def broken(_: str) -> list[str]:
            raise RuntimeError("a defect")

        patch.setattr(followed.store, "children", broken)
        with pytest.raises(RuntimeError, match="a defect"):
            await followed.put("a")
    await followed.rest()
    await followed.put("b")
    assert sorted(followed.told) == [("a", True), ("b", True)]
