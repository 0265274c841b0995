"""An event loop whose time is made up: it jumps to the next timer as soon as nothing else is to be done.

No sockets, no threads, no real time: what happens depends on the program alone, so that a seed gives the same history
on any machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


CLOSING_TURNS = 10
"""Turns of the loop for cancelled tasks."""


class Stuck(AssertionError):
    """A task waits although no event is scheduled."""


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._clock_resolution = 1e-9
        self.defects: list[BaseException] = []
        """Exceptions of callbacks, which asyncio would only log."""
        self.set_exception_handler(self._note_defect)
        # What the base class asks for events: there are none, only timers.
        self._selector = self

    def _note_defect(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "handle" in context:
            self.defects.append(context["exception"])

    def time(self) -> float:
        return self._now

    def now_ns(self) -> int:
        return int(self._now * 1e9)

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise Stuck("nothing is scheduled any more")
        self._now += max(timeout, 0.0)
        return []

    def _process_events(self, event_list: list[object]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        """Does nothing: this loop never sleeps in a system call."""


def run(main: Coroutine[Any, Any, T], loop: SimLoop) -> T:
    """Runs to the end, then cancels the tasks that still wait."""
    try:
        outcome = loop.run_until_complete(main)
        if loop.defects:
            raise loop.defects[0]
        return outcome
    finally:
        for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
            task.cancel()
        # A cancelled task may wait for the end of tasks that it began, and these for theirs.
        for _ in range(CLOSING_TURNS):
            loop.run_until_complete(asyncio.sleep(0))
        loop.close()
