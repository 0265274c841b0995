"""BookKeeper's v2 wire: add, read, batch read and auth, requests and responses, both directions.

A frame is an int32 length (not counting itself) and a packet: int32 header = version << 24 | opcode << 16 |
flags, then the fields, big-endian. Laws of the place, as recorded from BookKeeper 4.17.3: the length limit
counts the 4 length bytes; version 0, an unknown opcode or a packet too short for its opcode closes the
connection; versions from 3 are answered "bad version"; an answer repeats the request's version, flags 0.
Pure: no I/O, no clock.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from protocol.varint import read_varint, varint

Buffer = bytes | memoryview

VERSION = 2
OP_ADD = 1
OP_READ = 2
OP_AUTH = 3
OP_BATCH_READ = 7

FLAG_FENCE = 0x1
FLAG_RECOVERY_ADD = 0x2
FLAG_HIGH_PRIORITY = 0x4

RC_OK = 0
RC_NO_LEDGER = 1
RC_NO_ENTRY = 2
RC_BAD_REQUEST = 100
RC_IO_ERROR = 101
RC_UNAUTHORIZED = 102
RC_BAD_VERSION = 103
RC_FENCED = 104
RC_READ_ONLY = 105
RC_TOO_MANY_REQUESTS = 106
RC_UNKNOWN_LEDGER_STATE = 107
"""The bookie may have lost entries of the ledger: its "no" proves nothing. BookKeeper's v2 clients do not know it."""

AUTH_DISABLED = "AuthDisabledPlugin"
"""What a bookie without authentication calls itself, whoever asks."""
LAST_ENTRY = -1
"""Entry id of a read that asks for the highest entry."""
MASTER_KEY_BYTES = 20
ENTRY_BYTES_MIN = 24
BATCH_OVERHEAD_BYTES = 36
"""Of a batch read response: everything but the entries and their 4-byte sizes; counts against its size limit."""
BATCH_ENTRY_OVERHEAD_BYTES = 4

LENGTH = struct.Struct(">i")
LENGTH_BYTES = LENGTH.size
HEADER = struct.Struct(">BBH")
_ENTRY_KEY = struct.Struct(">qq")
_READ = struct.Struct(">BBHqq")
_BATCH_READ = struct.Struct(">BBHqqqiq")
_ANSWER = struct.Struct(">iBBHiqq")
"""Length and packet of an add response, and of a read response up to its entry."""
_BATCH_ANSWER = struct.Struct(">iBBHiqqq")
_FRAMED_HEADER = struct.Struct(">iBBH")
_FRAMED_READ = struct.Struct(">iBBHqq")
_FRAMED_BATCH_READ = struct.Struct(">iBBHqqqiq")
ADD_PREFIX_BYTES = HEADER.size + MASTER_KEY_BYTES
"""Of an add packet: what stands before the entry."""
_ADD_ID_OFFSET = ADD_PREFIX_BYTES


class FrameError(ValueError):
    """The peer does not speak this language: the connection is to be closed."""


class AddRequest(NamedTuple):
    version: int
    flags: int
    master_key: bytes
    ledger_id: int
    entry_id: int
    record: bytes
    """The entry with its int32 length in front, as journal and entry log store it."""


class ShortAddRequest(NamedTuple):
    """An add whose entry has no room for ledger, entry and LAC: answered "bad request" (100)."""

    version: int
    ledger_id: int
    entry_id: int


class ReadRequest(NamedTuple):
    version: int
    flags: int
    ledger_id: int
    entry_id: int
    master_key: bytes
    """Empty unless FLAG_FENCE is set."""


class BatchReadRequest(NamedTuple):
    version: int
    flags: int
    ledger_id: int
    first: int
    request_id: int
    count_max: int
    bytes_max: int
    master_key: bytes


class AuthRequest(NamedTuple):
    version: int
    plugin: str
    payload: bytes


Request = AddRequest | ShortAddRequest | ReadRequest | BatchReadRequest | AuthRequest


class AddResponse(NamedTuple):
    rc: int
    ledger_id: int
    entry_id: int


class ReadResponse(NamedTuple):
    rc: int
    ledger_id: int
    entry_id: int
    """As requested, so -1 for the last entry."""
    entry: bytes


class BatchReadResponse(NamedTuple):
    rc: int
    ledger_id: int
    first: int
    request_id: int
    entries: list[bytes]


class AuthResponse(NamedTuple):
    plugin: str
    payload: bytes


Response = AddResponse | ReadResponse | BatchReadResponse | AuthResponse


