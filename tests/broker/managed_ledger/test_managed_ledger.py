"""LedgerWriter through ManagedLedger: adding, rolling, failing, counting."""

from __future__ import annotations

import asyncio

import pytest

from broker.managed_ledger.ledger_writer import ManagedLedgerState
from broker.managed_ledger.managed_ledger_info import managed_ledger_key
from broker.managed_ledger.records.pulsar_records import decode_ledger_list
from foundation.model.errors import LedgerFenced, PersistenceError
from foundation.model.position import EARLIEST, Position
from protocol.ledger_metadata import LedgerState, decode, ledger_key
from tests.broker.managed_ledger.ledger_fakes import (
    NAME,
    WRITE_FAILED,
    RefusingStore,
    World,
    all_bodies,
    fill,
    indexes,
    recorder,
    shape,
    until,
)


async def test_new_managed_ledger_is_empty_and_costs_one_write(world: World) -> None:
    ledger = await world.open()
    assert ledger.last_confirmed == Position(ledger.ledgers.current.ledger_id, -1)
    assert ledger.state is ManagedLedgerState.OPEN
    found = await world.metadata.get(managed_ledger_key(NAME))
    assert found is not None
    assert found.version == 0
    assert decode_ledger_list(found.value).ledgers == []


async def test_entries_come_back_in_order_with_their_contexts_and_indexes(world: World) -> None:
    ledger = await world.open()
    for number, messages in enumerate((1, 3, 1)):
        ledger.writer.add([b"body%d" % number], messages, f"context {number}")
    await until(lambda: recorder(ledger).runs)
    assert [bytes(entry.body) for entry in recorder(ledger).added] == [b"body0", b"body1", b"body2"]
    assert recorder(ledger).contexts == ["context 0", "context 1", "context 2"]
    assert [entry.messages for entry in recorder(ledger).added] == [1, 3, 1]
    assert indexes(ledger) == [0, 3, 4]
    assert ledger.last_confirmed == Position(ledger.ledgers.current.ledger_id, 2)


async def test_entries_become_readable_when_they_are_confirmed(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 1)
    cursor = ledger.cursors.open_non_durable("r", EARLIEST)
    cursor.activate()
    world.ledgers.hold()
    ledger.writer.add([b"unconfirmed"], 1, None)
    await asyncio.sleep(0)
    assert ledger.last_confirmed.entry_id == 0
    world.ledgers.answer_at_once_again()
    await until(lambda: ledger.last_confirmed.entry_id == 1)
    cursor.take(1, 100)
    assert bytes(cursor.take(1, 100)[0].body) == b"unconfirmed"


async def test_confirmations_of_one_turn_are_one_run(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 1)
    before = recorder(ledger).runs
    world.ledgers.hold()
    for number in range(20):
        ledger.writer.add([b"x"], 1, number)
    world.ledgers.answer_at_once_again()
    await until(lambda: len(recorder(ledger).added) == 21)
    assert recorder(ledger).runs == before + 1


async def test_expected_reads_of_added_entries_equal_the_active_cursors(world: World) -> None:
    ledger = await world.open()
    for name in "abc":
        (await ledger.cursors.open(name, EARLIEST)).activate()
    ledger.cursors.by_name["b"].deactivate()
    await fill(ledger, 2)
    assert [entry.expected_reads for entry in recorder(ledger).added] == [2, 2]


async def test_added_entries_are_not_cached_when_no_cursor_was_active_for_a_while(world: World) -> None:
    ledger = await world.open(continue_caching_ns=100)
    await fill(ledger, 1)
    assert ledger.cache.entries == 1
    world.clock.advance(100)
    await fill(ledger, 1)
    assert ledger.cache.entries == 1


async def test_ledger_rolls_at_exactly_its_maximum_number_of_entries(world: World) -> None:
    ledger = await world.open(entries_per_ledger_max=5)
    await fill(ledger, 13)
    assert shape(ledger) == [5, 5, 3]
    assert await all_bodies(ledger) == [b"%010d" % number for number in range(13)]
    assert indexes(ledger) == list(range(13))
    first = ledger.ledgers.infos()[0]
    found = await world.metadata.get(ledger_key(first.ledger_id))
    assert found is not None
    metadata = decode(found.value)
    assert metadata.state is LedgerState.CLOSED
    assert (metadata.last_entry_id, metadata.length) == (4, first.size_bytes)
    assert first.size_bytes == sum(entry.size for entry in recorder(ledger).added[:5])


