"""A log: adding, rolling, failing, counting."""

from __future__ import annotations

import asyncio

import pytest

from broker.managed_ledger.ledger_info import decode_log, log_key
from broker.managed_ledger.managed_ledger import LogState
from broker.model.errors import (
    LedgerFenced,
    PersistenceError,
)
from broker.model.position import EARLIEST, Position
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


async def test_a_new_log_is_empty_and_costs_one_write(world):
    log = await world.open()
    assert log.last_confirmed == Position(log.current_ledger_id, -1)
    assert log.state is LogState.OPEN
    found = await world.metadata.get(log_key(NAME))
    assert found.version == 0
    assert decode_log(found.value).ledgers == []


async def test_entries_come_back_in_order_with_their_contexts_and_indexes(world):
    log = await world.open()
    for number, messages in enumerate((1, 3, 1)):
        log.add(b"body%d" % number, messages, f"context {number}")
    await until(lambda: recorder(log).runs)
    assert [bytes(entry.body) for entry in recorder(log).added] == [b"body0", b"body1", b"body2"]
    assert recorder(log).contexts == ["context 0", "context 1", "context 2"]
    assert [entry.messages for entry in recorder(log).added] == [1, 3, 1]
    assert indexes(log) == [0, 3, 4]
    assert log.last_confirmed == Position(log.current_ledger_id, 2)


async def test_entries_become_readable_only_when_they_are_confirmed(world):
    log = await world.open()
    await fill(log, 1)
    cursor = log.new_non_durable_cursor("r", EARLIEST)
    cursor.activate()
    world.ledgers.hold()
    log.add(b"unconfirmed", 1, None)
    await asyncio.sleep(0)
    assert log.last_confirmed.entry_id == 0
    world.ledgers.answer_at_once_again()
    await until(lambda: log.last_confirmed.entry_id == 1)
    cursor.take(1, 100)
    assert bytes(cursor.take(1, 100)[0].body) == b"unconfirmed"


async def test_answers_of_one_turn_are_one_run(world):
    log = await world.open()
    await fill(log, 1)
    before = recorder(log).runs
    world.ledgers.hold()
    for number in range(20):
        log.add(b"x", 1, number)
    world.ledgers.answer_at_once_again()
    await until(lambda: len(recorder(log).added) == 21)
    assert recorder(log).runs == before + 1


async def test_the_number_of_expected_reads_is_the_number_of_active_cursors(world):
    log = await world.open()
    for name in "abc":
        (await log.open_cursor(name, EARLIEST)).activate()
    log.cursors["b"].deactivate()
    await fill(log, 2)
    assert [entry.expected_reads for entry in recorder(log).added] == [2, 2]


async def test_entries_are_not_cached_when_nobody_has_read_for_a_while(world):
    log = await world.open(continue_caching_ns=100)
    await fill(log, 1)
    assert log.cache.entries == 1
    world.clock.advance(100)
    await fill(log, 1)
    assert log.cache.entries == 1


async def test_ledgers_roll_at_exactly_the_maximum_number_of_entries(world):
    log = await world.open(entries_per_ledger_max=5)
    await fill(log, 13)
    assert shape(log) == [5, 5, 3]
    assert await all_bodies(log) == [b"%010d" % number for number in range(13)]
    assert indexes(log) == list(range(13))
    first = log.ledger_infos()[0]
    metadata = decode((await world.metadata.get(ledger_key(first.ledger_id))).value)
    assert metadata.state is LedgerState.CLOSED
    assert (metadata.last_entry_id, metadata.length) == (4, first.size_bytes)
    assert first.size_bytes == sum(entry.size for entry in recorder(log).added[:5])


async def test_adds_of_one_turn_are_spread_over_as_many_ledgers_as_they_need(world):
    log = await world.open(entries_per_ledger_max=2)
    for number in range(7):
        log.add(b"%d" % number, 1, number)
    await until(lambda: len(recorder(log).added) == 7)
    assert recorder(log).contexts == list(range(7))
    assert shape(log) == [2, 2, 2, 1]


async def test_ledgers_roll_by_size(world):
    log = await world.open(ledger_bytes_max=100)
    await fill(log, 10, size=30)
    assert {entry.size for entry in recorder(log).added} <= set(range(40, 50))
    assert shape(log) == [3, 3, 3, 1]


async def test_a_full_ledger_that_is_too_young_is_written_on(world):
    log = await world.open(entries_per_ledger_max=2, rollover_ns_min=1000)
    await fill(log, 5)
    assert shape(log) == [5]
    world.clock.advance(1000)
    await fill(log, 2)
    assert shape(log) == [6, 1]


async def test_an_old_ledger_rolls_with_the_next_add_or_when_it_is_looked_after(world):
    log = await world.open(rollover_ns_max=1000)
    await fill(log, 1)
    world.clock.advance(1000)
    await fill(log, 1)
    assert shape(log)[0] == 2
    await fill(log, 1)
    assert shape(log) == [2, 1]
    log.roll_if_due(world.clock.now)
    assert log.state is LogState.OPEN
    world.clock.advance(1000)
    log.roll_if_due(world.clock.now)
    await until(lambda: log.state is LogState.OPEN)
    assert shape(log) == [2, 1, 0]
    assert log.last_confirmed == Position(log.ledger_infos()[1].ledger_id, 0)


