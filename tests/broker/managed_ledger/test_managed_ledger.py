"""A log: adding, rolling, failing, ending, and what is there when it is opened again."""

from __future__ import annotations

import asyncio

import pytest

from broker.errors import (
    LedgerFenced,
    MetadataError,
    NoSuchEntry,
    NoSuchLedger,
    PersistenceError,
    ServiceNotReady,
    TopicTerminated,
)
from broker.ledger_client.ledger_metadata import LedgerState, decode, ledger_key
from broker.ledger_client.memory import MemoryLedgerClient
from broker.managed_ledger.ledger_info import decode_log, log_key
from broker.managed_ledger.managed_ledger import LogState, ManagedLedger
from broker.metadata.memory_metadata_store import MemoryMetadataStore
from broker.metadata.sqlite_metadata_store import SqliteMetadataStore
from broker.model.position import EARLIEST, LATEST, Position
from protocol import broker_entry_metadata
from tests.broker.managed_ledger.ledger_fakes import WRITE_FAILED, World, fill, recorder, until

NAME = "t/n/persistent/x"


@pytest.fixture
async def world():
    return World()


async def read_all(log: ManagedLedger) -> list[bytes]:
    """Every body from the first entry on, through a cursor of its own."""
    cursor = log.new_non_durable_cursor("read-all", EARLIEST)
    bodies: list[bytes] = []
    while cursor.has_more():
        taken = cursor.take(7, 1 << 20)
        bodies += [bytes(entry.body) for entry in taken]
        if not taken and cursor.has_more():
            arrived = asyncio.Event()
            cursor.request(7, 1 << 20, arrived.set)
            await arrived.wait()
            assert cursor.last_error is None
    await cursor.close()
    return bodies


def shape(log: ManagedLedger) -> list[int]:
    return [info.entries for info in log.ledger_infos()]


def indexes(log: ManagedLedger) -> list[int | None]:
    return [broker_entry_metadata.decode(entry.header).index for entry in recorder(log).added]


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
    assert await read_all(log) == [b"%010d" % number for number in range(13)]
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
    assert len(await read_all(again)) == 6


async def test_adds_made_between_the_failure_and_its_report_go_to_the_new_ledger(world):
    log = await world.open()
    await fill(log, 1)
    world.ledgers.hold()
    world.ledgers.refuse = lambda ledger_id, entry_id: WRITE_FAILED
    log.add(b"refused", 1, "refused")
    world.ledgers.refuse = lambda ledger_id, entry_id: 0
    world.ledgers.answer_at_once_again()
    log.add(b"later", 1, "later")
    await until(lambda: "later" in recorder(log).contexts)
    assert recorder(log).failed == ["refused"]
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


class Refusing(MemoryMetadataStore):
    """A store whose disk is full while `full` is set."""

    full = False

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        await asyncio.sleep(0)
        if self.full:
            raise MetadataError("disk full")
        return await super().put(key, value, expected)


async def test_a_full_disk_under_the_metadata_store_fails_adds_until_there_is_space():
    world = World(Refusing())
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
    assert len(await read_all(await world.after_crash().open())) == 7


async def test_terminate_lets_adds_under_way_finish_and_refuses_others_for_ever(world):
    log = await world.open()
    await fill(log, 2)
    world.ledgers.hold()
    log.add(b"under way", 1, "under way")
    ending = asyncio.ensure_future(log.terminate())
    await asyncio.sleep(0)
    with pytest.raises(TopicTerminated):
        log.add(b"x", 1, None)
    world.ledgers.answer_at_once_again()
    last = Position(log.current_ledger_id, 2)
    assert await ending == last
    assert log.is_terminated
    assert await log.terminate() == last
    await log.close()
    again = await world.after_crash().open()
    assert again.terminated_position == last
    assert again.last_confirmed == last
    with pytest.raises(TopicTerminated):
        again.add(b"x", 1, None)
    assert len(await read_all(again)) == 3


