"""A second broker opens a log that the first one still has, or died with, between any two of its writes.

What either of them told a producer is stored must be there for a third, and the store must hold no ledger that the log
does not name and none that says open though nobody writes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from broker.managed_ledger.ledger_info import decode_log, log_key
from broker.managed_ledger.managed_ledger import LogState, ManagedLedger
from broker.metadata.memory_metadata_store import MemoryMetadataStore
from broker.metadata.metadata_store import Put, Versioned
from broker.model.entry import Entry
from broker.model.errors import LedgerFenced
from broker.model.position import EARLIEST, Position
from protocol.ledger_metadata import LedgerState, decode, ledger_key
from tests.broker.managed_ledger.ledger_fakes import (
    NAME,
    OK,
    WRITE_FAILED,
    FakeLedgers,
    Recorder,
    World,
    all_bodies,
    fill,
    recorder,
    turns,
    until,
)


class OneBrokersWay:
    """To a store that brokers share: its writes can be held up, and end with the broker's death."""

    def __init__(self, shared: MemoryMetadataStore, writes: int = 1 << 30) -> None:
        """`writes`: how many of them arrive before it dies."""
        self._shared = shared
        self.left = writes
        self.held: tuple[str, ...] = ()
        """Kinds of writes that wait, until `release`."""
        self._released = asyncio.Event()
        self.dead = asyncio.Event()
        self._never = asyncio.Event()

    def hold(self, *kinds: str) -> None:
        self.held = kinds

    def release(self) -> None:
        self.held = ()
        self._released.set()

    async def _travel(self, kind: str) -> None:
        await asyncio.sleep(0)
        if kind in self.held:
            await self._released.wait()
        if not self.left:
            self.dead.set()
            await self._never.wait()
        self.left -= 1

    async def get(self, key: str) -> Versioned | None:
        return await self._shared.get(key)

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        await self._travel("put")
        return await self._shared.put(key, value, expected)

    async def put_all(self, puts: Sequence[Put]) -> list[int]:
        await self._travel("put together")
        return await self._shared.put_all(puts)

    async def delete(self, key: str, expected: int | None = None) -> None:
        await self._travel("delete")
        await self._shared.delete(key, expected)

    async def children(self, key: str) -> list[str]:
        return await self._shared.children(key)

    async def close(self) -> None:
        """Nothing to give back."""


async def try_to_add(log: ManagedLedger, body: bytes) -> None:
    before = len(recorder(log).added) + len(recorder(log).failed)
    try:
        log.add(body, 1, body)
    except LedgerFenced:
        return
    await until(lambda: len(recorder(log).added) + len(recorder(log).failed) > before)


def bodies_added(log: ManagedLedger) -> list[bytes]:
    return [bytes(entry.body) for entry in recorder(log).added]


async def check_store(shared: MemoryMetadataStore, writing: int | None = None) -> None:
    """Every ledger is named by the log and has an end, but for the one that is being written."""
    found = await shared.get(log_key(NAME))
    named = {} if found is None else {info.ledger_id: info for info in decode_log(found.value).ledgers}
    keys = [key for key in shared._values if key.startswith("/ledgers/") and "idgen" not in key]
    stored = {int(key.rpartition("L")[2]): decode(shared._values[key].value) for key in keys}
    assert set(stored) == set(named)
    stored.pop(writing, None)
    assert {metadata.state for metadata in stored.values()} <= {LedgerState.CLOSED}
    ends = {ledger_id: metadata.last_entry_id + 1 for ledger_id, metadata in stored.items()}
    assert ends == {ledger_id: named[ledger_id].entries for ledger_id in stored}


@pytest.mark.parametrize("second_adds_first", [True, False])
@pytest.mark.parametrize("held", [("put together",), ("put", "put together")], ids=str)
@pytest.mark.parametrize("before", [0, 2])
async def test_a_ledger_that_begins_late_is_refused_or_found(
    before: int, held: tuple[str, ...], second_adds_first: bool
) -> None:
    """The write that begins it is under way while another broker opens the log."""
    shared = MemoryMetadataStore()
    way, bookie = OneBrokersWay(shared), FakeLedgers()
    first = await World(way, bookie).open(entries_per_ledger_max=3)
    await fill(first, before)
    way.hold(*held)
    for number in range(3):  # one more fills the ledger that there is
        first.add(b"first %d" % number, 1, number)
    await turns()
    second = await World(shared, bookie).open(entries_per_ledger_max=3)
    if second_adds_first:
        await try_to_add(second, b"second")
    way.release()
    await until(lambda: len(recorder(first).added) + len(recorder(first).failed) == before + 3)
    await try_to_add(first, b"first, later")
    await try_to_add(second, b"second, later")
    assert LogState.FENCED in (first.state, second.state)
    kept = await all_bodies(await World(shared, bookie).open())
    assert set(bodies_added(first)) | set(bodies_added(second)) <= set(kept)
    assert bodies_added(second if second_adds_first or before else first)
    assert len(kept) == len(set(kept)) >= before + 1
    await check_store(shared)


