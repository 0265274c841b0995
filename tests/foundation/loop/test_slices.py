"""Slices: the loop gets its turn after so many items, or so much time."""

from __future__ import annotations

import asyncio
from collections import Counter

from foundation.loop.slices import ITEMS_MAX, SLICE_NS, in_slices


async def items_by_turn(items: int, item_ns: int) -> list[int]:
    """Returns the numbers of items that were walked in each turn, an item taking `item_ns`."""
    loop, turn = asyncio.get_running_loop(), 0
    walked: list[int] = []

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(next_turn)

    next_turn()
    async for _ in in_slices(range(items), lambda: item_ns * len(walked)):
        # The clock counts the list, so a comprehension would have none.
        walked.append(turn)  # noqa: PERF401
    return list(Counter(walked).values())


async def test_slice_ends_after_its_items_while_the_clock_stands_still() -> None:
    assert await items_by_turn(3 * ITEMS_MAX + 1, 0) == [ITEMS_MAX] * 3 + [1]


async def test_slice_ends_after_its_time_where_items_take_long() -> None:
    assert await items_by_turn(12, SLICE_NS // 5) == [5, 5, 2]
    assert await items_by_turn(3, 10 * SLICE_NS) == [1, 1, 1]
