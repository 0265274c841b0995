"""Replay: feeds a complete access record to the same objects that the broker runs.

Some events are inputs of the cache, the others are its outputs. The inputs are repeated one by one at their recorded times,
and the outputs of the objects are compared with the recorded ones: event by event, each run of entries with its bytes.
Either all are equal, or the first difference is kept with the events before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from broker.entry_cache.active_cursors import ActiveCursors
from broker.entry_cache.compose import ComposedCache
from broker.entry_cache.entry_cache import EntryCache
from broker.entry_cache.observe.cache_events import (
    BY_MARK_DELETE,
    COUNTS_READS,
    HIT_AGAIN,
    HIT_MOVES,
    Op,
    Row,
    expected_reads_of,
)
from broker.entry_cache.observe.decisions import Decisions
from broker.entry_cache.observe.recorded import Difference, Recorded, add_up
from broker.entry_cache.observe.totals import totals_of
from broker.entry_cache.policy import NO_LIMIT
from broker.entry_cache.reader import Reader
from broker.entry_cache.settings import EntryCacheSettings
from broker.model.entry import Entry
from broker.model.position import Position

OUTPUTS: Final = frozenset((Op.INSERT, Op.OFFER, Op.REQUEUE, Op.EVICT, Op.PINNED))
BEFORE_MAX: Final = 12
"""Events before a difference that are shown with it."""


def _entries_of(parts: Sequence[Recorded]) -> list[Entry]:
    """One call's entries, each of the size that it had and without a body."""
    entries = []
    for part in parts:
        size = part.size_bytes // part.entries
        for entry_id in range(part.first, part.first + part.entries):
            entry = Entry(part.ledger_id, entry_id, b"", b"", 1)
            entry.size = size
            entries.append(entry)
    return entries


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
        if not self.told or self.told[0][0] != self._looks:
            return 0
        self._looks = 0
        return self.told.popleft()[1]


class _Log:
    """The part of a managed ledger that a replay needs: its cursors and what they acknowledged."""

    __slots__ = ("acknowledged", "by_mark_delete", "cache", "counts_reads", "cursors")

    def __init__(self, cache: EntryCache, opened: Recorded) -> None:
        self.cache = cache
        self.cursors = ActiveCursors(opened.size_bytes * 1000, opened.at_ns)
        cache.attach_cursors(self.cursors, opened.at_ns)
        self.counts_reads = bool(opened.detail & COUNTS_READS)
        self.by_mark_delete = bool(opened.detail & BY_MARK_DELETE)
        self.acknowledged: dict[str, Position] = {}

    def stand(self, name: str, position: Position) -> None:
        """Moves a cursor, unless cursors count by their mark-delete positions."""
        if not self.by_mark_delete:
            self.cursors.update(name, position)


