"""Background: the few tasks that a managed ledger runs beside its callers: rolls, cursor writes, trims.

Every task is kept until it ends, because the loop holds only weak references. Nothing here runs per message. A task
handles the errors it can expect by itself; any other error is a defect and goes to the loop's exception handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


class Background:
    """A set of running tasks that a close can wait for."""

    __slots__ = ("_kind", "_name", "_tasks")

    def __init__(self, kind: str, name: str) -> None:
        """Names the tasks by both texts: a joined one would be kept for each topic."""
        self._kind = kind
        self._name = name
        self._tasks: set[asyncio.Task[None]] | None = None
        """None without tasks: an empty set of its own is 216 bytes for each topic and each cursor."""

    def spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        """Runs the coroutine as a task."""
        task = asyncio.get_running_loop().create_task(coroutine, name=f"{self._kind} {self._name}")
        if self._tasks is None:
            self._tasks = set()
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._tasks is not None:
            self._tasks.discard(task)
            self._tasks = self._tasks or None
        if not task.cancelled() and (error := task.exception()) is not None:
            task.get_loop().call_exception_handler(
                {"message": f"{task.get_name()} failed", "exception": error, "task": task}
            )

    async def drain(self) -> None:
        """Waits until all tasks have ended, including those that they started."""
        # A task may start another one, so look again after each wait.
        while self._tasks:
            await asyncio.wait(self._tasks)
