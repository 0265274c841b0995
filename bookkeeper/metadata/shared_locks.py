"""SharedLocks: locks between the processes of one metadata store, given in the order in which they were asked for.

Each caller that wants a lock makes an ephemeral key below the lock's key, with a number as its name; the lowest number
holds the lock. The version of the lock's key is the last number that was given. The two are written together, so a caller
that comes gets a higher number than all that are there.

A lock ends with the session of its holder, which the holder may learn later. So what is done under a lock must be safe by
itself; the lock keeps processes from undoing each other's work all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Final

from bookkeeper.metadata.metadata_store import ABSENT, Ephemeral, MetadataStore, Put
from foundation.model.errors import BadVersion, MetadataError

_RETRY_S: Final = 1.0
"""Seconds after a failed removal of a key until the next one."""
_VALUE: Final = b"lock"
"""The value of a lock's key; its version is what counts."""


class SharedLocks:
    """The locks that callers of one process hold and wait for."""

    def __init__(self, store: MetadataStore) -> None:
        """Asks for nothing yet."""
        self._store = store
        self._removals: set[asyncio.Task[None]] = set()
        self._closed = False

    @asynccontextmanager
    async def hold(self, lock: str, process: str) -> AsyncIterator[None]:
        """Waits for the lock, and releases it at the end of the block. Raises MetadataError; may be cancelled.

        `lock`: a key with nothing else below it. `process`: the name of this process, for `holder`.
        """
        node = await self._acquired(lock, process)
        try:
            yield
        finally:
            self._begin_removal(node, self._removed(node))

    async def holder(self, lock: str) -> str:
        """Returns the name of the process that holds the lock; empty while none does. Raises MetadataError."""
        for number in await self._store.children(lock):
            found = await self._store.get(f"{lock}/{number}")
            if found is not None:
                return found.value.decode(errors="replace")
        return ""

    async def forget(self, lock: str) -> None:
        """Removes the key of a lock that nobody needs any more. Raises MetadataError."""
        await self._store.delete(lock)

    def close(self) -> None:
        """Repeats no failed removal any more: the keys end with the session."""
        self._closed = True

    async def _acquired(self, lock: str, process: str) -> str:
        """Makes a key and waits until it is the first; returns it."""
        node = await self._made(lock, process)
        try:
            own = node.rpartition("/")[2]
            while before := [number for number in await self._store.children(lock) if number < own]:
                await self._gone(f"{lock}/{before[-1]}")
        except BaseException:
            # CancelledError too: others would wait for it.
            self._begin_removal(node, self._removed(node))
            raise
        return node

    async def _made(self, lock: str, process: str) -> str:
        while True:
            found = await self._store.get(lock)
            try:
                if found is None:
                    await self._store.put(lock, _VALUE, ABSENT)
                    continue
                # As many digits as a version has: names are sorted as texts.
                node = f"{lock}/{found.version + 1:010d}"
                await self._put_all((Put(lock, _VALUE, found.version), Ephemeral(node, process.encode())))
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
            # Perhaps written, also after the wait was cancelled: others would wait for it.
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
        """Removes a key in a task, because its caller must not wait for a store that is away."""
        task = asyncio.create_task(work, name=f"release of {node}")
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
