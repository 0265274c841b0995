"""Reloaded: a value that is made of files, and made again when one of them has changed.

Files are looked at when the value is needed, at most once per interval. Files that cannot be used leave the former value
in place, because a port that closes on an operator's typing error helps no client.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

State = tuple[tuple[int, int, int] | None, ...]
"""Of each file: time of change, size and number; None for one that is missing."""


class Reloaded(Generic[T]):
    """The value of one set of files."""

    def __init__(
        self,
        make: Callable[[], T],
        files: Sequence[Path],
        *,
        subject: str,
        error: type[Exception],
        check_s: float,
        now_ns: Callable[[], int],
        warn: Callable[[str], None],
    ) -> None:
        """Makes the first value. Raises the `error` of `make`.

        `check_s`: seconds between two checks of the files; 0 looks at each use. `warn` gets one line, about the `subject`,
        for each change that cannot be used.
        """
        self._make = make
        self._files = files
        self._subject = subject
        self._error = error
        self._check_ns = int(check_s * 10**9)
        self._now_ns = now_ns
        self._warn = warn
        # Before the files are read: a change while they are read is found at the next check.
        self._state = state_of(files)
        self._value = make()
        self._next_ns = now_ns() + self._check_ns

    def current(self) -> T:
        """Returns the value; reads changed files if a look is due."""
        if self._is_due():
            self._look()
        return self._value

    async def fetch(self) -> T:
        """Returns the value as `current`, but reads files in a thread: thousands of lines take long to read."""
        if self._files and self._is_due():
            await asyncio.to_thread(self._look)
        return self._value

    def _is_due(self) -> bool:
        now_ns = self._now_ns()
        if now_ns < self._next_ns:
            return False
        # Before the look, so that one caller looks and the others go on with the former value.
        self._next_ns = now_ns + self._check_ns
        return True

    def _look(self) -> None:
        state = state_of(self._files)
        if state == self._state:
            return
        # Also for files that cannot be used, so that one change makes one line.
        self._state = state
        try:
            # A new value and no change of the present one: a file that cannot be used must change nothing.
            self._value = self._make()
        except self._error as error:
            self._warn(f"! changed {self._subject} are not used: {error}; the former ones stay")


def state_of(files: Sequence[Path]) -> State:
    """Returns the state of each file; files with equal states are taken for unchanged."""
    return tuple(_of_file(path) for path in files)


def _of_file(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # ValueError: a NUL in the path.
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
