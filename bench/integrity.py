"""Counts lost, doubled and reordered messages of one subscription.

Law: a message is its number, 0 … expected-1, in the order of sending; pure counting.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Verdict(NamedTuple):
    """Counts of one or several subscriptions."""

    lost: int
    """Never delivered."""
    doubled: int
    """Deliveries beyond the first of a number, and numbers that were never sent."""
    out_of_order: int
    """First deliveries that came after a later number."""


class Checker:
    """The deliveries of one subscription, fed number by number in the order of delivery."""

    __slots__ = ("_expected", "_last", "_seen", "doubled", "first_seen", "out_of_order")

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._seen = bytearray(expected)
        self._last = -1
        self.first_seen = 0
        self.doubled = 0
        self.out_of_order = 0

    def see(self, number: int) -> None:
        """Notes a delivery."""
        if number >= self._expected or self._seen[number]:
            self.doubled += 1
            return
        self._seen[number] = 1
        self.first_seen += 1
        if number < self._last:
            self.out_of_order += 1
        else:
            self._last = number

    def complete(self) -> bool:
        """Returns True if every number was delivered."""
        return self.first_seen == self._expected

    def verdict(self) -> Verdict:
        """Returns the counts so far."""
        return Verdict(self._expected - self.first_seen, self.doubled, self.out_of_order)


def total(checkers: Iterable[Checker]) -> Verdict:
    """Returns the sum of all verdicts."""
    return Verdict(*map(sum, zip(*(checker.verdict() for checker in checkers), strict=True)))