# Requests, as a client writes them. All with their length.


def add_request_prefix(entry_bytes: int, master_key: bytes, flags: int = 0) -> bytes:
    """What stands before the entry's bytes in an add frame."""
    return _FRAMED_HEADER.pack(ADD_PREFIX_BYTES + entry_bytes, VERSION, OP_ADD, flags) + master_key


def encode_add_request(entry: bytes, master_key: bytes, flags: int = 0) -> bytes:
    """The whole frame in one piece. The broker sends prefix and entry without joining them."""
    return add_request_prefix(len(entry), master_key, flags) + entry


def encode_read_request(ledger_id: int, entry_id: int) -> bytes:
    return _FRAMED_READ.pack(_READ.size, VERSION, OP_READ, 0, ledger_id, entry_id)


def encode_fence_request(
    ledger_id: int, master_key: bytes, entry_id: int = LAST_ENTRY, flags: int = FLAG_FENCE
) -> bytes:
    """A read that fences the ledger first."""
    length = _READ.size + MASTER_KEY_BYTES
    return _FRAMED_READ.pack(length, VERSION, OP_READ, flags, ledger_id, entry_id) + master_key


def encode_batch_read_request(
    ledger_id: int, first: int, request_id: int, count_max: int, bytes_max: int
) -> bytes:
    return _FRAMED_BATCH_READ.pack(
        _BATCH_READ.size, VERSION, OP_BATCH_READ, 0, ledger_id, first, request_id, count_max, bytes_max
    )


def encode_auth_request(plugin: str, payload: bytes) -> bytes:
    """What a client that authenticates sends first. The broker does not; a bookie has to read it all the same."""
    return _auth_frame(VERSION, plugin, payload)


# Requests, as a bookie reads them.


def decode_request(packet: Buffer) -> Request:
    """A packet without its length. FrameError when the connection has to be closed.

    Trailing bytes behind a read and unknown flag bits are ignored; versions are for the caller to judge.
    """
    if len(packet) < HEADER.size:
        raise FrameError(f"packet of {len(packet)} bytes")
    version, opcode, flags = HEADER.unpack_from(packet)
    if version == 0:
        raise FrameError("packet version 0")
    decode = _DECODERS.get(opcode)
    if decode is None:
        raise FrameError(f"opcode {opcode} (packet version {version})")
    return decode(packet, version, flags)


def _decode_add(packet: Buffer, version: int, flags: int) -> AddRequest | ShortAddRequest:
    entry_bytes = len(packet) - ADD_PREFIX_BYTES
    if entry_bytes < _ENTRY_KEY.size:
        raise FrameError(f"add of {entry_bytes} bytes")
    ledger_id, entry_id = _ENTRY_KEY.unpack_from(packet, _ADD_ID_OFFSET)
    if entry_bytes < ENTRY_BYTES_MIN:
        return ShortAddRequest(version, ledger_id, entry_id)
    master_key = bytes(packet[HEADER.size : ADD_PREFIX_BYTES])
    record = b"".join((LENGTH.pack(entry_bytes), packet[ADD_PREFIX_BYTES:]))
    return AddRequest(version, flags, master_key, ledger_id, entry_id, record)


def _decode_read(packet: Buffer, version: int, flags: int) -> ReadRequest:
    if len(packet) < _READ.size:
        raise FrameError(f"read of {len(packet)} bytes")
    _, _, _, ledger_id, entry_id = _READ.unpack_from(packet)
    return ReadRequest(version, flags, ledger_id, entry_id, _fence_key(packet, flags, _READ.size))


def _decode_batch_read(packet: Buffer, version: int, flags: int) -> BatchReadRequest:
    if len(packet) < _BATCH_READ.size:
        raise FrameError(f"batch read of {len(packet)} bytes")
    _, _, _, ledger_id, first, request_id, count_max, bytes_max = _BATCH_READ.unpack_from(packet)
    key = _fence_key(packet, flags, _BATCH_READ.size)
    return BatchReadRequest(version, flags, ledger_id, first, request_id, count_max, bytes_max, key)


def _fence_key(packet: Buffer, flags: int, offset: int) -> bytes:
    if not flags & FLAG_FENCE:
        return b""
    key = bytes(packet[offset : offset + MASTER_KEY_BYTES])
    if len(key) < MASTER_KEY_BYTES:
        raise FrameError("fencing read without its master key")
    return key


def _decode_auth(packet: Buffer, version: int, _flags: int) -> AuthRequest:
    plugin, payload = _decode_auth_message(packet)
    return AuthRequest(version, plugin, payload)


