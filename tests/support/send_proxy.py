"""A proxy between a client and a broker that damages or forges single SENDs on their way, each once."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from crc32c import crc32c

from protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

_U32: Final = struct.Struct(">I")
_CHECKSUM_BYTES: Final = 6
"""The magic number and the checksum in front of the metadata."""
FLIP: Final = b"flip "
"""A SEND with this text in its payload loses one bit of it the first time that it passes."""
FORGE: Final = b"forge "
"""The metadata of a SEND with this text in its payload name a transaction, under a right checksum, each time."""


class SendProxy:
    """Listens on a free port of loopback. `target` is set before the first client comes: `pulsar://host:port`."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"pulsar://127.0.0.1:{self._listener.getsockname()[1]}"
        self.target = ""
        self.changed = 0
        """SENDs that were damaged or forged."""
        self._flipped: set[bytes] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Takes no more clients."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                place = urlsplit(self.target)
                broker = socket.create_connection((place.hostname or "", place.port or 0))
                for work in (self._to_broker, self._to_client):
                    threading.Thread(target=work, args=(client, broker), daemon=True).start()

    def _to_broker(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for frame in _frames(client):
                broker.sendall(self._changed(frame))
        _end(client, broker)

    @staticmethod
    def _to_client(client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := broker.recv(65_536):
                client.sendall(data)
        _end(client, broker)

    def _changed(self, frame: bytes) -> bytes:
        command_bytes = _U32.unpack_from(frame, 4)[0]
        command, body = BaseCommand.FromString(frame[8 : 8 + command_bytes]), frame[8 + command_bytes :]
        if command.type != BaseCommand.SEND or (FLIP not in body and FORGE not in body):
            return frame
        if FORGE in body:
            body = _forged(body)
        else:
            with self._lock:
                if body in self._flipped:
                    return frame
                self._flipped.add(body)
            body = body[:-1] + bytes([body[-1] ^ 1])
        self.changed += 1
        head = frame[4 : 8 + command_bytes]
        return _U32.pack(len(head) + len(body)) + head + body


def _frames(connection: socket.socket) -> Iterator[bytes]:
    received = bytearray()
    while data := connection.recv(65_536):
        received += data
        while len(received) >= 4 and len(received) >= (end := 4 + _U32.unpack_from(received)[0]):
            yield bytes(received[:end])
            del received[:end]


def _forged(body: bytes) -> bytes:
    """Returns the body with metadata that name a transaction, and the checksum of that."""
    start = _CHECKSUM_BYTES + 4
    end = start + _U32.unpack_from(body, _CHECKSUM_BYTES)[0]
    metadata = MessageMetadata.FromString(body[start:end])
    metadata.txnid_most_bits, metadata.txnid_least_bits = 0, 1
    packed = metadata.SerializeToString()
    covered = _U32.pack(len(packed)) + packed + body[end:]
    return body[:2] + _U32.pack(crc32c(covered)) + covered


def _end(*connections: socket.socket) -> None:
    """Ends both directions; the thread of the other one sees the end and closes nothing twice."""
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
