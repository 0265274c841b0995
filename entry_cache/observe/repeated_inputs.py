"""RepeatedInputs: repeats the inputs of an access record on the same objects that the broker runs.

`Replay` (replay.py) repeats all of them and compares the outputs. `WhatIf` (pipeline/replays/objects.py) has other settings,
and takes those anew whose outcome depends on the contents of the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    CacheEvent,
    Op,
    expected_reads_of,
)
from entry_cache.observe.decisions import Decisions
from entry_cache.observe.recorded import Recorded
from entry_cache.policy import NO_LIMIT
from entry_cache.reader import LOOKS_ONLY, Reader
from entry_cache.settings import CacheSettings
from foundation.model.entry import Entry
from foundation.model.position import Position


class NothingPinned:
    """A `PinnedLevel` without buffers: replayed entries have no bodies."""

    count = 0
    """Pinned bytes."""


NOTHING_PINNED: Final = NothingPinned()


def bodiless_entry(ledger_id: int, entry_id: int, size: int) -> Entry:
    """Returns an entry for a replay of millions: only the size decides anything, and a body would take memory."""
    entry = Entry(ledger_id, entry_id, b"", b"", 1)
    entry.size = size
    return entry


def _entries_of(parts: Sequence[Recorded]) -> list[Entry]:
    """Returns one call's entries, each of the size that it had."""
    # The recorder has cut the run by size, so the division is exact.
    return [
        bodiless_entry(part.ledger_id, entry_id, part.size_bytes // part.entries)
        for part in parts
        for entry_id in part.ids
    ]


def read_again(
    cache: EntryCache, reader: str, ledger_id: int, first: int, end: int
) -> tuple[list[Entry], list[int]]:
    """Reads the cached entries of a range, which may have gaps, and returns them and the ids of the others."""
    present = cache.get_present(cache.reader(reader), ledger_id, first, end - 1)
    held = {entry.entry_id for entry in present}
    return present, [entry_id for entry_id in range(first, end) if entry_id not in held]


def refill_reads(cursors: ActiveCursors, reader: str, place: tuple[int, int]) -> int:
    """Returns the expected reads with which a log fetches what this reader lacks; -1 where that fills no cache.

    An entry before the reader's position is fetched for a redelivery, which no other reader waits for.
    """
    position = cursors.position(reader)
    if position is None or reader == LOOKS_ONLY:
        return -1
    return 1 if position > place else cursors.rank(reader)


class ReplayedCursor:
    """The part of a cursor that a replay needs beside its read position."""

    __slots__ = ("mark_delete_position",)

    def __init__(self, mark_delete_position: Position) -> None:
        """Begins with the position of the event that names the cursor first."""
        self.mark_delete_position = mark_delete_position
        """Everything up to here is acknowledged."""


class ReplayedLog:
    """The part of a managed ledger that a replay needs: its cursors and what they acknowledged."""

    __slots__ = ("by_mark_delete", "by_name", "cache", "counts_reads", "cursors")

    def __init__(self, cache: EntryCache, opened: Recorded) -> None:
        """`opened` is the OPEN event of the log."""
        self.cache = cache
        """Its cache."""
        self.cursors = ActiveCursors(opened.size_bytes * 1000, opened.at_ns)
        """Its active cursors."""
        self.counts_reads = bool(opened.detail & COUNTS_READS)
        """True if expected reads were counted, as the bit `COUNTS_READS` tells."""
        self.by_mark_delete = bool(opened.detail & BY_MARK_DELETE)
        """True if cursors counted at their mark-delete positions, as the bit `BY_MARK_DELETE` tells."""
        cache.attach_cursors(
            self.cursors, opened.at_ns, counts_reads=self.counts_reads, by_mark_delete=self.by_mark_delete
        )
        self.by_name: dict[str, ReplayedCursor] = {}
        """Every cursor that an event has named."""

    def acknowledge(self, name: str, position: Position) -> None:
        """Notes the mark-delete position of a cursor, which may not have been active yet."""
        self.known(name, position).mark_delete_position = position

    def known(self, name: str, position: Position) -> ReplayedCursor:
        """Returns the cursor; one that comes for the first time has acknowledged up to the position."""
        cursor = self.by_name.get(name)
        if cursor is None:
            cursor = self.by_name[name] = ReplayedCursor(position)
        return cursor

    def move(self, name: str, position: Position) -> None:
        """Moves a cursor, unless cursors count by their mark-delete positions."""
        if not self.by_mark_delete:
            self.cursors.update(name, position)


Action = Callable[[Recorded], None]
"""Acts on the replayed cache as an input says."""


class RepeatedInputs:
    """A composed cache, the open logs with their cursors, and the inputs that act on them one after the other."""

    def __init__(
        self,
        settings: CacheSettings,
        pinned: PinnedLevel,
        record: Callable[[CacheEvent], object] | None = None,
        taken_anew: Mapping[Op, Action] = MappingProxyType({}),
    ) -> None:
        """`record` takes the events of the replayed cache, if they are needed.

        `pinned` stands for the receive buffers, which it lacks. `taken_anew` has by operation the actions that take the
        place of repeating what was recorded.
        """
        self.now_ns = 0
        """The time of the input that is repeated now."""
        self.cache = ComposedCache(settings, Decisions(0, lambda: self.now_ns, record), pinned=pinned)
        """The replayed cache."""
        self.manager = self.cache.manager
        """Its caches."""
        self.logs: dict[str, ReplayedLog] = {}
        """The open logs by name."""
        self.problems: list[str] = []
        """Texts about reads and deliveries that differ from the record; the caller clears it."""
        self._closed: set[str] = set()
        self._parts: Sequence[Recorded] = ()
        self._actions: dict[Op, Action] = {
            Op.OPEN: self._open,
            Op.CLOSE: self._close,
            Op.READER: nothing,
            Op.SETTINGS: self._configure,
            Op.APPEND: self._append,
            Op.FETCHED: self._fetch,
            Op.HIT: self._hit,
            Op.MISS: self._ask,
            Op.COALESCED: self._ask,
            Op.FAILED: nothing,
            Op.ARRIVED: self._arrive,
            Op.DELIVER: self._deliver,
            Op.REDELIVERY: self._expect_redelivery,
            Op.POSTPONED: self._postpone_delivery,
            Op.DROPPED: self._drop_redeliveries,
            Op.CURSOR_ADDED: self._cursor_added,
            Op.CURSOR_MOVED: self._cursor_moved,
            Op.CURSOR_LEFT: self._cursor_left,
            Op.CURSOR_FORGOTTEN: self._cursor_forgotten,
            Op.ACK: self._acknowledge,
            Op.INVALIDATE: self._invalidate,
            Op.TICK: self._tick,
            Op.SIZE_CHECK: self._check_size,
            **taken_anew,
        }

    def repeat(self, parts: Sequence[Recorded]) -> None:
        """Repeats one input: one event, or several that were one call. Raises ValueError for an impossible one."""
        self._parts = parts
        self._actions[parts[0].op](parts[0])

    def skips(self, event: Recorded) -> bool:
        """Returns True for the event of a read that ended after its log was closed."""
        return event.log in self._closed and event.op is not Op.OPEN

    def log_of(self, event: Recorded) -> ReplayedLog:
        """Returns the open log of the event. Raises ValueError if the record did not open it."""
        log = self.logs.get(event.log)
        if log is None:
            raise ValueError(
                f"the record has no OPEN of {event.log or 'a log without a name'} before: {event}"
            )
        return log

    def _reader_of(self, event: Recorded) -> Reader:
        """Returns the event's reader, as the replayed log numbers it."""
        return self.log_of(event).cache.reader(event.reader)

    def _run_of(self, event: Recorded) -> list[Entry]:
        """Returns the cached entries of the event's run: the delivered objects, if nothing differs."""
        log = self.logs.get(event.log)
        found = [log.cache.peek(event.ledger_id, one) for one in event.ids] if log is not None else []
        present = [entry for entry in found if entry is not None]
        if len(present) != event.entries:
            self.problems.append(
                f"{event.entries - len(present)} of its entries are not cached in the replay"
            )
        return present

    # One method for each kind of input

    def _open(self, event: Recorded) -> None:
        # A topic that is unloaded and loaded again has two OPEN events in one lifetime.
        self._closed.discard(event.log)
        self.logs[event.log] = ReplayedLog(self.manager.open(event.log), event)

    def _close(self, event: Recorded) -> None:
        self.manager.remove(event.log)
        self.logs.pop(event.log, None)
        self._closed.add(event.log)

    def _configure(self, event: Recorded) -> None:
        self.manager.reconfigure(CacheSettings.from_text(event.settings))

    def _append(self, event: Recorded) -> None:
        log = self.log_of(event)
        # As the managed ledger asks it: the record has all confirmed entries, also those that were not cached.
        if log.cursors.should_cache_added(event.at_ns):
            expected_reads = len(log.cursors) if log.counts_reads else None
            log.cache.insert_run(_entries_of(self._parts), expected_reads, event.at_ns)

    def _fetch(self, event: Recorded) -> None:
        expected_reads = expected_reads_of(event.detail)
        if expected_reads is not None and self.manager.policy.counts.fills_cache(expected_reads):
            cache = self.log_of(event).cache
            cache.insert_run(_entries_of(self._parts), expected_reads, event.at_ns)

    def _hit(self, event: Recorded) -> None:
        log = self.log_of(event)
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
        peek = self.log_of(event).cache.peek
        cached = sum(peek(event.ledger_id, entry_id) is not None for entry_id in event.ids)
        if cached != event.detail:
            self.problems.append(f"in the replay {cached} of its entries are cached")

    def _arrive(self, event: Recorded) -> None:
        """Counts the arrival; that the replay's cache lacks the entries too was checked when they were asked for."""
        cache = self.log_of(event).cache
        # Counted without a read: the entries are not in the replay's cache, as they were not in the broker's.
        for counted in cache.counters(cache.reader(event.reader)):
            counted.count_arrived(event.detail == Op.COALESCED, event.entries, event.size_bytes)

    def _deliver(self, event: Recorded) -> None:
        # 1: the broker had delivered another object than the cached one, whose count did not change.
        if not event.detail:
            self.manager.policy.counts.mark_delivered(self._run_of(event))

    def _expect_redelivery(self, event: Recorded) -> None:
        if not event.detail:
            self.manager.expect_redelivery(self._reader_of(event), self._run_of(event))

    def _postpone_delivery(self, event: Recorded) -> None:
        entries = [] if event.detail else self._run_of(event)
        if entries:
            listener = self.log_of(event).cache.listener
            listener.redelivery_changed(Redelivery.POSTPONED, self._reader_of(event), entries)

    def _drop_redeliveries(self, event: Recorded) -> None:
        listener = self.log_of(event).cache.listener
        listener.redelivery_changed(Redelivery.DROPPED, self._reader_of(event), self._run_of(event))

    def _cursor_added(self, event: Recorded) -> None:
        log = self.log_of(event)
        log.cursors.add(event.reader, event.position, log.known(event.reader, event.position))

    def _cursor_moved(self, event: Recorded) -> None:
        self.log_of(event).move(event.reader, event.position)

    def _acknowledge(self, event: Recorded) -> None:
        log = self.log_of(event)
        log.acknowledge(event.reader, event.position)
        if log.by_mark_delete:
            log.cursors.update(event.reader, event.position)

    def _cursor_left(self, event: Recorded) -> None:
        log = self.log_of(event)
        log.acknowledge(event.reader, event.position)
        log.cursors.remove(event.reader, event.at_ns)

    def _cursor_forgotten(self, event: Recorded) -> None:
        self.log_of(event).cursors.forget(event.reader)

    def _invalidate(self, event: Recorded) -> None:
        cache = self.log_of(event).cache
        if event.detail:
            cache.invalidate_ledger(event.ledger_id)
        else:
            cache.invalidate_before(event.position)

    def _tick(self, event: Recorded) -> None:
        self.manager.eviction.tick(event.at_ns, event.entries)

    def _check_size(self, event: Recorded) -> None:
        self.manager.eviction.run_size_checks(event.at_ns, event.entries)


def nothing(event: Recorded) -> None:
    """Ignores an event that changes nothing for the replayed cache."""