async def test_of_two_that_begin_a_ledger_one_leaves_nothing_behind() -> None:
    shared, bookie = MemoryMetadataStore(), FakeLedgers()
    first = await World(shared, bookie).open()
    second = await World(shared, bookie).open()
    await fill(second, 1)
    await try_to_add(first, b"too late")
    assert (first.state, bodies_added(first)) == (LogState.FENCED, [])
    await check_store(shared, writing=second.current_ledger_id)


async def test_a_topics_first_message_costs_one_write_beyond_its_opening() -> None:
    shared = MemoryMetadataStore()
    log = await World(OneBrokersWay(shared, writes=2 + 1)).open()  # a block of ids, the list; both at once
    await fill(log, 1)


async def test_a_ledger_is_not_removed_before_the_list_says_so() -> None:
    """A second one is given up while the removal of the first is being written down; then the broker dies."""
    shared = MemoryMetadataStore()
    way = OneBrokersWay(shared)
    log = await World(way).open(entries_per_ledger_max=1)
    await fill(log, 3)
    await turns()
    log.keep_bytes = log.keep_ms = 0
    way.hold("put")
    first, second = (info.ledger_id for info in log.ledger_infos()[:2])
    log._remove([log.ledgers.remove(first).ledger_id])
    await turns()
    log._remove([log.ledgers.remove(second).ledger_id])
    way.left = 3
    way.release()
    await asyncio.wait_for(way.dead.wait(), 10)
    found = await shared.get(log_key(NAME))
    assert found is not None
    for info in decode_log(found.value).ledgers:
        assert await shared.get(ledger_key(info.ledger_id)) is not None


async def live(world: World, needed: list[bytes]) -> None:
    """Rolls, a failed add, an empty ledger, a trim, a close; `needed` follows what must be there."""
    log = await world.open(keep=False, entries_per_ledger_max=2)
    log.listener = listener = Needed(needed)
    cursor = await log.open_cursor("s", EARLIEST)
    await fill(log, 5)
    for refused in (1, 2):  # a ledger with entries ends, then one without
        world.ledgers.refuse = lambda ledger, entry_id: WRITE_FAILED
        log.add(b"refused", 1, None)
        await until(lambda refused=refused: len(listener.failed) == refused)
        world.ledgers.refuse = lambda ledger, entry_id: OK
        await until(lambda: log.state is LogState.OPEN)
    await fill(log, 3)
    del needed[:2]
    cursor.acknowledge_cumulative(Position(log.ledger_infos()[0].ledger_id, 1))
    await fill(log, 2)
    await log.close()


class Needed(Recorder):
    def __init__(self, needed: list[bytes]) -> None:
        super().__init__()
        self._needed = needed

    def entries_added(self, entries: list[Entry], contexts: list[object], now_ns: int) -> None:
        super().entries_added(entries, contexts, now_ns)
        self._needed += [bytes(entry.body) for entry in entries]


async def writes_of_a_life() -> int:
    shared, plenty = MemoryMetadataStore(), 1 << 20
    way = OneBrokersWay(shared, plenty)
    await live(World(way), [])
    return plenty - way.left


async def test_a_crash_between_any_two_writes_loses_nothing_and_leaves_nothing() -> None:
    count = await writes_of_a_life()
    assert count > 15
    for writes in range(count):
        shared, bookie = MemoryMetadataStore(), FakeLedgers()
        way = OneBrokersWay(shared, writes)
        world = World(way, bookie)
        added: list[bytes] = []
        life = asyncio.create_task(live(world, added))
        await asyncio.wait_for(way.dead.wait(), 10)
        await turns(30)
        bookie.refuse = lambda ledger, entry_id: OK
        again = await World(shared, bookie).open(entries_per_ledger_max=2)
        kept = await all_bodies(again)
        assert set(added) <= set(kept), f"after {writes} writes"
        life.cancel()
        await check_store(shared)
        await fill(again, 1)
