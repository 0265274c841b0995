"""SharedLocks: several processes hold a lock one after the other, in the order in which they asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Ephemeral, MetadataStore
from bookkeeper.metadata.shared_locks import SharedLocks
from foundation.model.errors import MetadataError
from tests.fakes.metadata import FakeMetadata

LOCK = "/locks/a"


class Work:
    """Work that ends when the test says so; notes in which order it began."""

    def __init__(self, locks: SharedLocks, name: str, begun: list[str]) -> None:
        self._locks, self.name, self._begun = locks, name, begun
        self.may_end = asyncio.Event()
        self.task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        async with self._locks.hold(LOCK, self.name):
            self._begun.append(self.name)
            await self.may_end.wait()

    async def end(self) -> None:
        self.may_end.set()
        await self.task


async def until(holds: Callable[[], object]) -> None:
    """Waits for what another task does; the test's own limit ends a wait for ever."""
    while not holds():  # noqa: ASYNC110  # Nothing tells of it.
        await asyncio.sleep(0)


async def numbers(store: MetadataStore, count: int) -> list[str]:
    """The numbers below the lock, once there are so many."""
    while len(found := await store.children(LOCK)) != count:  # noqa: ASYNC110  # As above.
        await asyncio.sleep(0)
    return found


@asynccontextmanager
async def holding(locks: SharedLocks, name: str = "one") -> AsyncIterator[Work]:
    work = Work(locks, name, begun := list[str]())
    await until(lambda: begun)
    yield work
    await work.end()


async def test_processes_hold_the_lock_in_the_order_in_which_they_asked(
    store: MetadataStore, other: MetadataStore
) -> None:
    one, two, begun = SharedLocks(store), SharedLocks(other), list[str]()
    works = []
    for count, (locks, name) in enumerate([(one, "one"), (two, "two")], 1):
        works.append(Work(locks, name, begun))
        await numbers(store, count)
    await until(lambda: begun)
    assert begun == ["one"]
    assert await two.holder(LOCK) == "one"
    await works[0].end()
    await until(lambda: len(begun) == 2)
    assert begun == ["one", "two"]
    await works[1].end()
    await numbers(store, 0)
    assert await one.holder(LOCK) == ""
    await one.forget(LOCK)
    assert await store.get(LOCK) is None


async def test_lock_of_a_process_ends_with_its_session() -> None:
    store = MemoryMetadataStore()
    dying = store.another()
    async with holding(SharedLocks(dying)):
        next_one = Work(SharedLocks(store), "next", begun := list[str]())
        await numbers(store, 2)
        assert not begun
        await dying.close()
        await until(lambda: begun)
    await next_one.end()


async def test_caller_that_is_cancelled_while_it_waits_lets_the_next_one_begin() -> None:
    store = MemoryMetadataStore()
    locks, begun = SharedLocks(store), list[str]()
    async with holding(locks):
        cancelled = Work(locks, "cancelled", begun)
        await until(lambda: store._watches.has(f"{LOCK}/0000000001", names=False))
        later = Work(SharedLocks(store.another()), "later", begun)
        await until(lambda: store._watches.has(f"{LOCK}/0000000002", names=False))
        cancelled.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled.task
    await until(lambda: begun)
    assert begun == ["later"]
    await later.end()
    await numbers(store, 0)


async def test_key_whose_write_is_cancelled_is_removed_when_it_was_made() -> None:
    store = FakeMetadata()
    await store.put(LOCK, b"lock")
    store.gate = asyncio.Event()
    work = Work(SharedLocks(store), "one", begun := list[str]())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    work.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work.task
    store.gate.set()
    await until(lambda: store._values[LOCK].version == 1)
    await numbers(store, 0)
    assert not begun


async def test_key_that_another_process_has_made_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryMetadataStore()
    other = store.another()
    await store.put(LOCK, b"lock")

    async def fail(_: object) -> list[int]:
        await other.put_all([Ephemeral(f"{LOCK}/0000000001", b"other")])
        raise MetadataError("no answer")

    monkeypatch.setattr(store, "put_all", fail)
    locks = SharedLocks(store)
    with pytest.raises(MetadataError, match="no answer"):
        async with locks.hold(LOCK, "one"):
            raise AssertionError("it has no lock")
    await until(lambda: not locks._removals)
    assert await locks.holder(LOCK) == "other"


async def test_failed_removal_of_a_key_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryMetadataStore()
    failed: list[str] = []
    delete = store.delete

    async def fail_once(key: str, expected: int | None = None) -> None:
        if not failed:
            failed.append(key)
            raise MetadataError("away")
        await delete(key, expected)

    monkeypatch.setattr("bookkeeper.metadata.shared_locks._RETRY_S", 0)
    monkeypatch.setattr(store, "delete", fail_once)
    async with holding(SharedLocks(store)):
        pass
    await numbers(store, 0)
    assert failed == [f"{LOCK}/0000000001"]


async def test_removal_that_fails_after_the_close_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FakeMetadata()
    locks = SharedLocks(store)
    async with holding(locks):
        locks.close()

        async def fail(*_: object) -> None:
            raise MetadataError("closed")

        monkeypatch.setattr(store, "delete", fail)
    await until(lambda: not locks._removals)
    assert len(await store.children(LOCK)) == 1
