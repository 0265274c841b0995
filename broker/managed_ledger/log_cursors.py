"""LogCursors: the reading half of a log: its cursors, reading through the cache, and trimming.

A ledger that every durable cursor has acknowledged to its end is removed, first from the list, then from the
metadata store, then from the bookie, and never the current one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.entry_cache.entry_cache import EntryCache
from broker.managed_ledger.acks import Acks
from broker.managed_ledger.background import Background
from broker.managed_ledger.cache_readers import CacheReaders, ReadingCursor
from broker.managed_ledger.ground import Ground
from broker.managed_ledger.ledger_info import (
    CursorSnapshot,
    cursor_key,
    cursor_name_of,
    decode_cursor,
    log_key,
)
from broker.managed_ledger.ledger_list import LedgerInfo, LedgerList
from broker.managed_ledger.log_record import LogRecord
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.pending_reads import PendingReads
from broker.managed_ledger.range_reads import RangeReads
from broker.managed_ledger.read_permits import ReadPermits
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.managed_ledger.snapshot_writer import SnapshotWriter
from broker.managed_ledger.stats import LogStats
from broker.managed_ledger.storage_reads import StorageReads
from broker.metadata.metadata_store import ABSENT
from broker.model.entry import Entry
from broker.model.errors import BrokerError, MetadataError, NoSuchEntry, NoSuchLedger
from broker.model.position import LATEST, Position

OVERHEAD_ESTIMATE_BYTES = 64
PEEKER = "__peek"
"""The name of the reader that is no cursor."""


class LogCursors:
    __slots__ = (
        "background",
        "cache",
        "cursors",
        "ground",
        "handed_over",
        "keep_bytes",
        "keep_ms",
        "last_confirmed",
        "ledgers",
        "name",
        "one_change",
        "peeker",
        "readers",
        "reads",
        "record",
        "settings",
        "stats",
    )

    def __init__(self, name: str, ground: Ground, settings: ManagedLedgerSettings, record: LogRecord) -> None:
        self.name = name
        self.ground = ground
        self.settings = settings
        self.record = record
        self.ledgers: LedgerList = record.ledgers
        self.last_confirmed = self.ledgers.last()
        """The last entry that can be read; (current ledger, -1) when there is none."""
        self.stats = LogStats(self.ledgers)
        self.cache: EntryCache = ground.caches.open(name)
        self.peeker = self.cache.reader(PEEKER)
        """Who looks at single entries for nobody's subscription."""
        self.handed_over = ground.caches.delivered
        storage = StorageReads(ground, self.cache, self.stats, lambda: self.settings)
        self.reads = RangeReads(self.cache, PendingReads(storage.read, self.cache), ground.turn)
        """From the cache and from storage, where each range is read once however many want it."""
        self.readers = CacheReaders(ground, self.cache, settings)
        self.cursors: dict[str, ManagedCursor] = {}
        """Durable and not, by name."""
        self.keep_ms = 0
        """Retention of what is acknowledged, since its ledger was closed; -1 = for ever."""
        self.keep_bytes = 0
        """Likewise by size of the log; -1 = all."""
        self.background = Background(f"managed ledger {name}")
        self.one_change = asyncio.Lock()
        """Held while the log's record is being changed."""

    @property
    def number_of_entries(self) -> int:
        return self.ledgers.entries

    @property
    def total_size(self) -> int:
        """Payload bytes of all ledgers."""
        return self.ledgers.size_bytes

    @property
    def is_terminated(self) -> bool:
        return self.record.terminated is not None

    # Arithmetic

    def next_valid(self, position: tuple[int, int]) -> Position:
        """The first entry behind the position, or where the next one will stand."""
        return self.ledgers.next_valid(position)

    def previous(self, position: tuple[int, int]) -> Position:
        """The last entry in front of the position, or (first ledger, -1)."""
        return self.ledgers.previous(position)

    def entries_between(self, after: tuple[int, int], through: tuple[int, int]) -> int:
        """How many entries stand behind `after`, up to and including `through`."""
        return self.ledgers.entries_between(after, through)

    def seek_position(self, position: Position) -> Position:
        """Where reading begins that is asked for at the position: there, or at the next entry that exists,
        or at the end."""
        return self.ledgers.at_or_after(position)

    def estimated_bytes(self, ledger_id: int, entries: int) -> int:
        """What a read of so many entries of the ledger is likely to bring (entry cache, size estimates)."""
        return entries * (self.ledgers.average_entry_bytes(ledger_id) + OVERHEAD_ESTIMATE_BYTES)

    def at_end_of_turn(self, callback: Callable[[], None]) -> None:
        self.ground.turn.confirm(lambda _: callback())

    # Cursors

    async def load_cursors(self) -> None:
        for last_part in await self.ground.metadata.children(log_key(self.name)):
            name = cursor_name_of(last_part)
            found = await self.ground.metadata.get(cursor_key(self.name, name))
            if found is not None:
                self._make_durable(name, decode_cursor(found.value), found.version)

    async def open_cursor(
        self, name: str, initial: Position, properties: dict[str, int] | None = None
    ) -> ManagedCursor:
        """The durable cursor of that name; a new one reads on from `initial` (EARLIEST and LATEST allowed) and
        is durable when this returns. Raises MetadataError."""
        cursor = self.cursors.get(name)
        if cursor is None:
            start = self.ledgers.at_or_after(initial)
            snapshot = CursorSnapshot(self.ledgers.previous(start), properties or {})
            cursor, snapshots = self._make_durable(name, snapshot, ABSENT)
            snapshots.changed()
        try:
            await cursor.flush()
        except MetadataError:
            if self.cursors.get(name) is cursor and not cursor.ever_stored:
                cursor.abandon()
                del self.cursors[name]
            raise
        return cursor

    def _make_durable(
        self, name: str, snapshot: CursorSnapshot, version: int
    ) -> tuple[ManagedCursor, SnapshotWriter]:
        cursor = ManagedCursor(name, self, Acks.restore(self.ledgers, snapshot), dict(snapshot.properties))
        snapshots = SnapshotWriter(
            self.ground.metadata,
            cursor_key(self.name, name),
            cursor.encode_snapshot,
            self.ground.turn,
            self.ground.dirty_cursors,
            self.settings.snapshot_interval_ns,
            version,
        )
        cursor.make_durable(snapshots)
        self.cursors[name] = cursor
        return cursor, snapshots

    def new_non_durable_cursor(self, name: str, start: Position) -> ManagedCursor:
        """A cursor in memory that reads on from `start` (EARLIEST and LATEST allowed)."""
        assert name not in self.cursors, f"{self.name} has a cursor {name}"
        first = self.ledgers.at_or_after(start)
        cursor = ManagedCursor(name, self, Acks(self.ledgers, self.ledgers.previous(first)), {})
        self.cursors[name] = cursor
        return cursor

    async def delete_cursor(self, name: str) -> None:
        """Forget the cursor; one that does not exist is no error. Raises MetadataError."""
        cursor = self.cursors.get(name)
        if cursor is None:
            return
        if cursor.durable:
            cursor.abandon()
            await cursor.settle()
            await self.ground.metadata.delete(cursor_key(self.name, name))
        else:
            cursor.abandon()
        self.readers.forget(cursor)
        self.cache.forget_reader(name)
        self.cursors.pop(name, None)
        self.trim(self.ground.wall_ms())

    def drop_non_durable_cursor(self, cursor: ManagedCursor) -> None:
        """A reader has left for good."""
        assert not cursor.durable
        cursor.abandon()
        self.readers.forget(cursor)
        if self.cursors.get(cursor.name) is cursor:
            self.cache.forget_reader(cursor.name)
            del self.cursors[cursor.name]

    def forget_cursor(self, cursor: ReadingCursor) -> None:
        """A cursor in memory was closed."""
        if self.cursors.get(cursor.name) is cursor:
            del self.cursors[cursor.name]

    def check_backlogs(self) -> None:
        """To be called about once a minute."""
        self.readers.check_backlogs(self.cursors.values(), self.settings)

    # Trimming

    def trim(self, now_ms: int, *, without_cursors: bool = False) -> list[int]:
        """Remove ledgers from the front that every durable cursor has acknowledged to their end, and that were
        closed `keep_ms` ago or stand before the newest `keep_bytes` of the log. Answers their ids; the
        metadata store and the bookie follow in the background.

        A log without a durable cursor is trimmed only by the periodic check (`without_cursors`), as in Pulsar: who
        publishes first and subscribes a little later finds the messages.
        """
        removed: list[int] = []
        durable = [cursor.mark_delete_position for cursor in self.cursors.values() if cursor.durable]
        if len(self.ledgers) > 1 and (durable or without_cursors):
            slowest = min(durable, default=LATEST)
            total = self.total_size
            for info in self.ledgers.infos()[:-1]:
                expired = 0 <= self.keep_ms <= now_ms - (info.closed_at_ms or now_ms)
                oversized = 0 <= self.keep_bytes < total
                if slowest < (info.ledger_id, info.entries - 1) or not (expired or oversized):
                    break
                total -= info.size_bytes
                removed.append(info.ledger_id)
        if removed:
            for ledger_id in removed:
                self.ledgers.remove(ledger_id)
                self.cache.invalidate_ledger(ledger_id)
                self.reads.invalidate_ledger(ledger_id)
            self.last_confirmed = self.ledgers.last()
            self._remove(removed)
        return removed

    def forget_empty(self, info: LedgerInfo) -> None:
        """A retired ledger that never got an entry leaves the list at once."""
        if not info.entries:
            self.ledgers.remove(info.ledger_id)
            self._remove([info.ledger_id])

    def _remove(self, ledger_ids: list[int]) -> None:
        self.record.forget(ledger_ids)
        self.background.spawn(self._remove_forgotten())

    async def _remove_forgotten(self) -> None:
        async with self.one_change:
            try:
                await self.record.remove_forgotten()
            except MetadataError:
                return  # Still written down as existing: the next removal or the next open tries again.

    # Single entries

    async def read_entry(self, position: Position) -> Entry:
        """Through the cache, which it does not fill. Raises NoSuchLedger, NoSuchEntry, PersistenceError, and
        TooManyRequests when too much is being read."""
        ledger_id, entry_id = position
        if ledger_id not in self.ledgers:
            raise NoSuchLedger(f"{self.name} has no ledger {ledger_id}")
        if not self.ledgers.has_entry(ledger_id, entry_id):
            raise NoSuchEntry(f"{self.name} has no entry {ledger_id}:{entry_id}")
        cached = self.cache.get(self.peeker, ledger_id, entry_id)
        if cached is not None:
            return cached
        done: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()

        def refuse(error: BrokerError) -> None:
            if not done.done():
                done.set_exception(error)

        def arrived(entries: list[Entry], error: BrokerError | None) -> None:
            if error is not None:
                refuse(error)
            elif not done.done():
                done.set_result(entries[0])

        def read() -> None:
            self.reads.read(self.peeker, ledger_id, entry_id, entry_id, lambda: None, arrived)

        permits = ReadPermits(self.ground)
        permits.ask(self.estimated_bytes(ledger_id, 1), read, refuse)
        try:
            return await done
        finally:
            permits.release()

    async def find_newest(self, older_than_ms: Callable[[Entry], bool]) -> Position | None:
        """The newest entry for which the predicate holds, None when it holds for none. A binary search: it
        must hold for a beginning of the log and for nothing behind it."""
        low, high = 0, self.number_of_entries
        while low < high:
            middle = (low + high) // 2
            if older_than_ms(await self.read_entry(self.ledgers.position_at(middle))):
                low = middle + 1
            else:
                high = middle
        return self.ledgers.position_at(low - 1) if low else None
