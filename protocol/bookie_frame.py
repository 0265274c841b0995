"""BookKeeper's v2 wire: requests and responses for add, read, batch read and auth, in both directions.

A frame is an int32 length, which does not count itself, and a packet. A packet is an int32 header (version << 24 |
opcode << 16 | flags) and the fields; all numbers are big-endian. Law, as recorded of BookKeeper 4.17.3:

* the limit on a frame's length counts its 4 length bytes
* version 0, an unknown opcode, or a packet too short for its opcode closes the connection
* a version from 3 on gets the answer "bad version"
* an answer repeats the request's version and has no flags

The bookie reads requests and writes responses; the broker's TCP client does the reverse. Pure: no I/O, no clock.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from protocol.varint import read_varint, varint

Buffer = bytes | memoryview
"""Received bytes."""

VERSION = 2
"""Protocol version of all requests that we send."""
OP_ADD = 1
"""Opcode of an add."""
OP_READ = 2
"""Opcode of a read, also one that fences."""
OP_AUTH = 3
"""Opcode of an authentication message."""
OP_BATCH_READ = 7
"""Opcode of a read of consecutive entries."""

FLAG_FENCE = 0x1
"""On a read: the ledger is fenced first."""
FLAG_RECOVERY_ADD = 0x2
"""On an add: accepted although the ledger is fenced."""
FLAG_HIGH_PRIORITY = 0x4
"""On a request: served before others."""

RC_OK = 0
"""Success."""
RC_NO_LEDGER = 1
"""The bookie does not know the ledger."""
RC_NO_ENTRY = 2
"""The bookie knows the ledger and does not have the entry."""
RC_BAD_REQUEST = 100
"""The request makes no sense."""
RC_IO_ERROR = 101
"""Storage failed."""
RC_UNAUTHORIZED = 102
"""The master key is not that of the ledger."""
RC_BAD_VERSION = 103
"""The bookie does not speak the request's version."""
RC_FENCED = 104
"""The ledger accepts recovery adds alone."""
RC_READ_ONLY = 105
"""The bookie accepts no adds now."""
RC_TOO_MANY_REQUESTS = 106
"""The bookie has too many requests in progress."""
RC_UNKNOWN_LEDGER_STATE = 107
"""The bookie may have lost entries of the ledger, so a missing entry proves nothing. BookKeeper's v2 clients do not know
this code."""

AUTH_DISABLED = "AuthDisabledPlugin"
"""Plugin name in every auth response of a bookie without authentication."""
LAST_ENTRY = -1
"""Entry id of a read of the highest entry."""
MASTER_KEY_BYTES = 20
"""Length of the key that protects a ledger against other writers."""
ENTRY_BYTES_MIN = 24
"""Ledger id, entry id and LAC, with which every entry begins."""
BATCH_OVERHEAD_BYTES = 36
"""Bytes of a batch read response without entries and their sizes; they count towards its size limit."""
BATCH_ENTRY_OVERHEAD_BYTES = 4
"""Size in front of each entry of a batch read response; counts towards its size limit."""

LENGTH = struct.Struct(">i")
"""The length in front of a packet, a record, or an entry of a batch."""
LENGTH_BYTES = LENGTH.size
"""Size of that length."""
HEADER = struct.Struct(">BBH")
"""Version, opcode and flags, with which every packet begins."""
_ENTRY_KEY = struct.Struct(">qq")
_READ = struct.Struct(">BBHqq")
_BATCH_READ = struct.Struct(">BBHqqqiq")
_ANSWER = struct.Struct(">iBBHiqq")
# Length and packet of an add response, and of a read response up to its entry.
_BATCH_ANSWER = struct.Struct(">iBBHiqqq")
_FRAMED_HEADER = struct.Struct(">iBBH")
_FRAMED_READ = struct.Struct(">iBBHqq")
_FRAMED_BATCH_READ = struct.Struct(">iBBHqqqiq")
ADD_PREFIX_BYTES = HEADER.size + MASTER_KEY_BYTES
"""Bytes of an add packet before its entry."""
_ADD_ID_OFFSET = ADD_PREFIX_BYTES


class FrameError(ValueError):
    """The peer breaks the protocol; its connection must be closed."""


