"""Waiting for sockets of a connection to ZooKeeper, with one system call.

kazoo waits four times for each request, and makes an epoll object for each wait: five system calls, each of which gives the
GIL away. While the event loop is busy each of them costs up to a switch interval (5 ms) to take it back.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Protocol, TypeVar


class Waited(Protocol):
    """A socket, or an end of the pipe in `wake_pipe.py`."""

    def fileno(self) -> int:
        """Returns the descriptor."""
        ...


One = TypeVar("One", bound=Waited)


def ready_sockets(
    readers: Sequence[One],
    writers: Sequence[One],
    _: Sequence[One],
    timeout_s: float | None = None,
) -> tuple[list[One], list[One], list[One]]:
    """Returns those that can be read, and those that can be written; a broken one counts as ready.

    Stands for kazoo's `handler.select`, so the third list is empty. `timeout_s`: None waits without end.
    """
    poll = select.poll()
    for one in readers:
        poll.register(one, select.POLLIN)
    for one in writers:
        poll.register(one, select.POLLOUT)
    ready = {fd for fd, _ in poll.poll(None if timeout_s is None else timeout_s * 1000)}
    return (
        [one for one in readers if one.fileno() in ready],
        [one for one in writers if one.fileno() in ready],
        [],
    )
