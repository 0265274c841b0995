"""BackgroundTasks: every asyncio task of the broker, named, kept until it ends, and cancelled at the end.

The event loop itself holds tasks by weak references: one that is kept nowhere may be collected while it runs. The error
of a task that nothing awaits would be reported only when the task is collected, so it is logged as soon as it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

log = logging.getLogger("magnetar")


class BackgroundTasks:
    """The tasks of one broker."""

    def __init__(self) -> None:
        """Has no task yet."""
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[object, None, None], name: str) -> asyncio.Task[None]:
        """Starts a task; `name` identifies it in the log."""
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def settle(self, known: set[asyncio.Task[None]], timeout_s: float) -> None:
        """Waits until no task is left that is not in `known`; one that outlasts `timeout_s` is added to it."""
        # A turn of the loop first: what a timer began may start its tasks there.
        await asyncio.sleep(0)
        while started := self._tasks - known:
            _, going_on = await asyncio.wait(started, timeout=timeout_s)
            known |= going_on
            await asyncio.sleep(0)

    @property
    def running(self) -> set[asyncio.Task[None]]:
        """The tasks that have not ended; a copy."""
        return set(self._tasks)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("! task '%s' failed", task.get_name(), exc_info=task.exception())

    async def close(self) -> None:
        """Cancels the tasks that are left and waits until they have ended."""
        # Over a copy: a task that ends removes itself.
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
