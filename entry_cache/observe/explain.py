"""Explains why an entry is in the cache or is not, from the newest decisions and from the cache's present state.

The ring keeps a limited number of events (`entryCacheDecisionsKept`), so an explanation says how far back they reach. While
the ring has dropped nothing, an entry without an event was confirmed before noting began; afterwards the reason is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from entry_cache.active_cursors import NAMES_KEPT
from entry_cache.cache_stats import Reason
from entry_cache.entry_cache import EntryCache
from entry_cache.listener import Obstacle
from entry_cache.observe.cache_events import NOT_COUNTED, REASONS, STILL_EXPECTED, Event, Op
from entry_cache.observe.decision_ring import DecisionRing
from entry_cache.observe.expectations import Expectations
from entry_cache.observe.reader_names import names_at_or_before
from foundation.model.entry import Entry
from foundation.model.position import Position
from foundation.model.spans import span

NAMES_SHOWN: Final = 3
"""Names in one sentence; further ones are counted."""
READ_FROM_STORAGE: Final = (Op.MISS, Op.COALESCED)
"""Events of a reader that the cache could not serve."""

REMOVED: Final = {
    Reason.TTL: "its time was over",
    Reason.SIZE: "the cache was full",
    Reason.LEDGER: "its ledger was deleted or could not be read",
    Reason.INVALIDATE: "no reader needed it, or the topic was closed",
}
"""The half-sentence for each reason of a removal."""

OBSTACLES: Final = {
    Obstacle.DISABLED: "there was no cache (managedLedgerCacheSizeMB=0)",
    Obstacle.NO_ACTIVE_CURSOR: "no cursor was active, nor had one been shortly before",
    Obstacle.NO_READER: "no active cursor was known to read it again",
    Obstacle.FULL: "the cache was full, and no reader was known to come for it",
    Obstacle.TOO_LARGE: "it is larger than the cache",
}
"""The half-sentence for each obstacle to caching an entry."""


class Verdict(StrEnum):
    """The explanation in one word."""

    CACHED = "cached"
    """The entry is cached now."""
    EVICTED = "evicted"
    """The entry is not cached, and the ring has its removal."""
    NEVER_CACHED = "never_cached"
    """The entry was not cached as far as the ring reaches, and an event says why."""
    UNKNOWN = "unknown"
    """The entry is not cached, and the ring has no event that says why."""


@dataclass(frozen=True, slots=True)
class Present:
    """An entry as it stands in the cache."""

    size_bytes: int
    """Its bytes."""
    age_ns: int
    """The time since it was inserted."""
    unvisited_ns: int | None
    """The time since it was inserted or requeued the last time; None = the ring has neither."""
    expected_reads: int | None
    """As the policy counts them, at least 0; None = not counted."""
    requeues: int | None
    """How often it was requeued since its insertion; None = the ring lacks the insertion."""
    accessed: bool
    """True if it was read since the policy `pip430` visited it the last time."""
    to_come: tuple[str, ...]
    """Active cursors that stand at the entry or before."""
    to_return: tuple[str, ...]
    """Cursors that left and are expected back at the entry or before; only `magnetar` waits for them."""


@dataclass(frozen=True, slots=True)
class Kept:
    """How far back the kept events reach."""

    since_ns: int
    """All events since this time are kept."""
    forgets: bool
    """True if older events were dropped."""
    events_max: int
    """The number of events that the ring holds at most."""

    @staticmethod
    def by(ring: DecisionRing) -> Kept:
        """Returns the reach of a ring."""
        return Kept(ring.since_ns, ring.forgets, ring.kept_max)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an entry is cached or not."""

    verdict: Verdict
    """The explanation in one word."""
    events: Sequence[Event]
    """The kept events about the entry, oldest first."""
    present: Present | None
    """Its state in the cache; None if it is not cached."""
    conclusion: str
    """One or two plain sentences."""


