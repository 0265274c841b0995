"""SnapshotWriter: when a cursor's snapshot goes to the metadata store.

At most one write is out per cursor, at most one begins per loop turn, and with a mark-delete rate limit at
most one per interval. Whatever changed meanwhile is in the next one, since a snapshot is made when its write
begins. A change that has to wait for its interval registers in DirtyCursors, whose owner calls `flush_due`
about once a second. A failed write is tried again in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from broker.loop.turn import Turn
from broker.managed_ledger.background import Background
from broker.metadata.metadata_store import ABSENT, MetadataStore
from broker.model.errors import BadVersion, MetadataError


class DirtyCursors:
    """The cursors of a broker with changes that are not written yet and not being written."""

    __slots__ = ("_writers",)

    def __init__(self) -> None:
        self._writers: set[SnapshotWriter] = set()

    def __len__(self) -> int:
        return len(self._writers)

    def add(self, writer: SnapshotWriter) -> None:
        self._writers.add(writer)

    def discard(self, writer: SnapshotWriter) -> None:
        self._writers.discard(writer)

    def flush_due(self, now_ns: int) -> None:
        """Begin the write of every cursor whose interval has passed."""
        for writer in tuple(self._writers):
            writer.write_if_due(now_ns)


class SnapshotWriter:
    __slots__ = (
        "_background",
        "_dirty",
        "_encode",
        "_interval_ns",
        "_key",
        "_metadata",
        "_not_before_ns",
        "_noted",
        "_one_at_a_time",
        "_turn",
        "_version",
        "_waiting",
        "_wanted",
        "_writing",
        "_written",
        "closed",
        "last_error",
        "writes",
    )

    def __init__(
        self,
        metadata: MetadataStore,
        key: str,
        encode: Callable[[], bytes],
        turn: Turn,
        dirty: DirtyCursors,
        interval_ns: int,
        version: int,
    ) -> None:
        """`version`: of what is stored under `key` now, or ABSENT; `encode` makes the snapshot."""
        self._metadata = metadata
        self._key = key
        self._encode = encode
        self._turn = turn
        self._dirty = dirty
        self._interval_ns = interval_ns
        self._background = Background(f"snapshot of {key}")
        self._one_at_a_time = asyncio.Lock()
        self._version = version
        self._wanted = 0
        """Changes so far, and those that the last durable snapshot has."""
        self._written = 0
        self._not_before_ns = 0
        self._noted = False
        self._writing = False
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self.closed = False
        self.writes = 0
        """Snapshots stored."""
        self.last_error: MetadataError | None = None

    def changed(self) -> None:
        """Something was acknowledged. Any number of calls in a turn cost one look at its end."""
        self._wanted += 1
        self._look_at_end_of_turn()

    def _look_at_end_of_turn(self) -> None:
        if not self._noted:
            self._noted = True
            self._turn.dispatch(self.write_if_due)

    def on_durable(self, callback: Callable[[], None]) -> None:
        """Called once everything that changed so far is stored; at once when it is already."""
        if self._written == self._wanted:
            callback()
        else:
            self._waiting.append((self._wanted, callback))

    def write_if_due(self, now_ns: int) -> None:
        self._noted = False
        if self._writing or self.closed or self._written == self._wanted:
            return
        if now_ns < self._not_before_ns:
            self._wait_for_the_owner()
            return
        self._not_before_ns = now_ns + self._interval_ns
        self._writing = True
        self._dirty.discard(self)
        self._background.spawn(self._write_in_background())

    def _wait_for_the_owner(self) -> None:
        self._noted = True  # Further changes have nothing to ask for.
        self._dirty.add(self)

    async def _write_in_background(self) -> None:
        with contextlib.suppress(MetadataError):  # Kept as `last_error`; the next tick tries again.
            await self._write()
            if self._written != self._wanted:
                self._look_at_end_of_turn()

    async def _write(self) -> None:
        async with self._one_at_a_time:
            wanted = self._wanted
            if self._written == wanted:
                return
            self._writing = True
            try:
                self._version = await self._metadata.put(self._key, self._encode(), self._version)
            except MetadataError as error:
                self.last_error = error
                if isinstance(error, BadVersion):  # Another broker serves the log now; its snapshot stays.
                    self.closed = True
                else:
                    self._wait_for_the_owner()
                raise
            finally:
                self._writing = False
            self.last_error = None
            self.writes += 1
            self._written = wanted
        self._call_waiting()

    def _call_waiting(self) -> None:
        ready = [callback for wanted, callback in self._waiting if wanted <= self._written]
        self._waiting = [pair for pair in self._waiting if pair[0] > self._written]
        for callback in ready:
            callback()

    async def flush(self) -> None:
        """Store what changed now, whatever the rate. Raises MetadataError."""
        while self._written != self._wanted and not self.closed:
            await self._write()

    async def settle(self) -> None:
        """Wait for the write that is out."""
        await self._background.drain()
        async with self._one_at_a_time:
            pass

    @property
    def stored(self) -> bool:
        """Whether a snapshot is in the store."""
        return self._version != ABSENT

    async def close(self) -> None:
        """Flush and write no more. Raises MetadataError; the writer is closed all the same."""
        try:
            await self.flush()
        finally:
            self.closed = True
            self._dirty.discard(self)
            await self._background.drain()

    def abandon(self) -> None:
        """Write no more: the cursor is being deleted."""
        self.closed = True
        self._dirty.discard(self)
