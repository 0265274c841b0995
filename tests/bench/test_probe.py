"""The stall probe against a peer that answers late, pings on its own, or goes away."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest

from bench.probe import CONNECT, PING, PONG, StallProbe, frame
from protocol.pulsar_api_pb2 import BaseCommand

CONNECTED = frame(b"\x08\x03")


def serve(
    answer: Callable[[socket.socket, int], None], answered: threading.Event | None = None
) -> tuple[str, int]:
    """A peer that reads frames and leaves what to do with the n-th PING to `answer`."""
    listener = socket.create_server(("127.0.0.1", 0))
    answered = threading.Event() if answered is None else answered

    def run() -> None:
        with listener, listener.accept()[0] as peer:
            pings = 0
            while data := peer.recv(4096):
                if data == frame(CONNECT):
                    peer.sendall(CONNECTED)
                if frame(PONG) in data:
                    answered.set()
                for _ in range(data.count(frame(PING))):
                    pings += 1
                    answer(peer, pings)

    threading.Thread(target=run, daemon=True).start()
    host, port = listener.getsockname()
    return host, port


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_probe_frames_parse_as_their_commands() -> None:
    connect = BaseCommand.FromString(CONNECT)
    assert (connect.type, connect.connect.client_version) == (BaseCommand.CONNECT, "ben")
    assert connect.connect.protocol_version == 19
    assert BaseCommand.FromString(PING).type == BaseCommand.PING
    assert BaseCommand.FromString(PONG).type == BaseCommand.PONG
    for command in (PING, PONG):
        assert BaseCommand.FromString(command).IsInitialized()


def test_probe_returns_the_longest_wait_once() -> None:
    counted = [0]
    answered = threading.Event()

    def answer(peer: socket.socket, number: int) -> None:
        time.sleep(0.06 if number == 3 else 0)
        peer.sendall(frame(PING) + frame(PONG) if number == 2 else frame(PONG))
        counted[0] = number

    with StallProbe(*serve(answer, answered)) as probe:
        wait_for(lambda: counted[0] >= 6)
        worst_ms = probe.take_worst_ms()
        assert worst_ms > 55
        # A busy machine makes later waits long too, but not each of them as long as the longest.
        wait_for(lambda: probe.take_worst_ms() < worst_ms)
    assert answered.is_set()


def test_probe_raises_when_the_peer_closes() -> None:
    gone = threading.Event()

    def answer(peer: socket.socket, _number: int) -> None:
        peer.shutdown(socket.SHUT_RDWR)
        gone.set()

    with StallProbe(*serve(answer)) as probe:
        assert gone.wait(60)
        probe._thread.join(60)
        with pytest.raises(OSError, match="closed"):
            probe.take_worst_ms()
