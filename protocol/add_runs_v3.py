"""Runs of v3 adds: what `protocol.add_runs` does for v2, for frames that hold a protobuf message each.

The first frame is taken apart field by field. Those behind it belong to the run when they have the same length and
differ in transaction id, entry id and payload only, with the numbers at the same places; so a run ends where one of them
gets a byte longer. An add with a flag, a priority or anything else besides, one whose ids are not those inside its entry,
and one that another program would write differently takes the way of a single request. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from protocol.add_runs import ID_BYTES, PIECE_MAX, Received, cut_ids, cut_records, numbers_of
from protocol.bookie_frame import ENTRY_BYTES_MIN, LENGTH, LENGTH_BYTES, MASTER_KEY_BYTES
from protocol.bookie_frame_v3 import encode_add_answer
from protocol.varint import read_varint, varint

_HEADER_AT: Final = LENGTH_BYTES + 2
_HEADER: Final = b"\x08\x03\x10\x02\x18"
"""Version 3, add, and the tag of the transaction id."""
_ADD: Final = b"\xaa\x06"
_LEDGER, _ENTRY, _KEY, _BODY = b"\x08", b"\x10", b"\x1a" + bytes((MASTER_KEY_BYTES,)), b"\x22"
_MORE: Final = 0x80
_VARINT_BYTES_MAX: Final = 8
_BLOCK: Final = 64
"""Frames that are taken apart with one call."""
_STRIDE_MIN: Final = LENGTH_BYTES + ENTRY_BYTES_MIN + MASTER_KEY_BYTES


class _Layout(NamedTuple):
    """Where the parts of a frame stand, from its first byte."""

    ledger_id: int
    txn_at: int
    txn_bytes: int
    entry_at: int
    entry_bytes: int
    key_at: int
    body_at: int
    stride: int


class AddRunV3(NamedTuple):
    ledger_id: int
    master_key: bytes
    entry_ids: Sequence[int]
    """Not negative, in the order received; a range when each is the one before plus one."""
    txns: bytes
    """The transaction ids as they were encoded, all equally long, which the answers are made of;"""
    entries: bytes
    """and the entry ids."""
    records: bytes
    """The entries, each with its int32 length in front, one behind the other, all equally long."""
    starts: Sequence[int]
    end: int
    """Where the next frame begins."""


def cut_add_run_v3(data: Received, start: int, stop: int, length_max: int) -> AddRunV3 | None:
    """The adds at `start` that are complete before `stop` and belong together; None when there is not even one.

    A frame with more than `length_max` bytes behind its length is no part of a run.
    """
    if not data.startswith(_HEADER, start + _HEADER_AT):
        return None
    layout = _layout(data, start, stop)
    if layout is None or layout.stride - LENGTH_BYTES > length_max:
        return None
    stride, body_at = layout.stride, layout.body_at
    txns, entries = _numbers_of_equal_frames(data, start, stop, layout)
    count = len(txns)
    ids = cut_ids(data, start + body_at + ID_BYTES, count, stride)
    if not _fit(ids, txns, entries):
        count, ids, txns, entries = (
            1,
            ids[:ID_BYTES],
            txns[:1],
            entries[:1],
        )  # the single requests say what is wrong
    records = cut_records(data, start, count, stride, body_at)
    key = bytes(data[start + layout.key_at : start + layout.key_at + MASTER_KEY_BYTES])
    starts = range(0, len(records), len(records) // count)
    return AddRunV3(
        layout.ledger_id,
        key,
        numbers_of(ids),
        b"".join(txns),
        b"".join(entries),
        records,
        starts,
        start + count * stride,
    )


def begins_run_v3(data: Received, start: int, stop: int) -> bool:
    """Whether the frame at `start`, whose length is there, and the one behind it look like adds of one run.

    Says no within a few bytes: an add by itself, and one of many ledgers or lengths, is cheaper as a single request.
    """
    stride = LENGTH_BYTES + LENGTH.unpack_from(data, start)[0]
    following, header_at = start + stride, start + _HEADER_AT
    if stride < _STRIDE_MIN or following + stride > stop or not data.startswith(_HEADER, header_at):
        return False
    add_at = header_at + data[header_at - 1]
    ledger_at = add_at + len(_ADD) + 1
    while ledger_at < following and data[ledger_at - 1] & _MORE:
        ledger_at += 1
    end = ledger_at + len(_LEDGER) + 1  # with the lowest bits of the ledger id
    same = data[start:header_at] == data[following : following + _HEADER_AT]
    return same and end <= following and data[add_at:end] == data[add_at + stride : end + stride]


def _layout(data: Received, start: int, stop: int) -> _Layout | None:
    """None for everything that is not laid out as BookKeeper's client does it, or not there as a whole."""
    stride = LENGTH_BYTES + LENGTH.unpack_from(data, start)[0]
    if start + stride > stop:
        return None
    # Numbers of a cut message may reach into what stands behind it: then an end does not fit.
    frame = memoryview(data)[start : start + stride]
    try:
        txn_at = _HEADER_AT + len(_HEADER)
        txn, at = read_varint(frame, txn_at)
        txn_bytes = at - txn_at
        if frame[LENGTH_BYTES] != 0x0A or frame[LENGTH_BYTES + 1] != at - _HEADER_AT:
            return None
        size, at = _after(frame, at, _ADD)
        if at + size != stride:
            return None
        ledger_id, at = _after(frame, at, _LEDGER)
        entry_id, entry_end = _after(frame, at, _ENTRY)
        entry_at, key_at = at + len(_ENTRY), entry_end + len(_KEY)
        size, body_at = _after(frame, key_at + MASTER_KEY_BYTES, _BODY)
    except (IndexError, ValueError):
        return None
    entry_bytes = entry_end - entry_at
    inside = frame[body_at : body_at + 2 * ID_BYTES]
    if (
        frame[entry_end:key_at] != _KEY
        or body_at + size != stride
        or size < ENTRY_BYTES_MIN
        or txn_bytes != len(varint(txn))
        or entry_bytes != len(varint(entry_id))
        or max(txn_bytes, entry_bytes) > _VARINT_BYTES_MAX
        or ledger_id >> 63
        or inside != ledger_id.to_bytes(ID_BYTES, "big") + entry_id.to_bytes(ID_BYTES, "big")
    ):
        return None
    return _Layout(ledger_id, txn_at, txn_bytes, entry_at, entry_bytes, key_at, body_at, stride)


