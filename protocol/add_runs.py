"""Cuts runs of v2 adds out of received bytes: adds of one writer to one ledger, many at a time.

Such adds differ in entry id and payload only, and hundreds of them arrive together with equal headers. Frames of equal
length are taken apart with few calls that loop in C: `struct` over 64 frames, slices with a stride, `bytes.join`.

Law: all adds of a run have the same flags, which are none or those of a recovery. Another version, another flag, an entry
that is too short, and an entry id that is negative or not below 2**56 end the run. `bookie_frame.decode_request` reads
those one by one and finds their errors, so the rules about errors are written once. Pure: no I/O, no clock.

    bookie connection -> cut_add_run -> journal and write cache -> encode_add_answers
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct, pack, unpack
from typing import Final, NamedTuple

from protocol.bookie_frame import (
    ADD_PREFIX_BYTES,
    ENTRY_BYTES_MIN,
    FLAG_HIGH_PRIORITY,
    FLAG_RECOVERY_ADD,
    HEADER,
    LENGTH,
    LENGTH_BYTES,
    OP_ADD,
    VERSION,
    encode_add_response,
)

Received = bytes | bytearray
"""Bytes of a connection."""

PLAIN_ADD: Final = HEADER.pack(VERSION, OP_ADD, 0)
"""Header of an add of a ledger's writer: version 2, no flags."""
RUN_HEADERS: Final = (
    PLAIN_ADD,
    HEADER.pack(VERSION, OP_ADD, FLAG_RECOVERY_ADD),
    HEADER.pack(VERSION, OP_ADD, FLAG_RECOVERY_ADD | FLAG_HIGH_PRIORITY),
)
"""Headers of the adds that can be in a run. Apache's re-replication sends the second one, ours the third."""
_ENTRY_AT: Final = LENGTH_BYTES + ADD_PREFIX_BYTES
_ID_AT: Final = _ENTRY_AT + 8
# Frames of a piece are equal up to the first byte of the entry id, which is 0 below 2**56.
_HEAD_BYTES: Final = _ID_AT + 1
ID_BYTES: Final = 8
"""Bytes of an entry id."""
_LENGTH_MIN: Final = ADD_PREFIX_BYTES + ENTRY_BYTES_MIN
# Up to this number, ids are cut one by one: the seven strided slices below cost more.
_FEW: Final = 16
PIECE_MAX: Final = 4096
"""Frames of equal length that are cut in one piece at most."""
# Frames that one call of a `struct` takes apart.
_BLOCK: Final = 64
# From this length on an entry is joined from a view: `struct` would copy it once more.
_LARGE: Final = 2048
_STEPS: Final = pack(f">{PIECE_MAX}q", *range(PIECE_MAX))
_ONES: Final = pack(">q", 1) * PIECE_MAX


class AddRun(NamedTuple):
    """Adds of one ledger that came together, with one master key."""

    flags: int
    """Flags of all adds: 0, or FLAG_RECOVERY_ADD with or without FLAG_HIGH_PRIORITY."""
    ledger_id: int
    """Ledger of all adds."""
    master_key: bytes
    """Key of all adds."""
    entry_ids: Sequence[int]
    """0 to 2**56 - 1, in the order received; a `range` when they are consecutive."""
    ids: bytes
    """The same, eight bytes each; `encode_add_answers` needs them in this form."""
    records: bytes
    """The entries in one piece, each with its int32 length in front."""
    starts: Sequence[int]
    """Offset of each entry's length in `records`; a `range` when all entries are equally long."""
    end: int
    """Offset of the next frame in the received bytes."""


def cut_add_run(data: Received, start: int, stop: int, length_max: int) -> AddRun | None:
    """Cuts the run of complete adds at `start`; returns None when the first frame is not in a run.

    `stop` is the end offset of what is received. A frame with more than `length_max` bytes after its length ends
    the run.
    """
    common = bytes(data[start + LENGTH_BYTES : start + _HEAD_BYTES])
    if not common.startswith(RUN_HEADERS) or common[-1]:
        return None
    pieces: list[tuple[bytes, bytes, int]] = []
    at, last = start, stop - _HEAD_BYTES
    while at <= last and data.startswith(common, at + LENGTH_BYTES):
        length: int = LENGTH.unpack_from(data, at)[0]
        stride = LENGTH_BYTES + length
        if length < _LENGTH_MIN or length > length_max or at + stride > stop:
            break
        following = at + stride
        if length < _LARGE and not data.startswith(data[at : at + _HEAD_BYTES], following):
            # A piece of one frame: the calls for many frames would cost many times as much.
            record = LENGTH.pack(length - ADD_PREFIX_BYTES) + data[at + _ENTRY_AT : following]
            pieces.append((bytes(data[at + _ID_AT : at + _ID_AT + ID_BYTES]), record, 1))
            at = following
            continue
        count = _equal_frames(data, at, stop, stride)
        pieces.append(
            (
                cut_ids(data, at + _ID_AT, count, stride),
                cut_records(data, at, count, stride, _ENTRY_AT),
                count,
            )
        )
        at += count * stride
    if not pieces:
        return None
    return _joined(common, pieces, at)


