"""ManagedCursor: one reader of a log: where it reads, and what it has acknowledged.

Reading and acknowledging are independent: the read position runs ahead, the mark-delete position follows
the acks, a rewind joins them. Taking never waits; what is not at hand is asked for with `request`, one
read at a time, and stays with the cursor until it is taken. A durable cursor is written as a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from broker.errors import BrokerError
from broker.managed_ledger.acks import Acks
from broker.managed_ledger.cursor_log import CursorLog
from broker.managed_ledger.inflight_reads_limiter import Permits
from broker.managed_ledger.ledger_info import encode_cursor
from broker.managed_ledger.replay_reads import read_positions
from broker.managed_ledger.snapshot_writer import SnapshotWriter
from broker.model.entry import Entry
from broker.model.position import Position
from broker.model.range_set import RangeSet


class ManagedCursor:
    __slots__ = (
        "_acks",
        "_cache",
        "_generation",
        "_ledgers",
        "_left_ledger",
        "_permits",
        "_read_entry",
        "_read_ledger",
        "_ready",
        "_snapshots",
        "active",
        "closed",
        "last_error",
        "ledger",
        "name",
        "properties",
        "reader",
        "reading",
    )

    def __init__(
        self,
        name: str,
        ledger: CursorLog,
        acks: Acks,
        properties: dict[str, int],
    ) -> None:
        """Made by ManagedLedger.open_cursor and new_non_durable_cursor."""
        self.name = name
        self.ledger = ledger
        self.properties = properties
        self.active = False
        self.closed = False
        self.reading = False
        """A read is out."""
        self.last_error: BrokerError | None = None
        """Why the last read failed; None after one that did not."""
        self._acks = acks
        self._cache = ledger.cache
        self.reader = ledger.cache.reader(name)
        """This cursor, as the cache knows it."""
        self._ledgers = ledger.ledgers
        self._snapshots: SnapshotWriter | None = None
        self._ready: list[Entry] = []
        """A completed read from the read position on, not taken yet, and what it holds of the read budget."""
        self._permits: Permits | None = None
        self._generation = 0
        """Grows when the read position jumps, so that a read begun before is not taken for the new place."""
        self._left_ledger = acks.ledger_id
        self._read_ledger, self._read_entry = self._ledgers.next_valid(acks.mark_delete)

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

    # Reading

    @property
    def read_position(self) -> Position:
        """The next entry to take, if there is one."""
        return Position(self._read_ledger, self._read_entry)

    def activate(self) -> None:
        """Count among the readers that entries are kept for."""
        if not self.active:
            self.active = True
            self.ledger.cursor_activated(self)

    def deactivate(self) -> None:
        if self.active:
            self.active = False
            self.ledger.cursor_deactivated(self)

    def has_more(self) -> bool:
        """Whether an entry stands at or behind the read position; it may turn out to be acknowledged."""
        end_ledger, end_entry = self.ledger.last_confirmed
        if self._read_ledger == end_ledger:
            return self._read_entry <= end_entry
        return self._ledgers.at_or_after((self._read_ledger, self._read_entry)) <= (end_ledger, end_entry)

    def take(self, entries_max: int, bytes_max: int) -> list[Entry]:
        """The next entries that are at hand, in order, those acknowledged left out; [] when none is.

        Never more than a run of consecutive entries in one ledger, so call again for more. At least one
        entry, whatever its size, if there is one.
        """
        by_hit = not self._ready
        if self._ready:
            taken = self._take_ready(entries_max, bytes_max)
        else:
            ledger_id = self._read_ledger
            last = self._ledgers.last_entry(ledger_id)
            if self._read_entry > last or self._acks.beyond.count:
                if not self._skip():
                    return []
                ledger_id = self._read_ledger
                last = self._ledgers.last_entry(ledger_id)
            first = self._read_entry
            last = min(last, first + entries_max - 1)
            taken = self._cache.take_run(self.reader, ledger_id, first, last, bytes_max)
        if not taken:
            return taken
        self._read_entry = taken[-1].entry_id + 1
        if self.active:
            self.ledger.cursor_moved(self, by_hit=by_hit)
        if self._acks.beyond.count:
            taken = self._without_acknowledged(taken)
        self.ledger.stats.took(taken)
        return taken

    def give_back(self, position: Position, rest: Sequence[Entry] = ()) -> None:
        """Entries of the run taken last, from `position` on, were not handed over: they are taken next. Passing
        them as `rest` spares reading them again should the cache not have them."""
        assert position <= self.read_position
        self._generation += 1
        if rest:
            self._ready = [*rest, *self._ready]
        else:
            self._drop_ready()
        self.ledger.stats.took_back(rest)
        self._read_ledger, self._read_entry = position
        if self.active:
            self.ledger.cursor_moved(self)

    def _skip(self) -> bool:
        """Move the read position to an unacknowledged entry; False when there is none."""
        position = self._acks.first_open(self.read_position)
        if position != (self._read_ledger, self._read_entry):
            self._read_ledger, self._read_entry = position
            if self.active:
                self.ledger.cursor_moved(self)
        return self._read_entry <= self._ledgers.last_entry(self._read_ledger)

    def _take_ready(self, entries_max: int, bytes_max: int) -> list[Entry]:
        ready = self._ready
        count = 0
        size_bytes = 0
        for entry in ready[:entries_max]:
            size_bytes += entry.size
            if size_bytes > bytes_max and count:
                break
            count += 1
        if count == len(ready):
            self._drop_ready()
        else:
            self._ready = ready[count:]
        return ready[:count]

    def _drop_ready(self) -> None:
        self._ready = []
        if self._permits is not None:
            permits, self._permits = self._permits, None
            self.ledger.give_back(permits)

    def _without_acknowledged(self, entries: list[Entry]) -> list[Entry]:
        """Those acknowledged are read all the same, as far as the cache is concerned."""
        beyond = self._acks.beyond
        ledger_id, first, last = entries[0].ledger_id, entries[0].entry_id, entries[-1].entry_id
        if beyond.first_present(ledger_id, first, last) > last:
            return entries
        skipped = [entry for entry in entries if (entry.ledger_id, entry.entry_id) in beyond]
        self.ledger.handed_over(skipped)
        return [entry for entry in entries if (entry.ledger_id, entry.entry_id) not in beyond]

    def request(self, entries_max: int, bytes_max: int, ready: Callable[[], None]) -> None:
        """Read on from storage; `ready()` when `take` has something or `last_error` says why not.

        One read at a time. It ends at the first entry that is cached or acknowledged, so that nothing is read
        for nothing.
        """
        assert not self.reading, "one read at a time"
        assert entries_max > 0
        self.last_error = None
        self._drop_ready()
        if not self._skip():
            self.ledger.at_end_of_turn(ready)
            return
        ledger_id, first = self._read_ledger, self._read_entry
        count = max(1, min(entries_max, bytes_max // self.ledger.estimated_bytes(ledger_id, 1)))
        last = self._last_to_read(ledger_id, first, count)
        self.reading = True
        generation = self._generation

        def begin(permits: Permits) -> None:
            def arrived(entries: list[Entry], error: BrokerError | None) -> None:
                if error is None and generation == self._generation and not self.closed:
                    self._ready = entries
                    self._permits = permits
                else:
                    self.ledger.give_back(permits)
                end(error)

            log = self.ledger
            log.reads.read(
                self.reader, ledger_id, first, last, lambda: log.readers_at_or_before(self), arrived
            )

        def end(error: BrokerError | None) -> None:
            self.reading = False
            self.last_error = error
            ready()

        self.ledger.with_permits(self.ledger.estimated_bytes(ledger_id, last - first + 1), begin, end)

    def _last_to_read(self, ledger_id: int, first: int, count: int) -> int:
        last = min(first + count - 1, self._ledgers.last_entry(ledger_id))
        if self._acks.beyond.count:
            last = self._acks.beyond.first_present(ledger_id, first, last) - 1
        peek = self._cache.peek
        for entry_id in range(first + 1, last + 1):
            if peek(ledger_id, entry_id) is not None:
                return entry_id - 1
        return last

    def get_positions(self, positions: Sequence[Position]) -> tuple[list[Entry], list[Position]]:
        """For a replay: (entries that are cached, positions that are not). What has been acknowledged or
        does not exist is in neither."""
        found: list[Entry] = []
        missing: list[Position] = []
        get = self._cache.get_again
        for position in positions:
            if self._acks.is_acknowledged(position) or not self._ledgers.has_entry(*position):
                continue
            entry = get(self.reader, *position)
            if entry is None:
                missing.append(position)
            else:
                found.append(entry)
        self.ledger.stats.took(found)
        return found, missing

    def request_positions(self, positions: Sequence[Position], ready: Callable[[list[Entry]], None]) -> None:
        """Read entries for a replay; they do not enter the cache. `ready` gets those that could be read, in
        order, and `last_error` says why others could not."""
        self.last_error = None

        def done(entries: list[Entry], error: BrokerError | None) -> None:
            self.last_error = error
            self.ledger.stats.took(entries)
            ready(entries)

        read_positions(self.ledger, self.reader, positions, done)

    def rewind(self) -> None:
        """Read on from the first unacknowledged entry."""
        self._jump(self._ledgers.next_valid(self._acks.mark_delete))

    def _jump(self, position: Position) -> None:
        self._generation += 1
        self._drop_ready()
        self._read_ledger, self._read_entry = position
        if self.active:
            self.ledger.cursor_moved(self)

    # Acknowledging

    @property
    def mark_delete_position(self) -> Position:
        """Everything up to here is acknowledged."""
        return self._acks.mark_delete

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
            self.ledger.active_cursor_acknowledged(self)

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
            self.ledger.active_cursor_acknowledged(self)
        if self._snapshots is not None:
            self._snapshots.changed()
            await self._snapshots.flush()

    async def flush(self) -> None:
        """Write the snapshot now if anything changed. Raises MetadataError."""
        if self._snapshots is not None:
            await self._snapshots.flush()

    async def close(self) -> None:
        """Flush, and read no more. Raises MetadataError; the cursor is closed all the same."""
        self.deactivate()
        self.closed = True
        self._drop_ready()
        self.ledger.cursor_closed(self)
        if self._snapshots is not None:
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
        self.deactivate()
        self.closed = True
        self._drop_ready()
        if self._snapshots is not None:
            self._snapshots.abandon()
