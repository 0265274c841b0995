"""WriteGroups: a queue of writes to ZooKeeper in which writes of one key keep their order.

The law: a group holds writes of different keys and is sent at once; the next group begins when every write of this one is
answered. So two writes of a key never overtake each other, and ZooKeeper's sync to disk is shared by a whole group.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from foundation.model.errors import MetadataError

GROUP_MAX = 256
"""Writes that are out at once."""


@dataclass(slots=True)
class _Write:
    keys: frozenset[str]
    apply: Callable[[], Awaitable[list[int]]]
    """Sends the write; returns the keys' new versions."""
    done: asyncio.Future[list[int]]


class WriteGroups:
    """The writes of one metadata store, from its opening to `drain`."""

    def __init__(self) -> None:
        """Starts a task on the running loop."""
        self._queue: deque[_Write] = deque()
        self._wanted = asyncio.Event()
        self._closing = False
        self._worker = asyncio.create_task(self._send_groups(), name="metadata writes")

    async def submit(self, keys: frozenset[str], apply: Callable[[], Awaitable[list[int]]]) -> list[int]:
        """The new versions, after `apply` was called in its turn.

        Raises what `apply` raises.

        Raises MetadataError when the store is closing. A caller that is cancelled cancels only its own wait.
        """
        if self._closing:
            raise MetadataError("the metadata store is closed")
        done: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._queue.append(_Write(keys, apply, done))
        self._wanted.set()
        return await done

    async def drain(self, timeout_s: float) -> None:
        """Refuse new writes, and wait until the queue is empty.

        Returns after `timeout_s` at the latest.
        """
        self._closing = True
        self._wanted.set()
        await asyncio.wait((self._worker,), timeout=timeout_s)

    async def ended(self) -> None:
        """Wait until every write is answered, after ZooKeeper's session was closed."""
        await self._worker

    async def _send_groups(self) -> None:
        # On closing the queue is emptied first.
        while not (self._closing and not self._queue):
            await self._wanted.wait()
            # Before the look at the queue: a write that comes behind it sets the event again.
            self._wanted.clear()
            while self._queue:
                group = self._next_group()
                # Exceptions are results here: each belongs to one write, and the others go on.
                outcomes = await asyncio.gather(*(write.apply() for write in group), return_exceptions=True)
                for write, outcome in zip(group, outcomes, strict=True):
                    _settle(write, outcome)

    def _next_group(self) -> list[_Write]:
        """Remove a group of writes from the queue, each key once."""
        group: list[_Write] = []
        keys: set[str] = set()
        while self._queue and len(group) < GROUP_MAX and keys.isdisjoint(self._queue[0].keys):
            write = self._queue.popleft()
            keys |= write.keys
            group.append(write)
        return group


def _settle(write: _Write, outcome: list[int] | BaseException) -> None:
    if write.done.done():  # The caller was cancelled; the write has happened all the same.
        return
    if isinstance(outcome, BaseException):
        write.done.set_exception(outcome)
    else:
        write.done.set_result(outcome)
