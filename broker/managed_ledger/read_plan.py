"""The plan of one read: which entries the cache has, which storage reads to join, which to begin.

A pure function: `wanted, cached, running -> have, join, fetch`. `EntryRead` executes the plan.

    wanted    10 ............................................ 99
    cached    10 .. 19                   50
    running             15 ...... 39              60 . 69
    have      10 .. 19                   50
    join                20 ...... 39              60 . 69
    fetch                        40..49  51 .. 59      70 .. 99

Each gap that the cache leaves is covered by itself, so no entry is read twice. The order of preference is Pulsar's
(PIP-430, `PendingReadsManager`): the same range, a range that includes it, a range that overlaps it. The law: `have`,
`join` and `fetch` together are `wanted`, and no two of them overlap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeAlias

Span: TypeAlias = tuple[int, int]
"""(first, last) entry id of one ledger, both included."""


class Match(StrEnum):
    """Relation of a running storage read to a gap.

    The overlaps are named by the side on which the read lacks entries.
    """

    SAME = "same"
    """The read covers exactly the gap."""
    INCLUDED = "included"
    """The read covers the gap and more."""
    LEFT = "left"
    """The read lacks entries at the begin of the gap."""
    RIGHT = "right"
    """The read lacks entries at the end of the gap."""
    BOTH = "both"
    """The read lacks entries at both ends of the gap."""


class Join(NamedTuple):
    """Entries to receive from a storage read that another reader has started."""

    running: Span
    """The storage read, by its own range."""
    first: int
    """First entry to receive."""
    last: int
    """Last entry to receive, included."""
    match: Match
    """For the counters of coalesced reads."""


class ReadPlan(NamedTuple):
    """The parts of one range, to be carried out in this order."""

    have: Sequence[int]
    """Entry ids that the cache has, ascending."""
    join: list[Join]
    """Running reads to wait for."""
    fetch: list[Span]
    """Ranges to ask of storage, ascending."""


def plan_read(first: int, last: int, cached: Sequence[int], running: Collection[Span]) -> ReadPlan:
    """Plans the read of entries `first` to `last` of one ledger.

    `cached`: ascending ids within the range. `running`: storage reads of that ledger, the oldest first; a
    mapping with those keys makes the look for the same range cheap.
    """
    plan = ReadPlan(cached, [], [])
    for gap_first, gap_last in gaps_between(first, last, cached):
        _cover(gap_first, gap_last, running, plan)
    return plan


def gaps_between(first: int, last: int, cached: Sequence[int]) -> list[Span]:
    """Returns the maximal ranges of `first` to `last` without cached entries.

    `cached`: ascending ids within the range.
    """
    gaps: list[Span] = []
    for entry_id in cached:
        if first < entry_id:
            gaps.append((first, entry_id - 1))
        first = entry_id + 1
    if first <= last:
        gaps.append((first, last))
    return gaps


def _cover(first: int, last: int, running: Collection[Span], plan: ReadPlan) -> None:
    """Adds the parts of one gap to the plan."""
    if not running:
        plan.fetch.append((first, last))
        return
    if (first, last) in running:
        plan.join.append(Join((first, last), first, last, Match.SAME))
        return
    # The first one that includes the gap is the oldest: it has been under way for longest.
    for span in running:
        if span[0] <= first and last <= span[1]:
            plan.join.append(Join(span, first, last, Match.INCLUDED))
            return
    overlap = _best_overlap(running, first, last)
    if overlap is None:
        plan.fetch.append((first, last))
        return
    span, match = overlap
    plan.join.append(Join(span, max(first, span[0]), min(last, span[1]), match))
    # Other running reads may have a part of the rest, so it is planned like a gap of its own.
    if first < span[0]:
        _cover(first, span[0] - 1, running, plan)
    if span[1] < last:
        _cover(span[1] + 1, last, running, plan)


def _best_overlap(running: Iterable[Span], first: int, last: int) -> tuple[Span, Match] | None:
    """Returns the overlapping read that lacks the least useful side.

    A read that lacks only the right side is the best, because the rest is then fetched in the order of delivery; next
    comes one that lacks only the left side, then one that lacks both. Of several such reads the newest is returned.
    """
    right = left = both = None
    for span in running:
        if span[0] <= first <= span[1] < last:
            right = span
        elif first < span[0] <= last <= span[1]:
            left = span
        elif first < span[0] and span[1] < last:
            both = span
    if right is not None:
        return right, Match.RIGHT
    if left is not None:
        return left, Match.LEFT
    return None if both is None else (both, Match.BOTH)
