"""WriteGroups: a queue of writes to ZooKeeper in which writes of one key keep their order.

The law: a group holds writes of different keys and is sent at once; the next group begins when every write of this one is
answered. So two writes of a key never overtake each other, and ZooKeeper's sync to disk is shared by a whole group.

An urgent write is sent at once, beside the group that is out, unless an earlier write of one of its keys is not answered: a
lease must not run out because 10,000 positions of cursors are before it.
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
        self._out: set[str] = set()
        """Keys of the group that is out."""
        self._urgent: set[str] = set()
        """Keys of urgent writes that are out."""
        self._urgent_ended = asyncio.Event()
        self._urgent_tasks: set[asyncio.Task[None]] = set()
        self._wanted = asyncio.Event()
        self._closing = False
        self._worker = asyncio.create_task(self._send_groups(), name="metadata writes")

    async def submit(
        self, keys: frozenset[str], apply: Callable[[], Awaitable[list[int]]], *, urgent: bool = False
    ) -> list[int]:
        """Calls `apply` in its turn, and returns the new versions.

        Raises what `apply` raises. Raises MetadataError when the store is closing. A caller that is cancelled cancels
        only its own wait.
        """
        if self._closing:
            raise MetadataError("the metadata store is closed")
        done: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        write = _Write(keys, apply, done)
        if urgent and self._may_overtake(keys):
            self._urgent |= keys
            task = asyncio.ensure_future(self._send_urgent(write))
            self._urgent_tasks.add(task)
            task.add_done_callback(self._urgent_tasks.discard)
            return await done
        self._queue.append(write)
        self._wanted.set()
        return await done

    async def drain(self, timeout_s: float) -> None:
        """Refuses new writes, and waits until the queue is empty, at most `timeout_s`."""
        self._closing = True
        self._wanted.set()
        await asyncio.wait((self._worker, *self._urgent_tasks), timeout=timeout_s)

    async def ended(self) -> None:
        """Waits until every write is answered, after ZooKeeper's session was closed."""
        await asyncio.gather(self._worker, *self._urgent_tasks)

    def _may_overtake(self, keys: frozenset[str]) -> bool:
        """Returns False while an earlier write of one of the keys is not answered."""
        return (
            keys.isdisjoint(self._out)
            and keys.isdisjoint(self._urgent)
            and all(keys.isdisjoint(write.keys) for write in self._queue)
        )

    async def _send_urgent(self, write: _Write) -> None:
        (outcome,) = await asyncio.gather(write.apply(), return_exceptions=True)
        self._urgent -= write.keys
        self._urgent_ended.set()
        _settle(write, outcome)

    async def _send_groups(self) -> None:
        # On closing the queue is emptied first.
        while not (self._closing and not self._queue):
            await self._wanted.wait()
            # Before the look at the queue: a write that comes after it sets the event again.
            self._wanted.clear()
            while self._queue:
                self._urgent_ended.clear()
                group = self._next_group()
                if not group:
                    await self._urgent_ended.wait()
                    continue
                # Exceptions are results here: each belongs to one write, and the others go on.
                outcomes = await asyncio.gather(*(write.apply() for write in group), return_exceptions=True)
                self._out = set()
                for write, outcome in zip(group, outcomes, strict=True):
                    _settle(write, outcome)

    def _next_group(self) -> list[_Write]:
        """Removes a group of writes from the queue, each key once; empty while an urgent write of the first's keys is
        out.
        """
        group: list[_Write] = []
        while self._queue and len(group) < GROUP_MAX:
            keys = self._queue[0].keys
            if not keys.isdisjoint(self._out) or not keys.isdisjoint(self._urgent):
                break
            self._out |= keys
            group.append(self._queue.popleft())
        return group


def _settle(write: _Write, outcome: list[int] | BaseException) -> None:
    if write.done.done():  # The caller was cancelled; the write has happened all the same.
        return
    if isinstance(outcome, BaseException):
        write.done.set_exception(outcome)
    else:
        write.done.set_result(outcome)
