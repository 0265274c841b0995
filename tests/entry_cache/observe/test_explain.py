"""Why an entry is cached or is not: every way to come, to stay and to go is told, and silence is told as silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, strategies

from broker.compose.cache_settings import EntryCacheSettings
from entry_cache.active_cursors import ActiveCursors
from entry_cache.entry_cache import EntryCache
from entry_cache.listener import Obstacle, StorageRead
from entry_cache.observe import decision_ring as decision_ring_module
from entry_cache.observe.cache_events import Op
from entry_cache.observe.decisions import Decisions
from entry_cache.observe.explain import Explanation, Kept, Verdict, explain, names
from entry_cache.policy_names import POLICY_NAMES
from foundation.model.entry import Entry
from foundation.model.position import Position
from tests.entry_cache.cache_fakes import SECOND, new_entry, new_run
from tests.fakes.whole_cache import WholeCache


class Room:
    """A manager with one cache, its cursors, decisions that are kept, and a clock that stands still."""

    def __init__(self, keep: int = 1000, *, size_bytes_max: int = 1 << 30, policy: str = "pip430") -> None:
        self.now = 100 * SECOND
        self.decisions = Decisions(keep, lambda: self.now)
        settings = EntryCacheSettings(size_bytes_max=size_bytes_max, policy=policy, pinned_ratio_max=0)
        self.manager = WholeCache(settings, self.decisions)
        self.cache: EntryCache = self.manager.open("log")
        self.cursors = ActiveCursors(5 * SECOND, self.now)
        self.cache.attach_cursors(self.cursors)

    def after(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)

    def insert(self, *entries: Entry, expected: int | None = None) -> None:
        """Appends and caches a run as the log does after its confirmation."""
        count = len(self.cursors) if expected is None else expected
        self.cache.insert_run(list(entries), count, self.now)

    def read(self, name: str, first: int, last: int) -> list[Entry]:
        """Reads and delivers a run."""
        taken = self.cache.read_run(self.cache.reader(name), 1, first, last, 1 << 40)
        self.cursors.update(name, Position(1, last + 1))
        self.manager.mark_delivered(taken)
        return taken

    def pass_over(self) -> None:
        self.manager.tick(self.now)

    def why(self, entry_id: int) -> Explanation:
        events = [event for some in self.decisions.ring.about(1, entry_id) for event in some]
        return explain(
            self.cache,
            self.manager.eviction_stats.expectations,
            Position(1, entry_id),
            events,
            Kept.by(self.decisions.ring),
            self.now,
        )


def ops(told: Explanation) -> list[Op]:
    return [event.op for event in told.events]


def test_explain_names_readers_still_to_come() -> None:
    room = Room()
    for name in ("tail", "billing"):
        room.cursors.add(name, Position(1, 0))
    room.insert(*new_run(0, 4))
    room.after(2)
    room.read("tail", 0, 4)
    told = room.why(3)
    assert told.verdict is Verdict.CACHED
    assert ops(told) == [Op.INSERT, Op.HIT]
    assert (told.events[0].who, told.events[0].detail) == (("tail", "billing"), 2)
    assert told.events[1].who == ("tail",)
    assert told.conclusion == "Cached for 2.0 s: billing will still read it."
    assert told.present is not None
    assert (told.present.expected_reads, told.present.to_come) == (1, ("billing",))
    assert (told.present.age_ns, told.present.size_bytes, told.present.requeues) == (2 * SECOND, 10, 0)


def test_explain_says_when_no_reader_is_to_come() -> None:
    room = Room()
    room.insert(new_entry(0))
    room.after(0.25)
    assert room.why(0).conclusion == (
        "Cached for 250 ms: no reader is known to come for it, so it is evicted when its time is over or the cache is full."
    )


def test_explain_shows_the_count_when_no_cursor_is_before_the_entry() -> None:
    """A replay: its cursor has read on."""
    room = Room()
    room.insert(new_entry(0), expected=1)
    room.after(0.25)
    assert room.why(0).conclusion == "Cached for 250 ms: 1 read of it is still expected."


def test_explain_tells_requeues_and_missed_readers_after_a_time_pass() -> None:
    room = Room()
    for name in ("tail", "billing"):
        room.cursors.add(name, Position(1, 0))
    room.insert(new_entry(7))
    room.read("tail", 7, 7)
    for _ in range(6):
        room.after(1.5)
        room.pass_over()
    room.after(3)
    told = room.why(7)
    assert told.verdict is Verdict.EVICTED
    assert ops(told) == [Op.INSERT, Op.HIT, *[Op.REQUEUE] * 5, Op.EVICT]
    assert told.conclusion == (
        "Not cached: it was evicted 3.0 s ago because its time was over, 9.0 s after it was inserted and requeued"
        " 5 times, although billing had not read it."
    )


def test_explain_tells_requeues_before_the_eviction_of_a_size_pass() -> None:
    room = Room(size_bytes_max=1000)
    room.cursors.add("tail", Position(1, 0))
    room.insert(*new_run(0, 99))
    room.read("tail", 0, 49)
    assert room.manager.run_pending(room.now) is False
    told = room.why(0)
    assert ops(told) == [Op.INSERT, Op.HIT, Op.REQUEUE, Op.EVICT]
    assert told.conclusion == (
        "Not cached: it was evicted under 1 ms ago because the cache was full, under 1 ms after it was inserted and"
        " requeued once; all expected readers had read it."
    )
    told = room.why(60)
    assert told.verdict is Verdict.CACHED
    assert told.present is not None
    requeues = told.present.requeues
    assert requeues is not None
    assert ops(told) == [Op.INSERT, *[Op.REQUEUE] * requeues]


@pytest.mark.parametrize(
    ("expected", "cursors", "end"),
    [(-1, 1, "; its reads were not counted."), (0, 0, "; no reader was expected.")],
)
def test_explain_tells_an_eviction_without_expected_reads(expected: int, cursors: int, end: str) -> None:
    room = Room()
    for number in range(cursors):
        room.cursors.add(str(number), Position(1, 0))
    room.insert(new_entry(0), expected=expected)
    room.after(2)
    room.pass_over()
    assert room.why(0).conclusion.endswith(f"2.0 s after it was inserted{end}")


def test_explain_counts_storage_reads_as_reads() -> None:
    """The read that brings an entry into the cache serves its reader past the cache."""
    room = Room()
    room.cursors.add("late", Position(1, 0))
    room.cache.listener.asked_storage(StorageRead.MISS, room.cache, room.cache.reader("late"), 1, 0, 5)
    room.cache.listener.asked_storage(StorageRead.COALESCED, room.cache, room.cache.reader("later"), 1, 0, 5)
    room.cursors.add("later", Position(1, 0))
    entries = new_run(0, 4)
    room.insert(*entries, expected=2)
    room.manager.mark_delivered(entries * 2)
    room.after(30)
    room.manager.evict_bytes(1, room.now)
    told = room.why(0)
    assert ops(told)[:3] == [Op.MISS, Op.COALESCED, Op.INSERT]
    assert told.conclusion.endswith("; all expected readers had read it.")


def test_explain_tells_storage_reads_after_the_eviction() -> None:
    room = Room()
    room.cursors.add("tail", Position(1, 0))
    room.insert(new_entry(0), expected=0)
    room.after(2)
    room.pass_over()
    late = room.cache.reader("late")
    room.cache.listener.asked_storage(StorageRead.MISS, room.cache, late, 1, 0, 1)
    assert room.why(0).conclusion.endswith(". Since then it was read from storage by late.")
    room.cache.not_cached(new_run(0, 0), Obstacle.NO_READER, room.now)
    assert room.why(0).conclusion.endswith(
        ". Since then it was read from storage by late, and not cached:"
        " no active cursor was known to read it again."
    )


def test_explain_tells_the_newest_insertion_when_evicted_twice() -> None:
    room = Room()
    room.cursors.add("tail", Position(1, 0))
    room.insert(new_entry(0), expected=0)
    room.read("tail", 0, 0)
    room.manager.evict_bytes(1, room.now)
    room.cursors.add("other", Position(1, 0))
    room.after(10)
    room.insert(new_entry(0), expected=1)
    room.after(1)
    room.manager.evict_bytes(1, room.now)
    told = room.why(0)
    assert ops(told).count(Op.INSERT) == ops(told).count(Op.EVICT) == 2
    assert "1.0 s after it was inserted" in told.conclusion
    assert told.conclusion.endswith(", although other had not read it.")


def test_explain_tells_invalidation_and_closing() -> None:
    room = Room()
    room.insert(*new_run(0, 9))
    room.cache.invalidate_before(Position(1, 5))
    assert "because no reader needed it, or the topic was closed" in room.why(4).conclusion
    assert room.why(5).verdict is Verdict.CACHED
    room.cache.invalidate_ledger(1)
    assert "because its ledger was deleted or could not be read" in room.why(5).conclusion


def test_explain_says_when_events_of_the_insertion_are_forgotten() -> None:
    room = Room(keep=2)
    room.insert(new_entry(0))
    room.insert(new_entry(1))
    room.insert(new_entry(2))
    room.after(2)
    room.manager.evict_bytes(1, room.now)
    told = room.why(0)
    assert ops(told) == [Op.EVICT]
    assert told.conclusion.endswith(
        "because the cache was full; it had been inserted before the time that is kept."
    )


@pytest.mark.parametrize(
    ("obstacle", "words"),
    [
        (Obstacle.NO_ACTIVE_CURSOR, "no cursor was active, nor had one been shortly before"),
        (Obstacle.FULL, "the cache was full, and no reader was known to come for it"),
        (Obstacle.TOO_LARGE, "it is larger than the cache"),
    ],
)
def test_explain_says_when_an_entry_was_never_cached(obstacle: Obstacle, words: str) -> None:
    room = Room()
    room.cache.not_cached(new_run(0, 3), obstacle, room.now)
    room.after(4)
    told = room.why(3)
    assert told.verdict is Verdict.NEVER_CACHED
    assert told.conclusion == f"Never cached: it was published 4.0 s ago, when {words}."


def test_explain_tells_storage_reads_of_an_entry_never_cached() -> None:
    room = Room()
    room.cache.not_cached(new_run(3, 3), Obstacle.NO_ACTIVE_CURSOR, room.now)
    room.after(4)
    room.cache.listener.asked_storage(StorageRead.MISS, room.cache, room.cache.reader("late"), 1, 0, 9)
    assert room.why(3).conclusion == (
        "Never cached: it was published 4.0 s ago, when no cursor was active, nor had one been shortly before."
        " Since then it was asked of storage by late."
    )


def test_explain_tells_redelivery_reads_of_an_entry_never_cached() -> None:
    room = Room()
    room.cache.listener.asked_storage(StorageRead.MISS, room.cache, room.cache.reader("shared"), 1, 3, 1)
    room.after(1)
    room.cache.not_cached(new_run(3, 3), Obstacle.NO_READER, room.now)
    assert room.why(3).conclusion == (
        "Never cached: it was read from storage by shared under 1 ms ago, when no active cursor was known to read it"
        " again."
    )


def test_explain_says_when_the_cache_is_off() -> None:
    room = Room(size_bytes_max=0)
    room.insert(new_entry(0))
    room.cache.not_cached(new_run(1, 1), Obstacle.NO_ACTIVE_CURSOR, room.now)
    for entry_id in (0, 1):
        assert "there was no cache (managedLedgerCacheSizeMB=0)" in room.why(entry_id).conclusion


def test_explain_says_when_a_full_strict_cache_refused_an_entry() -> None:
    room = Room(size_bytes_max=100, policy="magnetar")
    room.insert(*new_run(0, 9), expected=1)
    room.manager.reconfigure(replace(room.manager.settings, size_bytes_max=50))
    room.insert(new_entry(50), expected=0)
    told = room.why(50)
    assert told.verdict is Verdict.NEVER_CACHED
    assert "the cache was full" in told.conclusion


def test_explain_says_when_no_event_is_kept() -> None:
    room = Room(keep=0)
    assert room.why(0).conclusion == (
        "Not cached; why is not known, because no decisions are kept (entryCacheDecisionsKept=0)."
    )
    room.after(5)
    room.decisions.keep(3)
    room.after(60)
    assert room.why(0).conclusion == (
        "Not cached: it was published more than 1 min ago, before decisions were noted, and not read since."
    )
    for entry_id in (1, 2, 3):
        room.after(1)
        room.insert(new_entry(entry_id))
    room.after(1)
    told = room.why(0)
    assert told.verdict is Verdict.UNKNOWN
    assert told.conclusion == (
        "Not cached, and nothing about it is kept: if it ever was, it left more than 3.0 s ago"
        " (entryCacheDecisionsKept=3)."
    )


def test_explain_tells_running_and_failed_reads() -> None:
    room = Room()
    room.cache.listener.asked_storage(StorageRead.MISS, room.cache, room.cache.reader("late"), 1, 0, 5)
    assert room.why(4).conclusion == "Not cached yet: it is being read from storage by late."
    room.cache.listener.asked_storage(StorageRead.FAILED, room.cache, room.cache.reader("late"), 1, 0, 5)
    room.after(2)
    assert room.why(4).conclusion == "Not cached: reading it from storage failed 2.0 s ago."


def test_ring_keeps_the_newest_events_when_made_smaller() -> None:
    room = Room(keep=10)
    began = room.now
    for entry_id in range(5):
        room.after(1)
        room.insert(new_entry(entry_id))
    assert (room.decisions.ring.since_ns, room.decisions.ring.forgets, room.decisions.ring.kept) == (
        began,
        False,
        5,
    )
    room.decisions.keep(2)
    assert (room.decisions.ring.since_ns, room.decisions.ring.forgets) == (began + 4 * SECOND, True)
    room.decisions.keep(100)
    assert (room.decisions.ring.since_ns, room.decisions.ring.forgets) == (began + 4 * SECOND, False)
    assert ops(room.why(3)) == [Op.INSERT]


def test_ring_search_runs_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_ring_module, "ROWS_PER_SLICE", 2)
    room = Room()
    for entry_id in (0, 1, 0, 2, 0):
        room.cache.listener.asked_storage(
            StorageRead.MISS, room.cache, room.cache.reader("r"), 1, entry_id, 1
        )
    assert [len(some) for some in room.decisions.ring.about(1, 0)] == [1, 1, 1]
    assert [len(some) for some in room.decisions.ring.about(2, 0)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("some", "text"),
    [
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c"], "a, b and c"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
    ],
)
def test_explain_shows_few_names(some: Sequence[str], text: str) -> None:
    assert names(some) == text


STEPS = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(["insert", "read", "pass", "free", "put back", "invalidate", "refuse"]),
        strategies.integers(0, 7),
        strategies.integers(-1, 2),
    ),
    max_size=40,
)


@pytest.mark.parametrize("policy", POLICY_NAMES)
@given(steps=STEPS)
def test_explain_agrees_with_the_cache_after_random_actions(
    policy: str, steps: list[tuple[str, int, int]]
) -> None:
    """After any actions the verdict agrees with the cache, and the events tell a life that is possible."""
    room = Room(policy=policy)
    room.cursors.add("tail", Position(1, 0))
    for what, entry_id, count in steps:
        room.after(0.4)
        step(room, what, entry_id, count)
    for entry_id in range(10):
        told = room.why(entry_id)
        assert (told.verdict is Verdict.CACHED) == (room.cache.peek(1, entry_id) is not None)
        assert is_cached_after(ops(told)) == (told.verdict is Verdict.CACHED)
        assert (told.verdict is Verdict.UNKNOWN) == (not told.events)


def step(room: Room, what: str, entry_id: int, count: int) -> None:
    match what:
        case "insert":
            room.insert(*new_run(entry_id, entry_id + 2), expected=count)
        case "read":
            room.read("tail", entry_id, entry_id + count)
        case "pass":
            room.pass_over()
        case "free":
            room.manager.evict_bytes(1 + 10 * entry_id, room.now)
        case "put back":
            room.manager.expect_redelivery(
                room.cache.reader("s"), room.cache.get_present(room.cache.reader("s"), 1, entry_id, 9)
            )
        case "invalidate":
            room.cache.invalidate_before(Position(1, entry_id))
        case "refuse":
            room.cache.not_cached(new_run(entry_id, entry_id), Obstacle.NO_ACTIVE_CURSOR, room.now)


def is_cached_after(events: list[Op]) -> bool:
    cached = False
    for op in events:
        assert op not in (Op.HIT, Op.REQUEUE, Op.REDELIVERY) or cached
        if op in (Op.INSERT, Op.EVICT):
            assert cached is (op is Op.EVICT)
            cached = not cached
    return cached
