"""Protobuf's variable-length integers (varints), for frames that are written without protobuf.

Seven bits per byte, lowest first; the top bit marks all bytes but the last. Two bytes carry 14 bits, so numbers below 2^14
are one table look-up and numbers below 2^28 two: entry ids, sequence ids and sizes nearly always are. Times in milliseconds
are three.
"""

from __future__ import annotations

_BITS = 14
_SIZE = 1 << _BITS
_MASK = _SIZE - 1


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# Both tables are filled as numbers come: made in advance they take 1.4 MiB, which an idle broker would hold for nothing.
_LAST: list[bytes | None] = [None] * _SIZE
"""The bytes of each number below 2^14."""
_MORE: list[bytes | None] = [None] * _SIZE
"""The same 14 bits with the top bit of both bytes set: more bytes follow."""


def _fill_last(value: int) -> bytes:
    encoded = _LAST[value] = _encode(value)
    return encoded


def _fill_more(value: int) -> bytes:
    encoded = _MORE[value] = bytes((value & 0x7F | 0x80, value >> 7 | 0x80))
    return encoded


def varint(value: int) -> bytes:
    """Returns the bytes of an unsigned number below 2^64. A negative number gives wrong bytes: mask it first."""
    if value < _SIZE:
        return _LAST[value] or _fill_last(value)
    if value < 1 << 28:
        low, high = value & _MASK, value >> _BITS
        return (_MORE[low] or _fill_more(low)) + (_LAST[high] or _fill_last(high))
    if value < 1 << 42:
        low, middle, high = value & _MASK, value >> _BITS & _MASK, value >> 2 * _BITS
        return (
            (_MORE[low] or _fill_more(low))
            + (_MORE[middle] or _fill_more(middle))
            + (_LAST[high] or _fill_last(high))
        )
    return _encode(value)


def varints(numbers: range) -> list[bytes]:
    """Returns the bytes of ascending unsigned numbers below 2^64. Costs half of a call of `varint` for each."""
    if not numbers:
        return []
    first, last = numbers[0], numbers[-1]
    if last < _SIZE:
        return [_LAST[number] or _fill_last(number) for number in numbers]
    high = first >> _BITS
    if 0 < high < _SIZE and high == last >> _BITS:
        after = varint(high)
        start = high << _BITS
        lows = range(first - start, last - start + 1, numbers.step)
        return [(_MORE[low] or _fill_more(low)) + after for low in lows]
    return [varint(number) for number in numbers]


def read_varint(message: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Returns the number at `offset` and the offset after it.

    IndexError when the bytes end inside of the number, ValueError for more than 64 bits.
    """
    value = shift = 0
    while True:
        byte = message[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # Ten bytes carry 70 bits; protobuf drops those above 64.
            return value & (1 << 64) - 1, offset
        shift += 7
        if shift > 63:
            raise ValueError(f"varint of more than 64 bits before offset {offset}")
