"""A large topic cut into several ranges, so that tasks can share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark_pulsar.planning.position import Position, TopicRange

LAST_ENTRY: Final = 2**62
"""Behind every entry of a ledger."""
ENTRIES_PER_PART_MIN: Final = 16
"""Smaller parts are not worth a task."""


def weight(topic_range: TopicRange) -> int:
    """Entries in a range: exact within one ledger, a guess across ledgers."""
    start, end = topic_range.start, topic_range.end
    if start.ledger == end.ledger:
        return max(1, end.entry - start.entry)
    return max(1, end.entry + 1)


def cut_ledgers(topic_range: TopicRange, ledgers: Sequence[int]) -> list[TopicRange]:
    """One range per ledger; `ledgers` are those that the range touches, in order."""
    parts = []
    start = topic_range.start
    for ledger, following in zip(ledgers, [*ledgers[1:], None], strict=True):
        end = topic_range.end if following is None else Position(ledger, LAST_ENTRY)
        parts.append(topic_range._replace(start=max(start, Position(ledger, -1)), end=end))
    return parts


def cut_entries_evenly(topic_range: TopicRange, parts: int) -> list[TopicRange]:
    """A range within one ledger, in so many pieces or fewer."""
    start, end = topic_range.start, topic_range.end
    entries = end.entry - start.entry
    parts = min(parts, max(1, entries // ENTRIES_PER_PART_MIN))
    if start.ledger != end.ledger or parts < 2:
        return [topic_range]
    borders = [Position(end.ledger, start.entry + entries * part // parts) for part in range(1, parts)]
    starts = [start, *borders]
    ends = [*borders, end]
    return [topic_range._replace(start=first, end=last) for first, last in zip(starts, ends, strict=True)]
