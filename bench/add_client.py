"""How fast can a client keep adds to a bookie outstanding? The client process of `bench.bookie_adds`.

`python -m bench.add_client HOST PORT VERSION ENTRY_BYTES OUTSTANDING SECONDS`

Uses one connection and one new ledger; VERSION is v2 or v3. Prints a JSON list: adds answered, seconds, seconds of CPU of
this client. Law: the client must cost less CPU than the bookie. So frames are prepared, and entry ids are written into
many frames with one slice assignment per byte.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from protocol.bookie_frame import encode_add_request, encode_add_response
from protocol.bookie_frame_v3 import encode_add_answer, encode_message
from protocol.bookkeeper_api_pb2 import ADD_ENTRY, VERSION_THREE, Request
from protocol.varint import varint

KEY = bytes.fromhex("850bf1071c5e3d8c24235676f8816ae0cbe2f14f")
"""Master key of the ledger."""
FIRST_ID = 1 << 21
"""From here to 2**28 an id has four bytes in protobuf, so all frames are equally long."""
_ID_BYTES = 8
_RECEIVED_BYTES = 1 << 20


class Adds(NamedTuple):
    """The result of one client."""

    answered: int
    """Successful adds."""
    seconds: float
    """From the first add to the last answer."""
    client_cpu_s: float
    """CPU of the client meanwhile."""

    @property
    def per_s(self) -> float:
        """Adds answered per second."""
        return self.answered / self.seconds


class Wire(Protocol):
    """Frames of one wire version, all of equal length."""

    frame: bytes
    """Frame of the first add."""
    answer: bytes
    """The expected answer to `frame`."""
    unchanged: slice
    """The part of an answer that is equal in all successful answers."""

    def number(self, chunk: bytearray, first: int, count: int) -> None:
        """Gives the `count` frames in `chunk` the ids from `first` on."""
        ...


class V2:
    """BookKeeper's v2 frames: fixed binary headers."""

    def __init__(self, ledger_id: int, entry_bytes: int) -> None:
        entry = ledger_id.to_bytes(8, "big") + FIRST_ID.to_bytes(8, "big") + bytes(entry_bytes - 16)
        self.frame = encode_add_request(entry, KEY)
        self.answer = encode_add_response(2, 0, ledger_id, FIRST_ID)
        self.unchanged = slice(0, len(self.answer) - _ID_BYTES)
        self._id_at = len(self.frame) - entry_bytes + 8

    def number(self, chunk: bytearray, first: int, count: int) -> None:
        """Writes entry ids; nothing else differs between frames."""
        _write_ids(chunk, self._id_at, len(self.frame), first, count)


class V3:
    """BookKeeper's v3 frames: protobuf requests."""

    def __init__(self, ledger_id: int, entry_bytes: int) -> None:
        request = Request()
        request.header.version, request.header.operation = VERSION_THREE, ADD_ENTRY
        request.header.txnId = FIRST_ID
        add = request.addRequest
        add.ledgerId, add.entryId, add.masterKey = ledger_id, FIRST_ID, KEY
        add.body = ledger_id.to_bytes(8, "big") + FIRST_ID.to_bytes(8, "big") + bytes(entry_bytes - 16)
        self.frame = encode_message(request)
        self.answer = encode_add_answer(FIRST_ID, 0, ledger_id, FIRST_ID)
        self.unchanged = slice(0, 4)  # a refusal is longer
        self._id_at = len(self.frame) - entry_bytes + 8
        self._txn_at = self.frame.index(b"\x18" + varint(FIRST_ID)) + 1
        self._entry_at = self.frame.index(b"\x10" + varint(FIRST_ID) + b"\x1a") + 1

    def number(self, chunk: bytearray, first: int, count: int) -> None:
        """Writes entry ids into the body, the request and the transaction id."""
        stride = len(self.frame)
        _write_ids(chunk, self._id_at, stride, first, count)
        varints = b"".join(map(varint, range(first, first + count)))
        for byte in range(4):
            chunk[self._txn_at + byte :: stride] = chunk[self._entry_at + byte :: stride] = varints[byte::4]


def _write_ids(chunk: bytearray, at: int, stride: int, first: int, count: int) -> None:
    ids = b"".join([number.to_bytes(_ID_BYTES, "big") for number in range(first, first + count)])
    # The upper four bytes stay 0 and are in the frame already. One strided assignment per byte renumbers all frames.
    for byte in range(4, _ID_BYTES):
        chunk[at + byte :: stride] = ids[byte::_ID_BYTES]


WIRES: dict[str, Callable[[int, int], Wire]] = {"v2": V2, "v3": V3}
"""By the name in the command line; called with ledger id and bytes of an entry."""


def add_for(host: str, port: int, wire: Wire, outstanding: int, seconds: float) -> Adds:
    """Adds for so many seconds with at most `outstanding` adds unanswered.

    RuntimeError where an add is refused or the bookie closes the connection.
    """
    together = max(outstanding // 8, 1)
    chunk = bytearray(wire.frame * together)
    answer_bytes = len(wire.answer)
    expected = wire.answer[wire.unchanged]
    sent = answered = 0
    rest = b""
    with socket.create_connection((host, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.number(chunk, FIRST_ID, together)
        cpu, began = time.process_time(), time.perf_counter()
        while True:
            goes_on = time.perf_counter() - began < seconds
            while goes_on and sent - answered + together <= outstanding:
                connection.sendall(chunk)
                sent += together
                wire.number(chunk, FIRST_ID + sent, together)
            if not goes_on and answered == sent:
                return Adds(answered, time.perf_counter() - began, time.process_time() - cpu)
            data = rest + connection.recv(_RECEIVED_BYTES)
            whole = len(data) // answer_bytes
            # Compare byte by byte over all answers at once: parsing each answer would cost more than the bookie does.
            for place, byte in enumerate(expected):
                if data[place : whole * answer_bytes : answer_bytes].count(byte) != whole:
                    raise RuntimeError(f"an add was refused after {answered}: {data[:100].hex(' ')}")
            if len(data) == len(rest):
                raise RuntimeError(f"the bookie closed the connection after {answered}")
            answered += whole
            rest = data[whole * answer_bytes :]


def main() -> int:
    """Prints one result as JSON; the arguments are positional because only `bookie_adds` calls it."""
    host, port, version, entry_bytes, outstanding, seconds = sys.argv[1:]
    wire = WIRES[version](int(time.time() * 1000) % (1 << 30), int(entry_bytes))
    print(json.dumps(add_for(host, int(port), wire, int(outstanding), float(seconds))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
