"""A second broker opens a managed ledger that the first still has, or died with, between any two writes.

Entries that either of them confirmed to a producer must be there for a third broker. The store must hold no ledger
that the list does not name, and no open ledger without a writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from bookkeeper.ensembles.ledger_handle import Added
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import ABSENT, Check, Versioned, Write
from broker.managed_ledger.cursor_info_writer import CursorInfoWriter
from broker.managed_ledger.ledger_writer import ManagedLedgerState
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.managed_ledger_info import cursor_key, managed_ledger_key, read_nodes
from broker.managed_ledger.records.pulsar_records import decode_ledger_list
from broker.managed_ledger.settings import ManagedLedgerSettings
from foundation.model.entry import Entry
from foundation.model.errors import BadVersion, LedgerFenced, MetadataError, OwnerUncertain
from foundation.model.position import EARLIEST, Position
from protocol.broker_entry_metadata import EntryStamp
from protocol.ledger_metadata import LedgerState, decode, ledger_key
from tests.broker.managed_ledger.ledger_fakes import (
    EVERY_CHANGE,
    NAME,
    OK,
    WRITE_FAILED,
    FakeLedgers,
    Recorder,
    World,
    all_bodies,
    at,
    fill,
    recorder,
    shape,
    turns,
    until,
)
from tests.fakes.metadata import Unwatched


class OneBrokersWay(Unwatched):
    """To a store that brokers share: its writes can be held up, and end with the broker's death."""

    def __init__(self, shared: MemoryMetadataStore, writes: int = 1 << 30) -> None:
        """`writes`: how many of them arrive before it dies."""
        self._shared = shared
        self.value_bytes_max = shared.value_bytes_max
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

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        await self._travel("put together")
        return await self._shared.put_all(puts)

    async def delete(self, key: str, expected: int | None = None) -> None:
        await self._travel("delete")
        await self._shared.delete(key, expected)

    async def children(self, key: str) -> list[str]:
        return await self._shared.children(key)

    async def close(self) -> None:
        """Nothing to give back."""


async def try_to_add(ledger: ManagedLedger, body: bytes) -> None:
    before = len(recorder(ledger).added) + len(recorder(ledger).failed)
    try:
        ledger.writer.add([body], 1, body)
    except LedgerFenced:
        return
    await until(lambda: len(recorder(ledger).added) + len(recorder(ledger).failed) > before)


def bodies_added(ledger: ManagedLedger) -> list[bytes]:
    return [bytes(entry.body) for entry in recorder(ledger).added]


async def check_store(shared: MemoryMetadataStore, writing: int | None = None) -> None:
    """Every stored ledger is in the list and has an end, except the current one."""
    found = await shared.get(managed_ledger_key(NAME))
    named = (
        {} if found is None else {info.ledger_id: info for info in decode_ledger_list(found.value).ledgers}
    )
    keys = [key for key in shared._values if key.startswith("/ledgers/") and "idgen" not in key]
    stored = {int(key.rpartition("L")[2]): decode(shared._values[key].value) for key in keys}
    assert set(stored) == set(named)
    if writing is not None:
        stored.pop(writing, None)
    assert {metadata.state for metadata in stored.values()} <= {LedgerState.CLOSED}
    ends = {ledger_id: metadata.last_entry_id + 1 for ledger_id, metadata in stored.items()}
    assert ends == {ledger_id: named[ledger_id].entries for ledger_id in stored}


@pytest.mark.parametrize("second_adds_first", [True, False])
@pytest.mark.parametrize("held", [("put together",), ("put", "put together")], ids=str)
@pytest.mark.parametrize("before", [0, 2])
async def test_late_write_that_begins_a_ledger_is_refused_or_found(
    before: int, held: tuple[str, ...], second_adds_first: bool
) -> None:
    """The write that begins it is under way while another broker opens the managed ledger."""
    shared = MemoryMetadataStore()
    way, bookie = OneBrokersWay(shared), FakeLedgers()
    first = await World(way, bookie).open(entries_per_ledger_max=3)
    await fill(first, before)
    way.hold(*held)
    for number in range(3):  # one more fills the ledger that there is
        first.writer.add([b"first %d" % number], 1, number)
    await turns()
    second = await World(shared, bookie).open(entries_per_ledger_max=3)
    if second_adds_first:
        await try_to_add(second, b"second")
    way.release()
    await until(lambda: len(recorder(first).added) + len(recorder(first).failed) == before + 3)
    await try_to_add(first, b"first, later")
    await try_to_add(second, b"second, later")
    assert ManagedLedgerState.FENCED in (first.state, second.state)
    kept = await all_bodies(await World(shared, bookie).open())
    assert set(bodies_added(first)) | set(bodies_added(second)) <= set(kept)
    assert bodies_added(second if second_adds_first or before else first)
    assert len(kept) == len(set(kept)) >= before + 1
    await check_store(shared)