class AddRequest(NamedTuple):
    """A request to store one entry."""

    version: int
    """The answer repeats it."""
    flags: int
    """FLAG_RECOVERY_ADD and others."""
    master_key: bytes
    """20 bytes."""
    ledger_id: int
    """Read from the entry."""
    entry_id: int
    """Read from the entry."""
    record: bytes
    """The entry with its int32 length in front. Journal and entry log store this form, so it is copied no more."""


class ShortAddRequest(NamedTuple):
    """An add with an entry below 24 bytes; the answer is "bad request" (100)."""

    version: int
    """The answer repeats it."""
    ledger_id: int
    """Read from the entry."""
    entry_id: int
    """Read from the entry."""


class ReadRequest(NamedTuple):
    """A request for one entry."""

    version: int
    """The answer repeats it."""
    flags: int
    """FLAG_FENCE and others."""
    ledger_id: int
    """Ledger to read."""
    entry_id: int
    """Entry to read, LAST_ENTRY for the highest one."""
    master_key: bytes
    """Empty unless `flags` has FLAG_FENCE."""


class BatchReadRequest(NamedTuple):
    """A request for consecutive entries."""

    version: int
    """The answer repeats it."""
    flags: int
    """FLAG_FENCE and others."""
    ledger_id: int
    """Ledger to read."""
    first: int
    """First entry to read."""
    request_id: int
    """Number that the answer repeats."""
    count_max: int
    """Entries at most; 0 = no limit."""
    bytes_max: int
    """Bytes of the answer at most."""
    master_key: bytes
    """Empty unless `flags` has FLAG_FENCE."""


class AuthRequest(NamedTuple):
    """An authentication message of a client."""

    version: int
    """The answer repeats it."""
    plugin: str
    """Name of the authentication plugin."""
    payload: bytes
    """Bytes for the plugin."""


Request = AddRequest | ShortAddRequest | ReadRequest | BatchReadRequest | AuthRequest
"""Any request."""


class AddResponse(NamedTuple):
    """The answer to an add."""

    rc: int
    """Result, one of RC_…"""
    ledger_id: int
    """That of the request."""
    entry_id: int
    """That of the request."""


class ReadResponse(NamedTuple):
    """The answer to a read."""

    rc: int
    """Result, one of RC_…"""
    ledger_id: int
    """That of the request."""
    entry_id: int
    """That of the request, so LAST_ENTRY for a read of the highest one."""
    entry: bytes
    """Bytes of the entry, b"" on failure."""


class BatchReadResponse(NamedTuple):
    """The answer to a batch read."""

    rc: int
    """Result, one of RC_…"""
    ledger_id: int
    """That of the request."""
    first: int
    """That of the request."""
    request_id: int
    """That of the request."""
    entries: list[bytes]
    """Consecutive entries from `first` on."""


class AuthResponse(NamedTuple):
    """An authentication message of a bookie."""

    plugin: str
    """Name of the authentication plugin."""
    payload: bytes
    """Bytes for the client's plugin."""


Response = AddResponse | ReadResponse | BatchReadResponse | AuthResponse
"""Any response."""


# Requests, as a client writes them. All with their length.


def add_request_prefix(entry_bytes: int, master_key: bytes, flags: int = 0) -> bytes:
    """Returns the bytes of an add frame before those of the entry."""
    return _FRAMED_HEADER.pack(ADD_PREFIX_BYTES + entry_bytes, VERSION, OP_ADD, flags) + master_key


def encode_add_request(entry: bytes, master_key: bytes, flags: int = 0) -> bytes:
    """Returns a whole add frame. The broker sends prefix and entry without joining them, to spare the copy."""
    return add_request_prefix(len(entry), master_key, flags) + entry


def encode_read_request(ledger_id: int, entry_id: int) -> bytes:
    """Returns the frame of a read of one entry."""
    return _FRAMED_READ.pack(_READ.size, VERSION, OP_READ, 0, ledger_id, entry_id)


def encode_fence_request(
    ledger_id: int, master_key: bytes, entry_id: int = LAST_ENTRY, flags: int = FLAG_FENCE
) -> bytes:
    """Returns a read request that fences the ledger first."""
    length = _READ.size + MASTER_KEY_BYTES
    return _FRAMED_READ.pack(length, VERSION, OP_READ, flags, ledger_id, entry_id) + master_key