def explain(
    cache: EntryCache,
    expectations: Expectations,
    position: Position,
    events: Sequence[Event],
    kept: Kept,
    now_ns: int,
) -> Explanation:
    """Explains one entry from the kept events about it (`DecisionRing.about`), oldest first."""
    entry = cache.peek(*position)
    if entry is not None:
        present = _present(cache, expectations, entry, events, now_ns)
        return Explanation(Verdict.CACHED, events, present, _why_cached(present))
    # The removal is asked for before refusals: an entry that was cached once and refused later is explained by
    # its removal.
    eviction = _last(events, Op.EVICT)
    if eviction is not None:
        return Explanation(Verdict.EVICTED, events, None, _why_evicted(events, eviction, now_ns))
    refusal = _last(events, Op.NOT_CACHED)
    if refusal is not None:
        return Explanation(Verdict.NEVER_CACHED, events, None, _why_not(events, refusal, now_ns))
    return Explanation(Verdict.UNKNOWN, events, None, _why_unknown(events, kept, now_ns))


def _last(events: Sequence[Event], op: Op) -> int | None:
    """Returns the index of the last event of an operation; None if there is none."""
    return next((n for n in range(len(events) - 1, -1, -1) if events[n].op is op), None)


def _present(
    cache: EntryCache, expectations: Expectations, entry: Entry, events: Sequence[Event], now_ns: int
) -> Present:
    """Takes requeues from the events, because not every policy counts them at the entry."""
    cursors = cache.cursors
    inserted = _last(events, Op.INSERT)
    # Requeues before the last insertion belong to an earlier life of the entry in the cache.
    requeued = [event for event in events[inserted or 0 :] if event.op is Op.REQUEUE]
    if requeued:
        unvisited_ns: int | None = now_ns - requeued[-1].at_ns
    else:
        unvisited_ns = None if inserted is None else now_ns - entry.inserted_at_ns
    return Present(
        size_bytes=entry.size,
        age_ns=now_ns - entry.inserted_at_ns,
        unvisited_ns=unvisited_ns,
        expected_reads=expectations.reads_left(cache, entry, now_ns),
        requeues=None if inserted is None else len(requeued),
        accessed=entry.accessed,
        to_come=() if cursors is None else names_at_or_before(cursors, entry.position, len(cursors)),
        to_return=expectations.expected_back(cache, entry, now_ns),
    )


def reason_of(evicted: Event) -> Reason:
    """Returns the reason of an EVICT."""
    return REASONS[evicted.detail % STILL_EXPECTED]


def was_expected(evicted: Event) -> bool:
    """Returns True if reads of the entries of an EVICT were still expected."""
    return evicted.detail >= STILL_EXPECTED


# Sentences


def _why_cached(present: Present) -> str:
    text = f"Cached for {_span(present.age_ns)}"
    come = [f"{names(present.to_come)} will still read it"] if present.to_come else []
    if present.to_return:
        verb = "is" if len(present.to_return) == 1 else "are"
        come.append(f"{names(present.to_return)} left and {verb} expected back for it")
    if come:
        return f"{text}: {', and '.join(come)}."
    if present.expected_reads:
        return f"{text}: {_reads(present.expected_reads)} still expected."
    return f"{text}: no reader is known to come for it, so it is evicted when its time is over or the cache is full."


def _why_evicted(events: Sequence[Event], end: int, now_ns: int) -> str:
    evicted, later = events[end], events[end + 1 :]
    inserted = _last(events[:end], Op.INSERT)
    text = f"Not cached: it was evicted {_ago(evicted, now_ns)} because {REMOVED[reason_of(evicted)]}"
    if inserted is None:
        text += "; it had been inserted before the time that is kept"
    else:
        life = events[inserted : end + 1]
        requeues = sum(event.op is Op.REQUEUE for event in life)
        text += f", {_span(evicted.at_ns - life[0].at_ns)} after it was inserted"
        if requeues:
            text += f" and requeued {_times(requeues)}"
        # Reads before the last removal do not count: they were of an earlier life of the entry.
        before = _last(events[:inserted], Op.EVICT)
        text += _unread(life[0], evicted, events[0 if before is None else before : end])
    asked = _asked_storage(later)
    if asked:
        text += f". Since then it was read from storage by {names(asked)}"
    refusal = _last(later, Op.NOT_CACHED)
    if refusal is not None:
        text += f", and not cached: {OBSTACLES[Obstacle(later[refusal].detail)]}"
    return text + "."


