"""Finds the option that a misspelled name means. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable


def nearest_name(given: str, names: Iterable[str]) -> str | None:
    """Returns the name with the smallest distance from `given`, in its spelling; None if all are too far.

    Case is ignored. The last part of a dotted name counts as well, so that `compressionType` finds
    `pulsar.producer.compressionType`. Too far is a distance above a third of the given letters, and above 2.
    """
    wanted = given.lower()
    found = min(((_distance_to(wanted, name.lower()), name) for name in names), default=None)
    return found[1] if found is not None and found[0] <= max(2, len(wanted) // 3) else None


def _distance_to(given: str, name: str) -> int:
    # One more for the short form, so that a whole name at the same distance wins.
    return min(distance(given, name), distance(given, name.rpartition(".")[2]) + 1)


def distance(first: str, second: str) -> int:
    """Returns the fewest letters to insert, remove or replace that make `second` of `first` (Levenshtein)."""
    row = list(range(len(second) + 1))
    for done, letter in enumerate(first, 1):
        left = done
        next_row = [done]
        for at, other in enumerate(second, 1):
            left = min(row[at] + 1, left + 1, row[at - 1] + (letter != other))
            next_row.append(left)
        row = next_row
    return row[-1]
