"""RepeatedInputs: repeats the inputs of an access record on the same objects that the broker runs.

`Replay` (replay.py) repeats all of them and compares the outputs. The replay under other settings in
`pipeline/replays/objects.py` repeats those whose outcome does not depend on the contents of the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Final

from entry_cache.active_cursors import ActiveCursors
from entry_cache.bounds.strict_size import PinnedLevel
from entry_cache.compose import ComposedCache
from entry_cache.entry_cache import EntryCache
from entry_cache.listener import Redelivery
from entry_cache.observe.cache_events import (
    BY_MARK_DELETE,
    COUNTS_READS,
    HIT_MOVES,
    HIT_REDELIVERY,
    Op,
    Row,
    expected_reads_of,
)
from entry_cache.observe.decisions import Decisions
from entry_cache.observe.recorded import Recorded
from entry_cache.policy import NO_LIMIT
from entry_cache.reader import Reader
from entry_cache.settings import CacheSettings
from foundation.model.entry import Entry
from foundation.model.position import Position


def _entries_of(parts: Sequence[Recorded]) -> list[Entry]:
    """One call's entries, each of the size that it had and without a body."""
    entries = []
    for part in parts:
        # The recorder has cut the run by size, so the division is exact.
        size = part.size_bytes // part.entries
        for entry_id in range(part.first, part.first + part.entries):
            # Without a body a replay of millions of entries needs little memory; only the size decides
            # anything.
            entry = Entry(part.ledger_id, entry_id, b"", b"", 1)
            entry.size = size
            entries.append(entry)
    return entries


class ReplayedLog:
    """The part of a managed ledger that a replay needs: its cursors and what they acknowledged."""

    __slots__ = ("acknowledged", "by_mark_delete", "cache", "counts_reads", "cursors")

    def __init__(self, cache: EntryCache, opened: Recorded) -> None:
        """`opened` is the OPEN event of the log."""
        self.cache = cache
        """Its cache."""
        self.cursors = ActiveCursors(opened.size_bytes * 1000, opened.at_ns)
        """Its active cursors."""
        self.counts_reads = bool(opened.detail & COUNTS_READS)
        """See `COUNTS_READS`."""
        self.by_mark_delete = bool(opened.detail & BY_MARK_DELETE)
        """See `BY_MARK_DELETE`."""
        cache.attach_cursors(
            self.cursors, opened.at_ns, counts_reads=self.counts_reads, by_mark_delete=self.by_mark_delete
        )
        self.acknowledged: dict[str, Position] = {}
        """By cursor, its mark-delete position."""

    def move(self, name: str, position: Position) -> None:
        """Moves a cursor, unless cursors count by their mark-delete positions."""
        if not self.by_mark_delete:
            self.cursors.update(name, position)


class ReplayedObjects:
    """The objects that inputs act on: a composed cache, and the open logs with their cursors."""

    def __init__(
        self, settings: CacheSettings, pinned: PinnedLevel, record: Callable[[Row], object] | None
    ) -> None:
        """`record` takes the events of the replayed cache, if they are needed.

        `pinned` stands for the receive buffers, which it lacks.
        """
        self.now_ns = 0
        """The time of the input that is repeated now."""
        self.cache = ComposedCache(settings, Decisions(0, lambda: self.now_ns, record), pinned=pinned)
        """The replayed cache."""
        self.manager = self.cache.manager
        """Its caches."""
        self.logs: dict[str, ReplayedLog] = {}
        """The open logs by name."""
        self.closed: set[str] = set()
        """Closed logs."""

    def skips(self, event: Recorded) -> bool:
        """Returns True for the event of a read that ended after its log was closed."""
        return event.log in self.closed and event.op is not Op.OPEN

    def log_of(self, event: Recorded) -> ReplayedLog:
        """Returns the open log of the event. Raises ValueError if the record did not open it."""
        log = self.logs.get(event.log)
        if log is None:
            raise ValueError(
                f"the record has no OPEN of {event.log or 'a log without a name'} before: {event}"
            )
        return log

    def reader_of(self, event: Recorded) -> Reader:
        """Returns the event's reader, as the replayed log numbers it."""
        return self.log_of(event).cache.reader(event.reader)


