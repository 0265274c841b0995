"""Cuts the range of a large topic into several, so that tasks can share it. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark_pulsar.position import MessagePosition, TopicRange

LAST_ENTRY: Final = 2**62
"""Entry id after every entry of a ledger, for the end of a ledger whose length is unknown."""
LEDGER_ENTRIES: Final = 50_000
"""Assumed length of such a ledger: Pulsar's default of `managedLedgerMaxEntriesPerLedger`."""
ENTRIES_PER_PART_MIN: Final = 16
"""Smallest piece; a task costs 50 to 100 ms, in which far more than so many entries are read."""


def weight(topic_range: TopicRange) -> int:
    """Returns the entries of a range: exact within one ledger, across ledgers those of the last one.

    LEDGER_ENTRIES where the end is that of a ledger of unknown length.
    """
    start, end = topic_range.start, topic_range.end
    if end.entry >= LAST_ENTRY:
        return LEDGER_ENTRIES
    if start.ledger == end.ledger:
        return max(1, end.entry - start.entry)
    return max(1, end.entry + 1)


def cut_ledgers(topic_range: TopicRange, ledgers: Sequence[int]) -> list[TopicRange]:
    """Returns one range per ledger; `ledgers` are those that the range touches, in order."""
    parts = []
    start = topic_range.start
    for ledger, following in zip(ledgers, [*ledgers[1:], None], strict=True):
        end = topic_range.end if following is None else MessagePosition(ledger, LAST_ENTRY)
        parts.append(topic_range._replace(start=max(start, MessagePosition(ledger, -1)), end=end))
    return parts


def cut_entries_evenly(topic_range: TopicRange, parts: int) -> list[TopicRange]:
    """Cuts a range within one ledger of known length into at most `parts` pieces; any other range is returned whole."""
    start, end = topic_range.start, topic_range.end
    # A piece that begins after the ledger's last entry would look like a data loss.
    if end.entry >= LAST_ENTRY:
        return [topic_range]
    entries = end.entry - start.entry
    parts = min(parts, max(1, entries // ENTRIES_PER_PART_MIN))
    if start.ledger != end.ledger or parts < 2:
        return [topic_range]
    borders = [MessagePosition(end.ledger, start.entry + entries * part // parts) for part in range(1, parts)]
    starts = [start, *borders]
    ends = [*borders, end]
    return [topic_range._replace(start=first, end=last) for first, last in zip(starts, ends, strict=True)]
