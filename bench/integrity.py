"""Whether what was consumed is what was confirmed: lost, doubled and out of order, counted.

Law of the place: a message is its number, 0 … expected-1, in the order of sending; pure counting.
"""

from __future__ import annotations

from typing import NamedTuple


class Verdict(NamedTuple):
    lost: int
    """Never delivered."""
    doubled: int
    """Deliveries beyond the first of a number, and numbers nobody sent."""
    out_of_order: int
    """First deliveries that came after a later number."""

    def plus(self, other: Verdict) -> Verdict:
        return Verdict(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Checker:
    """One subscription's view: feed it every number in the order of delivery."""

    __slots__ = ("_expected", "_last", "_seen", "doubled", "first_seen", "out_of_order")

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._seen = bytearray(expected)
        self._last = -1
        self.first_seen = 0
        self.doubled = 0
        self.out_of_order = 0

    def see(self, number: int) -> None:
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
        return self.first_seen == self._expected

    def verdict(self) -> Verdict:
        return Verdict(self._expected - self.first_seen, self.doubled, self.out_of_order)
