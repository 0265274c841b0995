"""CursorInfoWriter: writes a cursor's acknowledgements to the metadata store.

At most one write per cursor is in flight, at most one begins per loop turn, and with a mark-delete rate limit at
most one per interval. A write stores everything acknowledged up to its beginning, so it covers all changes since the
write before. A writer whose interval is not over registers in UnsavedCursors, and so does one whose write has failed.

A cursor that is not durable has a NoCursorInfo instead, which stores nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from broker.managed_ledger.acks import Acks
from broker.managed_ledger.background import Background
from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.managed_ledger_info import cursor_key, encode_cursor_info
from broker.metadata.metadata_store import ABSENT
from broker.metadata.owned_key import OwnedKey
from broker.model.errors import BadVersion, MetadataError

log = logging.getLogger(__name__)


class CursorStore(Protocol):
    """The part of a cursor that keeps its acknowledgements, or does not."""

    cursor_properties: Mapping[str, str]
    """Text kept beside the position. Change it with `keep_properties`."""

    @property
    def durable(self) -> bool:
        """Acknowledgements survive a crash once they are written."""
        ...

    def changed(self) -> None:
        """Store a new acknowledgement soon.

        Called per acknowledgement, so it must be cheap.
        """
        ...

    def keep_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the cursor's properties and store them soon."""
        ...

    def on_durable(self, callback: Callable[[], None]) -> None:
        """Call back when all acknowledgements so far would survive a crash.

        At once when they already would.
        """
        ...

    async def flush(self) -> None:
        """Store changes at once, past the rate limit. Raises MetadataError."""
        ...

    async def close(self) -> None:
        """Flush and write no more.

        Raises MetadataError; the writer is closed all the same.
        """
        ...

    def abandon(self) -> None:
        """Write no more, because the cursor is being deleted."""
        ...