async def test_a_failed_add_fails_those_behind_it_and_writing_goes_on_in_a_new_ledger(world):
    log = await world.open()
    await fill(log, 3)
    first_ledger = log.current_ledger_id
    world.ledgers.refuse = lambda ledger_id, entry_id: WRITE_FAILED if entry_id >= 4 else 0
    for number in range(3, 8):
        log.add(b"%010d" % number, 1, number)
    await until(lambda: len(recorder(log).failed) == 4)
    assert recorder(log).failed == [4, 5, 6, 7]
    assert type(recorder(log).errors[0]) is PersistenceError
    assert recorder(log).errors[0].retriable
    world.ledgers.refuse = lambda ledger_id, entry_id: 0
    await fill(log, 2)
    assert log.current_ledger_id > first_ledger
    assert shape(log) == [4, 2]
    assert indexes(log) == [0, 1, 2, 3, 4, 5]
    assert log.stats.add_errors == 4
    again = await world.after_crash().open()
    assert len(await all_bodies(again)) == 6


async def test_adds_made_between_the_failure_and_its_report_fail_with_it(world):
    log = await world.open()
    await fill(log, 1)
    world.ledgers.hold()
    world.ledgers.refuse = lambda ledger_id, entry_id: WRITE_FAILED
    log.add(b"refused", 1, "refused")
    world.ledgers.refuse = lambda ledger_id, entry_id: 0
    world.ledgers.answer_at_once_again()
    log.add(b"waits", 1, "waits")
    await until(lambda: len(recorder(log).failed) == 2)
    assert recorder(log).failed == ["refused", "waits"]
    log.add(b"later", 1, "later")
    await until(lambda: "later" in recorder(log).contexts)
    assert indexes(log) == [0, 1]


async def test_a_fenced_ledger_ends_the_log_for_this_broker(world):
    log = await world.open()
    await fill(log, 1)
    world.ledgers.fenced.add(log.current_ledger_id)
    log.add(b"x", 1, "a")
    log.add(b"x", 1, "b")
    await until(lambda: len(recorder(log).failed) == 2)
    assert isinstance(recorder(log).errors[0], LedgerFenced)
    assert log.state is LogState.FENCED
    with pytest.raises(LedgerFenced):
        log.add(b"x", 1, "c")
    await log.close()


async def test_a_log_that_another_broker_opened_is_fenced_at_its_next_roll(world):
    log = await world.open(entries_per_ledger_max=2)
    await fill(log, 1)
    other = await world.after_crash().open()
    await fill(other, 1)
    world.ledgers.fenced.clear()
    log.add(b"x", 1, "full now")
    log.add(b"x", 1, "needs a new ledger")
    await until(lambda: log.state is LogState.FENCED)
    assert recorder(log).failed == ["needs a new ledger"]


async def test_a_full_disk_under_the_metadata_store_fails_adds_until_there_is_space():
    world = World(RefusingStore())
    log = await world.open(entries_per_ledger_max=2)
    await fill(log, 2)
    await until(lambda: log.state is LogState.OPEN)
    await fill(log, 1)
    world.metadata.full = True
    log.add(b"fills the ledger", 1, "confirmed")
    log.add(b"waits", 1, "lost")
    await until(lambda: recorder(log).failed)
    assert recorder(log).failed == ["lost"]
    assert isinstance(recorder(log).errors[0], PersistenceError)
    log.add(b"waits", 1, "lost too")
    await until(lambda: len(recorder(log).failed) == 2)
    world.metadata.full = False
    await fill(log, 3)
    assert shape(log) == [2, 2, 2, 1]
    assert indexes(log) == list(range(7))
    assert len(await all_bodies(await world.after_crash().open())) == 7


async def test_statistics_count_what_happened(world):
    log = await world.open()
    world.ledgers.hold()
    for size in (100, 100, 600, 5000):
        log.add(bytes(size), 1, None)
    await until(lambda: len(world.ledgers.held) == 4)
    world.clock.advance(3_000_000)
    world.ledgers.answer_at_once_again()
    await until(lambda: len(recorder(log).added) == 4)
    assert log.stats.entries_added == 4
    assert log.stats.entry_size_buckets == [2, 0, 1, 0, 0, 1, 0, 0, 0]
    assert log.stats.add_latency_buckets == [0, 0, 4, 0, 0, 0, 0, 0, 0, 0]
    assert log.stats.bytes_added == log.stats.total_size == sum(e.size for e in recorder(log).added)
    assert log.stats.number_of_entries == 4


async def test_latencies_of_one_run_may_differ(world):
    log = await world.open()
    await fill(log, 1)
    world.ledgers.hold()
    log.add(b"slow", 1, None)
    world.clock.advance(20_000_000)
    log.add(b"fast", 1, None)
    before = list(log.stats.add_latency_buckets)
    world.ledgers.answer_at_once_again()
    await until(lambda: len(recorder(log).added) == 3)
    after = log.stats.add_latency_buckets
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 0, 0, 0, 1, 0, 0, 0, 0, 0]
