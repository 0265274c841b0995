"""SharedLocks: locks between the processes of one metadata store, given in the order in which processes asked for them.

A process that wants a lock makes an ephemeral key below the lock's key, with a number as its name; the lowest number
holds the lock. The version of the lock's key is the last number that was given. The two are written together, so a process
that comes gets a higher number than all that are there. Callers of one process wait in the process, which has one number at
a time: with one for each, N callers would refuse each other's writes N²/2 times.

A lock ends with the session of its holder, which the holder may learn later. So what is done under a lock must be safe by
itself; the lock keeps processes from undoing each other's work all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Final

from bookkeeper.metadata.metadata_store import ABSENT, Ephemeral, MetadataStore, Put
from foundation.model.errors import BadVersion, MetadataError
from foundation.seldom import lock_of

_RETRY_S: Final = 1.0
"""Seconds after a failed removal of a key until the next one, and that `forget` waits for removals."""
_VALUE: Final = b"lock"
"""The value of a lock's key; its version is what counts."""


class SharedLocks:
    """The locks that callers of one process hold and wait for."""

    def __init__(self, store: MetadataStore) -> None:
        """Asks for nothing yet."""
        self._store = store
        self._removals: set[asyncio.Task[None]] = set()
        self._closed = False

    @contextlib.asynccontextmanager
    async def hold(self, lock: str, process: str) -> AsyncIterator[None]:
        """Waits for the lock, and releases it at the end of the block. Raises MetadataError; may be cancelled.

        `lock`: a key with nothing else below it. `process`: the name of this process, for `holder`.
        """
        async with lock_of((self, lock)):
            # No other attempt has this value, so a key that has it is this one's.
            node = await self._acquired(lock, f"{process} {secrets.token_hex(8)}".encode())
            try:
                yield
            finally:
                self._begin_removal(node)

    async def holder(self, lock: str) -> str:
        """Returns the name of the process that holds the lock; empty while none does. Raises MetadataError."""
        for number in await self._store.children(lock):
            found = await self._store.get(f"{lock}/{number}")
            if found is not None:
                return found.value.decode(errors="replace").rpartition(" ")[0]
        return ""

    async def forget(self, lock: str) -> None:
        """Removes the key of a lock, unless some process holds it or waits for it. Raises MetadataError."""
        if self._removals:
            await asyncio.wait(self._removals, timeout=_RETRY_S)
        found = await self._store.get(lock)
        # Numbers begin anew with the key, so none may be there. A process that comes now moves the version.
        if found is not None and not await self._store.children(lock):
            await self._store.delete(lock, found.version)

    def close(self) -> None:
        """Repeats no failed removal any more: the keys end with the session."""
        self._closed = True

    async def _acquired(self, lock: str, value: bytes) -> Ephemeral:
        """Makes a key and waits until it is the first; returns it."""
        node = await self._made(lock, value)
        try:
            own = node.key.rpartition("/")[2]
            while before := [number for number in await self._store.children(lock) if number < own]:
                await self._gone(f"{lock}/{before[-1]}")
        except BaseException:
            # CancelledError too: others would wait for it.
            self._begin_removal(node)
            raise
        return node

    async def _made(self, lock: str, value: bytes) -> Ephemeral:
        while True:
            found = await self._store.get(lock)
            if found is None:
                with contextlib.suppress(BadVersion):  # Another process has made it.
                    await self._store.put(lock, _VALUE, ABSENT)
                continue
            # As many digits as a version has: names are sorted as texts.
            node = Ephemeral(f"{lock}/{found.version + 1:010d}", value)
            if await self._is_written(Put(lock, _VALUE, found.version), node):
                return node

    async def _is_written(self, number: Put, node: Ephemeral) -> bool:
        """Returns False where another process was quicker."""
        writing = asyncio.ensure_future(self._store.put_all((number, node)))
        try:
            with contextlib.suppress(BadVersion):
                await asyncio.shield(writing)
                return True
            # Perhaps written: the answer was lost, and before the store asked again another process took the next number.
            return await self._is_own(node)
        except BaseException:
            # Perhaps written, also after the wait was cancelled: others would wait for it.
            self._begin_removal(node, writing)
            raise

    async def _is_own(self, node: Ephemeral) -> bool:
        found = await self._store.get(node.key)
        return found is not None and found.value == node.value

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

    def _begin_removal(self, node: Ephemeral, writing: asyncio.Future[list[int]] | None = None) -> None:
        """Removes a key in a task, because its caller must not wait for a store that is away.

        `writing`: the write of the key, where it is perhaps still out.
        """
        task = asyncio.create_task(self._removed(node, writing), name=f"release of {node.key}")
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

    async def _removed(self, node: Ephemeral, writing: asyncio.Future[list[int]] | None) -> None:
        if writing is not None:
            await asyncio.wait((writing,))
        while True:
            try:
                # The number may have become another process's.
                if await self._is_own(node):
                    await self._store.delete(node.key)
            except MetadataError:
                if self._closed:
                    return
                await asyncio.sleep(_RETRY_S)
            else:
                return