class Replay:
    """A cache that repeats the inputs of an access record and compares its outputs."""

    def __init__(self, settings: EntryCacheSettings) -> None:
        """As they held when the record began."""
        self.events = 0
        """The number of repeated inputs."""
        self.difference: Difference | None = None
        """The first difference; None while all is equal."""
        self.differences = 0
        """Inputs with other outputs than recorded; after the first of them more are likely."""
        self._now_ns = 0
        self._produced: list[Row] = []
        decisions = Decisions(0, lambda: self._now_ns, self._produced.append)
        self._pinned = _RecordedPinned()
        self.cache = ComposedCache(settings, decisions, pinned=self._pinned)
        """The replayed cache."""
        self.manager = self.cache.manager
        """Its caches."""
        self.recorded_totals = dict.fromkeys(totals_of(self.cache), 0)
        """The sums of the recorded events."""
        self.logs: dict[str, _Log] = {}
        """The open logs by name."""
        self._closed: set[str] = set()
        """Closed logs: events of reads that ended after the closing are skipped."""
        self._inputs: list[Recorded] = []
        """The input that waits for its outputs; several events if it has `more`."""
        self._outputs: list[Recorded] = []
        self._before: deque[Recorded] = deque(maxlen=BEFORE_MAX)
        self._problems: list[str] = []

    # Reading the record

    def feed(self, record: Iterable[Recorded]) -> None:
        """Takes the next events, in order. Raises ValueError for events that no broker writes."""
        for event in record:
            if event.op in OUTPUTS:
                self._outputs.append(event)
            else:
                if not (self._inputs and self._inputs[-1].more):
                    self._step()
                self._inputs.append(event)

    def finish(self, *, cut_off: bool = False) -> None:
        """Ends the replay. With `cut_off` the last input is not compared, because outputs of it may be missing."""
        if not cut_off:
            self._step()

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
        self._now_ns = event.at_ns
        self._produced.clear()
        self._pinned.told.extend(
            (row.entries, row.size_bytes) for row in self._outputs if row.op is Op.PINNED
        )
        if event.op is Op.OPEN or event.log not in self._closed:
            REPEAT[event.op](self, event)
            add_up(self._inputs, self.recorded_totals)
        add_up(self._outputs, self.recorded_totals)
        self._compare()
        self._before.extend(self._inputs)
        self._inputs.clear()
        self._outputs.clear()
        self._pinned.told.clear()

    def _compare(self) -> None:
        recorded = [tuple(row[4:9]) for row in self._outputs]
        produced = [row for row in self._produced if row[1] in OUTPUTS]
        same_ops = [row.op for row in self._outputs] == [row[1] for row in produced]
        if same_ops and recorded == [row[4:9] for row in produced] and not self._problems:
            return
        self.differences += 1
        if self.difference is None:
            self.difference = Difference(
                self.events,
                tuple(self._problems),
                [str(row) for row in self._outputs],
                [str(Recorded(row[0], Op(row[1]), row[2], "", *row[4:9])) for row in produced],
                [str(row) for row in (*self._before, *self._inputs)],
            )
        self._problems.clear()

    def _log_of(self, event: Recorded) -> _Log:
        log = self.logs.get(event.log)
        if log is None:
            raise ValueError(
                f"the record has no OPEN of {event.log or 'a log without a name'} before: {event}"
            )
        return log

    def _run_of(self, event: Recorded) -> list[Entry]:
        """Returns the cached entries of the event's run: the delivered objects, if nothing differs."""
        log = self.logs.get(event.log)
        ids = range(event.first, event.first + event.entries)
        found = [log.cache.peek(event.ledger_id, entry_id) for entry_id in ids] if log is not None else []
        present = [entry for entry in found if entry is not None]
        if len(present) != event.entries:
            self._problems.append(
                f"{event.entries - len(present)} of its entries are not cached in the replay"
            )
        return present

    # Inputs

    def _open(self, event: Recorded) -> None:
        self._closed.discard(event.log)
        self.logs[event.log] = _Log(self.manager.open(event.log), event)

    def _close(self, event: Recorded) -> None:
        self.manager.remove(event.log)
        self.logs.pop(event.log, None)
        self._closed.add(event.log)

    def _configure(self, event: Recorded) -> None:
        self.manager.reconfigure(EntryCacheSettings.from_text(event.settings))

    def _append(self, event: Recorded) -> None:
        log = self._log_of(event)
        if log.cursors.should_cache_added(event.at_ns):
            expected_reads = len(log.cursors) if log.counts_reads else None
            log.cache.insert_run(_entries_of(self._inputs), expected_reads, event.at_ns)

    def _fetch(self, event: Recorded) -> None:
        expected_reads = expected_reads_of(event.detail)
        if expected_reads is not None and self.manager.policy.counts.fills_cache(expected_reads):
            cache = self._log_of(event).cache
            cache.insert_run(_entries_of(self._inputs), expected_reads, event.at_ns)

    def _hit(self, event: Recorded) -> None:
        log = self._log_of(event)
        reader = log.cache.reader(event.reader)
        last = event.first + event.entries - 1
        run = log.cache.read_run(reader, event.ledger_id, event.first, last, NO_LIMIT)
        if event.detail == HIT_AGAIN:
            for entry in run:
                log.cache.listener.redelivery_read(reader, entry)
        size_bytes = sum([entry.size for entry in run])
        if (len(run), size_bytes) != (event.entries, event.size_bytes):
            self._problems.append(f"the replay finds {len(run)} entries of {size_bytes} bytes")
        if event.detail == HIT_MOVES:
            log.stand(event.reader, Position(event.ledger_id, last + 1))

    def _ask(self, event: Recorded) -> None:
        peek = self._log_of(event).cache.peek
        ids = range(event.first, event.first + event.entries)
        cached = sum(peek(event.ledger_id, entry_id) is not None for entry_id in ids)
        if cached != event.detail:
            self._problems.append(f"in the replay {cached} of its entries are cached")

    def _arrive(self, event: Recorded) -> None:
        """It was checked when the entries were asked for that the replay's cache lacks them as well."""
        cache = self._log_of(event).cache
        reads, own = cache.reads, cache.reader(event.reader).reads
        for counted in (reads, own):
            if event.detail == Op.MISS:
                counted.miss_entries += event.entries
                counted.miss_bytes += event.size_bytes
            else:
                counted.coalesced_entries += event.entries
                counted.coalesced_bytes += event.size_bytes

    def _deliver(self, event: Recorded) -> None:
        if not event.detail:
            self.manager.policy.counts.mark_read(self._run_of(event))

    def _expect_redelivery(self, event: Recorded) -> None:
        if not event.detail:
            self.manager.expect_redelivery(self._reader_of(event), self._run_of(event))

    def _postpone_delivery(self, event: Recorded) -> None:
        if not event.detail:
            self.manager.postpone_delivery(self._reader_of(event), self._run_of(event))

    def _drop_redeliveries(self, event: Recorded) -> None:
        positions = [entry.position for entry in self._run_of(event)]
        self._log_of(event).cache.drop_redeliveries(self._reader_of(event), positions)

    def _reader_of(self, event: Recorded) -> Reader:
        """Returns the reader of this replay."""
        return self._log_of(event).cache.reader(event.reader)

    def _cursor_added(self, event: Recorded) -> None:
        log = self._log_of(event)
        name, position = event.reader, Position(event.ledger_id, event.first)
        acknowledged = log.acknowledged
        acknowledged.setdefault(name, position)
        log.cursors.add(name, position, lambda: acknowledged[name])

    def _cursor_moved(self, event: Recorded) -> None:
        self._log_of(event).stand(event.reader, Position(event.ledger_id, event.first))

    def _acknowledge(self, event: Recorded) -> None:
        log = self._log_of(event)
        log.acknowledged[event.reader] = position = Position(event.ledger_id, event.first)
        if log.by_mark_delete:
            log.cursors.update(event.reader, position)

    def _cursor_left(self, event: Recorded) -> None:
        log = self._log_of(event)
        log.acknowledged[event.reader] = Position(event.ledger_id, event.first)
        log.cursors.remove(event.reader, event.at_ns)

    def _cursor_forgotten(self, event: Recorded) -> None:
        self._log_of(event).cursors.forget(event.reader)

    def _invalidate(self, event: Recorded) -> None:
        cache = self._log_of(event).cache
        if event.detail:
            cache.invalidate_ledger(event.ledger_id)
        else:
            cache.invalidate_before(Position(event.ledger_id, event.first))

    def _tick(self, event: Recorded) -> None:
        self.manager.eviction.tick(event.at_ns, event.entries)

    def _check_size(self, event: Recorded) -> None:
        self.manager.eviction.run_size_checks(event.at_ns, event.entries)

    def _nothing(self, event: Recorded) -> None:
        """It changes nothing for the cache."""


