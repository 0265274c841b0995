"""CursorInfoWriter: decides when a cursor's acknowledgements are stored, and which of them; `CursorRecord` has the places.

At most one write per cursor is in flight, at most one begins per loop turn, and with a mark-delete rate limit at most one
per interval. A write stores everything acknowledged up to its beginning, so it covers all changes since the write before.
A writer whose interval is not over registers in UnsavedCursors, and so does one whose write has failed. A write is a task,
but for the most frequent one: an add to an open cursor ledger is a call with a completion.

A large info, of a cursor with many holes, is made in a thread from a copy of the acknowledgements; with a rate limit its
writes take a twentieth of the time at most. Acknowledgements above `managedLedgerMaxUnackedRangesToPersist`, or beyond the
largest value of the metadata store or entry of a ledger, are kept in memory alone: the highest ones.

A cursor that is not durable has a NoCursorInfo instead, which stores nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from bookkeeper.metadata.metadata_store import ABSENT
from broker.managed_ledger.acks import Acks, InfoLimits, StoredInfo, encode_within
from broker.managed_ledger.background import Background
from broker.managed_ledger.cursor_record import NO_LEDGER, CursorRecord
from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.managed_ledger_info import CursorInfo
from broker.managed_ledger.records.pulsar_records import (
    StoredCursor,
    StoredPosition,
    encode_cursor,
    encode_position,
)
from foundation.model.errors import BadVersion, BrokerError, MetadataError, PersistenceError
from foundation.seldom import is_locked, lock_of, when_used

log = logging.getLogger(__name__)

THREAD_PARTS_MIN: Final = 1000
"""Pages of acknowledged entries and batches above which an info is made in a thread: about a millisecond of work."""
TIME_BETWEEN_LARGE: Final = 20
"""Times its own duration that a large info waits for the next one."""


class CursorStore(Protocol):
    """The part of a cursor that keeps its acknowledgements, or does not."""

    cursor_properties: Mapping[str, str]
    """Text kept beside the position. `keep_properties` changes it."""

    @property
    def durable(self) -> bool:
        """Acknowledgements survive a crash once they are written."""
        ...

    @property
    def stored(self) -> bool:
        """The metadata store has a value for this cursor."""
        ...

    @property
    def ledger(self) -> tuple[int, int]:
        """(cursor ledger, its last entry that was added here); -1 where there is none."""
        ...

    @property
    def left_out(self) -> int:
        """Acknowledged entries that did not fit into the last write; they are delivered again after a crash."""
        ...

    @property
    def stores_all_acks(self) -> bool:
        """The next write can hold all acknowledgements, so that a crash would not deliver any entry again.

        By `managedLedgerMaxUnackedRangesToPersist`. A cursor in memory stores nothing, so nothing is missing.
        """
        ...

    def changed(self) -> None:
        """Stores a new acknowledgement soon. Called per acknowledgement, so it must be cheap."""
        ...

    def keep_properties(self, properties: Mapping[str, str]) -> None:
        """Replaces the cursor's properties and stores them soon."""
        ...

    def on_durable(self, callback: Callable[[], None]) -> None:
        """Calls back when all acknowledgements so far would survive a crash, at once when they already would."""
        ...

    async def flush(self) -> None:
        """Stores changes at once, past the rate limit. Raises MetadataError."""
        ...

    async def settle(self) -> None:
        """Waits for the write in flight."""
        ...

    async def close(self) -> None:
        """Flushes and writes no more. Raises MetadataError; the writer is closed all the same."""
        ...

    def abandon(self) -> None:
        """Writes no more, because the cursor is being deleted."""
        ...

    async def delete(self) -> None:
        """Deletes everything that is stored of an abandoned cursor. Raises MetadataError."""
        ...


