"""Backlog caching: which cursors cache what they read from storage, because others will read it soon after.

What came before PIP-430, and off unless `managedLedgerMinimumBacklogCursorsForCaching` is set. A pure decision,
made about once a minute.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import TypeVar

Cursor = TypeVar("Cursor")


def followed_closely(
    backlogs: Mapping[Cursor, int], *, cursors_min: int, entries_min: int, between_max: int
) -> set[Cursor]:
    """The cursors of at least `entries_min` entries of backlog that stand among at least `cursors_min` such
    cursors, itself one of them, whose backlogs differ from its own by at most `between_max` entries.
    `cursors_min` 0 or less = none."""
    if cursors_min <= 0:
        return set()
    behind = {cursor: backlog for cursor, backlog in backlogs.items() if backlog >= entries_min}
    order = sorted(behind.values())
    return {
        cursor
        for cursor, backlog in behind.items()
        if bisect_right(order, backlog + between_max) - bisect_left(order, backlog - between_max)
        >= cursors_min
    }