def _joined(common: bytes, pieces: list[tuple[bytes, bytes, int]], end: int) -> AddRun:
    _, _, flags = HEADER.unpack_from(common)
    master_key = common[HEADER.size : ADD_PREFIX_BYTES]
    ledger_id = int.from_bytes(common[-9:-1], "big", signed=True)
    ids, records, count = pieces[0]
    starts: Sequence[int] = range(0, len(records), len(records) // count)
    if len(pieces) > 1:
        ids = b"".join([piece[0] for piece in pieces])
        lengths = [len(piece) // count for _, piece, count in pieces for _ in range(count)]
        starts = (0, *accumulate(lengths[:-1]))
        records = b"".join([piece[1] for piece in pieces])
    return AddRun(flags, ledger_id, master_key, numbers_of(ids), ids, records, starts, end)


def numbers_of(ids: bytes) -> Sequence[int]:
    """Returns ids of eight bytes each as numbers; a `range` when they are consecutive."""
    count = len(ids) // ID_BYTES
    first = int.from_bytes(ids[:ID_BYTES], "big")
    if count <= PIECE_MAX:
        steps, ones = _ladder(count)
        if int.from_bytes(ids, "big") == steps + first * ones:
            return range(first, first + count)
    return unpack(f">{count}q", ids)


@lru_cache(16)
def _ladder(count: int) -> tuple[int, int]:
    """Returns the numbers that consecutive ids are made of.

    Their digits of eight bytes are 0, 1, 2, … and 1, 1, 1, … Ids are consecutive when all of them, read as one large
    number, equal the former plus the first id times the latter: one comparison in C for up to 4,096 ids.
    """
    ids_bytes = ID_BYTES * count
    return int.from_bytes(_STEPS[:ids_bytes], "big"), int.from_bytes(_ONES[:ids_bytes], "big")


def _equal_frames(data: Received, start: int, stop: int, stride: int) -> int:
    """Counts the frames that begin as the first one does; `stride` is their length."""
    head = bytes(data[start : start + _HEAD_BYTES])
    count, left = 1, min((stop - start) // stride, PIECE_MAX)
    if left >= _BLOCK and data.startswith(head, start + stride):
        count, unpack_block = 0, _heads(stride).unpack_from
        while left - count >= _BLOCK and unpack_block(data, start + count * stride).count(head) == _BLOCK:
            count += _BLOCK
    while count < left and data.startswith(head, start + count * stride):
        count += 1
    return count


def cut_ids(data: Received, at: int, count: int, stride: int) -> bytes:
    """Cuts the ids out of `count` equal frames; all are below 2**56.

    The first id is at `at`, each next one `stride` bytes later.
    """
    end = at + count * stride
    if count <= _FEW:
        return b"".join([data[place : place + ID_BYTES] for place in range(at, end, stride)])
    ids = bytearray(ID_BYTES * count)
    # One slice per byte of the ids instead of one per id; the first byte is 0.
    for byte in range(1, ID_BYTES):
        ids[byte::ID_BYTES] = data[at + byte : end : stride][:count]
    return bytes(ids)


def cut_records(data: Received, start: int, count: int, stride: int, entry_at: int) -> bytes:
    """Cuts the entries out of equal frames, a length before each.

    Frames have `stride` bytes; an entry begins `entry_at` bytes after the start of its frame and ends with it.
    """
    entry_bytes = stride - entry_at
    length = LENGTH.pack(entry_bytes)
    # `join` puts the length between two entries, so an empty one in front puts it before the first.
    entries: list[bytes | memoryview] = [b""]
    if entry_bytes < _LARGE and count >= _BLOCK:
        unpack_block = _entries(entry_at, entry_bytes).unpack_from
        blocks = count // _BLOCK
        for _ in range(blocks):
            entries += unpack_block(data, start)
            start += _BLOCK * stride
        count -= _BLOCK * blocks
    view = memoryview(data)
    for place in range(start + entry_at, start + count * stride, stride):
        entries.append(view[place : place + entry_bytes])
    return length.join(entries)


@lru_cache(32)
def _entries(entry_at: int, entry_bytes: int) -> Struct:
    return Struct(f"{entry_at}x{entry_bytes}s" * _BLOCK)


@lru_cache(32)
def _heads(stride: int) -> Struct:
    return Struct(f"{_HEAD_BYTES}s{stride - _HEAD_BYTES}x" * _BLOCK)


def encode_add_answers(rc: int, ledger_id: int, ids: bytes) -> bytes:
    """Returns the answers to a run, all with the same result; `ids` has eight bytes per add."""
    common = encode_add_response(VERSION, rc, ledger_id, 0)[:-ID_BYTES]
    count = len(ids) // ID_BYTES
    if count <= _FEW:
        return b"".join([common + ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES)])
    answer_bytes = len(common) + ID_BYTES
    answers = bytearray((common + bytes(ID_BYTES)) * count)
    for byte in range(1, ID_BYTES):
        answers[len(common) + byte :: answer_bytes] = ids[byte::ID_BYTES]
    return bytes(answers)
