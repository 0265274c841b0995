"""ManagedCursor: one subscription's place in a log: what it has acknowledged, and how that is kept.

Reading and acknowledging are independent: the read position runs ahead, the mark-delete position follows
the acks, a rewind joins them. Reading stands in `CursorReads`. A durable cursor is written as a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from broker.managed_ledger.acks import Acks
from broker.managed_ledger.cursor_log import CursorLog
from broker.managed_ledger.cursor_reads import CursorReads
from broker.managed_ledger.ledger_info import encode_cursor
from broker.managed_ledger.snapshot_writer import SnapshotWriter
from broker.model.position import Position
from broker.model.range_set import RangeSet


class ManagedCursor(CursorReads):
    __slots__ = ("_left_ledger", "_snapshots", "properties")

    def __init__(self, name: str, ledger: CursorLog, acks: Acks, properties: dict[str, int]) -> None:
        """Made by ManagedLedger.open_cursor and new_non_durable_cursor."""
        super().__init__(name, ledger, acks)
        self.properties = properties
        self._snapshots: SnapshotWriter | None = None
        self._left_ledger = acks.ledger_id

    def make_durable(self, snapshots: SnapshotWriter) -> None:
        self._snapshots = snapshots

    def encode_snapshot(self) -> bytes:
        settings = self.ledger.settings
        return encode_cursor(
            self._acks.snapshot(self.properties, settings.ack_ranges_max, settings.batch_ack_sets_max)
        )

    @property
    def durable(self) -> bool:
        return self._snapshots is not None

    # Acknowledging

    @property
    def individually_acknowledged(self) -> RangeSet:
        """Entries beyond the mark-delete position. To look at only."""
        return self._acks.beyond

    @property
    def backlog(self) -> int:
        """Entries not yet acknowledged; one acknowledged in part counts."""
        acks = self._acks
        behind = self._ledgers.entries_between((acks.ledger_id, acks.entry_id), self.ledger.last_confirmed)
        return behind - acks.beyond.count

    def acknowledge(self, positions: Iterable[tuple[int, int]]) -> int:
        """Acknowledge whole entries; answers how many were not acknowledged before. What does not exist, or
        not yet, is ignored."""
        newly = self._acks.acknowledge(positions)
        if newly:
            self._acknowledged()
        return newly

    def acknowledge_batch(self, position: Position, ack_set: Sequence[int], batch_size: int) -> bool:
        """Acknowledge the messages of an entry whose bit is clear, in addition to earlier ones; True when
        that completed the entry. `batch_size` 0 = not known."""
        whole = self._acks.acknowledge_batch(position, ack_set, batch_size)
        self._acknowledged()
        return whole

    def acknowledge_cumulative(
        self,
        position: Position,
        ack_set: Sequence[int] | None = None,
        *,
        properties: dict[str, int] | None = None,
    ) -> None:
        """Acknowledge everything up to and including the position, or as far as there is something. An entry
        id of -1 (2^64 - 1) means everything in front of the ledger's first entry. `properties` are kept with
        the position from now on."""
        moved = self._acks.acknowledge_cumulative(position, ack_set)
        if properties is not None:
            self.properties = properties
        if moved or properties is not None:
            self._acknowledged()

    def _acknowledged(self) -> None:
        if self._snapshots is not None:
            self._snapshots.changed()
        acks = self._acks
        if acks.entry_id >= self._read_entry or acks.ledger_id != self._read_ledger:
            self._read_behind_mark_delete()
        if self._snapshots is not None and self._has_left_a_ledger(acks.ledger_id, acks.entry_id):
            self.ledger.trim(self.ledger.ground.wall_ms())
        if self.active:
            self.ledger.readers.acknowledged(self)

    def _read_behind_mark_delete(self) -> None:
        """Nothing acknowledged needs to be read any more."""
        mark_delete = self._acks.mark_delete
        if mark_delete >= self.read_position:
            self._jump(self._ledgers.next_valid(mark_delete))

    def _has_left_a_ledger(self, ledger_id: int, entry_id: int) -> bool:
        """The mark-delete position is in another ledger than before, or at the end of one that is closed."""
        if ledger_id != self._left_ledger:
            self._left_ledger = ledger_id
            return True
        closed = ledger_id != self._ledgers.current.ledger_id
        return closed and entry_id >= self._ledgers.last_entry(ledger_id)

    def is_acknowledged(self, position: tuple[int, int]) -> bool:
        return self._acks.is_acknowledged(position)

    def ack_set_of(self, position: tuple[int, int]) -> tuple[int, ...] | None:
        """The words for MESSAGE.ack_set, None when the whole entry is to be delivered."""
        return self._acks.ack_set_of(position)

    @property
    def partly_acknowledged(self) -> int:
        """How many entries are acknowledged in part."""
        return self._acks.batches

    # Keeping

    def on_durable(self, callback: Callable[[], None]) -> None:
        """Called once everything acknowledged so far would survive a crash; at once when it would already,
        and for a cursor that is not durable."""
        if self._snapshots is None:
            callback()
        else:
            self._snapshots.on_durable(callback)

    async def reset(self, position: Position) -> None:
        """Seek: `position` is the next entry to read, EARLIEST and LATEST allowed; one that does not exist is
        the end. Acks behind it are forgotten. Durable before this returns; raises MetadataError."""
        start = self.ledger.seek_position(position)
        self._acks.reset(self._ledgers.previous(start))
        self._jump(start)
        if self.active:
            self.ledger.readers.acknowledged(self)
        if self._snapshots is not None:
            self._snapshots.changed()
            await self._snapshots.flush()

    async def flush(self) -> None:
        """Write the snapshot now if anything changed. Raises MetadataError."""
        if self._snapshots is not None:
            await self._snapshots.flush()

    async def close(self) -> None:
        """Flush, and read no more. Raises MetadataError; the cursor is closed all the same."""
        self.closed = True
        self.deactivate()
        if self._snapshots is None:
            self.ledger.forget_cursor(self)
        else:
            await self._snapshots.close()

    async def settle(self) -> None:
        """Wait for a snapshot that is being written."""
        if self._snapshots is not None:
            await self._snapshots.settle()

    @property
    def ever_stored(self) -> bool:
        """Whether the metadata store has a snapshot of it."""
        return self._snapshots is not None and self._snapshots.stored

    def abandon(self) -> None:
        """Close without writing anything: the cursor or its log is being deleted."""
        self.closed = True
        self.deactivate()
        if self._snapshots is not None:
            self._snapshots.abandon()
