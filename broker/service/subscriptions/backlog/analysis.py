"""Analysis: counts entries and messages of a backlog by reading it.

Reads go to the bookies past the entry cache, in slices: an analysis reads entries that no consumer wants now, and must
not push those out that consumers want. It moves no cursor.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bookkeeper.ensembles.awaited_reads import read_entries
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.service.entry_facts import facts_of, messages_of
from broker.service.subscriptions.backlog.open_runs import open_runs
from foundation.model.entry import Entry
from foundation.model.position import Position

SLICE_ENTRIES = 100
"""Entries that are parsed before other work of the loop; about 1 ms."""
SLICE_BYTES = 1 << 20
"""Bytes of one read."""


@dataclass(slots=True)
class Analysis:
    """The counts of a backlog."""

    entries: int = 0
    """Unacknowledged entries that were read."""
    messages: int = 0
    """Messages in them; markers count as one."""
    markers: int = 0
    """Entries that end transactions."""
    first: Position | None = None
    """The first entry read; None for an empty backlog."""
    last: Position | None = None
    """The last entry read."""
    aborted: bool = False
    """True when a limit ended the reading."""

    def add(self, entry: Entry) -> None:
        """Counts one entry."""
        facts = facts_of(entry)
        self.entries += 1
        self.messages += messages_of(entry)
        self.markers += bool(facts is not None and facts.marker)
        self.first = self.first or entry.position
        self.last = entry.position


async def analyze(
    cursor: ManagedCursor, start: Position | None, *, entries_max: int, time_max_ms: int
) -> Analysis:
    """Reads the unacknowledged entries from `start` or the first one on, within both limits.

    Raises as `read_entries`.
    """
    environment = cursor.context.environment
    until_ns = environment.now_ns() + time_max_ms * 1_000_000
    found = Analysis()
    async for run in open_runs(cursor, start):
        at = run.first
        while at <= run.last:
            if found.entries >= entries_max or environment.now_ns() >= until_ns:
                found.aborted = True
                return found
            last = min(run.last, at + min(SLICE_ENTRIES, entries_max - found.entries) - 1)
            entries = await read_entries(environment.ledgers, run.ledger_id, at, last, SLICE_BYTES)
            for entry in entries:
                found.add(entry)
            at += len(entries)
            # A read that is answered from memory may not wait at all.
            await asyncio.sleep(0)
    return found