def encode_batch_read_request(
    ledger_id: int, first: int, request_id: int, count_max: int, bytes_max: int
) -> bytes:
    """Returns the frame of a batch read from `first` on. The limits hold for its answer."""
    return _FRAMED_BATCH_READ.pack(
        _BATCH_READ.size, VERSION, OP_BATCH_READ, 0, ledger_id, first, request_id, count_max, bytes_max
    )


def encode_auth_request(plugin: str, payload: bytes) -> bytes:
    """Returns the first frame of a client that authenticates. The broker sends none; a bookie has to read it."""
    return _auth_frame(VERSION, plugin, payload)


# Requests, as a bookie reads them.


def decode_request(packet: Buffer) -> Request:
    """Reads a request packet, its length left out. FrameError when the connection has to be closed.

    Bytes after a read and unknown flag bits are ignored. The caller checks the version.
    """
    if len(packet) < HEADER.size:
        raise FrameError(f"packet of {len(packet)} bytes; a header alone has {HEADER.size}")
    version, opcode, flags = HEADER.unpack_from(packet)
    if version == 0:
        raise FrameError("packet version 0")
    decode = _DECODERS.get(opcode)
    if decode is None:
        raise FrameError(f"opcode {opcode} (packet version {version})")
    return decode(packet, version, flags)


def _decode_add(packet: Buffer, version: int, flags: int) -> AddRequest | ShortAddRequest:
    entry_bytes = len(packet) - ADD_PREFIX_BYTES
    # Without its ids an add cannot even be refused; with them it is answered "bad request".
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
    """Returns the frame of the answer to an add."""
    return _ANSWER.pack(24, version, OP_ADD, 0, rc, ledger_id, entry_id)


def encode_read_response(version: int, rc: int, ledger_id: int, entry_id: int, entry: Buffer = b"") -> bytes:
    """Returns the frame of the answer to a read; `entry` is b"" on failure."""
    head = _ANSWER.pack(24 + len(entry), version, OP_READ, 0, rc, ledger_id, entry_id)
    return b"".join((head, entry)) if entry else head


def encode_batch_read_response(
    version: int, rc: int, ledger_id: int, first: int, request_id: int, entries: Sequence[Buffer] = ()
) -> bytes:
    """Returns the frame of the answer to a batch read."""
    length = BATCH_OVERHEAD_BYTES - LENGTH_BYTES + sum(map(len, entries)) + LENGTH_BYTES * len(entries)
    parts: list[Buffer] = [
        _BATCH_ANSWER.pack(length, version, OP_BATCH_READ, 0, rc, ledger_id, first, request_id)
    ]
    for entry in entries:
        parts += (LENGTH.pack(len(entry)), entry)
    return b"".join(parts)


def encode_auth_response(version: int, plugin: str, payload: bytes) -> bytes:
    """Returns the frame of a bookie's authentication message."""
    return _auth_frame(version, plugin, payload)


# Responses, as a client reads them.


def decode_response(packet: Buffer) -> Response:
    """Reads a response packet, its length left out. FrameError for anything but an answer to our requests."""
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
    # Copied as a whole: slices of bytes cost half as much as slices of a view that are copied one by one.
    data = bytes(packet)
    offset, end, length_at = BATCH_OVERHEAD_BYTES - LENGTH_BYTES, len(data), LENGTH.unpack_from
    while offset < end:
        (size,) = length_at(data, offset)
        start = offset + LENGTH_BYTES
        offset = start + size
        if size < 0 or offset > end:
            # A size from the wire: unchecked, the slice would be short and look like a damaged entry.
            raise FrameError(f"batch read response with an entry of {size} bytes")
        entries.append(data[start:offset])
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
    # The name is only compared and logged, so bytes that are not UTF-8 need no refusal.
    return fields[1].decode(errors="replace"), fields[2]


def _read_number(packet: Buffer, offset: int) -> tuple[int, int]:
    try:
        return read_varint(packet, offset)
    except (IndexError, ValueError):
        raise FrameError("auth message with a cut varint") from None