async def test_close_waits_for_adds_and_an_open_afterwards_needs_no_recovery(world):
    log = await world.open()
    cursor = await log.open_cursor("s", EARLIEST)
    await fill(log, 3)
    world.ledgers.hold()
    log.add(b"under way", 1, "under way")
    cursor.acknowledge([Position(log.current_ledger_id, 0)])
    closing = asyncio.ensure_future(log.close())
    await asyncio.sleep(0)
    with pytest.raises(ServiceNotReady):
        log.add(b"x", 1, None)
    world.ledgers.answer_at_once_again()
    await closing
    assert recorder(log).contexts[-1] == "under way"
    assert log.state is LogState.CLOSED
    again = await world.after_crash().open()
    assert world.ledgers.recovery_adds == []
    assert world.ledgers.fenced == set()
    assert len(await read_all(again)) == 4
    assert again.cursors["s"].mark_delete_position.entry_id == 0
    await fill(again, 1)
    assert indexes(again) == [4]


async def test_adds_that_wait_for_a_ledger_fail_when_the_log_is_closed():
    world = World(Refusing())
    log = await world.open()
    log.add(b"x", 1, "waits")
    await log.close()
    assert recorder(log).failed + recorder(log).contexts == ["waits"]
    assert log.last_confirmed.entry_id == len(recorder(log).added) - 1


async def test_after_a_crash_everything_confirmed_is_there_and_the_old_writer_is_fenced(world):
    log = await world.open(entries_per_ledger_max=4)
    await fill(log, 6)
    old_ledger = log.current_ledger_id
    again = await world.after_crash().open(entries_per_ledger_max=4)
    assert shape(again) == [4, 2, 0]
    assert [bytes(body) for body in await read_all(again)] == [b"%010d" % n for n in range(6)]
    assert old_ledger in world.ledgers.fenced
    log.add(b"from the past", 1, "stale")
    await until(lambda: recorder(log).failed)
    await fill(again, 1)
    assert indexes(again) == [6]
    assert again.last_confirmed == Position(again.current_ledger_id, 0)


async def test_the_index_goes_on_after_any_number_of_crashes(world):
    log = await world.open()
    await fill(log, 3)
    for _ in range(3):
        log = await world.after_crash().open()
    await fill(log, 1)
    assert indexes(log) == [3]
    log = await world.after_crash().open()
    await fill(log, 1)
    assert indexes(log) == [4]


async def test_recovery_writes_back_what_was_not_known_to_be_confirmed(world):
    log = await world.open()
    world.ledgers.hold()
    for number in range(5):
        log.add(b"%d" % number, 1, number)
    await until(lambda: len(world.ledgers.held) == 5)
    ledger_id = log.current_ledger_id
    world.ledgers.held = None
    del world.ledgers.stored[ledger_id][3]
    again = await world.after_crash().open()
    assert shape(again) == [3, 0]
    assert world.ledgers.recovery_adds == [(ledger_id, 0), (ledger_id, 1), (ledger_id, 2)]


async def test_a_ledger_closed_by_its_metadata_is_not_longer_than_that(world):
    """An entry behind a failed one may be in the bookie; the close cut it off."""
    log = await world.open()
    await fill(log, 2)
    ledger_id = log.current_ledger_id
    world.ledgers.refuse = lambda ledger, entry_id: WRITE_FAILED if entry_id == 2 else 0
    log.add(b"refused", 1, None)
    log.add(b"stored behind it", 1, None)
    await until(lambda: len(recorder(log).failed) == 2)
    assert 3 in world.ledgers.stored[ledger_id]
    world.ledgers.refuse = lambda ledger, entry_id: 0
    await fill(log, 1)
    again = await world.after_crash().open()
    assert shape(again) == [2, 1, 0]


async def test_a_ledger_that_was_listed_but_never_made_is_dropped(world):
    log = await world.open()
    await fill(log, 1)
    await world.metadata.delete(ledger_key(log.current_ledger_id))
    del world.ledgers.stored[log.current_ledger_id]
    again = await world.after_crash().open()
    assert shape(again) == [0]
    await fill(again, 1)


