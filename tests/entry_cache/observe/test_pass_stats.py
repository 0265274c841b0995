"""Counts of passes and removals: by reason, by topic, by age, and by reads still expected."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from broker.compose.cache_settings import EntryCacheSettings
from entry_cache.active_cursors import ActiveCursors
from entry_cache.cache_stats import Reason
from entry_cache.entry_cache import EntryCache
from entry_cache.listener import Redelivery, StorageRead
from entry_cache.observe import expected_level as expected_level_module
from entry_cache.observe.cache_events import HIT_STAYS, REASONS, STILL_EXPECTED, Op
from entry_cache.observe.decisions import Decisions
from entry_cache.observe.expectations import CountedReads, Expectations
from entry_cache.observe.expected_level import ExpectedLevel, count_expected
from entry_cache.observe.pass_stats import AGE_BOUNDS_NS, PassStats
from entry_cache.observe.usage import SORTS, usage_of
from entry_cache.reader import Reader
from foundation.model.entry import Entry
from foundation.model.position import Position
from foundation.model.time_histogram import TimeHistogram
from tests.entry_cache.cache_fakes import READER, SECOND, Acknowledging, new_entry, new_manager, new_run
from tests.fakes.whole_cache import WholeCache


def ages(histogram: TimeHistogram) -> dict[float, int]:
    """How many were at most so many seconds old; inf = older than all bounds."""
    bounds = [*(bound / SECOND for bound in AGE_BOUNDS_NS), float("inf")]
    return {bound: count for bound, count in zip(bounds, histogram.counts, strict=True) if count}


def test_histogram_counts_a_run_by_its_ends_unless_their_buckets_differ() -> None:
    times = TimeHistogram((10, 20))
    assert times.add_run(10, 4, 5)
    assert (times.counts, times.sum_ns) == ([5, 0, 0], 35)
    assert not times.add_run(11, 10, 2)
    assert times.add_run(21, 21, 1)
    times.add(20)
    assert (times.counts, times.sum_ns) == ([5, 1, 1], 76)


def test_pass_stats_count_ages_of_a_run_inserted_at_several_times() -> None:
    stats = PassStats()
    entries = new_run(0, 9)
    for entry in entries:
        entry.inserted_at_ns = entry.entry_id * SECOND // 2
        entry.queued_at_ns = 4 * SECOND
    stats.removed(entries, [len(entries)], now_ns=5 * SECOND)
    assert ages(stats.age) == {0.5: 1, 1: 1, 2: 2, 5: 6}
    assert stats.age.sum_ns == sum(5 * SECOND - entry.inserted_at_ns for entry in entries)
    assert ages(stats.idle) == {1: 10}


def test_requeue_renews_the_idle_time_but_not_the_age() -> None:
    manager = new_manager(extend_recently_accessed=False)
    cache = manager.open("log")
    cache.insert_run(new_run(0, 2), 1, now_ns=0)
    cache.insert_run(new_run(3, 3), 0, now_ns=0)
    for now in (2, 4):
        manager.tick(now * SECOND)
    manager.mark_delivered(cache.get_present(READER, 1, 0, 9))
    manager.tick(int(5.5 * SECOND))
    stats = manager.eviction_stats.passes[Reason.TTL]
    assert ages(stats.age) == {2: 1, 10: 3}
    assert ages(stats.idle) == {2: 4}
    assert (stats.passes, stats.visits) == (3, 4 + 3 + 3)
    assert manager.eviction_stats.passes[Reason.SIZE].passes == 0


def test_reinserted_entry_has_a_new_age() -> None:
    manager = new_manager()
    cache = manager.open("log")
    entry = new_entry(0)
    cache.insert_run([entry], 0, now_ns=0)
    manager.evict_bytes(1, 100 * SECOND)
    cache.insert_run([entry], 0, now_ns=100 * SECOND)
    manager.evict_bytes(1, 101 * SECOND)
    assert ages(manager.eviction_stats.passes[Reason.SIZE].age) == {1: 1, 600: 1}


def test_eviction_stats_count_expected_entries_and_bytes() -> None:
    manager = new_manager()
    cache = manager.open("log")
    sizes = (10, 20, 30, 40)
    run = [new_entry(number, b"x" * size) for number, size in enumerate(sizes)]
    cache.insert_run(run, 1, now_ns=0)
    manager.mark_delivered(run[:2])
    manager.evict_bytes(100, 1)
    assert manager.eviction_stats.evicted_expected_entries[Reason.SIZE] == 2
    assert manager.eviction_stats.evicted_expected_bytes[Reason.SIZE] == 70
    cache.insert_run([new_entry(9, b"x" * 7)], 1, now_ns=2)
    cache.invalidate_ledger(1)
    assert manager.eviction_stats.evicted_expected_entries[Reason.LEDGER] == 1
    assert manager.eviction_stats.evicted_expected_bytes[Reason.LEDGER] == 7


@pytest.fixture
def by_position() -> WholeCache:
    """Of the policy that keeps no counts, with entries 0 to 3 of 10, 20, 30 and 40 bytes."""
    manager = WholeCache(EntryCacheSettings(size_bytes_max=1000, policy="magnetar", pinned_ratio_max=0))
    cache = manager.open("log")
    cache.attach_cursors(ActiveCursors(SECOND, 0))
    cache.insert_run([new_entry(number, b"x" * (10 * number + 10)) for number in range(4)], 1, now_ns=0)
    return manager


def expected_in(manager: WholeCache, reason: Reason) -> tuple[int, int]:
    stats = manager.eviction_stats
    return stats.evicted_expected_entries[reason], stats.evicted_expected_bytes[reason]


@pytest.mark.parametrize(
    ("stands", "expected"), [(Position(1, 2), (2, 70)), (Position(1, 4), (0, 0)), (Position(0, 9), (4, 100))]
)
def test_position_reads_expect_entries_after_a_cursor(
    by_position: WholeCache, stands: Position, expected: tuple[int, int]
) -> None:
    """Whether a pass removes it or an invalidation, and up to the entry: not by segments."""
    cache = by_position.open("log")
    assert cache.cursors is not None
    cache.cursors.add("tail", stands)
    assert walked([cache], by_position.eviction_stats.expectations)[0] == expected
    assert (
        sum(
            bool(by_position.eviction_stats.expectations.reads_left(cache, entry, 0))
            for entry in by_position.policy
        )
        == expected[0]
    )
    by_position.evict_bytes(100, 1)
    assert expected_in(by_position, Reason.SIZE) == expected
    cache.insert_run([new_entry(number, b"x" * (10 * number + 10)) for number in range(4)], 1, now_ns=2)
    cache.clear()
    assert expected_in(by_position, Reason.INVALIDATE) == expected


def test_position_reads_expect_a_departed_cursor_for_a_while(by_position: WholeCache) -> None:
    cache = by_position.open("log")
    assert cache.cursors is not None
    cache.cursors.add("tail", Position(1, 4), Acknowledging(1, 1))
    cache.cursors.remove("tail", 0)
    assert walked([cache], by_position.eviction_stats.expectations)[0] == (2, 70), (
        "it begins behind what it has acknowledged"
    )
    assert end_of(count_expected([cache], by_position.eviction_stats.expectations, SECOND))[0] == (0, 0)
    by_position.evict_bytes(100, SECOND - 1)
    assert expected_in(by_position, Reason.SIZE) == (2, 70)


def test_position_reads_expect_entries_that_wait_for_redelivery(by_position: WholeCache) -> None:
    cache = by_position.open("log")
    reads_left = by_position.eviction_stats.expectations.reads_left
    entries = list(by_position.policy)
    by_position.expect_redelivery(READER, entries[1:3])
    by_position.expect_redelivery(READER, entries[2:3])
    by_position.expect_redelivery(Reader("other", 2), entries[1:2])
    assert [reads_left(cache, entry, 0) for entry in entries] == [0, 2, 1, 0]
    cache.listener.redelivery_changed(Redelivery.DROPPED, READER, cache.present([(1, 1), (1, 2)]))
    cache.listener.redelivery_changed(Redelivery.DROPPED, READER, cache.present([(1, 1), (1, 2)]))
    assert [reads_left(cache, entry, 0) for entry in entries] == [0, 1, 0, 0]
    cache.invalidate_ledger(1)
    assert expected_in(by_position, Reason.LEDGER) == (1, 20)


def test_eviction_stats_use_current_positions_when_the_victim_order_is_old() -> None:
    """A victim was expected when the order was made, and its reader has read it before the removal."""
    manager = WholeCache(
        EntryCacheSettings(size_bytes_max=10_000, policy="magnetar", pinned_ratio_max=0, requeues_max=5)
    )
    cache = manager.open("log")
    cursors = ActiveCursors(0, 0)
    cache.attach_cursors(cursors)
    cursors.add("tail", Position(1, 0))
    cache.insert_run([new_entry(number) for number in range(640)], 1, now_ns=0)
    manager.evict_bytes(10, 1)
    assert expected_in(manager, Reason.SIZE) == (1, 10)
    cursors.update("tail", Position(1, 640))
    manager.evict_bytes(10, 2)
    assert expected_in(manager, Reason.SIZE) == (1, 10)
    assert sum(manager.stats.evicted_entries.values()) == 2


def test_eviction_stats_count_reasons_by_topic() -> None:
    manager = new_manager()
    one, two = manager.open("one"), manager.open("two")
    for first in range(0, 6, 2):
        one.insert_run(new_run(first, first + 1, ledger_id=1), 0, now_ns=first)
        two.insert_run(new_run(first, first + 1, ledger_id=2), 0, now_ns=first)
    manager.evict_bytes(30, 10)
    manager.evict_older(3, 10)
    two.invalidate_before(Position(2, 5))
    one.invalidate_ledger(1)
    by_reason = {
        reason: (manager.eviction_stats.of_log("one")[n], manager.eviction_stats.of_log("two")[n])
        for n, reason in enumerate(REASONS)
    }
    assert by_reason == {
        Reason.TTL: (2, 3),
        Reason.SIZE: (2, 1),
        Reason.LEDGER: (2, 0),
        Reason.INVALIDATE: (0, 1),
    }
    for reason, counts in by_reason.items():
        assert manager.stats.evicted_entries[reason] == sum(counts)


def test_usage_of_a_topic_counts_entries_bytes_and_reads() -> None:
    manager = new_manager(extend_recently_accessed=False)
    cache = manager.open("log")
    assert usage_of(cache, manager.eviction_stats).hit_ratio is None
    cache.insert_run(new_run(0, 9), 0, now_ns=0)
    cache.read_run(READER, 1, 0, 9, 1000)
    cache.count_arrived(StorageRead.MISS, READER, new_run(20, 23))
    cache.count_arrived(StorageRead.COALESCED, READER, new_run(24, 29))
    manager.evict_older(SECOND, SECOND)
    cache.insert_run(new_run(10, 11), 0, now_ns=0)
    usage = usage_of(cache, manager.eviction_stats)
    assert (usage.log, usage.size_bytes, usage.entries) == ("log", 20, 2)
    assert (usage.hits, usage.misses, usage.coalesced, usage.hit_ratio) == (10, 4, 6, 0.5)
    assert usage.evictions == {"ttl": 10, "size": 0, "ledger": 0, "invalidate": 0}
    assert {name: key(usage) for name, key in SORTS.items()} == {
        "bytes": 20,
        "hits": 10,
        "misses": 4,
        "evictions": 10,
    }


def test_coalesced_reads_stay_counted_when_their_topic_is_removed() -> None:
    manager = new_manager()
    cache = manager.open("log")
    cache.eviction.stats.pending_reads.not_read += 5
    manager.remove("log")
    cache.eviction.stats.pending_reads.not_read += 3  # A read that was under way.
    manager.stats.pending_reads.not_read += 1
    assert manager.stats.pending_reads.not_read == 9


# The level of what is expected


def walked(caches: list[EntryCache], expectations: Expectations | None = None) -> tuple[ExpectedLevel, int]:
    """The level, and how often the loop could turn while it was counted."""
    return end_of(count_expected(caches, expectations or CountedReads(), 0))


def end_of(walk: Generator[None, None, ExpectedLevel]) -> tuple[ExpectedLevel, int]:
    turns = 0
    while True:
        try:
            next(walk)
        except StopIteration as ended:
            return ended.value, turns
        turns += 1


@pytest.mark.parametrize("copied_max", [0, 200_000])
def test_expected_level_counts_entries_with_reads_left(
    copied_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expected_level_module, "COPIED_MAX", copied_max)
    manager = new_manager()
    one, two = manager.open("one"), manager.open("two")
    one.insert_run(new_run(5, 14, ledger_id=1), 1, now_ns=0)
    one.insert_run(new_run(0, 4, ledger_id=3), 0, now_ns=0)
    run = new_run(100, 109, ledger_id=2)
    two.insert_run(run, 2, now_ns=0)
    manager.mark_delivered(run)
    manager.mark_delivered(run[:4])
    assert walked([one, two])[0] == ExpectedLevel(16, 160)


@pytest.mark.parametrize("copied_max", [0, 200_000])
def test_expected_level_counts_from_the_slowest_cursor_on_by_position(
    copied_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expected_level_module, "COPIED_MAX", copied_max)
    manager = WholeCache(EntryCacheSettings(size_bytes_max=1 << 30, policy="magnetar"))
    cache = manager.open("log")
    for ledger_id in (1, 2, 3):
        cache.insert_run(new_run(0, 9, ledger_id), 1, now_ns=0)
    assert walked([cache], manager.eviction_stats.expectations)[0].entries == 0
    cursors = ActiveCursors(0, 0)
    cache.attach_cursors(cursors)
    cursors.add("quick", Position(3, 9))
    cursors.add("slow", Position(2, 4))
    assert walked([cache], manager.eviction_stats.expectations)[0] == ExpectedLevel(16, 160)
    manager.expect_redelivery(READER, cache.get_present(READER, 1, 0, 2))
    assert walked([cache], manager.eviction_stats.expectations)[0].entries == 19


def test_expected_level_walks_in_slices_while_entries_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expected_level_module, "COPIED_MAX", 0)
    monkeypatch.setattr(expected_level_module, "LOOKS_PER_SLICE", 10)
    manager = new_manager()
    cache = manager.open("log")
    for first in range(0, 100, 10):
        cache.insert_run(new_run(first, first + 9), 1, now_ns=first)
    assert walked([cache]) == (ExpectedLevel(100, 1000), 10)
    walk = count_expected([cache], CountedReads(), 0)
    next(walk)
    cache.invalidate_before(Position(1, 50))
    cache.insert_run(new_run(100, 109), 1, now_ns=100)
    assert end_of(walk)[0] == ExpectedLevel(70, 700)  # 10 before, 50 that stayed, 10 that came.


def test_expected_level_walks_removed_ids_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_level_module, "COPIED_MAX", 0)
    monkeypatch.setattr(expected_level_module, "LOOKS_PER_SLICE", 10)
    manager = new_manager()
    cache = manager.open("log")
    cache.insert_run(new_run(0, 99), 1, now_ns=0)
    manager.evict_bytes(10, 1)
    manager.evict_bytes(900, 1)
    assert walked([cache]) == (ExpectedLevel(9, 90), 10)
    assert walked([cache]) == (ExpectedLevel(9, 90), 1)
    cache.insert_run(new_run(0, 4), 1, now_ns=1)
    assert walked([cache])[0].entries == 14


def test_decisions_note_requeues_before_evictions_of_the_same_pass() -> None:
    """A read since the last look is spent first, then expected reads, then the entry goes."""
    decisions = Decisions(100, lambda: 0)
    manager = WholeCache(EntryCacheSettings(size_bytes_max=1 << 30, policy="pip430"), decisions)
    cache = manager.open("log")
    cache.insert_run([entry := Entry(1, 0, b"", b"x", 1)], 1, now_ns=0)
    cache.get(READER, 1, 0)
    manager.evict_bytes(1, 1)
    told = [(event.op, event.detail) for event in decisions.ring.events()]
    assert told == [
        (Op.INSERT, 1),
        (Op.HIT, HIT_STAYS),
        (Op.REQUEUE, 1),
        *[(Op.REQUEUE, 0)] * 4,
        (Op.EVICT, 1 + STILL_EXPECTED),
    ]
    assert not entry.cached
