"""RecordedInputs: the inputs of the cache as events for a recorder, so that a record can be replayed without the broker.

It attaches only while a recorder listens. `Decisions` notes the events that the ring keeps as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from entry_cache.active_cursors import ActiveCursors
from entry_cache.listener import CursorChange, Pass, StorageRead
from entry_cache.observe.cache_events import BY_MARK_DELETE, COUNTS_READS, CacheEvent, Op, detail_of
from entry_cache.observe.ledger_logs import LedgerLogs
from entry_cache.range_cache import CachedLog
from entry_cache.reader import Reader
from entry_cache.settings import CacheSettings
from foundation.model.entry import Entry
from foundation.model.position import Position

LOOKS_UNTOLD_MAX: Final = 1 << 30
"""A PINNED event follows after this many looks at the latest, so that their number fits a recorder's column."""

EventSink = Callable[[CacheEvent], object]
"""Takes every event, in order."""


class RecordedInputs:
    """A listener that passes the inputs of the cache to a recorder."""

    def __init__(self, record: EventSink, logs: LedgerLogs, now_ns: Callable[[], int]) -> None:
        """`logs` hears of the ledgers that events name; `now_ns` is the clock of the whole cache."""
        self._record = record
        self._logs = logs
        self._now_ns = now_ns
        self._looks = 0
        """Looks at pinned bytes since the last PINNED event."""

    def appended(self, cache: CachedLog, entries: Sequence[Entry], now_ns: int) -> None:
        """Notes APPEND."""
        # Before the event: a removal that follows from it asks for the log of the ledger.
        self._logs.seen(entries[0].ledger_id, cache.name)
        self._record(_sized_row(Op.APPEND, cache.name, entries, 0, now_ns))

    def fetched(
        self, cache: CachedLog, entries: Sequence[Entry], expected_reads: int | None, now_ns: int
    ) -> None:
        """Notes FETCHED."""
        if entries:
            self._logs.seen(entries[0].ledger_id, cache.name)
            self._record(_sized_row(Op.FETCHED, cache.name, entries, detail_of(expected_reads), now_ns))

    def offered_again(self, cache: CachedLog, entry: Entry, expected_reads: int | None, now_ns: int) -> None:
        """Notes OFFER."""
        run = (entry.ledger_id, entry.entry_id, 1, entry.size)
        self._record((now_ns, Op.OFFER, cache.name, 0, *run, detail_of(expected_reads), (), ()))

    def arrived(
        self, read: StorageRead, cache: CachedLog, reader: Reader, entries: Sequence[Entry], size_bytes: int
    ) -> None:
        """Notes ARRIVED."""
        head = entries[0]
        run = (head.ledger_id, head.entry_id, len(entries), size_bytes)
        row = (self._now_ns(), Op.ARRIVED, cache.name, reader.number, *run, int(read), (), ())
        self._record(row)

    def pass_began(self, trigger: Pass, now_ns: int, visits_max: int) -> None:
        """Notes TICK or SIZE_CHECK, before the pass runs."""
        self._record((now_ns, int(trigger), "", 0, 0, 0, visits_max, 0, 0, (), ()))

    def invalidating(self, cache: CachedLog, position: Position, now_ns: int, *, whole_ledger: bool) -> None:
        """Notes INVALIDATE."""
        self._record((now_ns, Op.INVALIDATE, cache.name, 0, *position, 0, 0, int(whole_ledger), (), ()))

    def pinned_looked_at(self, size_bytes: int, matters: bool) -> None:
        """Notes PINNED, if a decision depends on the look.

        Which receive buffers are kept alive cannot be told from anything else in a record (`StrictSize`).
        """
        self._looks += 1
        # Inserts look many times in a second; a row for each of them would be most of a record.
        if matters or self._looks == LOOKS_UNTOLD_MAX:
            self._record((self._now_ns(), Op.PINNED, "", 0, 0, 0, self._looks, size_bytes, 0, (), ()))
            self._looks = 0

    def cursor_changed(
        self,
        change: CursorChange,
        cache: CachedLog,
        reader: Reader,
        position: Position,
        at_ns: int | None = None,
    ) -> None:
        """Notes CURSOR_ADDED, CURSOR_MOVED, CURSOR_LEFT, CURSOR_FORGOTTEN or ACK."""
        now_ns = self._now_ns() if at_ns is None else at_ns
        self._record((now_ns, int(change), cache.name, reader.number, *position, 0, 0, 0, (), ()))

    def cache_removed(self, cache: CachedLog) -> None:
        """Notes CLOSE."""
        self._record((self._now_ns(), Op.CLOSE, cache.name, 0, 0, 0, 0, 0, 0, (), ()))

    def cursors_attached(
        self,
        cache: CachedLog,
        cursors: ActiveCursors,
        now_ns: int,
        *,
        counts_reads: bool,
        by_mark_delete: bool,
    ) -> None:
        """Notes OPEN. Records hold whole microseconds, so the span is rounded up to lose nothing."""
        detail = COUNTS_READS * counts_reads + BY_MARK_DELETE * by_mark_delete
        continue_us = -(-cursors.continue_caching_ns // 1000)
        self._record((now_ns, Op.OPEN, cache.name, 0, 0, 0, 0, continue_us, detail, (), ()))

    def reader_made(self, cache: CachedLog, reader: Reader) -> None:
        """Notes READER."""
        row = (self._now_ns(), Op.READER, cache.name, reader.number, 0, 0, 0, 0, 0, reader.who, ())
        self._record(row)

    def configured(self, settings: CacheSettings) -> None:
        """Notes SETTINGS."""
        text = settings.to_text()
        self._record((self._now_ns(), Op.SETTINGS, "", 0, 0, 0, 0, 0, 0, (text,), ()))


def _sized_row(op: Op, log: str, entries: Sequence[Entry], detail: int, at_ns: int) -> CacheEvent:
    """Returns APPEND or FETCHED, the only events that tell the size of each entry."""
    head = entries[0]
    sizes = [entry.size for entry in entries]
    return (at_ns, op, log, 0, head.ledger_id, head.entry_id, len(sizes), sum(sizes), detail, (), sizes)
