"""The pipe by which requests to ZooKeeper wake kazoo's thread: one byte for each.

kazoo makes a pair of sockets, which holds some 280 single bytes. While ZooKeeper is away the thread reads none, and the
next request would hold the event loop until ZooKeeper is back.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import Final

PIPE_BYTES: Final = 1 << 20
"""The most that Linux allows without privileges, and so the requests that may wait. Elsewhere a pipe has its own size."""


class PipeEnd:
    """One end of a pipe, with the methods of a socket that kazoo calls."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        """Returns the descriptor."""
        return self._fd

    def send(self, data: bytes) -> int:
        """Writes, and waits only while the pipe is full."""
        return os.write(self._fd, data)

    def recv(self, most: int) -> bytes:
        """Reads what is there, or waits for the first byte."""
        return os.read(self._fd, most)

    def close(self) -> None:
        """Closes this end; later calls raise OSError."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def wake_pipe() -> tuple[PipeEnd, PipeEnd]:
    """Returns the end to read and the end to write. Stands for kazoo's `handler.create_socket_pair`."""
    read, write = os.pipe()
    with suppress(OSError, AttributeError):
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return PipeEnd(read), PipeEnd(write)
