"""Replay: feeds a complete access record to the same objects that the broker runs.

Some events are inputs of the cache, the others are its outputs. The inputs are repeated one by one at their recorded times,
and the outputs of the objects are compared with the recorded ones: event by event, each run of entries with its bytes.
Either all are equal, or the first difference is kept with the events before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from entry_cache.active_cursors import ActiveCursors
from entry_cache.observe.cache_events import CacheEvent, Op
from entry_cache.observe.recorded import Difference, Recorded, add_up
from entry_cache.observe.repeated_inputs import RepeatedInputs
from entry_cache.observe.totals import totals_of
from entry_cache.settings import CacheSettings

OUTPUTS: Final = frozenset((Op.INSERT, Op.OFFER, Op.REQUEUE, Op.EVICT, Op.PINNED))
"""Events that the cache itself produces; all others are its inputs."""

BEFORE_MAX: Final = 12
"""Events before a difference that are shown with it."""


class _RecordedPinned:
    """A `PinnedLevel` that repeats the recorded levels; others decided nothing, so 0 stands for them."""

    __slots__ = ("_looks", "told")

    def __init__(self) -> None:
        self.told: deque[tuple[int, int]] = deque()
        """(number of the look since the one before, level)"""
        self._looks = 0

    @property
    def count(self) -> int:
        """The level at this look; each call is one look."""
        self._looks += 1
        # Only looks that decided something are recorded, each with the number of looks since the one before.
        if not self.told or self.told[0][0] != self._looks:
            return 0
        self._looks = 0
        return self.told.popleft()[1]


class Replay:
    """A cache that repeats the inputs of an access record and compares its outputs."""

    def __init__(self, settings: CacheSettings) -> None:
        """`settings` are those that held when the record began."""
        self.events = 0
        """The number of repeated inputs."""
        self.difference: Difference | None = None
        """The first difference; None while all is equal."""
        self.differences = 0
        """Inputs with other outputs than recorded; after the first of them more are likely."""
        self._produced: list[CacheEvent] = []
        self._pinned = _RecordedPinned()
        self._repeated = RepeatedInputs(settings, self._pinned, self._produced.append)
        self.cache = self._repeated.cache
        """The replayed cache."""
        self.manager = self.cache.manager
        """Its caches."""
        self.recorded_totals = dict.fromkeys(totals_of(self.cache), 0)
        """The sums of the recorded events."""
        self._inputs: list[Recorded] = []
        """The input that waits for its outputs; several events if it has `more`."""
        self._outputs: list[Recorded] = []
        self._before: deque[Recorded] = deque(maxlen=BEFORE_MAX)

    # Reading the record

    def feed(self, record: Iterable[Recorded]) -> None:
        """Takes the next events, in order. Raises ValueError for events that no broker writes."""
        for event in record:
            if event.op in OUTPUTS:
                # Outputs follow their input in a record, so the step can run only when the next input comes.
                self._outputs.append(event)
            else:
                # A run of several sizes is several rows of one call; all of them must be repeated together,
                # with one list of entries.
                if not (self._inputs and self._inputs[-1].more):
                    self._step()
                self._inputs.append(event)

    def finish(self, *, cut_off: bool = False) -> None:
        """Ends the replay. With `cut_off` the last input is not compared, because outputs of it may be missing."""
        if not cut_off:
            self._step()

    @property
    def cursors(self) -> dict[str, ActiveCursors]:
        """The active cursors of the open logs, by log."""
        return {name: log.cursors for name, log in self._repeated.logs.items()}

    @property
    def totals(self) -> dict[str, int]:
        """The counts of the replayed cache so far."""
        return totals_of(self.cache)

    # One input

    def _step(self) -> None:
        if not self._inputs:
            return
        event = self._inputs[0]
        self.events += 1
        self._repeated.now_ns = event.at_ns
        self._produced.clear()
        # The levels come before the step that looks at them, although their rows follow the input in the
        # record.
        self._pinned.told.extend(
            (row.entries, row.size_bytes) for row in self._outputs if row.op is Op.PINNED
        )
        if not self._repeated.skips(event):
            self._repeated.repeat(self._inputs)
            add_up(self._inputs, self.recorded_totals)
        add_up(self._outputs, self.recorded_totals)
        self._compare()
        self._before.extend(self._inputs)
        self._inputs.clear()
        self._outputs.clear()
        # Levels that were not looked at belong to a difference, which the comparison has found already.
        self._pinned.told.clear()

    def _compare(self) -> None:
        # Only ledger, entry, number, bytes and detail: names of readers are in the record by id, and times of
        # outputs are those of their input.
        recorded = [tuple(row[4:9]) for row in self._outputs]
        produced = [row for row in self._produced if row[1] in OUTPUTS]
        same_ops = [row.op for row in self._outputs] == [row[1] for row in produced]
        if same_ops and recorded == [row[4:9] for row in produced] and not self._repeated.problems:
            return
        self.differences += 1
        if self.difference is None:
            self.difference = Difference(
                self.events,
                tuple(self._repeated.problems),
                [str(row) for row in self._outputs],
                [str(Recorded(row[0], Op(row[1]), row[2], "", *row[4:9])) for row in produced],
                [str(row) for row in (*self._before, *self._inputs)],
            )
        self._repeated.problems.clear()