class NoCursorInfo:
    """The store of a cursor in memory, which stores nothing."""

    durable: Final = False
    """See CursorStore."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.cursor_properties = properties
        """See CursorStore."""

    def keep_properties(self, properties: Mapping[str, str]) -> None:
        """Keep them as long as the cursor lives."""
        self.cursor_properties = properties

    def changed(self) -> None:
        """Do nothing: the cursor ends with the process."""

    def on_durable(self, callback: Callable[[], None]) -> None:
        """Call back at once: nothing will make it safer."""
        callback()

    async def flush(self) -> None:
        """Do nothing: the cursor ends with the process."""

    async def close(self) -> None:
        """Do nothing: the cursor ends with the process."""

    def abandon(self) -> None:
        """Do nothing: no write is ever in flight."""


class CursorInfoWriter:
    """Stores the CursorInfo of one durable cursor."""

    __slots__ = (
        "_acks",
        "_background",
        "_context",
        "_info",
        "_interval_ns",
        "_key",
        "_look_pending",
        "_not_before_ns",
        "_one_at_a_time",
        "_waiting",
        "_wanted",
        "_writing",
        "_written",
        "closed",
        "cursor_properties",
        "last_error",
        "writes",
    )

    durable: Final = True
    """See CursorStore."""

    def __init__(
        self,
        context: LedgerContext,
        cursor_name: str,
        acks: Acks,
        version: int,
        cursor_properties: Mapping[str, str],
    ) -> None:
        """`version`: of the value stored now, or ABSENT."""
        self.cursor_properties = cursor_properties
        """See CursorStore."""
        self._context = context
        self._acks = acks
        self._key = cursor_key(context.name, cursor_name)
        self._interval_ns = context.settings.cursor_write_interval_ns
        self._background = Background(f"cursor info {self._key}")
        self._one_at_a_time = asyncio.Lock()
        self._info = OwnedKey(context.environment.metadata, self._key, version)
        self._wanted = 0
        """Number of changes so far; `_written` is the number that is stored."""
        self._written = 0
        self._not_before_ns = 0
        self._look_pending = False
        """A call of `write_if_due` will come, at the end of the turn or from UnsavedCursors."""
        self._writing = False
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        """(change, callback) in order."""
        self.closed = False
        """Writes no more: closed, deleted, or another broker writes this info."""
        self.writes = 0
        """Number of writes that succeeded."""
        self.last_error: MetadataError | None = None
        """Why the last write failed; None after one that succeeded."""

    def changed(self) -> None:
        """See CursorStore.

        Any number of calls in a turn cost one look at its end.
        """
        self._wanted += 1
        self._look_at_end_of_turn()

    def keep_properties(self, properties: Mapping[str, str]) -> None:
        """See CursorStore."""
        self.cursor_properties = properties
        self.changed()

    def _look_at_end_of_turn(self) -> None:
        if not self._look_pending:
            self._look_pending = True
            # In the rank of dispatchers: acknowledgements of all connections of this turn join one write.
            self._context.environment.turn.dispatch(self.write_if_due)

    def on_durable(self, callback: Callable[[], None]) -> None:
        """See CursorStore."""
        if self._written == self._wanted:
            callback()
        else:
            self._waiting.append((self._wanted, callback))

    def write_if_due(self, now_ns: int) -> None:
        """Begin a write if something changed and the interval has passed."""
        self._look_pending = False
        # A write in flight looks again when it ends.
        if self._writing or self.closed or self._written == self._wanted:
            return
        if now_ns < self._not_before_ns:
            self._wait_for_interval()
            return
        self._not_before_ns = now_ns + self._interval_ns
        self._writing = True
        self._context.environment.unsaved_cursors.discard(self)
        self._background.spawn(self._write_in_background())

    def _wait_for_interval(self) -> None:
        self._look_pending = True  # Further changes need no look of their own.
        self._context.environment.unsaved_cursors.add(self)

    async def _write_in_background(self) -> None:
        # The error is kept as `last_error`, and the writer has registered for another try.
        with contextlib.suppress(MetadataError):
            await self._write()
            if self._written != self._wanted:
                self._look_at_end_of_turn()

    async def _write(self) -> None:
        # `flush` may come while a write is in flight; two writes of one version would fail each other.
        async with self._one_at_a_time:
            # Fixed before the wait: changes that come during the write are not in it.
            wanted = self._wanted
            if self._written == wanted:
                return
            self._writing = True
            try:
                await self._info.put(self._encoded())
            except MetadataError as error:
                self.last_error = error
                if isinstance(error, BadVersion):
                    # Another broker serves the managed ledger now. Overwriting its info would undo acknowledgements.
                    self.closed = True
                    log.warning(
                        "acknowledgements of cursor %s are no longer stored, because another broker stores them: %s",
                        self._key,
                        error,
                    )
                else:
                    self._wait_for_interval()
                raise
            finally:
                self._writing = False
            self.last_error = None
            self.writes += 1
            self._written = wanted
        self._call_waiting()

    def _encoded(self) -> bytes:
        settings = self._context.settings
        info = self._acks.info(settings.ack_ranges_max, settings.batch_ack_sets_max)
        info.cursor_properties = self.cursor_properties
        return encode_cursor_info(info)

    def _call_waiting(self) -> None:
        ready = [callback for wanted, callback in self._waiting if wanted <= self._written]
        self._waiting = [pair for pair in self._waiting if pair[0] > self._written]
        # Last, because a callback may acknowledge or flush.
        for callback in ready:
            callback()

    async def flush(self) -> None:
        """See CursorStore."""
        while self._written != self._wanted and not self.closed:
            await self._write()

    async def settle(self) -> None:
        """Wait for the write in flight.

        A deletion needs that: a later write would make the info anew.
        """
        await self._background.drain()
        # A write that began in `flush` is no background task; holding the lock once means that it has ended.
        async with self._one_at_a_time:
            pass

    @property
    def stored(self) -> bool:
        """The metadata store has a value for this cursor."""
        return self._info.version != ABSENT

    async def close(self) -> None:
        """See CursorStore."""
        try:
            await self.flush()
        finally:
            self.abandon()
            await self._background.drain()

    def abandon(self) -> None:
        """See CursorStore."""
        self.closed = True
        self._context.environment.unsaved_cursors.discard(self)
