"""Ports for processes that need theirs named beforehand, because they start again on the same one."""

from __future__ import annotations

import itertools
import os
import random
import socket
from collections.abc import Iterator
from typing import Final

FIRST: Final = 10_000
SPAN: Final = 2_000
"""Ports of each worker of a test run. Those of ten workers lie below the system's own range for port 0 (32768 and up on
Linux, 49152 elsewhere): another process could get a port of that range between two starts."""


def free_port() -> int:
    """Returns a free port of loopback, each at most once. OSError when all ports of the worker are in use."""
    for port in itertools.islice(_ports, SPAN):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port in {_first} to {_first + SPAN - 1}")


def accepts(host: str, port: int) -> bool:
    """Returns True if a server listens there."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def _of_this_process() -> Iterator[int]:
    """Yields the worker's ports, from a random one on, so that two runs at the same time seldom meet."""
    begin = random.randrange(SPAN)
    for step in itertools.count(begin):
        yield _first + step % SPAN


_first: Final = FIRST + SPAN * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 10)
_ports: Final = _of_this_process()