class RepeatedInputs:
    """Repeats one input after another, as it was recorded."""

    def __init__(self, objects: ReplayedObjects) -> None:
        """Acts on these objects."""
        self.problems: list[str] = []
        """Texts about reads and deliveries that differ from the record; the caller clears it."""
        self._objects = objects
        self._parts: Sequence[Recorded] = ()

    def repeat(self, parts: Sequence[Recorded]) -> None:
        """Repeats one input: one event, or several that were one call. Raises ValueError for an impossible one."""
        self._parts = parts
        _REPEAT[parts[0].op](self, parts[0])

    def run_of(self, event: Recorded) -> list[Entry]:
        """Returns the cached entries of the event's run: the delivered objects, if nothing differs."""
        log = self._objects.logs.get(event.log)
        ids = range(event.first, event.first + event.entries)
        found = [log.cache.peek(event.ledger_id, entry_id) for entry_id in ids] if log is not None else []
        present = [entry for entry in found if entry is not None]
        if len(present) != event.entries:
            self.problems.append(
                f"{event.entries - len(present)} of its entries are not cached in the replay"
            )
        return present

    # One method for each kind of input

    def _open(self, event: Recorded) -> None:
        # A topic that is unloaded and loaded again has two OPEN events in one lifetime.
        self._objects.closed.discard(event.log)
        self._objects.logs[event.log] = ReplayedLog(self._objects.manager.open(event.log), event)

    def _close(self, event: Recorded) -> None:
        self._objects.manager.remove(event.log)
        self._objects.logs.pop(event.log, None)
        self._objects.closed.add(event.log)

    def _configure(self, event: Recorded) -> None:
        self._objects.manager.reconfigure(CacheSettings.from_text(event.settings))

    def _append(self, event: Recorded) -> None:
        log = self._objects.log_of(event)
        # As the managed ledger asks it: the record has all confirmed entries, also those that were not cached.
        if log.cursors.should_cache_added(event.at_ns):
            expected_reads = len(log.cursors) if log.counts_reads else None
            log.cache.insert_run(_entries_of(self._parts), expected_reads, event.at_ns)

    def _fetch(self, event: Recorded) -> None:
        expected_reads = expected_reads_of(event.detail)
        if expected_reads is not None and self._objects.manager.policy.counts.fills_cache(expected_reads):
            cache = self._objects.log_of(event).cache
            cache.insert_run(_entries_of(self._parts), expected_reads, event.at_ns)

    def _hit(self, event: Recorded) -> None:
        log = self._objects.log_of(event)
        reader = log.cache.reader(event.reader)
        last = event.first + event.entries - 1
        # Repeated although the outcome is recorded: it marks the entries as accessed and counts the hits.
        run = log.cache.read_run(reader, event.ledger_id, event.first, last, NO_LIMIT)
        if event.detail == HIT_REDELIVERY:
            for entry in run:
                log.cache.listener.redelivery_read(reader, entry)
        size_bytes = sum([entry.size for entry in run])
        if (len(run), size_bytes) != (event.entries, event.size_bytes):
            self.problems.append(f"the replay finds {len(run)} entries of {size_bytes} bytes")
        if event.detail == HIT_MOVES:
            log.move(event.reader, Position(event.ledger_id, last + 1))

    def _ask(self, event: Recorded) -> None:
        peek = self._objects.log_of(event).cache.peek
        ids = range(event.first, event.first + event.entries)
        cached = sum(peek(event.ledger_id, entry_id) is not None for entry_id in ids)
        if cached != event.detail:
            self.problems.append(f"in the replay {cached} of its entries are cached")

    def _arrive(self, event: Recorded) -> None:
        """It was checked when the entries were asked for that the replay's cache lacks them as well."""
        cache = self._objects.log_of(event).cache
        reads, own = cache.reads, cache.reader(event.reader).reads
        # Counted without a read: the entries are not in the replay's cache, as they were not in the broker's.
        for counted in (reads, own):
            counted.count_arrived(event.detail == Op.COALESCED, event.entries, event.size_bytes)

    def _deliver(self, event: Recorded) -> None:
        # 1: the broker had delivered another object than the cached one, whose count did not change.
        if not event.detail:
            self._objects.manager.policy.counts.mark_read(self.run_of(event))

    def _expect_redelivery(self, event: Recorded) -> None:
        if not event.detail:
            self._objects.manager.expect_redelivery(self._objects.reader_of(event), self.run_of(event))

    def _postpone_delivery(self, event: Recorded) -> None:
        entries = [] if event.detail else self.run_of(event)
        if entries:
            listener = self._objects.log_of(event).cache.listener
            listener.redelivery_changed(Redelivery.POSTPONED, self._objects.reader_of(event), entries)

    def _drop_redeliveries(self, event: Recorded) -> None:
        listener = self._objects.log_of(event).cache.listener
        reader = self._objects.reader_of(event)
        listener.redelivery_changed(Redelivery.DROPPED, reader, self.run_of(event))

    def _cursor_added(self, event: Recorded) -> None:
        log = self._objects.log_of(event)
        name, position = event.reader, Position(event.ledger_id, event.first)
        acknowledged = log.acknowledged
        acknowledged.setdefault(name, position)
        log.cursors.add(name, position, lambda: acknowledged[name])

    def _cursor_moved(self, event: Recorded) -> None:
        self._objects.log_of(event).move(event.reader, Position(event.ledger_id, event.first))

    def _acknowledge(self, event: Recorded) -> None:
        log = self._objects.log_of(event)
        log.acknowledged[event.reader] = position = Position(event.ledger_id, event.first)
        if log.by_mark_delete:
            log.cursors.update(event.reader, position)

    def _cursor_left(self, event: Recorded) -> None:
        log = self._objects.log_of(event)
        log.acknowledged[event.reader] = Position(event.ledger_id, event.first)
        log.cursors.remove(event.reader, event.at_ns)

    def _cursor_forgotten(self, event: Recorded) -> None:
        self._objects.log_of(event).cursors.forget(event.reader)

    def _invalidate(self, event: Recorded) -> None:
        cache = self._objects.log_of(event).cache
        if event.detail:
            cache.invalidate_ledger(event.ledger_id)
        else:
            cache.invalidate_before(Position(event.ledger_id, event.first))

    def _tick(self, event: Recorded) -> None:
        self._objects.manager.eviction.tick(event.at_ns, event.entries)

    def _check_size(self, event: Recorded) -> None:
        self._objects.manager.eviction.run_size_checks(event.at_ns, event.entries)

    def _nothing(self, event: Recorded) -> None:
        """It changes nothing for the cache."""


