"""ManagedCursor: one subscription's place in a managed ledger: read position and acknowledgements.

Reading and acknowledging are independent. The read position runs ahead, the mark-delete position follows the
acknowledgements, and a rewind sets the first to the second. Taking entries never waits: they come from the
cache, or from a read that has ended. Anything else is asked for with `request`, one read at a time.

    dispatcher -> take            ReadyEntries, else EntryCache              a hit
               -> request         ForwardRead -> EntryRead (entry_read.py)   a miss; then take again
               -> redelivery      RedeliveryReads: positions to deliver again
    subscription -> acknowledge…  Acks, CursorInfoWriter, Trimming

The law: `take` and `rewind` alone decide what is delivered; entries acknowledged meanwhile are left out, and so are
those in `deferred`, which the dispatcher asks for by itself later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from broker.managed_ledger.acks import Acks, split
from broker.managed_ledger.cursor_info_writer import CursorStore
from broker.managed_ledger.forward_read import ForwardRead, ReadyEntries
from broker.managed_ledger.inflight_reads_limiter import ReadPermits
from broker.managed_ledger.ledger_context import ReadView
from broker.managed_ledger.ledger_parts import LedgerParts
from broker.managed_ledger.redelivery_reads import RedeliveryReads
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, ServiceNotReady
from foundation.model.position import Position
from foundation.model.range_set import EntryRange, RangeSet
from foundation.seldom import when_used

log = logging.getLogger("magnetar")

NOTHING_DEFERRED = RangeSet()
"""Stays empty: the `deferred` of a cursor whose dispatcher delivers everything at once."""


def sought(position: Position, acks: Acks) -> tuple[Position, int, int]:
    """Returns `ManagedCursor.sought` for a position that a client has asked for, by which the acknowledgements were set."""
    return position, acks.ledger_id, acks.entry_id


def _redelivery_of(cursor: ManagedCursor) -> RedeliveryReads:
    return RedeliveryReads(cursor._parts, cursor, cursor.acks)


class ManagedCursor:
    """Opened through `LedgerCursors`."""

    __slots__ = (
        "__weakref__",
        "_cache",
        "_ledgers",
        "_left_ledger",
        "_parts",
        "_read_entry",
        "_read_ledger",
        "_reading_cursors",
        "_ready",
        "_request",
        "acks",
        "active",
        "caches_reads",
        "closed",
        "context",
        "deferred",
        "durable",
        "known_redelivery",
        "last_error",
        "name",
        "on_acknowledged",
        "reader",
        "seeks",
        "sought",
        "store",
    )

    redelivery: RedeliveryReads = when_used("known_redelivery", _redelivery_of)
    """Reads of single positions that must be delivered again."""

    def __init__(self, name: str, parts: LedgerParts, acks: Acks, store: CursorStore) -> None:
        self.name = name
        """The subscription's name."""
        self.context = parts.context
        """The shared state of its managed ledger."""
        self.acks = acks
        """The acknowledgements. To look at; the cursor changes them."""
        self.store = store
        """Keeps the acknowledgements in the metadata store, or not."""
        self.durable = store.durable
        """True if the cursor survives a restart."""
        self.active = False
        """True while a consumer reads through the cursor, so that entries are cached for it."""
        self.caches_reads = False
        """Its storage reads fill the cache although expected reads are not counted (backlog caching)."""
        self.deferred = NOTHING_DEFERRED
        """Positions that reading on leaves out. Set by a dispatcher that delays deliveries; others change the set."""
        self.on_acknowledged: Callable[[], None] | None = None
        """Called after each acknowledgement; a dispatcher that waits for some sets it, and None otherwise."""
        self.closed = False
        """True when the cursor reads no more."""
        self.last_error: BrokerError | None = None
        """Why the last read from the read position failed; None after one that succeeded."""
        self.reader = self.context.reader(name)
        """This cursor, as the cache knows it."""
        self.sought: tuple[Position, int, int] | None = None
        """Position asked for by the last open or seek, and the mark-delete position at that time; None after a restart.

        For readers of a compacted ledger, which has positions that the log has lost."""
        self.seeks = 0
        """Seeks since it was opened; work that waits before it acknowledges compares it."""
        self.known_redelivery: RedeliveryReads | None = None
        """`redelivery`, None before its first use."""
        self._parts = parts
        self._reading_cursors = parts.reading_cursors
        self._cache = self.context.cache
        self._ledgers = self.context.ledgers
        self._request: ForwardRead | None = None
        self._ready: ReadyEntries | None = None
        """Entries that were read from storage; None before the first such read."""
        # The position in two fields: a tuple per entry read would cost more than the rest of `take`.
        self._read_ledger, self._read_entry = self._ledgers.next_valid(acks.mark_delete)
        self._left_ledger = acks.ledger_id

    @property
    def read_position(self) -> Position:
        """The next entry to take, or where it will stand."""
        return Position(self._read_ledger, self._read_entry)

    @property
    def mark_delete_position(self) -> Position:
        """The last position up to which every entry is acknowledged."""
        return self.acks.mark_delete

    @property
    def reading(self) -> bool:
        """A read from the read position on is in flight or waits."""
        return self._request is not None

    @property
    def backlog(self) -> int:
        """Number of confirmed entries that are not acknowledged as a whole."""
        acks, last = self.acks, self.context.last_confirmed
        if acks.entry_id == last.entry_id and acks.ledger_id == last.ledger_id:
            return 0  # Most cursors of a large broker are here, and rounds ask all of them.
        later = self._ledgers.entries_between((acks.ledger_id, acks.entry_id), last)
        return later - acks.beyond.count

    def activate(self) -> None:
        """Caches entries for this cursor from now on: a consumer has connected."""
        if not self.active:
            self.active = True
            self._reading_cursors.activated(self)

    def deactivate(self) -> None:
        """Stops reading: the last consumer has disconnected.

        Entries that were read are dropped now; those of a read in flight are dropped when it ends.
        """
        if self.active:
            self.active = False
            self._reading_cursors.deactivated(self)
        if self._ready is not None:
            self._ready.drop()
        if self._request is not None:
            self._request.withdraw()
        if self.known_redelivery is not None:
            self.known_redelivery.withdraw()

    # Reading

    def has_more(self) -> bool:
        """Returns True when an entry, perhaps an acknowledged one, stands at or after the read position."""
        ledger = self.context
        end_ledger, end_entry = ledger.last_confirmed if ledger.view is None else ledger.last_readable
        # Every run of a dispatcher asks; nearly always the read position is in the current ledger.
        if self._read_ledger == end_ledger:
            return self._read_entry <= end_entry
        return self._ledgers.at_or_after((self._read_ledger, self._read_entry)) <= (end_ledger, end_entry)

    def take(self, entries_max: int, bytes_max: int) -> list[Entry]:
        """Returns the next unacknowledged entries that are in memory; [] if none.

        One call returns consecutive entries of one ledger only, so a caller calls again for more. The first entry is
        returned whatever its size.
        """
        beyond = self.acks.beyond
        view = self.context.view
        ready = self._ready
        by_hit = ready is None or not ready.entries
        if ready is None or by_hit:
            ledger_id = self._read_ledger
            last = self._ledgers.last_entry(ledger_id) if view is None else self._last_entry(ledger_id)
            # While acknowledgements come in order there is nothing to skip, so spare the search per call.
            if self._read_entry > last or beyond.count or self.deferred.count:
                if not self._skip():
                    return []
                ledger_id = self._read_ledger
                last = self._last_entry(ledger_id)
            first = self._read_entry
            last = min(last, first + entries_max - 1)
            taken = self._cache.read_run(self.reader, ledger_id, first, last, bytes_max)
        else:
            taken = ready.take(entries_max, bytes_max)
        if not taken:
            return taken
        # May stand past the ledger's last entry; the next call then moves on to the next ledger.
        self._read_entry = taken[-1].entry_id + 1
        if self.active:
            self._reading_cursors.moved(self, by_hit=by_hit)
        if beyond.count:
            taken, acknowledged = split(taken, beyond)
            if acknowledged:
                # No consumer gets these, so this cursor's expected read of them ends here.
                self.context.environment.caches.mark_delivered(acknowledged)
        if self.deferred.count and taken:
            taken, deferred = split(taken, self.deferred)
            if deferred:
                # As in Pulsar: a delayed entry is released, and read from storage or cache when it is due.
                self.context.environment.caches.mark_delivered(deferred)
        if view is not None and taken:
            taken = self.shown(view, taken)
        if taken:
            self.context.counters().took(taken)
        return taken

    def shown(self, view: ReadView, taken: list[Entry]) -> list[Entry]:
        """Returns the entries that the view shows; acknowledges those that no reader will ever get.

        The result may be empty although there is more; the dispatcher then reads on from storage.
        """
        shown, left_out, dead = view.divide(self.name, taken)
        if left_out:
            # No consumer gets these now, so this cursor's expected read of them ends here.
            self.context.environment.caches.mark_delivered(left_out)
        if dead:
            self.acknowledge(dead)
        return shown

    def _last_entry(self, ledger_id: int) -> int:
        """Returns the ledger's last entry that may be read, -1 for none."""
        last = self._ledgers.last_entry(ledger_id)
        view = self.context.view
        if view is None:
            return last
        end = view.last_readable(self.context.last_confirmed)
        if ledger_id == end.ledger_id:
            return min(last, end.entry_id)
        return last if ledger_id < end.ledger_id else -1

    def give_back(self, position: Position, rest: Sequence[Entry] = ()) -> None:
        """Undoes the last `take` from `position` on.

        The next `take` begins there. `rest` has the entries from there on; without it, those that the cache has lost
        are read from storage again.
        """
        assert position <= self.read_position
        # A read in flight begins after these entries; kept, it would be delivered with a gap before it.
        if self._request is not None:
            self._request.position_jumped()
        if rest:
            self._ready = self._ready or ReadyEntries(self.context.environment.turn)
            self._ready.prepend(rest)
        elif self._ready is not None:
            self._ready.drop()
        self.context.counters().took_back(rest)
        self._move_to(position)

    def request(self, entries_max: int, bytes_max: int, ready: Callable[[], None]) -> None:
        """Reads on, and calls `ready` after this call has returned.

        `take` then has entries, or `last_error` says why not. One read runs at a time. It ends before the first entry
        that is acknowledged, so that no entry is read in vain. A read that waits for permits reads where the cursor
        stands when it has them.
        """
        assert self._request is None, "one read at a time"
        assert entries_max > 0
        # No exception for a closed cursor: the dispatcher expects `ready` and looks at `last_error` then.
        self.last_error = ServiceNotReady(f"cursor {self.name} is closed") if self.closed else None
        # All entries were taken, but their permits go back at the end of the turn: this read may need them now.
        if self._ready is not None:
            self._ready.drop()
        wanted = None if self.closed else self.range_to_read(entries_max, bytes_max)
        if wanted is None:
            self.context.at_end_of_turn(ready)
            return
        self._request = ForwardRead(self, self._parts, entries_max, bytes_max, ready)
        self._request.begin(wanted)

    def range_to_read(self, entries_max: int, bytes_max: int) -> EntryRange | None:
        """Returns the range to read next, or None when nothing is left.

        From the first unacknowledged entry up to the next that is acknowledged: no more than `entries_max`
        entries and about `bytes_max` bytes, by the ledger's average.
        """
        if not self._skip():
            return None
        ledger_id, first = self._read_ledger, self._read_entry
        # At least one, however large: otherwise a single large entry would stop the cursor for ever.
        count = max(1, min(entries_max, bytes_max // self.context.estimated_bytes(ledger_id, 1)))
        last = min(first + count - 1, self._last_entry(ledger_id))
        for left_out in (self.acks.beyond, self.deferred):
            if left_out.count:
                last = left_out.first_present(ledger_id, first, last) - 1
        lost = self.context.lost
        if lost.positions.count:
            last = lost.before(ledger_id, first, last)
        return EntryRange(ledger_id, first, last)

    def forward_read_ended(
        self, entries: list[Entry], permits: ReadPermits, error: BrokerError | None
    ) -> None:
        """Keeps the entries that follow the read position; called by the ForwardRead."""
        self._request = None
        if error is not None and self.skip_lost((self.read_position,)):
            error = None
        self.last_error = error
        if entries:
            # Entries that came into the cache meanwhile may have been taken from there: leave those out.
            head = entries[0]
            same_ledger = head.ledger_id == self._read_ledger
            following = entries[self._read_entry - head.entry_id :] if same_ledger else []
            self._ready = self._ready or ReadyEntries(self.context.environment.turn)
            self._ready.keep(following, permits)

    def rewind(self) -> None:
        """Reads on from the first unacknowledged entry."""
        self.jump(self._ledgers.next_valid(self.acks.mark_delete))

    def _skip(self) -> bool:
        """Moves the read position to an unacknowledged entry; returns False when there is none."""
        position = self.acks.first_open(self.read_position)
        while position in self.deferred:
            position = self._after_deferred(position)
        if position != (self._read_ledger, self._read_entry):
            self._move_to(position)
        return self._read_entry <= self._last_entry(self._read_ledger)

    def _after_deferred(self, position: Position) -> Position:
        """Returns the first entry after the position that is neither deferred nor acknowledged.

        Both sets are searched together: one after the other would take a step for each entry where they alternate.
        """
        ledger_id, first = position
        end = self.deferred.first_missing(ledger_id, first, self.acks.beyond)
        if self.active:
            passed = self._cache.present_between(ledger_id, first, end)
            self.context.environment.caches.mark_delivered(
                [entry for entry in passed if (ledger_id, entry.entry_id) in self.deferred]
            )
        return self.acks.first_open(self._ledgers.at_or_after((ledger_id, end)))

    def has_passed(self, ledger_id: int, entry_id: int) -> bool:
        """Returns True when reading on will not bring the entry any more."""
        if ledger_id < self._read_ledger or (ledger_id == self._read_ledger and entry_id < self._read_entry):
            return True
        # Entries that were given back stand at or after the read position, without those that were deferred then.
        return self._ready is not None and self._ready.leaves_out(ledger_id, entry_id)

    def _move_to(self, position: Position) -> None:
        self._read_ledger, self._read_entry = position
        if self.active:
            self._reading_cursors.moved(self)

    def jump(self, position: Position) -> None:
        """Reads on elsewhere, and drops entries that were read for the old position.

        The log may have lost the position; `take` then goes on with the next entry. `_move_to` alone is for moves
        along the entries that were read.
        """
        if self._request is not None:
            self._request.position_jumped()
        if self._ready is not None:
            self._ready.drop()
        self._move_to(position)

    # Acknowledging

    def acknowledge(self, positions: Iterable[tuple[int, int]], runs: Iterable[EntryRange] = ()) -> int:
        """Acknowledges whole entries, by their positions and in runs; returns how many were not acknowledged before.

        Positions without an entry are ignored.
        """
        newly = self.acks.acknowledge(positions)
        for run in runs:
            newly += self.acks.acknowledge_run(run)
        if newly:
            self._acknowledged()
        return newly

    def acknowledge_batch(self, position: Position, ack_set: Sequence[int], batch_size: int) -> bool:
        """Acknowledges the messages of an entry whose bit is clear, in addition to those acknowledged before.

        Returns True when that completed the entry. `batch_size` 0 = not known.
        """
        whole = self.acks.acknowledge_batch(position, ack_set, batch_size)
        self._acknowledged()
        return whole

    def acknowledge_cumulative(
        self,
        position: Position,
        ack_set: Sequence[int] | None = None,
        *,
        properties: dict[str, int] | None = None,
    ) -> None:
        """Acknowledges every existing entry up to and including the position.

        An entry id of -1 (2^64 - 1) means everything before the ledger's first entry. `properties` are stored
        with the position from now on.
        """
        moved = self.acks.acknowledge_cumulative(position, ack_set)
        if properties is not None:
            self.acks.properties = properties
        if moved or properties is not None:
            self._acknowledged()

    def skip_lost(self, positions: Iterable[tuple[int, int]]) -> bool:
        """Acknowledges those of the positions that are lost, with `autoSkipNonRecoverableData`; returns True for any."""
        context = self.context
        if not context.settings.skips_lost:
            return False
        lost = [position for position in positions if context.lost.may_be_skipped(position)]
        if lost:
            text = ", ".join(f"{ledger_id}:{entry_id}" for ledger_id, entry_id in lost)
            log.warning("! subscription %s of %s skips lost entries: %s", self.name, context.name, text)
            self.acknowledge(lost)
        return bool(lost)

    def _acknowledged(self) -> None:
        acks = self.acks
        self.context.note_change()
        if self.durable:
            self.store.changed()
        # Integers first: nearly every acknowledgement is before the read position, and no Position is made for it.
        if acks.entry_id >= self._read_entry or acks.ledger_id != self._read_ledger:
            # Entries that were acknowledged without being read need no reading any more.
            mark_delete = acks.mark_delete
            if mark_delete >= self.read_position:
                self.jump(self._ledgers.next_valid(mark_delete))
        # After the jump: the ledger that is removed may be the one that was being read. Only durable cursors hold
        # back trimming, so only they can let it go on.
        if self.durable and self._has_left_a_ledger(acks.ledger_id, acks.entry_id):
            self._parts.trimming.trim(self.context.environment.wall_ms())
        if self.active:
            self._reading_cursors.acknowledged(self)
        if self.on_acknowledged is not None:
            self.on_acknowledged()

    def _has_left_a_ledger(self, ledger_id: int, entry_id: int) -> bool:
        """Returns True when this acknowledgement may let Trimming remove a ledger.

        The position is in another ledger than at the last call, or at the end of a closed one.
        """
        if ledger_id != self._left_ledger:
            self._left_ledger = ledger_id
            return True
        closed = ledger_id != self._ledgers.current.ledger_id
        return closed and entry_id >= self._ledgers.last_entry(ledger_id)

    async def reset(self, position: Position) -> None:
        """Seeks: reads on at `position`, or at the next entry that exists.

        EARLIEST and LATEST are allowed. Acknowledgements after it are forgotten. Durable when this returns.
        Raises MetadataError.
        """
        start = self._ledgers.at_or_after(position)
        # The mark-delete position is the entry before; the entry sought itself must be delivered.
        self.acks.reset(self._ledgers.previous(start))
        self.sought = sought(position, self.acks)
        self.seeks += 1
        self.context.note_change()
        self.jump(start)
        if self.active:
            self._reading_cursors.acknowledged(self)
        self.store.changed()
        # Past the rate limit: after a crash a client that has sought must not find the old position.
        await self.store.flush()

    # Ends

    async def close(self) -> None:
        """Stores the acknowledgements and reads no more. Raises MetadataError; the cursor is closed all the same."""
        self.closed = True
        self.deactivate()
        await self.store.close()

    def abandon(self) -> None:
        """Closes without storing anything, because of a deletion."""
        self.closed = True
        self.deactivate()
        self.store.abandon()
