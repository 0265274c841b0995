"""One turn of the loop has bounded cost and memory with many topics, readers and buffers."""

from __future__ import annotations

import weakref
from dataclasses import replace

import pytest

from broker.compose.cache_settings import EntryCacheSettings
from entry_cache.active_cursors import ActiveCursors
from entry_cache.bounds.pinned_bytes import COPIED_PER_SLICE
from entry_cache.bounds.strict_size import VISITS_OF_INSERTS
from entry_cache.cache_stats import Reason
from entry_cache.compose import ComposedCache
from entry_cache.observe.decisions import Decisions
from entry_cache.observe.totals import totals_of
from entry_cache.policies.magnetar.log_readers import LOOKS_PER_VIEW, REMOVED_KEPT, LogReaders
from entry_cache.policy import NO_LIMIT
from entry_cache.size_bound import entries_share
from foundation.model.entry import Entry
from foundation.model.position import EARLIEST, LATEST, Position
from tests.entry_cache.cache_fakes import READER, SECOND, Acknowledging, new_entry, new_manager
from tests.entry_cache.observe.test_replay import MS, Recording, replay_of
from tests.fakes.whole_cache import WholeCache

MOST_OF_A_SEGMENT = 200
"""Visits by which the last segment may go over."""


def full_of_topics(topics: int) -> WholeCache:
    manager = WholeCache(EntryCacheSettings(topics * 100, policy="magnetar", ttl_ns=SECOND))
    for topic in range(1, topics + 1):
        insert_topic(manager, topic)
    return manager


def insert_topic(manager: WholeCache, topic: int) -> None:
    cache = manager.open(f"t{topic}")
    cache.attach_cursors(ActiveCursors(0, 0))
    cache.cursors.add("s", Position(topic, 0), Acknowledging(topic, -1))
    cache.insert_run([Entry(topic, 0, b"", bytes(100), 1)], 1, 0)


def test_inserts_of_a_turn_stay_within_their_visits_and_the_size() -> None:
    manager = full_of_topics(3000)
    for topic in range(3001, 3101):
        insert_topic(manager, topic)
        assert manager.used_bytes <= 3000 * 100
    visits = manager.eviction_stats.passes[Reason.SIZE].visits
    assert VISITS_OF_INSERTS <= visits <= VISITS_OF_INSERTS + MOST_OF_A_SEGMENT + 100 * 40
    assert manager.stats.evicted_entries[Reason.SIZE] == 100
    manager.run_pending(1)
    assert manager.used_bytes <= 3000 * 90


def test_shrunk_cache_does_not_grow_until_it_fits() -> None:
    manager = full_of_topics(300)
    manager.reconfigure(EntryCacheSettings(100 * 100, policy="magnetar", ttl_ns=SECOND))
    for topic in range(301, 304):
        insert_topic(manager, topic)
        assert manager.used_bytes <= 300 * 100
    manager.tick(1)
    assert manager.used_bytes <= 90 * 100


@pytest.mark.parametrize("reconfigured", [False, True])
def test_shrunk_cache_does_not_grow_back_after_an_invalidation(reconfigured: bool) -> None:
    manager = full_of_topics(300)
    shrunk = EntryCacheSettings(100 * 100, policy="magnetar", ttl_ns=SECOND)
    manager.reconfigure(shrunk)
    for topic in range(1, 101):
        manager.open(f"t{topic}").clear()
    if reconfigured:
        manager.reconfigure(shrunk)
    for topic in range(301, 304):
        insert_topic(manager, topic)
        assert manager.used_bytes <= 200 * 100


def test_replay_repeats_looks_at_a_shrunk_cache() -> None:
    settings = EntryCacheSettings(4000, policy="magnetar", ttl_ns=1000 * MS)
    recording = Recording(settings)
    for entry_id in range(200):
        recording.now += MS
        if entry_id == 100:
            recording.manager.reconfigure(replace(settings, size_bytes_max=300))
        if entry_id == 120:
            recording.cache.invalidate_before(Position(1, 90))
        recording.append([new_entry(entry_id, memoryview(bytearray(14))[:10])])
    replay = replay_of(recording.record(), settings)
    assert str(replay.difference) == "None"
    assert replay.totals == replay.recorded_totals == totals_of(recording.manager)


def test_replay_repeats_evictions_during_inserts() -> None:
    settings = EntryCacheSettings(4000, policy="magnetar", ttl_ns=1000 * MS)
    recording = Recording(settings)
    for entry_id in range(600):
        recording.now += 60 * MS  # Each entry is a segment.
        recording.append([new_entry(entry_id, memoryview(bytearray(14))[:10])])
    manager = recording.manager
    assert manager.eviction_stats.passes[Reason.SIZE].visits > VISITS_OF_INSERTS
    recording.manager.run_pending(recording.now)
    replay = replay_of(recording.record(), settings)
    assert str(replay.difference) == "None"
    assert replay.totals == replay.recorded_totals == totals_of(manager)


