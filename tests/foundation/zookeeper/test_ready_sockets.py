"""Which of some sockets are ready."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from foundation.zookeeper.ready_sockets import ready_sockets

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def test_a_socket_is_read_once_bytes_have_come(pair: Pair) -> None:
    near, far = pair
    assert ready_sockets([near, far], [], [], 0) == ([], [], [])
    far.send(b"x")
    assert ready_sockets([near, far], [], [], None) == ([near], [], [])


def test_a_socket_is_written_while_there_is_room(pair: Pair) -> None:
    near, _ = pair
    assert ready_sockets([], [near], [], None) == ([], [near], [])
    near.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            near.send(bytes(1 << 16))
    assert ready_sockets([], [near], [], 0) == ([], [], [])


def test_a_socket_whose_peer_has_gone_is_ready(pair: Pair) -> None:
    near, far = pair
    far.close()
    assert ready_sockets([near], [], [], None) == ([near], [], [])
    assert ready_sockets([], [near], [], None) == ([], [near], [])