async def test_an_empty_ledger_leaves_nothing_behind(world):
    log = await world.open()
    await fill(log, 1)
    for _ in range(3):
        world.ledgers.refuse = lambda ledger, entry_id: WRITE_FAILED
        log.add(b"x", 1, "refused")
        failed = len(recorder(log).failed)
        await until(lambda before=failed: len(recorder(log).failed) > before)
        await until(lambda: log.state is LogState.OPEN)
    world.ledgers.refuse = lambda ledger, entry_id: 0
    await fill(log, 1)
    await log.close()
    kept = [info.ledger_id for info in log.ledger_infos()]
    listed = await world.metadata.children("/ledgers/00/0000")
    assert listed == sorted(f"L{ledger_id:04}" for ledger_id in kept)


async def test_ledgers_that_every_durable_cursor_has_consumed_are_removed(world):
    log = await world.open(keep=False, entries_per_ledger_max=3)
    slow, fast = await log.open_cursor("slow", EARLIEST), await log.open_cursor("fast", EARLIEST)
    reader = log.new_non_durable_cursor("reader", EARLIEST)
    await fill(log, 10)
    ids = [info.ledger_id for info in log.ledger_infos()]
    fast.acknowledge_cumulative(log.last_confirmed)
    slow.acknowledge_cumulative(Position(ids[0], 1))
    assert [info.ledger_id for info in log.ledger_infos()] == ids
    slow.acknowledge_cumulative(Position(ids[1], 0))
    assert [info.ledger_id for info in log.ledger_infos()] == ids[1:]
    slow.acknowledge_cumulative(Position(ids[2], 2))
    assert [info.ledger_id for info in log.ledger_infos()] == ids[3:]
    await until(lambda: world.ledgers.deleted == ids[:3])
    assert await world.metadata.get(ledger_key(ids[0])) is None
    assert reader.has_more()
    assert reader.take(10, 1000)[0].position == Position(ids[3], 0)
    again = await world.after_crash().open()
    assert shape(again) == [1, 0]
    assert again.cursors["slow"].backlog == 1


async def test_retention_keeps_consumed_ledgers_for_a_time(world):
    log = await world.open(entries_per_ledger_max=2)
    log.keep_ms = 1000
    await fill(log, 5)
    world.wall += 999
    assert log.trim(world.wall) == []
    world.wall += 1
    assert len(log.trim(world.wall)) == 2


async def test_retention_keeps_so_many_bytes(world):
    log = await world.open(entries_per_ledger_max=2)
    await fill(log, 9)
    log.keep_bytes = log.total_size - 1
    assert len(log.trim(world.wall)) == 1
    log.keep_bytes = 0
    log.trim(world.wall)
    assert shape(log) == [1]


async def test_a_log_without_cursors_keeps_only_its_current_ledger(world):
    log = await world.open(keep=False, entries_per_ledger_max=2)
    await fill(log, 4)
    await until(lambda: log.state is LogState.OPEN and len(shape(log)) == 1)
    assert log.last_confirmed == Position(log.current_ledger_id, -1)
    assert log.number_of_entries == 0


async def test_a_removal_that_a_crash_interrupted_is_finished_at_the_next_open(world):
    log = await world.open(keep=False, entries_per_ledger_max=2)
    cursor = await log.open_cursor("s", EARLIEST)
    await fill(log, 5)
    first = log.ledger_infos()[0].ledger_id
    deleted: list[str] = []
    plain_delete = world.metadata.delete

    async def crash_before(key: str, expected: int | None = None) -> None:
        deleted.append(key)
        raise MetadataError("crashed here")

    world.metadata.delete = crash_before
    cursor.acknowledge_cumulative(Position(first, 1))
    await until(lambda: deleted)
    await cursor.flush()
    world.metadata.delete = plain_delete
    assert world.ledgers.deleted == []
    await world.after_crash().open()
    assert world.ledgers.deleted == [first]
    assert await world.metadata.get(ledger_key(first)) is None


async def test_delete_leaves_no_key_and_no_entry(world):
    log = await world.open(entries_per_ledger_max=2)
    await log.open_cursor("a/b", EARLIEST)
    await fill(log, 5)
    await log.delete()
    assert sorted(world.metadata._values) == ["/ledgers/idgen"]
    assert world.ledgers.stored == {}
    fresh = await world.open()
    assert fresh.cursors == {}
    assert fresh.number_of_entries == 0


