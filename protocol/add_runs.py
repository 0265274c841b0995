"""Runs of v2 adds: what a writer sends in one go, cut out of the received bytes together.

A writer's adds to a ledger differ in entry id and payload only, so hundreds of them lie behind one another with equal
headers. Frames of equal length are taken apart many at a time, with calls that C runs through. Whatever is unusual (a
recovery add, another version, an entry that is too short, an id of 2**56 or more, a negative one) is no part of a run and
takes the way of a single request, which also finds the errors. Pure: no I/O, no clock.
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
    HEADER,
    LENGTH,
    LENGTH_BYTES,
    OP_ADD,
    VERSION,
    encode_add_response,
)

Received = bytes | bytearray

PLAIN_ADD: Final = HEADER.pack(VERSION, OP_ADD, 0)
"""The header of an add that may be part of a run."""
_ENTRY_AT: Final = LENGTH_BYTES + ADD_PREFIX_BYTES
_ID_AT: Final = _ENTRY_AT + 8
_HEAD_BYTES: Final = _ID_AT + 1
"""What the frames of a piece have in common: up to the first byte of the entry id, which is 0."""
ID_BYTES: Final = 8
_LENGTH_MIN: Final = ADD_PREFIX_BYTES + ENTRY_BYTES_MIN
_FEW: Final = 16
"""Up to here ids are taken one by one."""
PIECE_MAX: Final = 4096
_BLOCK: Final = 64
"""Frames that are taken apart with one call."""
_LARGE: Final = 2048
"""From this length on an entry is not copied twice."""
_STEPS: Final = pack(f">{PIECE_MAX}q", *range(PIECE_MAX))
_ONES: Final = pack(">q", 1) * PIECE_MAX


class AddRun(NamedTuple):
    ledger_id: int
    master_key: bytes
    entry_ids: Sequence[int]
    """0 to 2**56 - 1, in the order received; a range when each is the one before plus one."""
    ids: bytes
    """The same, eight bytes each, which the answers are made of."""
    records: bytes
    """The entries, each with its int32 length in front, one behind the other."""
    starts: Sequence[int]
    """Where each of them begins; a range when all are equally long."""
    end: int
    """Where the next frame begins."""


def cut_add_run(data: Received, start: int, stop: int, length_max: int) -> AddRun | None:
    """The adds at `start` that are complete before `stop` and belong together; None when there is not even one.

    A frame with more than `length_max` bytes behind its length ends the run.
    """
    common = bytes(data[start + LENGTH_BYTES : start + _HEAD_BYTES])
    if common[: HEADER.size] != PLAIN_ADD or common[-1]:
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
            # Nothing to be taken apart at once: the calls for many would cost many times as much.
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
    ledger_id = int.from_bytes(common[-9:-1], "big", signed=True)
    return _joined(ledger_id, common[HEADER.size : ADD_PREFIX_BYTES], pieces, at)


def _joined(ledger_id: int, master_key: bytes, pieces: list[tuple[bytes, bytes, int]], end: int) -> AddRun:
    ids, records, count = pieces[0]
    starts: Sequence[int] = range(0, len(records), len(records) // count)
    if len(pieces) > 1:
        ids = b"".join([piece[0] for piece in pieces])
        lengths = [len(piece) // count for _, piece, count in pieces for _ in range(count)]
        starts = (0, *accumulate(lengths[:-1]))
        records = b"".join([piece[1] for piece in pieces])
    return AddRun(ledger_id, master_key, numbers_of(ids), ids, records, starts, end)


def numbers_of(ids: bytes) -> Sequence[int]:
    """Of eight bytes each; a range when each is the one before plus one."""
    count = len(ids) // ID_BYTES
    first = int.from_bytes(ids[:ID_BYTES], "big")
    if count <= PIECE_MAX:
        steps, ones = _ladder(count)
        if int.from_bytes(ids, "big") == steps + first * ones:
            return range(first, first + count)
    return unpack(f">{count}q", ids)


@lru_cache(16)
def _ladder(count: int) -> tuple[int, int]:
    """0, 1, 2, ... and 1, 1, 1, ... as the digits of one large number each: so consecutive ids are one sum."""
    ids_bytes = ID_BYTES * count
    return int.from_bytes(_STEPS[:ids_bytes], "big"), int.from_bytes(_ONES[:ids_bytes], "big")


def _equal_frames(data: Received, start: int, stop: int, stride: int) -> int:
    """How many frames from `start` on begin as the first one does; `stride` is their length."""
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
    """The ids of `count` frames of `stride` bytes each, the first of them at `at`. Below 2**56."""
    end = at + count * stride
    if count <= _FEW:
        return b"".join([data[place : place + ID_BYTES] for place in range(at, end, stride)])
    ids = bytearray(ID_BYTES * count)
    for byte in range(1, ID_BYTES):  # the first one is 0
        ids[byte::ID_BYTES] = data[at + byte : end : stride][:count]
    return bytes(ids)


def cut_records(data: Received, start: int, count: int, stride: int, entry_at: int) -> bytes:
    """Of `count` frames of `stride` bytes each from `start` on, whose entries begin at `entry_at` and end with them."""
    entry_bytes = stride - entry_at
    length = LENGTH.pack(entry_bytes)
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
    """The answers to a run, all with the same result, one frame behind the other; `ids` has eight bytes for each."""
    common = encode_add_response(VERSION, rc, ledger_id, 0)[:-ID_BYTES]
    count = len(ids) // ID_BYTES
    if count <= _FEW:
        return b"".join([common + ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES)])
    answer_bytes = len(common) + ID_BYTES
    answers = bytearray((common + bytes(ID_BYTES)) * count)
    for byte in range(1, ID_BYTES):
        answers[len(common) + byte :: answer_bytes] = ids[byte::ID_BYTES]
    return bytes(answers)