async def test_adds_of_one_turn_are_spread_over_as_many_ledgers_as_they_need(world: World) -> None:
    ledger = await world.open(entries_per_ledger_max=2)
    for number in range(7):
        ledger.writer.add([b"%d" % number], 1, number)
    await until(lambda: len(recorder(ledger).added) == 7)
    assert recorder(ledger).contexts == list(range(7))
    assert shape(ledger) == [2, 2, 2, 1]


async def test_ledger_rolls_at_its_maximum_size(world: World) -> None:
    ledger = await world.open(ledger_bytes_max=100)
    await fill(ledger, 10, size=30)
    assert {entry.size for entry in recorder(ledger).added} <= set(range(40, 50))
    assert shape(ledger) == [3, 3, 3, 1]


async def test_full_ledger_takes_adds_until_its_minimum_age(world: World) -> None:
    ledger = await world.open(entries_per_ledger_max=2, rollover_ns_min=1000)
    await fill(ledger, 5)
    assert shape(ledger) == [5]
    world.clock.advance(1000)
    await fill(ledger, 2)
    assert shape(ledger) == [6, 1]


async def test_old_ledger_rolls_with_the_next_add_or_at_the_periodic_check(world: World) -> None:
    ledger = await world.open(rollover_ns_max=1000)
    await fill(ledger, 1)
    world.clock.advance(1000)
    await fill(ledger, 1)
    assert shape(ledger)[0] == 2
    await fill(ledger, 1)
    assert shape(ledger) == [2, 1]
    ledger.writer.roll_if_due(world.clock.now)
    assert ledger.state is ManagedLedgerState.OPEN
    world.clock.advance(1000)
    ledger.writer.roll_if_due(world.clock.now)
    await until(lambda: ledger.state is ManagedLedgerState.OPEN)
    assert shape(ledger) == [2, 1, 0]
    assert ledger.last_confirmed == Position(ledger.ledgers.infos()[1].ledger_id, 0)


async def test_failed_add_fails_all_behind_it_and_rolls_to_a_new_ledger(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 3)
    first_ledger = ledger.ledgers.current.ledger_id
    world.ledgers.refuse = lambda ledger_id, entry_id: WRITE_FAILED if entry_id >= 4 else 0
    for number in range(3, 8):
        ledger.writer.add([b"%010d" % number], 1, number)
    await until(lambda: len(recorder(ledger).failed) == 4)
    assert recorder(ledger).failed == [4, 5, 6, 7]
    assert type(recorder(ledger).errors[0]) is PersistenceError
    world.ledgers.refuse = lambda ledger_id, entry_id: 0
    await fill(ledger, 2)
    assert ledger.ledgers.current.ledger_id > first_ledger
    assert shape(ledger) == [4, 2]
    assert indexes(ledger) == [0, 1, 2, 3, 4, 5]
    assert ledger.stats.add_errors == 4
    again = await world.after_crash().open()
    assert len(await all_bodies(again)) == 6


async def test_adds_made_between_the_failure_and_its_report_fail_with_it(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 1)
    world.ledgers.hold()
    world.ledgers.refuse = lambda ledger_id, entry_id: WRITE_FAILED
    ledger.writer.add([b"refused"], 1, "refused")
    world.ledgers.refuse = lambda ledger_id, entry_id: 0
    world.ledgers.answer_at_once_again()
    ledger.writer.add([b"waits"], 1, "waits")
    await until(lambda: len(recorder(ledger).failed) == 2)
    assert recorder(ledger).failed == ["refused", "waits"]
    ledger.writer.add([b"later"], 1, "later")
    await until(lambda: "later" in recorder(ledger).contexts)
    assert indexes(ledger) == [0, 1]


async def test_failed_adds_note_a_change(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 1)
    changes = ledger.context.environment.changed.follow()
    world.ledgers.refuse = lambda ledger_id, entry_id: WRITE_FAILED
    ledger.writer.add([b"refused"], 1, "refused")
    await until(lambda: bool(recorder(ledger).failed))
    assert list(changes.take()) == [ledger.name]


async def test_managed_ledger_takes_no_adds_when_a_bookie_reports_fencing(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 1)
    world.ledgers.fenced.add(ledger.ledgers.current.ledger_id)
    ledger.writer.add([b"x"], 1, "a")
    ledger.writer.add([b"x"], 1, "b")
    await until(lambda: len(recorder(ledger).failed) == 2)
    assert isinstance(recorder(ledger).errors[0], LedgerFenced)
    assert ledger.state is ManagedLedgerState.FENCED
    with pytest.raises(LedgerFenced):
        ledger.writer.add([b"x"], 1, "c")
    await ledger.close()