# Readers


def watched(continue_caching_ns: int) -> ActiveCursors:
    """Active cursors that a `LogReaders` watches, as under the policy `magnetar`."""
    cursors = ActiveCursors(continue_caching_ns, 0)
    cursors.watcher = LogReaders(cursors)
    return cursors


def watching(cursors: ActiveCursors) -> LogReaders:
    assert isinstance(cursors.watcher, LogReaders)
    return cursors.watcher


def crowd(count: int) -> tuple[ActiveCursors, dict[str, Acknowledging]]:
    cursors = watched(0)
    of_log = {f"c{number}": Acknowledging(1, number - 1) for number in range(count)}
    for number, (name, cursor) in enumerate(of_log.items()):
        cursors.add(name, Position(1, number), cursor)
    return cursors, of_log


def test_view_knows_all_positions_when_it_looks_at_few_cursors() -> None:
    count = 5 * LOOKS_PER_VIEW
    cursors, _ = crowd(count)
    for turn in range(10):
        for number in range(count):
            cursors.update(f"c{number}", Position(1, number + 10 * turn + 10))
        looks = watching(cursors).looks
        view = watching(cursors).view(turn * MS, SECOND)
        assert watching(cursors).looks - looks <= LOOKS_PER_VIEW
        assert view.slowest == Position(1, 10 * turn + 10)
        assert view.due_us((1, 10 * turn + 9)) is None
        assert view.due_us((1, 10 * turn + 10)) is not None