def _unread(inserted: Event, evicted: Event, events: Iterable[Event]) -> str:
    """Says which of the expected cursors had read the entry, or had not.

    `events` begin before the entry was cached, because the storage read that brought it served a reader too. The EVICT
    says if reads were still expected.
    """
    read = _readers(event for event in events if event.op in (Op.HIT, *READ_FROM_STORAGE))
    unread = [name for name in inserted.who if name not in read]
    # INSERT names `NAMES_KEPT` readers at most, so with more of them the rest is known by number alone.
    unnamed = inserted.detail - len(inserted.who) if len(inserted.who) >= NAMES_KEPT else 0
    more = f" ({unnamed} more were to read it, whose names are not kept)" if unnamed > 0 else ""
    if was_expected(evicted):
        return (
            f", although {names(unread)} had not read it{more}"
            if unread
            else f", although reads of it were expected{more}"
        )
    # Without a count the list of cursors says only which of them were active, not that they were to read it.
    if inserted.detail == NOT_COUNTED:
        return "; its reads were not counted"
    if not inserted.who:
        return "; no reader was expected"
    if unread:
        return f"; {names(unread)} had not read it, and no further read was expected{more}"
    if more:
        return f"; no further read was expected{more}"
    return "; all expected readers had read it"


def _why_not(events: Sequence[Event], end: int, now_ns: int) -> str:
    asked = _asked_storage(events[:end])
    what = f"read from storage by {names(asked)}" if asked else "published"
    obstacle = OBSTACLES[Obstacle(events[end].detail)]
    text = f"Never cached: it was {what} {_ago(events[end], now_ns)}, when {obstacle}"
    later = _asked_storage(events[end:])
    return f"{text}. Since then it was asked of storage by {names(later)}." if later else f"{text}."


def _why_unknown(events: Sequence[Event], kept: Kept, now_ns: int) -> str:
    if not kept.events_max:
        return "Not cached; why is not known, because no decisions are kept (entryCacheDecisionsKept=0)."
    if events and events[-1].op in READ_FROM_STORAGE:
        return f"Not cached yet: it is being read from storage by {names(_asked_storage(events))}."
    if events and events[-1].op is Op.FAILED:
        return f"Not cached: reading it from storage failed {_ago(events[-1], now_ns)}."
    # The ring has nothing about the entry, so the answer is how far back the ring reaches.
    time = _span(now_ns - kept.since_ns)
    if kept.forgets:
        return (
            f"Not cached, and nothing about it is kept: if it ever was, it left more than {time} ago"
            f" (entryCacheDecisionsKept={kept.events_max})."
        )
    return (
        f"Not cached: it was published more than {time} ago, before decisions were noted, and not read since."
    )


# Words


def names(some: Iterable[str]) -> str:
    """Returns the first names, and how many more there are."""
    every = list(some)
    shown = every[:NAMES_SHOWN]
    if len(every) > NAMES_SHOWN:
        return f"{', '.join(shown)} and {len(every) - NAMES_SHOWN} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _asked_storage(events: Iterable[Event]) -> tuple[str, ...]:
    return _readers(event for event in events if event.op in READ_FROM_STORAGE)


def _readers(events: Iterable[Event]) -> tuple[str, ...]:
    """Returns the names of the readers, each once, in the order of their first read."""
    return tuple(dict.fromkeys(name for event in events for name in event.who))


def _reads(count: int) -> str:
    return "1 read of it is" if count == 1 else f"{count} reads of it are"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _span(time_ns: int) -> str:
    return span(time_ns / 1e9)


def _ago(event: Event, now_ns: int) -> str:
    return f"{_span(now_ns - event.at_ns)} ago"