async def test_add_to_a_fenced_ledger_is_refused_after_the_outcome_of_those_in_flight(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 1)
    world.ledgers.hold()
    ledger.writer.add([b"stored"], 1, "stored")
    world.ledgers.fenced.add(ledger.ledgers.current.ledger_id)
    ledger.writer.add([b"fenced"], 1, "fenced")
    assert world.ledgers.held is not None
    world.ledgers.held[1]()
    assert ledger.state is ManagedLedgerState.FENCED
    ledger.writer.add([b"later"], 1, "later")
    assert recorder(ledger).failed == []
    world.ledgers.held[0]()
    await until(lambda: len(recorder(ledger).failed) == 2)
    assert recorder(ledger).contexts[-1] == "stored"
    assert recorder(ledger).failed == ["fenced", "later"]
    assert all(isinstance(error, LedgerFenced) for error in recorder(ledger).errors)
    await ledger.close()


async def test_roll_is_fenced_when_another_broker_opened_the_managed_ledger(world: World) -> None:
    ledger = await world.open(entries_per_ledger_max=2)
    await fill(ledger, 1)
    other = await world.after_crash().open()
    await fill(other, 1)
    world.ledgers.fenced.clear()
    ledger.writer.add([b"x"], 1, "full now")
    ledger.writer.add([b"x"], 1, "needs a new ledger")
    await until(lambda: ledger.state is ManagedLedgerState.FENCED)
    assert recorder(ledger).failed == ["needs a new ledger"]


async def test_close_succeeds_when_another_broker_opened_the_managed_ledger(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 2)
    other = await world.after_crash().open()
    stored = await world.metadata.get(managed_ledger_key(NAME))
    await ledger.close()
    assert await world.metadata.get(managed_ledger_key(NAME)) == stored
    assert len(await all_bodies(other)) == 2


async def test_adds_fail_until_the_metadata_store_has_space_again() -> None:
    store = RefusingStore()
    world = World(store)
    ledger = await world.open(entries_per_ledger_max=2)
    await fill(ledger, 2)
    await until(lambda: ledger.state is ManagedLedgerState.OPEN)
    await fill(ledger, 1)
    store.full = True
    ledger.writer.add([b"fills the ledger"], 1, "confirmed")
    ledger.writer.add([b"waits"], 1, "lost")
    await until(lambda: recorder(ledger).failed)
    assert recorder(ledger).failed == ["lost"]
    assert isinstance(recorder(ledger).errors[0], PersistenceError)
    ledger.writer.add([b"waits"], 1, "lost too")
    await until(lambda: len(recorder(ledger).failed) == 2)
    store.full = False
    await fill(ledger, 3)
    assert shape(ledger) == [2, 2, 2, 1]
    assert indexes(ledger) == list(range(7))
    assert len(await all_bodies(await world.after_crash().open())) == 7


async def test_stats_count_entries_bytes_sizes_and_latencies(world: World) -> None:
    ledger = await world.open()
    world.ledgers.hold()
    for size in (100, 100, 600, 5000):
        ledger.writer.add([bytes(size)], 1, None)
    await until(lambda: len(world.ledgers.held or ()) == 4)
    world.clock.advance(3_000_000)
    world.ledgers.answer_at_once_again()
    await until(lambda: len(recorder(ledger).added) == 4)
    assert ledger.stats.entries_added == 4
    assert ledger.stats.entry_size_buckets == [2, 0, 1, 0, 0, 1, 0, 0, 0]
    assert ledger.stats.add_latency_buckets == [0, 0, 4, 0, 0, 0, 0, 0, 0, 0]
    assert (
        ledger.stats.bytes_added == ledger.ledgers.size_bytes == sum(e.size for e in recorder(ledger).added)
    )
    assert ledger.ledgers.entries == 4


async def test_add_latencies_of_one_run_are_counted_per_entry(world: World) -> None:
    ledger = await world.open()
    await fill(ledger, 1)
    world.ledgers.hold()
    ledger.writer.add([b"slow"], 1, None)
    world.clock.advance(20_000_000)
    ledger.writer.add([b"fast"], 1, None)
    before = list(ledger.stats.add_latency_buckets)
    world.ledgers.answer_at_once_again()
    await until(lambda: len(recorder(ledger).added) == 3)
    after = ledger.stats.add_latency_buckets
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 0, 0, 0, 1, 0, 0, 0, 0, 0]