def test_view_treats_entries_as_unacknowledged_until_all_cursors_were_seen() -> None:
    cursors, of_log = crowd(3 * LOOKS_PER_VIEW)
    first = watching(cursors).view(0, SECOND)
    assert first.may_return_to((0, 0)), "some have not been seen at all"
    for cursor in of_log.values():
        cursor.mark_delete_position = Position(1, 9000)
    for now_ns in range(1, 4 * SECOND, SECOND // 5):
        view = watching(cursors).view(now_ns, SECOND)
        assert view.may_return_to((1, 9001))
    assert not view.may_return_to((1, 9000))
    of_log["c7"].mark_delete_position = Position(1, 50)
    cursors.update("c7", Position(1, 0))  # A seek: it is seen with the next view.
    assert watching(cursors).view(4 * SECOND, SECOND).may_return_to((1, 51))


def test_stopped_cursors_protect_nothing_when_there_are_many() -> None:
    count = 2 * LOOKS_PER_VIEW
    cursors, _ = crowd(count)
    for now_ns in range(0, 4 * SECOND, SECOND // 10):
        cursors.update("c1999", Position(1, 5000 + now_ns))
        view = watching(cursors).view(now_ns, SECOND)
    assert view.slowest == Position(1, 5000 + now_ns)
    assert view.has_stopped_before((1, 0))
    assert cursors.slowest() == Position(1, 0)
    assert cursors.rank("c1999") == count
    cursors.update("c5", Position(1, 6))
    assert watching(cursors).view(4 * SECOND, SECOND).slowest == Position(1, 6), "it gets on again"


def test_departed_cursor_is_expected_after_its_mark_delete_position() -> None:
    cursors = watched(100)
    cursors.add("a", Position(1, 8), Acknowledging(1, 4))
    cursors.remove("a", 10)
    view = watching(cursors).view(11, SECOND)
    assert (view.slowest, view.may_return_to((1, 5)), view.may_return_to((1, 4))) == (
        Position(1, 5),
        True,
        False,
    )
    cursors.add("b", Position(1, 0))
    assert watching(cursors).view(110, SECOND).slowest == Position(1, 0)
    cursors.remove("b", 110)
    last = watching(cursors).view(110, SECOND)
    assert (last.slowest, last.may_return_to(LATEST)) == (None, False)
    assert not last.is_expected(EARLIEST)


def churn(cursors: ActiveCursors, times: int) -> list[weakref.ref[Acknowledging]]:
    """So many cursors come, and go for good."""
    states = []
    for number in range(times):
        state = Acknowledging(1, 0)
        states.append(weakref.ref(state))
        cursors.add(f"gone{number}", Position(1, 1), state)
        cursors.remove(f"gone{number}", number)
        cursors.forget(f"gone{number}")
    return states


def test_scan_queues_drop_removed_cursors_when_no_view_is_made() -> None:
    cursors = watched(100)
    states = churn(cursors, 5000)
    assert not any(state() for state in states)
    cursors.add("a", Position(1, 5), Acknowledging(1, 4))
    looks = watching(cursors).looks
    view = watching(cursors).view(SECOND, 5 * SECOND)
    assert watching(cursors).looks - looks <= 2 * REMOVED_KEPT
    assert not view.may_return_to((1, 4))


def test_round_continues_after_removed_cursors_are_compacted() -> None:
    cursors, of_log = crowd(5 * LOOKS_PER_VIEW)
    for cursor in of_log.values():
        cursor.mark_delete_position = Position(1, 9000)
    of_log["c4999"].mark_delete_position = Position(1, 50)
    times = iter(range(0, 100 * SECOND, SECOND))
    for _ in range(12):  # The first looks are done, and a round has begun that has not come to the last.
        view = watching(cursors).view(next(times), SECOND)
    for number in range(2600):
        cursors.remove(f"c{number}", 0)
    for _ in range(10):
        view = watching(cursors).view(next(times), SECOND)
        assert view.may_return_to((1, 51))
    of_log["c4999"].mark_delete_position = Position(1, 9000)
    views = 0
    while view.may_return_to((1, 51)):
        view = watching(cursors).view(next(times), SECOND)
        views += 1
    assert views <= 2 * 3, "what is left takes three views a round"
    assert view.may_return_to((1, 9001))


def test_cursor_is_looked_at_once_when_added_twice() -> None:
    cursors = watched(0)
    for _ in range(2):
        cursors.add("a", Position(1, 5), Acknowledging(1, 4))
    watching(cursors).view(0, SECOND)
    assert watching(cursors).looks == 1
    for _ in range(500):
        cursors.add("a", Position(1, 5), Acknowledging(1, 4))
    watching(cursors).view(1, SECOND)
    assert watching(cursors).looks == 2


def test_overdue_cursors_are_forgotten_by_removals_but_not_by_queries() -> None:
    """For `magnetar` alone: the other policies keep nothing of departed cursors, see `test_active_cursors`."""
    decisions = Decisions(0, lambda: SECOND)
    manager = WholeCache(EntryCacheSettings(1 << 20, policy="magnetar", ttl_ns=SECOND), decisions)
    cache = manager.open("log")
    cursors = ActiveCursors(100, 0)
    cache.attach_cursors(cursors)
    for number in range(3 * LOOKS_PER_VIEW):
        cursors.add(f"c{number}", Position(1, number), Acknowledging(1, 0))
        cursors.remove(f"c{number}", number // LOOKS_PER_VIEW)
    cache.insert_run([new_entry(entry_id) for entry_id in range(10)], 0, 0)
    assert watching(cursors).expected_from(1, 101) == 1
    assert watching(cursors).expected_from(1, SECOND) == NO_LIMIT
    assert watching(cursors).expected_from(1, 101) == 1, "nothing has changed"
    for entry_id in range(1, 4):
        cache.invalidate_before(Position(1, entry_id))
    assert watching(cursors).expected_from(1, 101) == NO_LIMIT, "all are forgotten"


# Buffers


def test_buffer_is_copied_out_when_few_slices_stay_cached() -> None:
    manager = new_manager(policy="magnetar", pinned_ratio_max=1.5)
    cache = manager.open("log")
    whole = bytearray(range(100))
    run = [new_entry(at, memoryview(whole)[10 * at : 10 * at + 10]) for at in range(10)]
    cache.insert_run(run, 1, 0)
    cache.invalidate_before(Position(1, 3))
    assert (manager.pinned_bytes, type(run[3].body)) == (30, memoryview)
    cache.invalidate_before(Position(1, 4))
    assert (manager.pinned_bytes, type(run[4].body), run[9].body) == (0, bytes, bytes(range(90, 100)))
    cache.clear()
    assert manager.pinned_bytes == 0


def test_large_buffers_are_copied_out_over_several_slices() -> None:
    manager = new_manager(policy="magnetar", pinned_ratio_max=1.5)
    cache = manager.open("log")
    size = COPIED_PER_SLICE // 4
    runs = []
    for number in range(10):
        whole = memoryview(bytearray(2 * size))
        runs.append([new_entry(2 * number + at, whole[at * size : (at + 1) * size]) for at in (0, 1)])
        cache.insert_run(runs[-1], 0, 0)
        manager.expect_redelivery(READER, runs[-1][1:])
    more = manager.tick(2 * SECOND)
    shared = [run[1] for run in runs if type(run[1].body) is memoryview]
    assert more
    assert 0 < len(shared) < 10
    assert manager.pinned_bytes == 0, "they do not count any more"
    turns = 0
    while manager.tick(2 * SECOND):
        turns += 1
    assert turns
    assert all(type(run[1].body) is bytes for run in runs)


BUFFER = 1600


def in_buffers_of_their_own(entries: int, slice_bytes: int, first: int = 0) -> list[Entry]:
    return [
        new_entry(entry_id, memoryview(bytearray(BUFFER))[:slice_bytes])
        for entry_id in range(first, first + entries)
    ]


@pytest.mark.parametrize("slice_bytes", [100, 400, 1200])
@pytest.mark.parametrize("visits_max", [150, NO_LIMIT])
def test_size_pass_counts_the_pinned_bytes_that_it_frees(slice_bytes: int, visits_max: int) -> None:
    manager = new_manager(100 * BUFFER, policy="magnetar")
    for entry in in_buffers_of_their_own(99, slice_bytes):
        manager.open("log").insert_run([entry], 1, entry.entry_id * SECOND)
    assert manager.eviction.size_checks_due == 1
    while manager.run_pending(100 * SECOND, visits_max):
        pass
    assert 87 <= manager.entries <= 90
    assert manager.stats.size_evictions == 1


def test_size_check_reaches_the_watermark_when_first_victims_pin_nothing() -> None:
    manager = new_manager(100 * BUFFER, policy="magnetar")
    cache = manager.open("log")
    cache.insert_run([new_entry(entry_id, bytes(100)) for entry_id in range(80)], 0, 0)
    for entry in in_buffers_of_their_own(94, 400, first=80):
        cache.insert_run([entry], 0, entry.entry_id * SECOND)
    assert manager.eviction.size_checks_due == 1
    manager.run_pending(200 * SECOND)
    held = manager.used_bytes + manager.pinned_bytes
    assert 87 * BUFFER <= held <= 90 * BUFFER
    assert cache.peek(1, 79) is None
    assert manager.stats.size_evictions == 1


def test_insert_above_the_bound_evicts_only_the_excess() -> None:
    manager = new_manager(100 * BUFFER, policy="magnetar")
    cache = manager.open("log")
    for entry in in_buffers_of_their_own(99, 100):
        cache.insert_run([entry], 0, entry.entry_id * SECOND)
    manager.eviction.bound._visits_left = 0
    cache.insert_run([new_entry(200, bytes(2 * BUFFER))], 0, 100 * SECOND)
    assert manager.used_bytes + manager.pinned_bytes <= 100 * BUFFER
    assert 94 <= manager.entries <= 99


@pytest.mark.parametrize("slice_bytes", [100, 400])
def test_replay_repeats_decisions_that_depend_on_pinned_bytes(slice_bytes: int) -> None:
    settings = EntryCacheSettings(
        100 * BUFFER, policy="magnetar", ttl_ns=1000 * MS, pinned_ratio_max=0, watermark=0.7
    )
    recording = Recording(settings)
    more = False
    for entry in in_buffers_of_their_own(1000, slice_bytes):
        recording.now += 60 * MS
        recording.append([entry])
        if more or entry.entry_id % 5 == 0:
            more = recording.manager.run_pending(recording.now, 150)
    manager = recording.manager
    assert manager.stats.evicted_entries[Reason.SIZE] > 500
    replay = replay_of(recording.record(), settings)
    assert str(replay.difference) == "None"
    assert replay.totals == replay.recorded_totals == totals_of(manager)


def test_entries_share_is_everything_when_nothing_is_pinned() -> None:
    assert entries_share(7, 1000, 1000) == 7
    assert entries_share(160, 1000, 16_000) == 1000 // 32
    assert entries_share(1600, 1000, 16_000) == 100
    assert entries_share(1600, 0, 16_000) == 1


def test_shorter_grace_time_holds_for_a_cursor_that_has_left() -> None:
    settings = EntryCacheSettings(1 << 20, policy="magnetar", continue_caching_ns=40 * SECOND)
    manager = ComposedCache(settings).manager
    cursors = ActiveCursors(settings.continue_caching_ns, 0)
    manager.open("log").attach_cursors(cursors, 0, counts_reads=True, by_mark_delete=False)
    readers = watching(cursors)
    cursors.add("s", Position(1, 5), Acknowledging(1, 2))
    cursors.remove("s", SECOND)
    assert readers.names_returning(Position(1, 9), 2 * SECOND) == ("s",)
    assert readers.expected_from(1, 2 * SECOND) == 3
    manager.reconfigure(replace(settings, continue_caching_ns=SECOND // 2))
    assert readers.names_returning(Position(1, 9), 2 * SECOND) == ()
    assert readers.expected_from(1, 2 * SECOND) == NO_LIMIT
    assert readers.forget_overdue(2 * SECOND) == 1


def test_cursor_without_grace_time_gets_none_by_a_change() -> None:
    settings = EntryCacheSettings(1 << 20, policy="magnetar", continue_caching_ns=SECOND)
    manager = ComposedCache(settings).manager
    cursors = ActiveCursors(0, 0)
    manager.open("log").attach_cursors(cursors, 0, counts_reads=False, by_mark_delete=False)
    manager.reconfigure(replace(settings, continue_caching_ns=2 * SECOND))
    assert cursors.continue_caching_ns == 0
