"""Cuts runs of v3 adds out of received bytes; `protocol.add_runs` does the same for v2.

Each frame holds a protobuf message. The first one is taken apart field by field. Later frames are in the run when they have
the same length and differ in transaction id, entry id and payload only, with these at the same offsets. A run therefore
ends where a varint gets a byte longer.

Law: a run holds adds exactly as BookKeeper's client writes them. An add with a flag, a priority or another extra field, one
whose ids differ from those inside of its entry, and one with another field order is no part of a run; protobuf parses
those one by one. Pure: no I/O, no clock.
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
# Version 3, operation add, and the tag of the transaction id.
_HEADER: Final = b"\x08\x03\x10\x02\x18"
_ADD: Final = b"\xaa\x06"
_LEDGER, _ENTRY, _KEY, _BODY = b"\x08", b"\x10", b"\x1a" + bytes((MASTER_KEY_BYTES,)), b"\x22"
_MORE: Final = 0x80
_VARINT_BYTES_MAX: Final = 8
# Frames that one call of a `struct` takes apart.
_BLOCK: Final = 64
_STRIDE_MIN: Final = LENGTH_BYTES + ENTRY_BYTES_MIN + MASTER_KEY_BYTES


class _Layout(NamedTuple):
    """Offsets of a frame's parts from its first byte, and their lengths."""

    ledger_id: int
    """Ledger of the add."""
    txn_at: int
    """Transaction id."""
    txn_bytes: int
    """Length of the transaction id."""
    entry_at: int
    """Entry id."""
    entry_bytes: int
    """Length of the entry id."""
    key_at: int
    """Master key."""
    body_at: int
    """Entry, which ends with the frame."""
    stride: int
    """Length of the whole frame."""


class AddRunV3(NamedTuple):
    """Adds of one ledger that came together, with one master key."""

    ledger_id: int
    """Ledger of all adds."""
    master_key: bytes
    """Key of all adds."""
    entry_ids: Sequence[int]
    """0 or above, in the order received; a `range` when they are consecutive."""
    txns: bytes
    """Encoded transaction ids, all equally long; `encode_add_answers_v3` needs them in this form."""
    entries: bytes
    """Encoded entry ids, all equally long, for the same use."""
    records: bytes
    """The entries in one piece, equally long, each with its int32 length in front."""
    starts: Sequence[int]
    """Offset of each entry's length in `records`."""
    end: int
    """Offset of the next frame in the received bytes."""


def cut_add_run_v3(data: Received, start: int, stop: int, length_max: int) -> AddRunV3 | None:
    """Cuts the run of complete adds at `start`; returns None when the first frame is not in a run.

    `stop` is the end offset of what is received. A frame with more than `length_max` bytes after its length is
    not in a run.
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
        # One of them is wrong. The first one was checked by `_layout`; the others are parsed one by one.
        count, ids, txns, entries = 1, ids[:ID_BYTES], txns[:1], entries[:1]
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
    """Returns True when two frames look like adds of one run.

    The first one is at `start`, and its length must have arrived. Compares few bytes only: an add by itself, and one
    among many ledgers or lengths, is cheaper as a single request.
    """
    stride = LENGTH_BYTES + LENGTH.unpack_from(data, start)[0]
    following, header_at = start + stride, start + _HEADER_AT
    if stride < _STRIDE_MIN or following + stride > stop or not data.startswith(_HEADER, header_at):
        return False
    add_at = header_at + data[header_at - 1]
    ledger_at = add_at + len(_ADD) + 1
    while ledger_at < following and data[ledger_at - 1] & _MORE:
        ledger_at += 1
    # Up to the lowest bits of the ledger id: enough to tell most ledgers apart.
    end = ledger_at + len(_LEDGER) + 1
    same = data[start:header_at] == data[following : following + _HEADER_AT]
    return same and end <= following and data[add_at:end] == data[add_at + stride : end + stride]


def _layout(data: Received, start: int, stop: int) -> _Layout | None:
    """Takes the frame at `start` apart; None when it is incomplete or not as BookKeeper's client writes it."""
    stride = LENGTH_BYTES + LENGTH.unpack_from(data, start)[0]
    if start + stride > stop:
        return None
    # The view ends with the frame, so a length field that reaches beyond it makes an end not fit.
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
        # The entry repeats both ids, and the run takes its ids from there, so they must equal the request's.
        or inside != ledger_id.to_bytes(ID_BYTES, "big") + entry_id.to_bytes(ID_BYTES, "big")
    ):
        return None
    return _Layout(ledger_id, txn_at, txn_bytes, entry_at, entry_bytes, key_at, body_at, stride)


def _after(frame: memoryview, at: int, tag: bytes) -> tuple[int, int]:
    """Reads the varint after `tag`; returns it and the offset after it. ValueError for another tag."""
    if frame[at : at + len(tag)] != tag:
        raise ValueError(f"no field {tag.hex()} at offset {at}")
    return read_varint(frame, at + len(tag))


def _numbers_of_equal_frames(
    data: Received, start: int, stop: int, layout: _Layout
) -> tuple[list[bytes], list[bytes]]:
    """Returns encoded transaction and entry ids of otherwise equal frames."""
    # Without the ledger id all ledgers share one cached `Struct`.
    place = layout._replace(ledger_id=0)
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


# Checks of many numbers with few calls: each number is a digit of one large integer, so that C loops over them.


def _fit(ids: bytes, txns: list[bytes], entries: list[bytes]) -> bool:
    """Checks the numbers of a run.

    Returns True when all of them are single varints and the entry ids equal those inside of the entries.
    """
    size = len(entries[0])
    fits = max(numbers_of(ids)) >> 7 * size == 0 and _varints_of(ids, size) == b"".join(entries)
    return fits and _are_varints(b"".join(txns), len(txns[0]))


def _are_varints(varints: bytes, size: int) -> bool:
    """Returns True when each number of `size` bytes is one varint: the top bit is set on all bytes but the last."""
    count = len(varints) // size
    more = bytes((_MORE,)) * (size - 1) + b"\0"
    flags = int.from_bytes(bytes((_MORE,)) * len(varints), "big")
    return int.from_bytes(varints, "big") & flags == int.from_bytes(more * count, "big")


def _varints_of(ids: bytes, size: int) -> bytes:
    """Encodes ids of eight bytes as varints of `size` bytes. Ids are below 2 ** (7 * size)."""
    count = len(ids) // ID_BYTES
    digits = int.from_bytes(ids, "big")
    varints = bytearray(size * count)
    for place in range(size):
        # After the shift, the seven bits are in the last byte of each digit; its other bytes do not matter.
        column = (digits >> 7 * place).to_bytes(len(ids), "big")[ID_BYTES - 1 :: ID_BYTES]
        varints[place::size] = column.translate(_LAST if place == size - 1 else _NOT_LAST)
    return bytes(varints)


_NOT_LAST: Final = bytes([byte | _MORE for byte in range(256)])
_LAST: Final = bytes([byte & ~_MORE for byte in range(256)])


def encode_add_answers_v3(rc: int, ledger_id: int, txns: bytes, entries: bytes, count: int) -> bytes:
    """Returns the answers to a run, all with the same result."""
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
