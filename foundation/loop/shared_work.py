"""SharedWork: work that one caller begins and all who need it meanwhile wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine


class SharedWork:
    """Work by keys, from its begin to its end."""

    def __init__(self) -> None:
        """Does nothing yet."""
        self._running: dict[str, asyncio.Task[None]] = {}

    async def done(self, key: str, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Returns at the end of the key's work, and raises its error; begins it unless it goes on.

        A cancellation ends the wait of this caller alone.
        """
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(work(), name=f"shared: {key}")
            task.add_done_callback(lambda ended: self._ended(key, ended))
        await asyncio.shield(task)

    async def close(self) -> None:
        """Waits for all that goes on, so that none of it is left half done."""
        if self._running:
            await asyncio.wait(self._running.values())

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # Told to those who wait; it is no defect that there are none any more.