async def test_a_delete_that_a_crash_interrupted_is_finished_at_the_next_open(world):
    log = await world.open()
    await log.open_cursor("s", EARLIEST)
    await fill(log, 2)
    plain_delete = world.metadata.delete

    async def crash_before(key: str, expected: int | None = None) -> None:
        raise MetadataError("crashed here")

    world.metadata.delete = crash_before
    with pytest.raises(MetadataError):
        await log.delete()
    world.metadata.delete = plain_delete
    again = await world.after_crash().open()
    assert (again.number_of_entries, again.cursors) == (0, {})
    assert world.ledgers.stored == {}


async def test_single_entries_are_read_through_the_cache_and_do_not_fill_it(world):
    log = await world.open()
    await fill(log, 3)
    log = await world.after_crash().open()
    position = Position(log.ledger_infos()[0].ledger_id, 1)
    assert bytes((await log.read_entry(position)).body) == b"0000000001"
    assert log.cache.entries == 0
    with pytest.raises(NoSuchEntry):
        await log.read_entry(Position(position.ledger_id, 3))
    with pytest.raises(NoSuchLedger):
        await log.read_entry(Position(77, 0))


async def test_an_entry_whose_bytes_have_changed_is_not_served(world):
    log = await world.open()
    await fill(log, 3)
    ledger_id = log.current_ledger_id
    log = await world.after_crash().open()
    stored = bytearray(world.ledgers.stored[ledger_id][1])
    stored[-1] ^= 1
    world.ledgers.stored[ledger_id][1] = bytes(stored)
    with pytest.raises(PersistenceError, match=f"{ledger_id}:1"):
        await log.read_entry(Position(ledger_id, 1))


@pytest.mark.parametrize("older", range(8))
async def test_find_newest_searches_all_ledgers(world, older):
    log = await world.open(entries_per_ledger_max=3)
    await fill(log, 7)
    found = await log.find_newest(lambda entry: int(bytes(entry.body)) < older)
    expected = log.ledgers.position_at(older - 1) if older else None
    assert found == expected


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


async def test_a_hundred_logs_open_together_on_a_durable_store(tmp_path):
    store = SqliteMetadataStore(tmp_path / "m.db")
    world = World(store)
    logs = await asyncio.gather(*(world.open(f"t/n/persistent/{number}") for number in range(100)))
    await asyncio.gather(*(log.open_cursor("s", LATEST) for log in logs))
    for log in logs:
        log.add(b"x", 1, None)
    await until(lambda: all(recorder(log).added for log in logs))
    await store.close()
    again = World(SqliteMetadataStore(tmp_path / "m.db"), world.ledgers)
    for number in range(100):
        log = await again.open(f"t/n/persistent/{number}")
        assert log.number_of_entries == 1
        assert log.cursors["s"].backlog == 1
    await again.metadata.close()


async def test_a_property_is_durable_when_it_has_been_set(world):
    log = await world.open()
    await fill(log, 1)
    await log.set_property("owner", "somebody")
    again = await world.after_crash().open()
    assert again.properties == {"owner": "somebody", "index": "0"}


async def test_an_empty_log_can_be_terminated(world):
    log = await world.open()
    await log.terminate()
    assert log.terminated_position == log.last_confirmed
    again = await world.after_crash().open()
    assert again.is_terminated
    assert again.number_of_entries == 0


async def test_it_works_the_same_on_the_client_that_is_used_without_a_disk():
    ledgers = MemoryLedgerClient(asyncio.get_running_loop().call_soon)
    world = World(None, ledgers)
    log = await world.open(entries_per_ledger_max=4)
    await fill(log, 6)
    again = await world.after_crash().open()
    assert shape(again) == [4, 2, 0]
    assert await read_all(again) == [b"%010d" % number for number in range(6)]
    log.add(b"from the past", 1, "stale")
    await until(lambda: recorder(log).failed)
    assert isinstance(recorder(log).errors[0], LedgerFenced)
    assert log.state is LogState.FENCED