async def test_loser_of_two_brokers_that_begin_a_ledger_leaves_nothing() -> None:
    shared, bookie = MemoryMetadataStore(), FakeLedgers()
    first = await World(shared, bookie).open()
    second = await World(shared, bookie).open()
    await fill(second, 1)
    await try_to_add(first, b"too late")
    assert (first.state, bodies_added(first)) == (ManagedLedgerState.FENCED, [])
    await check_store(shared, writing=second.ledgers.current.ledger_id)


async def test_first_message_of_a_topic_costs_one_metadata_write() -> None:
    shared = MemoryMetadataStore()
    ledger = await World(OneBrokersWay(shared, writes=2 + 1)).open()  # a block of ids, the list; both at once
    await fill(ledger, 1)


async def test_ledger_is_deleted_only_after_the_stored_list_marks_it() -> None:
    """A second one is given up while the removal of the first is being written down; then the broker dies."""
    shared = MemoryMetadataStore()
    way = OneBrokersWay(shared)
    ledger = await World(way).open(entries_per_ledger_max=1)
    await fill(ledger, 3)
    await turns()
    ledger.trimming.keep_bytes = ledger.trimming.keep_ms = 0
    way.hold("put")
    first, second = (info.ledger_id for info in ledger.ledgers.infos()[:2])
    ledger.trimming._remove_from_store([ledger.ledgers.remove(first).ledger_id])
    await turns()
    ledger.trimming._remove_from_store([ledger.ledgers.remove(second).ledger_id])
    way.left = 3
    way.release()
    await asyncio.wait_for(way.dead.wait(), 60)
    found = await shared.get(managed_ledger_key(NAME))
    assert found is not None
    for info in decode_ledger_list(found.value).ledgers:
        assert await shared.get(ledger_key(info.ledger_id)) is not None


def has_failed(listener: Needed, count: int) -> bool:
    return len(listener.failed) == count


async def live(world: World, needed: list[bytes]) -> None:
    """Rolls, a failed add, an empty ledger, a trim, a close; `needed` follows what must be there."""
    ledger = await world.open(keep=False, entries_per_ledger_max=2)
    ledger.context.listener = listener = Needed(needed)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 5)
    for refused in (1, 2):  # a ledger with entries ends, then one without
        world.ledgers.refuse = lambda ledger, entry_id: WRITE_FAILED
        ledger.writer.add([b"refused"], 1, None)
        await until(partial(has_failed, listener, refused))
        world.ledgers.refuse = lambda ledger, entry_id: OK
        await until(lambda: ledger.state is ManagedLedgerState.OPEN)
    await fill(ledger, 3)
    del needed[:2]
    cursor.acknowledge_cumulative(Position(ledger.ledgers.infos()[0].ledger_id, 1))
    await fill(ledger, 2)
    await ledger.close()


class Needed(Recorder):
    def __init__(self, needed: list[bytes]) -> None:
        super().__init__()
        self._needed = needed

    def entries_added(self, entries: list[Entry], added: list[Added], now_ns: int) -> None:
        super().entries_added(entries, added, now_ns)
        self._needed += [bytes(entry.body) for entry in entries]


async def writes_of_a_life() -> int:
    shared, plenty = MemoryMetadataStore(), 1 << 20
    way = OneBrokersWay(shared, plenty)
    await live(World(way), [])
    return plenty - way.left


async def test_crash_between_any_two_writes_loses_no_entry_and_leaves_no_ledger() -> None:
    count = await writes_of_a_life()
    assert count > 15
    for writes in range(count):
        shared, bookie = MemoryMetadataStore(), FakeLedgers()
        way = OneBrokersWay(shared, writes)
        world = World(way, bookie)
        added: list[bytes] = []
        life = asyncio.create_task(live(world, added))
        await asyncio.wait_for(way.dead.wait(), 60)
        await turns(30)
        bookie.refuse = lambda ledger, entry_id: OK
        again = await World(shared, bookie).open(entries_per_ledger_max=2)
        kept = await all_bodies(again)
        assert set(added) <= set(kept), f"after {writes} writes"
        life.cancel()
        await check_store(shared)
        await fill(again, 1)


LEASE = Check("/lease", 0)


class Leased:
    """A broker with the lease of a managed ledger, until it is `lost`."""

    def __init__(self) -> None:
        self.is_lost = False

    def __call__(self) -> Check:
        if self.is_lost:
            raise MetadataError("no lease")
        return LEASE


async def leased() -> tuple[World, Leased]:
    world = World(shared_store=True)
    await world.metadata.put(LEASE.key, b"1", ABSENT)
    return world, Leased()


async def test_broker_that_has_lost_its_lease_makes_no_cursor() -> None:
    world, lease = await leased()
    await (await world.open(lease=lease)).close()
    # A closed log opens without a write, so nothing has refused this broker yet.
    ledger = await world.after_crash(shared_store=True).open(lease=lease)
    await world.metadata.delete(LEASE.key)
    with pytest.raises(MetadataError):
        await ledger.cursors.open("s", EARLIEST)
    lease.is_lost = True
    with pytest.raises(MetadataError):
        await ledger.cursors.open("s", EARLIEST)
    assert await world.metadata.get(cursor_key(NAME, "s")) is None


