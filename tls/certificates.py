"""Certificates: a TLS context that is made again when one of its files has changed.

Files are looked at when a connection begins, at most once per interval: a port without new connections needs no
new certificate. Files that cannot be used leave the former context in place, because a port that closes on an
operator's typing error helps no client.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from tls.errors import TlsError

State = tuple[tuple[int, int, int] | None, ...]
"""Of each file: time of change, size and number; None for one that is missing."""


class Certificates:
    """The context of one port, or of one kind of client."""

    def __init__(
        self,
        make: Callable[[], ssl.SSLContext],
        files: Sequence[Path],
        *,
        check_s: float,
        now_ns: Callable[[], int],
        warn: Callable[[str], None],
    ) -> None:
        """Makes the first context. Raises the TlsError of `make`.

        `check_s`: seconds between two looks at the files; 0 looks with each connection. `warn` gets one line for
        each change that cannot be used.
        """
        self._make = make
        self._files = files
        self._check_ns = int(check_s * 10**9)
        self._now_ns = now_ns
        self._warn = warn
        # Before the files are read: a change while they are read is found at the next look.
        self._state = _state_of(files)
        self._context = make()
        self._next_ns = now_ns() + self._check_ns

    def current(self) -> ssl.SSLContext:
        """Returns the context for a new connection; reads changed files if a look is due."""
        now_ns = self._now_ns()
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + self._check_ns
            self._look()
        return self._context

    def _look(self) -> None:
        state = _state_of(self._files)
        if state == self._state:
            return
        # Also for files that cannot be used, so that one change makes one line.
        self._state = state
        try:
            # A new context and no change of the present one: a file that cannot be used must leave nothing behind.
            self._context = self._make()
        except TlsError as error:
            self._warn(f"! changed certificates are not used: {error}; the former ones stay")


def _state_of(files: Sequence[Path]) -> State:
    return tuple(_of_file(path) for path in files)


def _of_file(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
