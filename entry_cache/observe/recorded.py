"""Recorded: one event as an access record holds it, with names instead of numbers, and the sums of such events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from entry_cache.observe.cache_events import CAUSES_OF_REQUEUES, REASONS, STILL_EXPECTED, Op
from entry_cache.observe.totals import evicted, evicted_expected, requeued
from foundation.model.position import Position


class Recorded(NamedTuple):
    """One event of an access record; the fields are those of `Event`, unless they say otherwise."""

    at_ns: int
    """Monotonic time."""
    op: Op
    """The operation."""
    log: str
    """The managed ledger's name; empty if the event is about the whole cache."""
    reader: str
    """The cursor's name; empty if there is none."""
    ledger_id: int
    """The ledger of the run, or of a position."""
    first: int
    """The first entry id of the run, or the entry id of a position."""
    entries: int
    """The number of entries of the run."""
    size_bytes: int
    """The bytes of the run. APPEND and FETCHED: all entries of the run have the same size."""
    detail: int
    """A number whose meaning depends on `op`."""
    more: bool = False
    """True if the next event is of the same call."""
    settings: str = ""
    """SETTINGS: the settings that hold from here on."""

    @property
    def position(self) -> Position:
        """The first entry of the run, or the position."""
        return Position(self.ledger_id, self.first)

    @property
    def ids(self) -> range:
        """The entry ids of the run."""
        return range(self.first, self.first + self.entries)

    def __str__(self) -> str:
        where = f" {self.ledger_id}:{self.first}" if self.ledger_id or self.first else ""
        run = f" +{self.entries} ({self.size_bytes} bytes)" if self.entries or self.size_bytes else ""
        who = " ".join(part for part in (self.log, self.reader) if part)
        at_us = self.at_ns // 1000
        return f"{at_us} {self.op.name}{where}{run} detail {self.detail}{' of ' + who if who else ''}"


class Difference(NamedTuple):
    """An input that the replayed cache answered with other events than the broker's."""

    event: int
    """The number of the input in the record, from 1."""
    problems: Sequence[str]
    """Preconditions of the input that the replayed cache does not meet."""
    recorded: Sequence[str]
    """The broker's events after the input."""
    replayed: Sequence[str]
    """The events of the replay after the input."""
    before: Sequence[str]
    """The events before, the input last."""

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
    """Adds the counts of these events to `totals`, by the names of `totals_of`."""
    for event in events:
        op, detail = event.op, event.detail
        # ARRIVED counts as a miss or as coalesced, so its key has the detail as well.
        counted = _ENTRIES_AND_BYTES.get(op) or _ENTRIES_AND_BYTES.get((op, detail))
        if counted is not None:
            entries, size_bytes = counted
            totals[entries] += event.entries
            totals[size_bytes] += event.size_bytes
        elif op is Op.OFFER:
            totals["refused"] += event.entries
        elif op is Op.REQUEUE:
            totals[requeued(CAUSES_OF_REQUEUES[detail])] += event.entries
        elif op is Op.EVICT:
            totals[evicted(REASONS[detail % STILL_EXPECTED].value)] += event.entries
            if detail >= STILL_EXPECTED:
                totals[evicted_expected(REASONS[detail % STILL_EXPECTED].value)] += event.entries
        # The levels are sums too, so that they can be compared at any point of a record.
        if op is Op.INSERT or op is Op.EVICT:
            sign = 1 if op is Op.INSERT else -1
            totals["entries"] += sign * event.entries
            totals["used_bytes"] += sign * event.size_bytes
