"""How long does the broker leave another client waiting? Pulsar's PING once a millisecond.

Law: a plain socket and three prepared frames, so that no client library's pauses are measured. A pause of the probe's own
thread still is, so the result is an upper bound.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from types import TracebackType

CONNECT = b"\x08\x02\x12\x07\x0a\x03\x62\x65\x6e\x20\x13"
"""BaseCommand: type CONNECT, connect {client_version "ben", protocol_version 19}."""
PING = b"\x08\x12\x92\x01\x00"
PONG = b"\x08\x13\x9a\x01\x00"
TYPE_PING = b"\x08\x12"
TYPE_PONG = b"\x08\x13"
INTERVAL_S = 0.001
TIMEOUT_S = 10.0


def frame(command: bytes) -> bytes:
    """Returns a command as a frame without a body."""
    return struct.pack(">II", len(command) + 4, len(command)) + command


class StallProbe:
    """Measures on a thread of its own: `with StallProbe(host, port) as probe: …; probe.take_worst_ms()`."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
        # Without it Nagle's algorithm would hold a PING back and be measured as the broker's wait.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stop = threading.Event()
        self._worst_s = 0.0
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> StallProbe:
        self._socket.sendall(frame(CONNECT))
        self._next()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()

    def take_worst_ms(self) -> float:
        """Returns the longest wait for a PONG since the last call, in ms. Raises the error that ended the probing."""
        if self._error:
            raise self._error
        worst, self._worst_s = self._worst_s, 0.0
        return worst * 1000

    def _run(self) -> None:
        try:
            while not self._stop.wait(INTERVAL_S):
                started = time.perf_counter()
                self._socket.sendall(frame(PING))
                while not self._next().startswith(TYPE_PONG):
                    pass
                self._worst_s = max(self._worst_s, time.perf_counter() - started)
        except OSError as error:
            self._error = error

    def _next(self) -> bytes:
        """The next command; the broker's own pings are answered on the way."""
        size, command_size = struct.unpack(">II", self._exactly(8))
        command = self._exactly(size - 4)[:command_size]
        if command.startswith(TYPE_PING):
            self._socket.sendall(frame(PONG))
        return command

    def _exactly(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the probe's connection")
            parts += part
        return parts
