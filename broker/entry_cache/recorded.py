"""Recorded: one event as it stands in a record, with names instead of numbers; what such events add up to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from broker.entry_cache.cache_events import CAUSES, REASONS, STILL_EXPECTED, Op
from broker.entry_cache.totals import evicted, evicted_expected, requeued


class Recorded(NamedTuple):
    """One event as it stands in a record, with names instead of numbers."""

    at_ns: int
    op: Op
    log: str
    reader: str
    ledger_id: int
    first: int
    entries: int
    size_bytes: int
    """APPEND and FETCHED: all of the run's entries have the same size."""
    detail: int
    more: bool = False
    """The next event is of the same call."""
    settings: str = ""
    """SETTINGS: what holds from here on."""

    def __str__(self) -> str:
        where = f" {self.ledger_id}:{self.first}" if self.ledger_id or self.first else ""
        run = f" +{self.entries} ({self.size_bytes} bytes)" if self.entries or self.size_bytes else ""
        who = " ".join(part for part in (self.log, self.reader) if part)
        at_us = self.at_ns // 1000
        return f"{at_us} {self.op.name}{where}{run} detail {self.detail}{' of ' + who if who else ''}"


class Difference(NamedTuple):
    event: int
    """Which input of the record it was, from 1."""
    problems: Sequence[str]
    recorded: Sequence[str]
    """What the broker did about the input."""
    replayed: Sequence[str]
    before: Sequence[str]
    """The events that came before, the input last."""

    def __str__(self) -> str:
        parts = [
            f"first difference at event {self.event}",
            *(f"  {problem}" for problem in self.problems),
            *("  events before:", *(f"    {text}" for text in self.before)),
            *("  the broker:", *(f"    {text}" for text in self.recorded or ["(nothing)"])),
            *("  the replay:", *(f"    {text}" for text in self.replayed or ["(nothing)"])),
        ]
        return "\n".join(parts)


_ENTRIES_AND_BYTES: Final = {
    Op.HIT: ("hits", "hit_bytes"),
    Op.INSERT: ("inserted", "inserted_bytes"),
    (Op.ARRIVED, int(Op.MISS)): ("misses", "miss_bytes"),
    (Op.ARRIVED, int(Op.COALESCED)): ("coalesced", "coalesced_bytes"),
}


def add_up(events: Iterable[Recorded], totals: dict[str, int]) -> None:
    """Add what the events count for, by the names of `totals_of`."""
    for event in events:
        op, detail = event.op, event.detail
        counted = _ENTRIES_AND_BYTES.get(op) or _ENTRIES_AND_BYTES.get((op, detail))
        if counted is not None:
            entries, size_bytes = counted
            totals[entries] += event.entries
            totals[size_bytes] += event.size_bytes
        elif op is Op.OFFER:
            totals["refused"] += event.entries
        elif op is Op.REQUEUE:
            totals[requeued(CAUSES[detail])] += event.entries
        elif op is Op.EVICT:
            totals[evicted(REASONS[detail % STILL_EXPECTED].value)] += event.entries
            if detail >= STILL_EXPECTED:
                totals[evicted_expected(REASONS[detail % STILL_EXPECTED].value)] += event.entries
        if op is Op.INSERT or op is Op.EVICT:
            sign = 1 if op is Op.INSERT else -1
            totals["entries"] += sign * event.entries
            totals["used_bytes"] += sign * event.size_bytes
