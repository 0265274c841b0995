"""Background: the few tasks that a log runs beside its callers: ledger rolls, snapshots, trims.

Every task is kept until it ends and may be waited for; nothing here runs per message. A task handles the
errors it can expect by itself; one that ends with another error is a bug and is told to the loop's
exception handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


class Background:
    __slots__ = ("_name", "_tasks")

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine, name=self._name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            task.get_loop().call_exception_handler(
                {"message": f"{self._name} failed", "exception": error, "task": task}
            )

    async def drain(self) -> None:
        """Wait until everything that was begun, and what that began, has ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)
