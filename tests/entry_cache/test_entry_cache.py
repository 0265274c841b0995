"""The cache seen by readers and writers: runs, gaps, byte limits, duplicates, invalidation."""

from __future__ import annotations

import pytest

from entry_cache.cache_stats import Reason
from entry_cache.listener import StorageRead
from foundation.model.position import Position
from tests.entry_cache.cache_fakes import READER, ids, new_entry, new_manager, new_run

NO_LIMIT = 1 << 60


def test_read_run_stops_at_the_first_gap_and_counts_hits() -> None:
    manager = new_manager()
    cache = manager.open("log")
    first_run, second_run = new_run(0, 2), new_run(4, 5)
    assert cache.insert_run(first_run, 1, now_ns=5) == 3
    assert cache.insert_run(second_run, 1, now_ns=5) == 2
    assert cache.read_run(READER, 1, 1, 9, NO_LIMIT) == first_run[1:]
    assert [entry.accessed for entry in first_run + second_run] == [False, True, True, False, False]
    assert (cache.reads.hit_entries, cache.reads.hit_bytes) == (2, 20)
    assert cache.read_run(READER, 1, 3, 9, NO_LIMIT) == []
    assert cache.read_run(READER, 2, 0, 9, NO_LIMIT) == []
    assert ids(cache.get_present(READER, 1, 0, 10**12)) == [0, 1, 2, 4, 5]


def test_read_run_returns_one_entry_when_it_exceeds_the_byte_limit() -> None:
    cache = new_manager().open("log")
    cache.insert_run(new_run(0, 4), 1, now_ns=0)
    assert ids(cache.read_run(READER, 1, 0, 4, bytes_max=1)) == [0]
    assert ids(cache.read_run(READER, 1, 0, 4, bytes_max=20)) == [0, 1]
    assert ids(cache.read_run(READER, 1, 0, 4, bytes_max=29)) == [0, 1]
    assert cache.reads.hit_bytes == 50


def test_peek_counts_nothing() -> None:
    cache = new_manager().open("log")
    cache.insert_run([entry := new_entry(7)], 1, now_ns=0)
    assert cache.peek(1, 7) is entry
    assert cache.peek(1, 8) is None
    assert not entry.accessed
    assert cache.reads.hit_entries == 0


@pytest.mark.parametrize(("profile", "count"), [("4.2", 3), ("5.0", 5)])
def test_duplicate_is_refused_and_renews_the_count_in_5_0_only(profile: str, count: int) -> None:
    manager = new_manager(profile=profile)
    cache = manager.open("log")
    cache.insert_run([standing := new_entry(0)], 3, now_ns=1)
    run = [offered := new_entry(0), fresh := new_entry(1)]
    assert cache.insert_run(run, 5, now_ns=2) == 1
    assert cache.peek(1, 0) is standing
    assert standing.expected_reads == count
    assert standing.queued_at_ns == 1
    assert run == ([standing, fresh] if profile == "5.0" else [offered, fresh])
    assert manager.stats.refused_entries == 1
    assert (manager.entries, manager.used_bytes, manager.queue_length) == (2, 20, 2)


def test_entry_gets_a_second_object_when_its_old_slot_is_still_queued() -> None:
    manager = new_manager()
    cache = manager.open("log")
    cache.insert_run(run := new_run(0, 1), 1, now_ns=0)
    cache.invalidate_ledger(1)
    again = list(run)
    assert cache.insert_run(again, 1, now_ns=SECOND_LATER) == 2
    assert again[0] is not run[0]
    assert again[0].body is run[0].body
    assert (manager.queue_length, manager.tombstones, manager.entries) == (4, 2, 2)
    manager.evict_bytes(1000, now_ns=SECOND_LATER)
    assert (manager.queue_length, manager.tombstones, manager.entries, manager.used_bytes) == (0, 0, 0, 0)


SECOND_LATER = 1_000_000_000


def test_invalidate_before_removes_ledgers_in_order() -> None:
    manager = new_manager()
    cache = manager.open("log")
    for ledger_id in (3, 1, 2):
        cache.insert_run(new_run(0, 2, ledger_id=ledger_id), 1, now_ns=0)
    removed = cache.invalidate_before(Position(2, 1))
    assert [(entry.ledger_id, entry.entry_id) for entry in removed.entries] == [
        (1, 0),
        (1, 1),
        (1, 2),
        (2, 0),
    ]
    assert removed.size_bytes == 40
    assert manager.eviction_stats.evicted_expected_entries[Reason.INVALIDATE] == 4
    assert (cache.entries, cache.size_bytes, manager.used_bytes) == (5, 50, 50)
    assert cache.read_run(READER, 1, 0, 9, NO_LIMIT) == []
    assert ids(cache.read_run(READER, 2, 1, 9, NO_LIMIT)) == [1, 2]
    cache.invalidate_ledger(3)
    cache.clear()
    evicted = manager.stats.evicted_entries
    assert (evicted[Reason.INVALIDATE], evicted[Reason.LEDGER]) == (6, 3)
    assert (cache.entries, manager.used_bytes, manager.tombstones) == (0, 0, 9)


def test_invalidate_before_finds_lower_ids_inserted_later() -> None:
    cache = new_manager().open("log")
    cache.insert_run(new_run(5, 9), 1, now_ns=0)
    cache.invalidate_before(Position(1, 7))
    cache.insert_run(new_run(2, 3), 1, now_ns=0)
    assert ids(cache.invalidate_before(Position(1, 3)).entries) == [2]
    assert ids(cache.invalidate_range(Position(1, 3), Position(1, 8), Reason.INVALIDATE, 0).entries) == [3, 7]
    assert ids(cache.get_present(READER, 1, 0, 100)) == [8, 9]


def test_reads_stay_counted_when_their_cache_is_removed() -> None:
    manager = new_manager()
    cache = manager.open("log")
    cache.insert_run([new_entry(0)], 1, now_ns=0)
    cache.get(READER, 1, 0)
    cache.count_arrived(StorageRead.MISS, READER, new_run(0, 2))
    cache.count_arrived(StorageRead.COALESCED, READER, new_run(3, 4))
    manager.remove("log")
    assert manager.open("log") is not cache
    manager.open("log").count_arrived(StorageRead.MISS, READER, new_run(5, 5))
    reads = manager.reads()
    assert (reads.hit_entries, reads.miss_entries, reads.coalesced_entries) == (1, 4, 2)
    assert (reads.hit_bytes, reads.miss_bytes, reads.coalesced_bytes) == (10, 40, 20)
    assert manager.used_bytes == 0


def test_insert_caches_nothing_when_the_size_is_zero() -> None:
    manager = new_manager(size_bytes_max=0)
    cache = manager.open("log")
    assert not cache.insert_run([entry := new_entry(0)], 1, now_ns=0)
    assert not entry.cached
    assert (manager.entries, manager.queue_length, manager.eviction.size_checks_due) == (0, 0, 0)


def test_empty_ledgers_are_dropped_when_another_opens() -> None:
    manager = new_manager()
    cache = manager.open("log")
    for ledger_id in range(100):
        cache.insert_run(new_run(0, 1, ledger_id=ledger_id), 0, now_ns=0)
        manager.evict_bytes(20, now_ns=0)
    assert len(cache.ledgers) == 1