_REPEAT: Final = MappingProxyType[Op, Callable[[RepeatedInputs, Recorded], None]](
    {
        Op.OPEN: RepeatedInputs._open,
        Op.CLOSE: RepeatedInputs._close,
        Op.READER: RepeatedInputs._nothing,
        Op.SETTINGS: RepeatedInputs._configure,
        Op.APPEND: RepeatedInputs._append,
        Op.FETCHED: RepeatedInputs._fetch,
        Op.HIT: RepeatedInputs._hit,
        Op.MISS: RepeatedInputs._ask,
        Op.COALESCED: RepeatedInputs._ask,
        Op.FAILED: RepeatedInputs._nothing,
        Op.ARRIVED: RepeatedInputs._arrive,
        Op.DELIVER: RepeatedInputs._deliver,
        Op.REDELIVERY: RepeatedInputs._expect_redelivery,
        Op.POSTPONED: RepeatedInputs._postpone_delivery,
        Op.DROPPED: RepeatedInputs._drop_redeliveries,
        Op.CURSOR_ADDED: RepeatedInputs._cursor_added,
        Op.CURSOR_MOVED: RepeatedInputs._cursor_moved,
        Op.CURSOR_LEFT: RepeatedInputs._cursor_left,
        Op.CURSOR_FORGOTTEN: RepeatedInputs._cursor_forgotten,
        Op.ACK: RepeatedInputs._acknowledge,
        Op.INVALIDATE: RepeatedInputs._invalidate,
        Op.TICK: RepeatedInputs._tick,
        Op.SIZE_CHECK: RepeatedInputs._check_size,
    }
)
"""By operation, the method that repeats the input."""