def _after(frame: memoryview, at: int, tag: bytes) -> tuple[int, int]:
    """The number behind `tag`, and what is behind that. ValueError for another tag."""
    if frame[at : at + len(tag)] != tag:
        raise ValueError("another field")
    return read_varint(frame, at + len(tag))


def _numbers_of_equal_frames(
    data: Received, start: int, stop: int, layout: _Layout
) -> tuple[list[bytes], list[bytes]]:
    """Transaction and entry ids, encoded, of the frames from `start` on that are the first one's but for these."""
    place = layout._replace(ledger_id=0)  # so that ledgers share what was made for one of them
    one, block = _parts(place, 1), _parts(place, _BLOCK)
    head, _, middle, _, tail = one.unpack_from(data, start)
    txns: list[bytes] = []
    entries: list[bytes] = []
    left = min((stop - start) // layout.stride, PIECE_MAX)
    while left - len(txns) >= _BLOCK:
        parts = block.unpack_from(data, start + len(txns) * layout.stride)
        if not parts[::5].count(head) == parts[2::5].count(middle) == parts[4::5].count(tail) == _BLOCK:
            break
        txns += parts[1::5]
        entries += parts[3::5]
    while len(txns) < left:
        found = one.unpack_from(data, start + len(txns) * layout.stride)
        if found[::2] != (head, middle, tail):
            break
        txns.append(found[1])
        entries.append(found[3])
    return txns, entries


@lru_cache(64)
def _parts(layout: _Layout, count: int) -> Struct:
    middle_at, entry_end = layout.txn_at + layout.txn_bytes, layout.entry_at + layout.entry_bytes
    tail_end = layout.body_at + ID_BYTES + 1
    return Struct(
        f"{layout.txn_at}s{layout.txn_bytes}s{layout.entry_at - middle_at}s{layout.entry_bytes}s"
        f"{tail_end - entry_end}s{layout.stride - tail_end}x" * count
    )


# Many numbers at once: each is a digit of a large one.


def _fit(ids: bytes, txns: list[bytes], entries: list[bytes]) -> bool:
    """Whether the numbers outside of the entries are single varints, and those of `entries` the ids inside."""
    size = len(entries[0])
    fits = max(numbers_of(ids)) >> 7 * size == 0 and _varints_of(ids, size) == b"".join(entries)
    return fits and _are_varints(b"".join(txns), len(txns[0]))


def _are_varints(varints: bytes, size: int) -> bool:
    """Whether each number of `size` bytes is one varint."""
    count = len(varints) // size
    more = bytes((_MORE,)) * (size - 1) + b"\0"
    flags = int.from_bytes(bytes((_MORE,)) * len(varints), "big")
    return int.from_bytes(varints, "big") & flags == int.from_bytes(more * count, "big")


def _varints_of(ids: bytes, size: int) -> bytes:
    """The ids, eight bytes each and below 2 ** (7 * size), as varints of `size` bytes."""
    count = len(ids) // ID_BYTES
    digits = int.from_bytes(ids, "big")
    varints = bytearray(size * count)
    for place in range(size):
        # Behind the shift the seven bits stand in the last byte of each digit, whatever the others are.
        column = (digits >> 7 * place).to_bytes(len(ids), "big")[ID_BYTES - 1 :: ID_BYTES]
        varints[place::size] = column.translate(_LAST if place == size - 1 else _NOT_LAST)
    return bytes(varints)


_NOT_LAST: Final = bytes([byte | _MORE for byte in range(256)])
_LAST: Final = bytes([byte & ~_MORE for byte in range(256)])


def encode_add_answers_v3(rc: int, ledger_id: int, txns: bytes, entries: bytes, count: int) -> bytes:
    """The answers to a run, all with the same result, one frame behind the other."""
    txn_bytes, entry_bytes = len(txns) // count, len(entries) // count
    first_txn, _ = read_varint(txns[:txn_bytes], 0)
    first_entry, _ = read_varint(entries[:entry_bytes], 0)
    answer = encode_add_answer(first_txn, rc, ledger_id, first_entry)
    answers = bytearray(answer * count)
    txn_at, entry_at = _HEADER_AT + len(_HEADER), len(answer) - entry_bytes
    for place in range(txn_bytes):
        answers[txn_at + place :: len(answer)] = txns[place::txn_bytes]
    for place in range(entry_bytes):
        answers[entry_at + place :: len(answer)] = entries[place::entry_bytes]
    return bytes(answers)
