"""Walks the unacknowledged entries of a cursor by arithmetic alone: no entry is read.

A run is a range of consecutive entries of one ledger without an acknowledged one. A cursor whose acknowledgements came in
order has one run per ledger; each hole adds one. Walks over many runs let other work of the loop run in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from broker.managed_ledger.managed_cursor import ManagedCursor
from foundation.model.position import Position
from foundation.model.range_set import EntryRange

RUNS_PER_SLICE = 500
"""Runs that are looked at before other work of the loop; well below a millisecond."""


async def open_runs(cursor: ManagedCursor, start: Position | None = None) -> AsyncIterator[EntryRange]:
    """Yields the unacknowledged runs in order, from `start` or the first one to the last confirmed entry."""
    context, acks = cursor.context, cursor.acks
    ledgers = context.ledgers
    position = acks.first_open(ledgers.first() if start is None else start)
    count = 0
    while ledgers.has_entry(*position):
        last = ledgers.last_entry(position.ledger_id)
        end = acks.beyond.first_present(position.ledger_id, position.entry_id, last)
        yield EntryRange(position.ledger_id, position.entry_id, end - 1)
        count += 1
        if count % RUNS_PER_SLICE == 0:
            await asyncio.sleep(0)
        # Asked anew after each run: entries may be added and acknowledged while this waits.
        position = acks.first_open(Position(position.ledger_id, end))


async def nth_open(cursor: ManagedCursor, number: int) -> Position | None:
    """Returns the unacknowledged entry of that number, the first is 1; None when there are fewer."""
    left = number
    async for run in open_runs(cursor):
        length = run.last - run.first + 1
        if left <= length:
            return Position(run.ledger_id, run.first + left - 1)
        left -= length
    return None
