"""The pipe that wakes kazoo's thread."""

from __future__ import annotations

import pytest

from foundation.zookeeper.ready_sockets import ready_sockets
from foundation.zookeeper.wake_pipe import wake_pipe


def test_many_requests_are_written_while_nobody_reads() -> None:
    read, write = wake_pipe()
    # A pair of sockets takes 278 of them. One that is full would hold this test for ever.
    for _ in range(10_000):
        assert ready_sockets([], [write], [], 0)[1], "full"
        assert write.send(b"\0") == 1
    assert ready_sockets([read], [], [], 0)[0]
    assert len(read.recv(20_000)) == 10_000
    assert not ready_sockets([read], [], [], 0)[0]
    read.close()
    write.close()


def test_closed_end_raises_and_may_be_closed_again() -> None:
    read, write = wake_pipe()
    read.close()
    read.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        read.recv(1)
    with pytest.raises(OSError, match="Broken pipe"):
        write.send(b"\0")
    write.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        write.send(b"\0")