_DECODERS = {
    OP_ADD: _decode_add,
    OP_READ: _decode_read,
    OP_AUTH: _decode_auth,
    OP_BATCH_READ: _decode_batch_read,
}


# Responses, as a bookie writes them. All with their length.


def encode_add_response(version: int, rc: int, ledger_id: int, entry_id: int) -> bytes:
    return _ANSWER.pack(24, version, OP_ADD, 0, rc, ledger_id, entry_id)


def encode_read_response(version: int, rc: int, ledger_id: int, entry_id: int, entry: Buffer = b"") -> bytes:
    head = _ANSWER.pack(24 + len(entry), version, OP_READ, 0, rc, ledger_id, entry_id)
    return b"".join((head, entry)) if entry else head


def encode_batch_read_response(
    version: int, rc: int, ledger_id: int, first: int, request_id: int, entries: Sequence[Buffer] = ()
) -> bytes:
    length = BATCH_OVERHEAD_BYTES - LENGTH_BYTES + sum(map(len, entries)) + LENGTH_BYTES * len(entries)
    parts: list[Buffer] = [
        _BATCH_ANSWER.pack(length, version, OP_BATCH_READ, 0, rc, ledger_id, first, request_id)
    ]
    for entry in entries:
        parts += (LENGTH.pack(len(entry)), entry)
    return b"".join(parts)


def encode_auth_response(version: int, plugin: str, payload: bytes) -> bytes:
    return _auth_frame(version, plugin, payload)


# Responses, as a client reads them.


def decode_response(packet: Buffer) -> Response:
    """A packet without its length. FrameError when it is none of the answers to our requests."""
    try:
        _, opcode, _ = HEADER.unpack_from(packet)
        if opcode == OP_AUTH:
            return AuthResponse(*_decode_auth_message(packet))
        rc, ledger_id, entry_id = _ANSWER_FIELDS.unpack_from(packet, HEADER.size)
        if opcode == OP_ADD:
            return AddResponse(rc, ledger_id, entry_id)
        if opcode == OP_READ:
            return ReadResponse(rc, ledger_id, entry_id, bytes(packet[24:]))
        if opcode == OP_BATCH_READ:
            (request_id,) = _REQUEST_ID.unpack_from(packet, 24)
            return BatchReadResponse(rc, ledger_id, entry_id, request_id, _entries(packet))
    except struct.error as error:
        raise FrameError(f"response of {len(packet)} bytes: {error}") from None
    raise FrameError(f"response with opcode {opcode}")


_ANSWER_FIELDS = struct.Struct(">iqq")
_REQUEST_ID = struct.Struct(">q")


def _entries(packet: Buffer) -> list[bytes]:
    entries = []
    offset = BATCH_OVERHEAD_BYTES - LENGTH_BYTES
    while offset < len(packet):
        (size,) = LENGTH.unpack_from(packet, offset)
        offset += LENGTH_BYTES
        if size < 0 or offset + size > len(packet):
            raise FrameError(f"batch read response with an entry of {size} bytes")
        entries.append(bytes(packet[offset : offset + size]))
        offset += size
    return entries


# AuthMessage: two protobuf fields, 1 = plugin name, 2 = payload. Both are required.


def _auth_frame(version: int, plugin: str, payload: bytes) -> bytes:
    name = plugin.encode()
    body = b"\x0a" + varint(len(name)) + name + b"\x12" + varint(len(payload)) + payload
    return _FRAMED_HEADER.pack(HEADER.size + len(body), version, OP_AUTH, 0) + body


def _decode_auth_message(packet: Buffer) -> tuple[str, bytes]:
    fields: dict[int, bytes] = {}
    offset = HEADER.size
    while offset < len(packet):
        tag, offset = _read_number(packet, offset)
        if tag & 7 != 2:
            raise FrameError(f"auth message with field tag {tag}")
        size, offset = _read_number(packet, offset)
        if offset + size > len(packet):
            raise FrameError("auth message cut short")
        fields[tag >> 3] = bytes(packet[offset : offset + size])
        offset += size
    if 1 not in fields or 2 not in fields:
        raise FrameError("auth message without plugin name or payload")
    return fields[1].decode(errors="replace"), fields[2]


def _read_number(packet: Buffer, offset: int) -> tuple[int, int]:
    try:
        return read_varint(packet, offset)
    except (IndexError, ValueError):
        raise FrameError("auth message with a cut varint") from None
