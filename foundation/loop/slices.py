"""Slices: a walk over many things on the event loop, in parts, so that clients are served in between.

A slice ends after SLICE_NS or ITEMS_MAX items, whichever comes first. The time bounds the pause where an item costs much;
the number bounds it where the clock stands still, as in tests and simulations.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

SLICE_NS: Final = 2_000_000
"""Nanoseconds of a slice; the item that passes it still ends. What the items ask for at the end of the turn comes on top, as
the runs of dispatchers whose policy has changed: 5 ms together."""
ITEMS_MAX: Final = 200
"""Items of a slice: 1 ms where each takes 5 µs."""


class Slice:
    """One slice after the other of a walk."""

    __slots__ = ("_ends_ns", "_left", "_now_ns")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """Begins the first slice. `now_ns`: the monotonic clock."""
        self._now_ns = now_ns
        self.begin()

    def begin(self) -> None:
        """Begins the next slice."""
        self._ends_ns = self._now_ns() + SLICE_NS
        self._left = ITEMS_MAX

    def is_over(self) -> bool:
        """Counts an item; returns True when the loop is to serve others before the next one."""
        self._left -= 1
        return self._left <= 0 or self._now_ns() >= self._ends_ns


async def in_slices(items: Iterable[T], now_ns: Callable[[], int]) -> AsyncIterator[T]:
    """Yields the items; between two slices the loop serves others.

    Others may then change what the items were taken from: give a copy of a collection, which costs 5 ns an item.
    """
    part = Slice(now_ns)
    for item in items:
        yield item
        if part.is_over():
            await asyncio.sleep(0)
            part.begin()
