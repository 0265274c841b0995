"""SharedLocks: several processes hold a lock one after the other, in the order in which they asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Ephemeral, MetadataStore, SessionState, Write
from bookkeeper.metadata.shared_locks import SharedLocks
from bookkeeper.metadata.zookeeper_requests import Pending, ZookeeperAnswer
from foundation.model.errors import BadVersion, MetadataError
from tests.bookkeeper.metadata.conftest import open_store
from tests.fakes.metadata import FakeMetadata
from tests.support.java import ZooKeeper
from tests.support.relay import Relay

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
        cancelled = Work(SharedLocks(store.another()), "cancelled", begun)
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
        await other.put_all([Ephemeral(f"{LOCK}/0000000001", b"other 5")])
        raise MetadataError("no answer")

    monkeypatch.setattr(store, "put_all", fail)
    locks = SharedLocks(store)
    with pytest.raises(MetadataError, match="no answer"):
        async with locks.hold(LOCK, "one"):
            raise AssertionError("it has no lock")
    await until(lambda: not locks._removals)
    assert await locks.holder(LOCK) == "other"


class Forgetful(MemoryMetadataStore):
    """A store in which another process takes the next number before the first write of a number is answered.

    The write was carried out. It is asked again and refused, as by `zookeeper_writes`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.other: SharedLocks = SharedLocks(self.another())
        self.next: asyncio.Task[None] | None = None
        self.gate = asyncio.Event()
        """The refusal waits for it."""
        self.begun: list[str] = []

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        versions = await super().put_all(puts)
        if self.next is not None:
            return versions
        self.next = asyncio.create_task(self._hold())
        await numbers(self, 2)
        await self.gate.wait()
        raise BadVersion("asked again")

    async def _hold(self) -> None:
        async with self.other.hold(LOCK, "other"):
            self.begun.append("other")


async def test_number_whose_answer_was_lost_is_used_although_another_process_took_the_next() -> None:
    store = Forgetful()
    store.gate.set()
    async with holding(SharedLocks(store)):
        assert len(await store.children(LOCK)) == 2
        assert not store.begun
    await until(lambda: store.begun)
    await numbers(store, 0)


async def test_number_whose_answer_was_lost_is_removed_after_its_caller_was_cancelled() -> None:
    store = Forgetful()
    work = Work(SharedLocks(store), "one", begun := list[str]())
    await numbers(store, 2)
    work.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work.task
    store.gate.set()
    await until(lambda: store.begun)
    await numbers(store, 0)
    assert not begun


@pytest.mark.peer
@pytest.mark.slow
async def test_number_that_zookeeper_gave_to_a_broken_connection_is_used(
    zookeeper: ZooKeeper, root: str
) -> None:
    relay = Relay(zookeeper.address)
    store, other = await open_store(relay.address, root), await open_store(zookeeper.address, root)
    states = list[SessionState]()
    store.listen(states.append)
    locks, others, begun = SharedLocks(store), SharedLocks(other), list[str]()
    async with holding(locks):
        await numbers(other, 1)
    await numbers(other, 0)
    put_all = store._writes.put_all

    async def put_all_unanswered(puts: Sequence[Write], session_id: int | None = None) -> list[int]:
        relay.mute()
        return await put_all(puts, session_id)

    store._writes.put_all = put_all_unanswered  # type: ignore[method-assign]
    first = Work(locks, "first", begun)
    await numbers(other, 1)
    second = Work(others, "second", begun)
    await numbers(other, 2)
    store._writes.put_all = put_all  # type: ignore[method-assign]
    relay.cut()
    relay.mend()
    await until(lambda: begun)
    assert begun == ["first"]
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED], "the session went on"
    await first.end()
    await second.end()
    await numbers(other, 0)
    await store.close()
    await other.close()
    relay.close()


@pytest.mark.peer
@pytest.mark.slow
async def test_lock_costs_four_reads_and_two_writes(
    zookeeper: ZooKeeper, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/reference/limits.md says."""
    store = await open_store(zookeeper.address, root)
    locks = SharedLocks(store)
    async with holding(locks):
        pass
    await until(lambda: not locks._removals)
    asked = Counter[str]()
    ask = store.requests.ask

    async def counted(request: Callable[[], Pending], *, session_id: int | None = None) -> ZookeeperAnswer:
        answer = await ask(request, session_id=session_id)
        # A transaction returns the path of the number with the description of the lock's node; a deletion True.
        is_transaction = isinstance(answer.value, list) and any(isinstance(one, str) for one in answer.value)
        asked["write" if answer.value is True or is_transaction else "read"] += 1
        return answer

    monkeypatch.setattr(store.requests, "ask", counted)
    async with holding(locks):
        pass
    await until(lambda: not locks._removals)
    assert asked == {"read": 4, "write": 2}
    await store.close()


async def test_callers_of_one_process_cost_a_write_each() -> None:
    store = Counted()
    locks, begun = SharedLocks(store), list[str]()
    works = [Work(locks, str(number), begun) for number in range(50)]
    for work in works:
        work.may_end.set()
    await asyncio.gather(*(work.task for work in works))
    await numbers(store, 0)
    assert begun == [str(number) for number in range(50)]
    assert store.writes == 51, "and one that makes the lock"


class Counted(MemoryMetadataStore):
    """Counts the writes of keys, also those that it refuses."""

    writes = 0

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        self.writes += 1
        await asyncio.sleep(0)  # Other callers go on, as during the way to a store.
        return await super().put_all(puts)

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        self.writes += 1
        await asyncio.sleep(0)
        return await super().put(key, value, expected)


async def test_lock_that_is_in_use_is_not_forgotten(store: MetadataStore) -> None:
    locks, begun = SharedLocks(store), list[str]()
    async with holding(locks):
        await locks.forget(LOCK)
        assert await store.children(LOCK) == ["0000000001"]
        later = Work(SharedLocks(store), "later", begun)
        assert await numbers(store, 2) == ["0000000001", "0000000002"]
    await later.end()
    await numbers(store, 0)
    await locks.forget(LOCK)
    assert await store.get(LOCK) is None


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