class NoCursorInfo:
    """The store of a cursor in memory, which stores nothing."""

    durable: Final = False
    """False: nothing is stored."""
    stored: Final = False
    """Always False."""
    ledger: Final = (NO_LEDGER, -1)
    """No ledger."""
    left_out: Final = 0
    """Always 0: nothing is left out where nothing is stored."""
    stores_all_acks: Final = True
    """Always True: no delivery waits for space."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.cursor_properties = properties
        """Texts that the subscription was given; kept in memory."""

    def keep_properties(self, properties: Mapping[str, str]) -> None:
        """Keeps the properties as long as the cursor lives."""
        self.cursor_properties = properties

    def changed(self) -> None:
        """Does nothing: the cursor ends with the process."""

    def on_durable(self, callback: Callable[[], None]) -> None:
        """Calls back at once: nothing will make it safer."""
        callback()

    async def flush(self) -> None:
        """Does nothing: the cursor ends with the process."""

    async def settle(self) -> None:
        """Does nothing: no write is ever in flight."""

    async def close(self) -> None:
        """Does nothing: the cursor ends with the process."""

    def abandon(self) -> None:
        """Does nothing: no write is ever in flight."""

    async def delete(self) -> None:
        """Does nothing: nothing is stored."""


def _background_of(writer: CursorInfoWriter) -> Background:
    return Background("cursor info", writer._record.name)


class CursorInfoWriter:
    """Stores the CursorInfo of one durable cursor."""

    __slots__ = (
        "_acks",
        "_batches_left_out",
        "_context",
        "_known_background",
        "_look_pending",
        "_not_before_ns",
        "_record",
        "_waiting",
        "_wanted",
        "_writing",
        "_written",
        "closed",
        "cursor_properties",
        "last_error",
        "left_out",
        "writes",
    )

    durable: Final = True
    """True: positions and properties survive a restart."""
    _background = when_used("_known_background", _background_of)

    def __init__(
        self,
        context: LedgerContext,
        cursor_name: str,
        acks: Acks,
        version: int,
        cursor_properties: Mapping[str, str],
        ledger_id: int = NO_LEDGER,
    ) -> None:
        """`version`: of the node stored now, or ABSENT; it names the cursor ledger `ledger_id`."""
        self.cursor_properties = cursor_properties
        """Texts that the subscription was given; stored with the position."""
        self._context = context
        self._acks = acks
        self._known_background: Background | None = None
        self._record = CursorRecord(context, cursor_name, version, ledger_id, cursor_properties)
        self._wanted = 0
        """Number of changes so far; `_written` is the number that is stored."""
        self._written = 0
        self._not_before_ns = 0
        self._look_pending = False
        """A call of `write_if_due` will come, at the end of the turn or from UnsavedCursors."""
        self._writing = False
        self._waiting: tuple[tuple[int, Callable[[], None]], ...] = ()
        """(change, callback) in order."""
        self.closed = False
        """Writes no more: closed, deleted, or another broker writes this info."""
        self.writes = 0
        """Number of writes that succeeded."""
        self.left_out = 0
        """Acknowledged entries that did not fit into the last write; they are delivered again after a crash."""
        self._batches_left_out = 0
        self.last_error: MetadataError | None = None
        """Why the last write failed; None after one that succeeded."""

    @property
    def ledger(self) -> tuple[int, int]:
        """(cursor ledger, its last entry that was added here); -1 where there is none."""
        return self._record.ledger_id, self._record.last_entry

    @property
    def stores_all_acks(self) -> bool:
        """False while there are more acknowledged ranges than are stored."""
        return not self._acks.has_more_ranges(self._context.settings.ack_ranges_max)

    def changed(self) -> None:
        """Notes that the state has changed. Any number of calls in a turn cost one look at its end."""
        self._wanted += 1
        if not self._look_pending:
            self._look_at_end_of_turn()

    def keep_properties(self, properties: Mapping[str, str]) -> None:
        """Replaces the properties, and stores them with the next write."""
        self.cursor_properties = properties
        self.changed()

    def _look_at_end_of_turn(self) -> None:
        if not self._look_pending:
            self._look_pending = True
            # In the rank of dispatchers: acknowledgements of all connections of this turn join one write.
            self._context.environment.turn.dispatch(self.write_if_due)

    def on_durable(self, callback: Callable[[], None]) -> None:
        """Calls back once all changes up to now are stored, at once if they are."""
        if self._written == self._wanted:
            callback()
        else:
            self._waiting += ((self._wanted, callback),)

    def write_if_due(self, now_ns: int) -> None:
        """Begins a write if something changed and the interval has passed."""
        self._look_pending = False
        # A write in flight looks again when it ends.
        if self._writing or self.closed or self._written == self._wanted:
            return
        if now_ns < self._not_before_ns:
            self._wait_for_interval()
            return
        self._not_before_ns = now_ns + self._context.settings.cursor_write_interval_ns
        self._writing = True
        self._context.environment.unsaved_cursors.discard(self.write_if_due)
        if self._needs_only_an_add():
            limits = self._limits(self._context.settings.read_bytes_max)
            stored = encode_within(self._acks, self.cursor_properties, limits, self._entry_of)
            self._record.add(stored.value, partial(self._add_ended, self._wanted, stored))
        else:
            self._background.spawn(self._write_in_background())

    def _needs_only_an_add(self) -> bool:
        """Returns True when the position can go to the open ledger at once."""
        return (
            self._context.environment.metadata.is_shared
            and self.stored
            and self._record.is_named
            and not self._record.needs_ledger()
            and not self._record.needs_texts(self.cursor_properties)
            and self._acks.stored_parts < THREAD_PARTS_MIN
            and not is_locked(self)  # By a flush or a close.
        )

    def _add_ended(self, wanted: int, stored: StoredInfo, error: BrokerError | None) -> None:
        self._writing = False
        if error is None:
            self._note_stored(wanted, stored)
            if self._written != self._wanted:
                self._look_at_end_of_turn()
        elif not self.closed:
            log.info("%s: the position is stored in the node: %s", self._record.key, error)
            self._writing = True
            self._background.spawn(self._write_in_background(in_node=True))

    def _wait_for_interval(self) -> None:
        self._look_pending = True  # Further changes need no look of their own.
        self._context.environment.unsaved_cursors.add(self.write_if_due)

    async def _write_in_background(self, *, in_node: bool = False) -> None:
        # The error is kept as `last_error`, and the writer has registered for another try.
        with contextlib.suppress(MetadataError):
            await self._write(in_node=in_node)
            if self._written != self._wanted:
                self._look_at_end_of_turn()

    async def _write(self, *, in_node: bool = False) -> None:
        # `flush` may come while a write is in flight; two writes of one version would fail each other.
        async with lock_of(self):
            await self._record.settle()
            # Fixed before the wait: changes that come during the write are not in it.
            wanted = self._wanted
            if self._written == wanted:
                return
            self._writing = True
            try:
                stored = await (self._put(NO_LEDGER) if in_node else self._store())
                if stored is None:
                    await self._record.drop_begun()
                    return
            except MetadataError as error:
                self.last_error = error
                if isinstance(error, BadVersion):
                    # Another broker served the managed ledger. Overwriting its info would undo acknowledgements.
                    self.closed = True
                    log.warning("! cursor %s is stored by another broker: %s", self._record.key, error)
                    if self.stored and (listener := self._context.listener) is not None:
                        listener.taken_over()
                else:
                    self._wait_for_interval()
                raise
            finally:
                self._writing = False
        self._note_stored(wanted, stored)

    def _note_stored(self, wanted: int, stored: StoredInfo) -> None:
        self.last_error = None
        self._note_left_out(stored)
        self.writes += 1
        self._written = max(self._written, wanted)
        self._call_waiting()

    async def _store(self) -> StoredInfo | None:
        """Stores the acknowledgements of now. Raises MetadataError; returns None for a cursor abandoned meanwhile."""
        record = self._record
        # A new cursor has its node first; many never acknowledge anything. Texts alone begin no ledger.
        is_for_node = record.ledger_id == NO_LEDGER and record.needs_texts(self.cursor_properties)
        if self._context.environment.metadata.is_shared and self.stored and not is_for_node:
            try:
                return await self._store_in_ledger()
            except PersistenceError as error:
                log.info("%s: the position is stored in the node: %s", self._record.key, error)
        return await self._put(NO_LEDGER)

    async def _store_in_ledger(self) -> StoredInfo | None:
        """Adds the position to the ledger, or to a new one. Raises MetadataError and PersistenceError."""
        record = self._record
        begins = await record.next_id() if record.needs_ledger() else NO_LEDGER
        needs_node = begins == NO_LEDGER and record.is_named and record.needs_texts(self.cursor_properties)
        if needs_node and await self._put(record.ledger_id) is None:
            return None
        # After a write of the node too: its position counts for nothing while it names a ledger with entries.
        stored = await self._encoded(self._entry_of, self._context.settings.read_bytes_max)
        if self.closed:
            return None
        await (record.add_and_wait(stored.value) if begins < 0 else record.begin(begins, stored.value))
        # A ledger that a write of the node should have named in vain is named now.
        return stored if record.is_named or await self._put(record.open_id) else None

    def _entry_of(self, info: CursorInfo) -> bytes:
        return encode_position(StoredPosition(info), as_bits=self._context.settings.acks_as_bits)

    async def _put(self, ledger_id: int) -> StoredInfo | None:
        """Writes the node, which names the ledger."""
        texts = self.cursor_properties
        stored = await self._encoded_node(ledger_id)
        # Abandoned while a thread encoded: a cursor made anew may have the version that this write expects.
        if self.closed:
            return None
        await self._record.put(stored.value, ledger_id, texts)
        if self._record.has_superfluous:
            self._background.spawn(self._record.delete_superfluous())
        return stored

    async def _encoded_node(self, ledger_id: int) -> StoredInfo:
        settings, now_ms = self._context.settings, self._context.environment.wall_ms()
        compression, ranges_max = settings.cursor_compression, settings.node_ranges_max
        return await self._encoded(
            lambda info: encode_cursor(StoredCursor(info, ledger_id, now_ms), compression, ranges_max),
            self._context.environment.metadata.value_bytes_max,
        )

    async def _encoded(self, encode: Callable[[CursorInfo], bytes], bytes_max: int) -> StoredInfo:
        """Encodes the acknowledgements of now; those that come meanwhile are the next write's."""
        environment, limits = self._context.environment, self._limits(bytes_max)
        acks, texts = self._acks, self.cursor_properties
        if acks.stored_parts < THREAD_PARTS_MIN:
            return encode_within(acks, texts, limits, encode)
        began_ns = environment.now_ns()
        stored = await asyncio.to_thread(encode_within, acks.copy(), texts, limits, encode)
        if self._context.settings.cursor_write_interval_ns:
            # The thread shares the interpreter with the loop: without the pause a million scattered holes, written every
            # second, would take half of it.
            now_ns = environment.now_ns()
            pause_ns = TIME_BETWEEN_LARGE * (now_ns - began_ns)
            self._not_before_ns = max(self._not_before_ns, now_ns + pause_ns)
        return stored

    def _limits(self, bytes_max: int) -> InfoLimits:
        of = self._context.settings
        return InfoLimits(of.ack_ranges_max, of.batch_ack_sets_max, bytes_max)

    def _note_left_out(self, stored: StoredInfo) -> None:
        settings, cuts = self._context.settings, self._context.environment.ack_cuts
        if stored.left_out:
            cuts.ranges += 1
            if not self.left_out:
                log.warning(
                    "! %d acknowledged entries of cursor %s are kept in memory only, so a crash would deliver them again:"
                    " raise managedLedgerMaxUnackedRangesToPersist (%d), or set dispatcherPauseOnAckStatePersistentEnabled",
                    *(stored.left_out, self._record.key, settings.ack_ranges_max),
                )
        if stored.batches_left_out:
            cuts.batches += 1
            if not self._batches_left_out:
                log.warning(
                    "! acknowledgements in %d batches of cursor %s are kept in memory only, so a crash would deliver these"
                    " messages again: raise managedLedgerMaxBatchDeletedIndexToPersist (%d)",
                    *(stored.batches_left_out, self._record.key, settings.batch_ack_sets_max),
                )
        self.left_out, self._batches_left_out = stored.left_out, stored.batches_left_out

    def _call_waiting(self) -> None:
        ready = [callback for wanted, callback in self._waiting if wanted <= self._written]
        self._waiting = tuple(pair for pair in self._waiting if pair[0] > self._written)
        # Last, because a callback may acknowledge or flush.
        for callback in ready:
            callback()

    async def flush(self) -> None:
        """Writes until all changes are stored or the cursor is closed."""
        while self._written != self._wanted and not self.closed:
            await self._write()

    async def settle(self) -> None:
        """Waits for the write in flight. A deletion needs that: a later write would create the info again."""
        await self._background.drain()
        # A write that began in `flush` is no background task; holding the lock once means that it has ended.
        async with lock_of(self):
            await self._record.settle()
        # A refused add may have begun a write of the node.
        await self._background.drain()

    @property
    def stored(self) -> bool:
        """The metadata store has a value for this cursor."""
        return self._record.version != ABSENT

    async def close(self) -> None:
        """Stores all changes, then ends the background work, also when a write fails."""
        try:
            await self.flush()
            if not self.closed:
                await self._leave_ledger()
        finally:
            self.abandon()
            await self._background.drain()

    async def _leave_ledger(self) -> None:
        """Moves the position from the ledger to the node, unless it has too many ranges for that, as in Pulsar."""
        async with lock_of(self):
            if self._record.ledger_id == NO_LEDGER:
                return
            if not self._acks.has_more_ranges(self._context.settings.node_ranges_max):
                stored = await self._encoded_node(NO_LEDGER)
                # The node may take fewer bytes than an entry.
                if stored.left_out <= self.left_out and stored.batches_left_out <= self._batches_left_out:
                    await self._record.put(stored.value, NO_LEDGER, self.cursor_properties)
                    await self._record.delete_superfluous()
                    return
            await self._record.end_ledger()

    def abandon(self) -> None:
        """Writes no more, because the cursor is being deleted."""
        self.closed = True
        self._context.environment.unsaved_cursors.discard(self.write_if_due)

    async def delete(self) -> None:
        """Deletes node and ledger of an abandoned cursor. Raises MetadataError."""
        # A write that arrived after the deletion would make the cursor's node anew.
        await self.settle()
        await self._record.delete()
