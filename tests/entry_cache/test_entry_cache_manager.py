"""Limits, triggers, slices, and the counts of the manager."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.compose.cache_settings import EntryCacheSettings
from entry_cache.cache_stats import Reason
from tests.entry_cache.cache_fakes import READER, SECOND, ids, new_entry, new_manager, new_run
from tests.fakes.whole_cache import Removals, WholeCache


def test_trigger_asks_for_one_check_that_frees_down_to_the_watermark() -> None:
    manager = new_manager(1000)
    asked: list[int] = []
    manager.eviction.on_size_check = lambda: asked.append(manager.used_bytes)
    cache = manager.open("log")
    cache.insert_run(new_run(0, 97), 0, now_ns=0)
    assert (asked, manager.eviction.size_checks_due) == ([], 0)  # 980 bytes are at the trigger, not above it.
    cache.insert_run([new_entry(98)], 0, now_ns=0)
    cache.insert_run([new_entry(99)], 0, now_ns=0)
    assert (manager.eviction.size_checks_due, asked) == (1, [990])
    assert manager.run_pending(now_ns=1) is False
    assert (manager.used_bytes, manager.stats.size_evictions) == (900, 1)
    assert manager.eviction.size_checks_due == 0
    assert ids(cache.get_present(READER, 1, 0, 200))[0] == 10


def test_periodic_pass_removes_entries_strictly_older_than_the_ttl() -> None:
    manager = new_manager()
    cache = manager.open("log")
    cache.insert_run(new_run(0, 2), 0, now_ns=10)
    cache.insert_run(new_run(3, 4), 0, now_ns=11)
    manager.tick(10 + SECOND)
    assert manager.entries == 5
    manager.tick(11 + SECOND)
    assert manager.entries == 2
    assert manager.stats.evicted_entries[Reason.TTL] == 3
    assert manager.stats.evicted_bytes[Reason.TTL] == 30


def test_expected_reads_requeue_an_entry_until_they_are_done() -> None:
    manager = new_manager(extend_recently_accessed=False)
    cache = manager.open("log")
    cache.insert_run(run := new_run(0, 1), 2, now_ns=0)
    manager.mark_delivered(run)
    manager.mark_delivered(run[:1])
    manager.tick(SECOND + 1)
    assert ids(list(manager.policy)) == [1]
    assert manager.policy.requeues["expected_reads"] == 1
    manager.expect_redelivery(READER, run[1:])
    for round_number in range(2, 6):
        manager.tick(round_number * (SECOND + 1))
    assert manager.entries == 1
    manager.tick(6 * (SECOND + 1))
    assert manager.entries == 0
    assert manager.eviction_stats.evicted_expected_entries[Reason.TTL] == 1


@pytest.mark.parametrize("profile", ["4.2", "5.0"])
@pytest.mark.parametrize("visits_max", [1, 2, 3, 7, 1000])
def test_slices_remove_the_same_entries_as_the_whole_pass(profile: str, visits_max: int) -> None:
    def filled() -> WholeCache:
        manager = new_manager(2000, profile=profile, watermark=0.4)
        cache = manager.open("log")
        for entry_id in range(300):
            cache.insert_run([new_entry(entry_id)], entry_id % 4, now_ns=entry_id)
        cache.read_run(READER, 1, 50, 120, 1 << 40)
        return manager

    whole, sliced = filled(), filled()
    now_ns = SECOND + 40
    assert whole.tick(now_ns) is False
    slices = 1
    while sliced.tick(now_ns, visits_max):
        slices += 1
    assert slices > 1 or visits_max == 1000
    assert ids(list(sliced.policy)) == ids(list(whole.policy))
    assert [entry.requeue_count for entry in sliced.policy] == [entry.requeue_count for entry in whole.policy]
    assert (sliced.used_bytes, sliced.stats.evicted_entries) == (
        whole.used_bytes,
        whole.stats.evicted_entries,
    )
    assert sliced.stats.size_evictions == whole.stats.size_evictions == 1


def test_cut_size_pass_stops_when_invalidations_free_enough() -> None:
    manager = new_manager(1000)
    cache = manager.open("log")
    cache.insert_run(new_run(0, 109), 0, now_ns=0)
    assert manager.run_pending(1, visits_max=2) is True
    cache.invalidate_range(new_entry(50).position, new_entry(80).position, Reason.INVALIDATE, 1)
    assert manager.run_pending(1, visits_max=2) is False
    assert manager.entries == 110 - 2 - 30


def test_size_pass_uses_up_all_requeues_in_4_2_and_one_in_5_0() -> None:
    spent = {}
    for profile in ("4.2", "5.0"):
        manager = new_manager(profile=profile)
        manager.open("log").insert_run(new_run(0, 99), 1, now_ns=0)
        removed = manager.evict_bytes(1, now_ns=1)
        spent[profile] = (removed.visits, next(iter(manager.policy)).requeue_count)
    assert spent == {"4.2": (501, 5), "5.0": (101, 1)}


def test_reconfigure_changes_settings_but_refuses_another_policy() -> None:
    manager = new_manager(1000)
    cache = manager.open("log")
    cache.insert_run(new_run(0, 49), 0, now_ns=0)
    manager.reconfigure(replace(manager.settings, size_bytes_max=100, watermark=0.5, ttl_ns=5))
    manager.tick(3)
    assert manager.used_bytes == 50
    manager.tick(6)
    assert manager.used_bytes == 0
    for change in ({"profile": "5.0"}, {"policy": "magnetar"}):
        with pytest.raises(ValueError, match="policy"):
            manager.reconfigure(replace(manager.settings, **change))


def test_settings_refuse_values_out_of_range() -> None:
    for change in (
        {"size_bytes_max": -1},
        {"watermark": 1.1},
        {"ttl_ns": -1},
        {"policy": "lru"},
        {"profile": "4.0"},
    ):
        with pytest.raises(ValueError, match="cache"):
            replace(EntryCacheSettings(size_bytes_max=1), **change)


def test_pinned_bytes_count_the_rest_of_each_buffer_once() -> None:
    manager = new_manager()
    cache = manager.open("log")
    one, two = memoryview(bytearray(100)), memoryview(bytearray(1000))
    cache.insert_run([new_entry(0, one[:10])], 0, now_ns=0)
    assert manager.pinned_bytes == 90
    cache.insert_run([new_entry(1, one[50:80])], 0, now_ns=1)
    cache.insert_run([new_entry(2, two[:1])], 0, now_ns=2)
    cache.insert_run([new_entry(3, b"bytes of its own")], 0, now_ns=3)
    assert manager.pinned_bytes == 60 + 999
    manager.evict_bytes(1, now_ns=4)
    assert manager.pinned_bytes == 70 + 999
    manager.evict_bytes(1, now_ns=4)
    assert manager.pinned_bytes == 999
    cache.clear()
    assert manager.pinned_bytes == 0


def test_entries_of_storage_reads_pin_nothing() -> None:
    """A bookie stores 36 bytes and the header before the body; all of them are bytes of that entry alone."""
    manager = new_manager(size_bytes_max=10_000, policy="magnetar", pinned_ratio_max=1.5)
    cache = manager.open("log")
    for entry_id in range(100):
        cache.insert_run([new_entry(entry_id, memoryview(bytes(252))[52:])], 1, now_ns=entry_id)
        assert manager.pinned_bytes == 0
    manager.run_pending(100)
    assert manager.stats.size_evictions
    assert manager.pinned_bytes == 0
    cache.insert_run([new_entry(100, memoryview(bytearray(252))[52:])], 1, now_ns=100)
    assert manager.pinned_bytes == 52


def test_copied_entries_pin_nothing_and_keep_their_bytes() -> None:
    manager = new_manager(copy_entries=True)
    buffer = bytearray(b"abcdefgh" * 100)
    manager.open("log").insert_run([entry := new_entry(0, memoryview(buffer)[8:16])], 0, now_ns=0)
    buffer[8] = 0
    assert entry.body == b"abcdefgh"
    assert manager.pinned_bytes == 0
    assert manager.used_bytes == 8


def test_insert_copies_entries_that_use_little_of_their_buffer() -> None:
    manager = new_manager(pinned_ratio_max=1.5)
    busy, idle = memoryview(bytearray(300)), memoryview(bytearray(301))
    kept = [new_entry(0, busy[:100]), new_entry(1, busy[100:200])]
    copied = [new_entry(2, idle[:100]), new_entry(3, idle[100:200])]
    manager.open("log").insert_run([*kept, *copied], 0, now_ns=0)
    assert [type(entry.body) for entry in (*kept, *copied)] == [memoryview, memoryview, bytes, bytes]
    assert manager.pinned_bytes == 100
    assert copied[1].body == bytes(100)


def test_magnetar_charges_pinned_bytes_and_never_exceeds_its_size() -> None:
    manager = new_manager(10_000, policy="magnetar")
    cache = manager.open("log")
    for entry_id in range(100):
        buffer = memoryview(bytearray(1000))
        cache.insert_run([new_entry(entry_id, buffer[:100])], 1, now_ns=entry_id)
        assert manager.used_bytes + manager.pinned_bytes <= 10_000
    assert manager.entries >= 8


def test_magnetar_refuses_entries_without_readers_when_full() -> None:
    manager = new_manager(100, policy="magnetar")
    cache = manager.open("log")
    assert cache.insert_run(new_run(0, 9), 0, now_ns=0) == 10
    assert cache.insert_run([new_entry(10)], 0, now_ns=0) == 0
    assert cache.insert_run([new_entry(10)], 1, now_ns=0) == 1
    assert manager.used_bytes <= 100


def test_magnetar_inserts_a_run_larger_than_the_cache_in_part() -> None:
    manager = new_manager(100, policy="magnetar")
    cache = manager.open("log")
    run = [*new_run(0, 19), new_entry(20, bytes(101)), new_entry(21)]
    assert cache.insert_run(run, 1, now_ns=0) == 21
    assert cache.peek(1, 20) is None
    assert manager.inserted_entries == 21
    assert 50 <= manager.used_bytes <= 100
    manager.run_pending(1)
    assert all(entry.cached == (cache.peek(1, entry.entry_id) is entry) for entry in run)


def test_oversized_entry_is_evicted_by_the_next_size_check() -> None:
    for policy in ("pip430", "pip430-stash", "fifo-ttl", "magnetar"):
        manager = new_manager(100, policy=policy)
        cache = manager.open("log")
        cache.insert_run([new_entry(0, bytes(1000))], 0, now_ns=0)
        manager.run_pending(1)
        assert manager.used_bytes == 0, policy


def test_invalidated_slots_are_dropped_when_they_hold_many_bytes() -> None:
    manager = new_manager(ttl_ns=3600 * SECOND)
    cache = manager.open("log")
    cache.insert_run([new_entry(0, ledger_id=1)], 0, now_ns=0)
    for entry_id in range(20):
        cache.insert_run([new_entry(entry_id, bytes(1 << 20), ledger_id=2)], 0, now_ns=0)
    cache.invalidate_ledger(2)
    assert manager.tombstones == 20
    manager.tick(1)
    assert (manager.tombstones, manager.queue_length) == (0, 1)


def test_listener_hears_of_every_removal() -> None:
    told: list[tuple[list[int], Reason]] = []
    told_of = Removals(lambda entries, reason: told.append((ids(entries), reason)))
    manager = WholeCache(EntryCacheSettings(1 << 40, pinned_ratio_max=0), others=(told_of,))
    cache = manager.open("log")
    cache.insert_run(new_run(0, 4), 0, now_ns=0)
    manager.evict_bytes(11, now_ns=0)
    cache.invalidate_before(new_entry(3).position)
    manager.tick(2 * SECOND)
    assert told == [([0, 1], Reason.SIZE), ([2], Reason.INVALIDATE), ([3, 4], Reason.TTL)]