REPEAT: Final[dict[Op, Callable[[Replay, Recorded], None]]] = {
    Op.OPEN: Replay._open,
    Op.CLOSE: Replay._close,
    Op.READER: Replay._nothing,
    Op.SETTINGS: Replay._configure,
    Op.APPEND: Replay._append,
    Op.FETCHED: Replay._fetch,
    Op.HIT: Replay._hit,
    Op.MISS: Replay._ask,
    Op.COALESCED: Replay._ask,
    Op.FAILED: Replay._nothing,
    Op.ARRIVED: Replay._arrive,
    Op.DELIVER: Replay._deliver,
    Op.REPLAY: Replay._expect_redelivery,
    Op.KEPT_BACK: Replay._postpone_delivery,
    Op.GIVEN_UP: Replay._drop_redeliveries,
    Op.CURSOR_ADDED: Replay._cursor_added,
    Op.CURSOR_MOVED: Replay._cursor_moved,
    Op.CURSOR_LEFT: Replay._cursor_left,
    Op.CURSOR_FORGOTTEN: Replay._cursor_forgotten,
    Op.ACK: Replay._acknowledge,
    Op.INVALIDATE: Replay._invalidate,
    Op.TICK: Replay._tick,
    Op.SIZE_CHECK: Replay._check_size,
}
"""By operation, the method that repeats the input."""
