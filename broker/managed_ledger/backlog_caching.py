"""Backlog caching: the cursors whose storage reads are cached, because others will read the same soon after.

Pulsar's rule before PIP-430, off unless `managedLedgerMinimumBacklogCursorsForCaching` is set. A pure decision, made
about once a minute.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import TypeVar

Cursor = TypeVar("Cursor")


def followed_closely(
    backlogs: Mapping[Cursor, int], *, cursors_min: int, entries_min: int, between_max: int
) -> set[Cursor]:
    """Returns the cursors that enough other cursors are close to.

    Only cursors with at least `entries_min` entries of backlog count. A cursor is returned if at least `cursors_min`
    of these, itself included, differ from its backlog by at most `between_max` entries. `cursors_min` 0 or less =
    no cursor.
    """
    if cursors_min <= 0:
        return set()
    slow = {cursor: backlog for cursor, backlog in backlogs.items() if backlog >= entries_min}
    # Sorted once, two searches per cursor: comparing each with each would be quadratic.
    order = sorted(slow.values())
    return {
        cursor
        for cursor, backlog in slow.items()
        if bisect_right(order, backlog + between_max) - bisect_left(order, backlog - between_max)
        >= cursors_min
    }