async def test_cursor_of_the_next_owner_is_stored_after_a_late_close_of_the_former_one() -> None:
    world, lease = await leased()
    former = await world.open(lease=lease, mark_delete_rate=EVERY_CHANGE)
    await fill(former, 3)
    cursor = await former.cursors.open("s", EARLIEST)
    cursor.acknowledge([at(former, 0)])
    await cursor.store.flush()
    next_world = world.after_crash(shared_store=True)
    ledger = await next_world.open(lease=Leased(), mark_delete_rate=EVERY_CHANGE)
    lease.is_lost = True
    await former.cursors.close()
    cursor = ledger.cursors.by_name["s"]
    cursor.acknowledge([at(ledger, 1)])
    await cursor.store.flush()
    ledger = await next_world.after_crash(shared_store=True).open(lease=Leased())
    assert ledger.cursors.by_name["s"].mark_delete_position == at(ledger, 1)


async def test_cursor_is_stored_once_a_lease_that_was_removed_is_made_again() -> None:
    world, lease = await leased()
    ledger = await world.open(lease=lease, mark_delete_rate=EVERY_CHANGE)
    await fill(ledger, 3)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await world.metadata.delete(LEASE.key)
    cursor.acknowledge([at(ledger, 0)])
    with pytest.raises(OwnerUncertain, match="lease"):
        await cursor.store.flush()
    await world.metadata.put(LEASE.key, b"1", ABSENT)
    await cursor.store.flush()
    ledger = await world.after_crash(shared_store=True).open()
    assert ledger.cursors.by_name["s"].mark_delete_position == at(ledger, 0)


async def opened_meanwhile(late: World) -> tuple[ManagedLedger, Position]:
    """Has another broker make a cursor while `late` opens the log and has its id already; returns the log, and its place."""
    world = late.after_crash(shared_store=True)
    await (await world.open()).close()
    taken = late.environment.ids.next

    async def next_id(above: int = -1) -> int:
        ledger_id = await taken(above)
        late.environment.ids.next = taken  # type: ignore[method-assign]  # the first id alone comes late
        other = await world.after_crash(shared_store=True).open()
        await other.cursors.open("s", EARLIEST)
        return ledger_id

    late.environment.ids.next = next_id  # type: ignore[method-assign]
    ledger = await late.open(keep=False)
    return ledger, ledger.cursors.by_name["s"].mark_delete_position


async def test_entries_after_a_late_opening_are_not_acknowledged_by_the_place_of_a_cursor() -> None:
    late = World(shared_store=True)
    ledger, place = await opened_meanwhile(late)
    assert ledger.ledgers.current.ledger_id > place.ledger_id
    await fill(ledger, 3)
    again = await late.after_crash(shared_store=True).open(keep=False)
    assert again.cursors.by_name["s"].backlog == 3
    await fill(again, 1)
    again.trimming.trim(late.wall)
    assert shape(again) == [3, 1]


async def test_cursor_at_a_ledger_that_another_broker_has_reserved_is_not_taken_for_a_lost_answer() -> None:
    world = World(shared_store=True)
    await (await world.open()).close()
    ledger = await world.after_crash(shared_store=True).open()
    other = await world.after_crash(shared_store=True).open()
    await other.cursors.open("s", EARLIEST)
    await fill(ledger, 3)
    with pytest.raises(BadVersion):
        await ledger.cursors.open("s", EARLIEST)
    assert "s" not in ledger.cursors.by_name


async def test_no_id_is_taken_for_a_cursor_ledger_without_a_lease() -> None:
    world, lease = await leased()
    ledger = await world.open(lease=lease, mark_delete_rate=EVERY_CHANGE)
    await fill(ledger, 3)
    cursor = await ledger.cursors.open("s", EARLIEST)
    taken = await world.environment.ids.next()
    lease.is_lost = True
    cursor.acknowledge([at(ledger, 0)])
    with pytest.raises(MetadataError, match="no lease"):
        await cursor.store.flush()
    with pytest.raises(MetadataError, match="no lease"):
        await ledger.cursors.delete("s")
    assert await world.environment.ids.next() == taken + 1
    assert await world.metadata.get(cursor_key(NAME, "s")) is not None


@pytest.mark.parametrize("is_open", [True, False])
async def test_cursors_are_read_anew_when_their_ledger_had_to_be_taken_over(is_open: bool) -> None:
    world = World(shared_store=True)
    ledger = await world.open()
    await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 3)
    if not is_open:
        await ledger.close()
    early = await read_nodes(world.metadata, NAME, ["s"])
    assert early is not None
    # The former owner, which is not fenced yet, writes the cursor once more.
    newest = await world.metadata.put(cursor_key(NAME, "s"), early.cursors[0][1].value)
    opened = await ManagedLedger.open(
        NAME,
        world.after_crash(shared_store=True).environment,
        ManagedLedgerSettings(),
        stamp=EntryStamp(timestamp=False, index=False, now_ms=lambda: 0),
        nodes=early,
    )
    store = opened.cursors.by_name["s"].store
    assert isinstance(store, CursorInfoWriter)
    assert store._record.version == (newest if is_open else newest - 1)
