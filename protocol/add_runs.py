"""Runs of v2 adds: what a writer sends in one go, cut out of the received bytes together.

A writer's adds to a ledger differ in entry id and payload only, so hundreds of them lie behind one another with equal
headers. A run is decoded with a few calls for all of it; frames of equal length cost least. Whatever is unusual (a
recovery add, another version, an entry that is too short, an id of 2**56 or more, a negative one) is no part of a run
and takes the way of a single request, which also finds the errors. Pure: no I/O, no clock.
"""

from __future__ import annotations

from struct import Struct, iter_unpack, unpack
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

PLAIN_ADD: Final = HEADER.pack(VERSION, OP_ADD, 0)
"""The header of an add that may be part of a run."""
_HEAD_BYTES: Final = LENGTH_BYTES + ADD_PREFIX_BYTES + 8 + 1
"""What the frames of a run have in common, besides equal lengths: up to the first byte of the entry id, which is 0."""
_TAIL_BYTES: Final = 7
"""The rest of the entry id."""
_ENTRY_AT: Final = LENGTH_BYTES + ADD_PREFIX_BYTES
_FRAME_ID: Final = Struct(f">i{_HEAD_BYTES - LENGTH_BYTES}s{_TAIL_BYTES}s")
_LENGTH_MIN: Final = ADD_PREFIX_BYTES + ENTRY_BYTES_MIN
_FIRST_LOOK: Final = 8
"""Frames that are compared at first; four times as many each time that all were equal."""
_LARGE: Final = 4096
"""From this length on an entry is not copied twice."""


class AddRun(NamedTuple):
    ledger_id: int
    master_key: bytes
    entry_ids: tuple[int, ...]
    """0 to 2**56 - 1, in the order received; not necessarily ascending."""
    tails: list[bytes]
    """Their low seven bytes, which the answers are made of."""
    records: list[bytes]
    """The entries, each with its int32 length in front."""
    size: int
    """Bytes of all records."""
    end: int
    """Where the next frame begins."""


def cut_add_run(data: bytes, start: int, length_max: int) -> AddRun | None:
    """The adds at `start` that are complete and belong together; None when there is not even one.

    A frame with more than `length_max` bytes behind its length ends the run.
    """
    common = data[start + LENGTH_BYTES : start + _HEAD_BYTES]
    if common[: HEADER.size] != PLAIN_ADD or common[-1]:
        return None
    tails: list[bytes] = []
    records: list[bytes] = []
    at, last, previous = start, len(data) - _FRAME_ID.size, 0
    while at <= last:
        length, found, tail = _FRAME_ID.unpack_from(data, at)
        end = at + LENGTH_BYTES + length
        if found != common or length < _LENGTH_MIN or end > len(data) or length > length_max:
            break
        if length == previous or length >= _LARGE:
            equal = _equal_frames(data, at, end - at)
            end = at + (end - at) * len(equal)
            tails += equal
            records += _equal_records(data, at, end, LENGTH_BYTES + length)
        else:
            tails.append(tail)
            records.append(LENGTH.pack(length - ADD_PREFIX_BYTES) + data[at + _ENTRY_AT : end])
        at, previous = end, length
    if not tails:
        return None
    ids = unpack(f">{len(tails)}q", b"\0" + b"\0".join(tails))
    ledger_id = int.from_bytes(common[-9:-1], "big", signed=True)
    size = at - start - ADD_PREFIX_BYTES * len(tails)
    return AddRun(ledger_id, common[HEADER.size : ADD_PREFIX_BYTES], ids, tails, records, size, at)


def _equal_frames(data: bytes, start: int, stride: int) -> list[bytes]:
    """The tails of the frames from `start` on that begin as the first one does; `stride` is their length."""
    tails: list[bytes] = []
    head = data[start : start + _HEAD_BYTES]
    layout = f"{_HEAD_BYTES}s{_TAIL_BYTES}s{stride - _FRAME_ID.size}x"
    view = memoryview(data)
    look, left = _FIRST_LOOK, (len(data) - start) // stride
    while left:
        look = min(look, left)
        heads, found = zip(*iter_unpack(layout, view[start : start + look * stride]), strict=True)
        if heads.count(head) < look:
            return tails + list(found[: next(at for at, one in enumerate(heads) if one != head)])
        tails += found
        start += look * stride
        left -= look
        look *= 4
    return tails


def _equal_records(data: bytes, start: int, end: int, stride: int) -> list[bytes]:
    """Of the frames between `start` and `end`, which are `stride` bytes long each."""
    entry_bytes = stride - _ENTRY_AT
    length = LENGTH.pack(entry_bytes)
    view = memoryview(data)
    if entry_bytes >= _LARGE:
        places = range(start + _ENTRY_AT, end, stride)
        return [b"".join((length, view[place : place + entry_bytes])) for place in places]
    return [length + entry for (entry,) in iter_unpack(f"{_ENTRY_AT}x{entry_bytes}s", view[start:end])]


def encode_add_answers(rc: int, ledger_id: int, tails: list[bytes]) -> bytes:
    """The answers to a run, all with the same result, one frame behind the other."""
    common = encode_add_response(VERSION, rc, ledger_id, 0)[:-_TAIL_BYTES]
    return common + common.join(tails)
