"""Turns: processes on one metadata store do a piece of work one after the other, in the order in which they asked.

Each process that wants a turn has an ephemeral key below the key of the queue, with a number; the lowest number has the
turn. The version of the queue's key is the last number that was given. Key and version are written together, so a process
that joins is always behind those that are there.

A turn is a courtesy. It ends with the session, which its process may learn later, so what is done in it must be safe by
itself; turns keep processes from undoing each other's work all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

from bookkeeper.metadata.metadata_store import ABSENT, Ephemeral, MetadataStore, Put
from foundation.model.errors import BadVersion, MetadataError

TOGETHER_MAX: Final = 16
"""Pieces of work of one process in one turn, at most, while other processes may wait."""
_RETRY_S: Final = 1.0
"""Seconds after a failed removal of a key until the next one."""
_QUEUE: Final = b"turns"
"""The value of a queue's key; its version is what counts."""


class _Line:
    """The work of this process that shares one queue."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        """Held by the piece of work that is under way."""
        self.waiting = 0
        """Pieces of work that wait for the lock."""
        self.node: str | None = None
        """The key of the turn that this process has."""
        self.used = 0
        """Pieces of work in this turn so far."""


class Turns:
    """The turns of one process, by the keys of their queues."""

    def __init__(self, store: MetadataStore) -> None:
        """Asks for nothing yet."""
        self._store = store
        self._lines: WeakValueDictionary[str, _Line] = WeakValueDictionary()
        self._removals: set[asyncio.Task[None]] = set()
        self._closed = False

    @asynccontextmanager
    async def turn(self, queue: str, process: str) -> AsyncIterator[None]:
        """Waits for the turn, which ends with the block. Raises MetadataError; a caller that is cancelled leaves the queue.

        `queue`: a key with the turns alone below it. `process`: the name of this process, for `holder`.
        """
        line = self._lines.setdefault(queue, _Line())
        line.waiting += 1
        try:
            await line.lock.acquire()
        except asyncio.CancelledError:
            line.waiting -= 1
            # The turn may have been kept for this piece of work.
            if not line.lock.locked():
                self._end_unless_waited_for(line)
            raise
        line.waiting -= 1
        try:
            if line.node is None:
                line.node = await self._taken(queue, process)
            line.used += 1
            yield
        finally:
            if line.used >= TOGETHER_MAX:
                self._end(line)
            line.lock.release()
            self._end_unless_waited_for(line)

    async def holder(self, queue: str) -> str:
        """Returns the name of the process that has the turn; empty while none has. Raises MetadataError."""
        for number in await self._store.children(queue):
            found = await self._store.get(f"{queue}/{number}")
            if found is not None:
                return found.value.decode(errors="replace")
        return ""

    async def forget(self, queue: str) -> None:
        """Removes the key of a queue that nobody needs any more. Raises MetadataError."""
        await self._store.delete(queue)

    def close(self) -> None:
        """Asks for no failed removal again: the keys end with the session."""
        self._closed = True

    def _end_unless_waited_for(self, line: _Line) -> None:
        if not line.waiting:
            self._end(line)

    def _end(self, line: _Line) -> None:
        node, line.node, line.used = line.node, None, 0
        if node is not None:
            self._begin_removal(node, self._removed(node))

    async def _taken(self, queue: str, process: str) -> str:
        """Joins the queue and waits until this process is the first; returns its key."""
        node = await self._joined(queue, process)
        try:
            own = node.rpartition("/")[2]
            while before := [number for number in await self._store.children(queue) if number < own]:
                await self._gone(f"{queue}/{before[-1]}")
        except BaseException:
            # CancelledError too: others would wait for this process.
            self._begin_removal(node, self._removed(node))
            raise
        return node

    async def _joined(self, queue: str, process: str) -> str:
        while True:
            found = await self._store.get(queue)
            try:
                if found is None:
                    await self._store.put(queue, _QUEUE, ABSENT)
                    continue
                # As many digits as a version has: names are sorted as texts.
                node = f"{queue}/{found.version + 1:010d}"
                writes = Put(queue, _QUEUE, found.version), Ephemeral(node, process.encode())
                await self._put_all(writes)
            except BadVersion:
                continue
            return node

    async def _put_all(self, writes: tuple[Put, Ephemeral]) -> None:
        writing = asyncio.ensure_future(self._store.put_all(writes))
        try:
            await asyncio.shield(writing)
        except BadVersion:
            raise
        except BaseException:
            # Perhaps written, also after the wait was cancelled: others would wait for this process.
            self._begin_removal(writes[1].key, self._undone(writing, writes[1]))
            raise

    async def _undone(self, writing: asyncio.Future[list[int]], node: Ephemeral) -> None:
        await asyncio.wait((writing,))
        if not isinstance(writing.exception(), BadVersion):
            await self._removed(node.key, node.value)

    async def _gone(self, key: str) -> None:
        """Returns when the key is not there."""
        changed = asyncio.Event()
        stop = await self._store.watch(key, changed.set)
        try:
            while await self._store.get(key) is not None:
                await changed.wait()
                changed.clear()
        finally:
            stop()

    def _begin_removal(self, node: str, work: Coroutine[object, object, None]) -> None:
        """Removes a key beside what goes on, which must not wait for a store that is away."""
        task = asyncio.create_task(work, name=f"end of turn {node}")
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

    async def _removed(self, node: str, value: bytes = b"") -> None:
        """Removes a key; with `value` only if it has that, since the number may have become another process's."""
        while True:
            try:
                found = await self._store.get(node) if value else None
                if found is None or found.value == value:
                    await self._store.delete(node)
            except MetadataError:
                if self._closed:
                    return
                await asyncio.sleep(_RETRY_S)
            else:
                return
