"""Turns: pieces of work of several processes, one after the other, in the order in which they asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Ephemeral, MetadataStore
from bookkeeper.metadata.turns import TOGETHER_MAX, Turns
from foundation.model.errors import MetadataError
from tests.fakes.metadata import FakeMetadata

QUEUE = "/turns/a"


class Work:
    """Work that ends when the test says so; notes in which order it began."""

    def __init__(self, turns: Turns, name: str, begun: list[str]) -> None:
        self._turns, self.name, self._begun = turns, name, begun
        self.may_end = asyncio.Event()
        self.task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        async with self._turns.turn(QUEUE, self.name):
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
    """The numbers in the queue, once there are so many."""
    while len(found := await store.children(QUEUE)) != count:  # noqa: ASYNC110  # As above.
        await asyncio.sleep(0)
    return found


@asynccontextmanager
async def holding(turns: Turns, name: str = "one") -> AsyncIterator[Work]:
    work = Work(turns, name, begun := [])
    await until(lambda: begun)
    yield work
    await work.end()


async def test_processes_have_turns_in_the_order_in_which_they_asked(
    store: MetadataStore, other: MetadataStore
) -> None:
    one, two, begun = Turns(store), Turns(other), list[str]()
    works = []
    for count, (turns, name) in enumerate([(one, "one"), (two, "two")], 1):
        works.append(Work(turns, name, begun))
        await numbers(store, count)
    await until(lambda: begun)
    assert begun == ["one"]
    assert await two.holder(QUEUE) == "one"
    await works[0].end()
    await until(lambda: len(begun) == 2)
    assert begun == ["one", "two"]
    await works[1].end()
    await numbers(store, 0)
    assert await one.holder(QUEUE) == ""
    await one.forget(QUEUE)
    assert await store.get(QUEUE) is None


async def test_turn_of_a_process_ends_with_its_session() -> None:
    store = MemoryMetadataStore()
    dying = store.another()
    async with holding(Turns(dying)):
        next_one = Work(Turns(store), "next", begun := [])
        await numbers(store, 2)
        assert not begun
        await dying.close()
        await until(lambda: begun)
    await next_one.end()


async def test_work_of_one_process_shares_a_turn_for_a_while_and_then_others_come() -> None:
    store = MemoryMetadataStore()
    one, begun = Turns(store), list[str]()
    async with holding(one) as first:
        works = [Work(one, f"one-{number}", begun) for number in range(TOGETHER_MAX + 1)]
        works.append(Work(Turns(store.another()), "other", begun))
        await numbers(store, 2)
        for work in works:
            work.may_end.set()
        await first.end()
    await asyncio.gather(*(work.task for work in works))
    shared = [f"one-{number}" for number in range(TOGETHER_MAX - 1)]
    rest = [f"one-{number}" for number in range(TOGETHER_MAX - 1, TOGETHER_MAX + 1)]
    assert begun == [*shared, "other", *rest]


@pytest.mark.parametrize("which", ["in the queue", "for the same process"])
async def test_work_that_is_cancelled_while_it_waits_lets_the_next_one_begin(which: str) -> None:
    store = MemoryMetadataStore()
    one, begun = Turns(store), list[str]()
    waiting = one if which == "for the same process" else Turns(store.another())
    async with holding(one):
        cancelled = Work(waiting, "cancelled", begun)
        await asyncio.sleep(0)
        later = Work(Turns(store.another()), "later", begun)
        await until(
            lambda: store._watches.has(f"{QUEUE}/000000000{2 if waiting is not one else 1}", names=False)
        )
        cancelled.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled.task
    await until(lambda: begun)
    assert begun == ["later"]
    await later.end()
    await numbers(store, 0)


async def test_work_that_is_cancelled_as_its_turn_comes_leaves_no_key() -> None:
    store = MemoryMetadataStore()
    turns = Turns(store)
    async with turns.turn(QUEUE, "first"):
        second = Work(turns, "second", [])
        await asyncio.sleep(0)
    # It has been woken, and has not run yet.
    second.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second.task
    await numbers(store, 0)


async def test_key_whose_write_is_cancelled_is_removed_when_it_was_made() -> None:
    store = FakeMetadata()
    await store.put(QUEUE, b"turns")
    store.gate = asyncio.Event()
    work = Work(Turns(store), "one", begun := [])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    work.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work.task
    store.gate.set()
    await until(lambda: store._values[QUEUE].version == 1)
    await numbers(store, 0)
    assert not begun


async def test_key_that_another_process_has_made_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryMetadataStore()
    other = store.another()
    await store.put(QUEUE, b"turns")

    async def fail(_: object) -> list[int]:
        await other.put_all([Ephemeral(f"{QUEUE}/0000000001", b"other")])
        raise MetadataError("no answer")

    monkeypatch.setattr(store, "put_all", fail)
    turns = Turns(store)
    with pytest.raises(MetadataError, match="no answer"):
        async with turns.turn(QUEUE, "one"):
            raise AssertionError("it has no turn")
    await until(lambda: not turns._removals)
    assert await turns.holder(QUEUE) == "other"


async def test_failed_removal_of_a_key_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryMetadataStore()
    failed: list[str] = []
    delete = store.delete

    async def fail_once(key: str, expected: int | None = None) -> None:
        if not failed:
            failed.append(key)
            raise MetadataError("away")
        await delete(key, expected)

    monkeypatch.setattr("bookkeeper.metadata.turns._RETRY_S", 0)
    monkeypatch.setattr(store, "delete", fail_once)
    async with holding(Turns(store)):
        pass
    await numbers(store, 0)
    assert failed == [f"{QUEUE}/0000000001"]


async def test_removal_that_fails_after_the_close_is_not_repeated() -> None:
    store = FakeMetadata()
    turns = Turns(store)
    async with holding(turns):
        turns.close()

        async def fail(_key: str, _expected: int | None = None) -> None:
            raise MetadataError("closed")

        store.delete = fail  # type: ignore[method-assign]
    await until(lambda: not turns._removals)
    assert len(await store.children(QUEUE)) == 1
