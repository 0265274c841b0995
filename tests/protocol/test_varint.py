"""varint: the bytes of protobuf's integers, whichever way they are written."""

from __future__ import annotations

import pytest

from protocol.varint import read_varint, varint

LIMITS = (7, 14, 21, 28, 35, 42, 49, 56, 63, 64)
PATTERNS = [0x0123_4567_89AB_CDEF >> shift for shift in range(0, 64, 3)]
"""Numbers whose groups of seven bits differ from each other."""


@pytest.mark.parametrize(
    "number", [(1 << bits) + step for bits in LIMITS for step in (-2, -1, 0, 1)] + PATTERNS
)
def test_varint_is_read_back_at_each_limit_of_its_tables(number: int) -> None:
    number &= (1 << 64) - 1
    encoded = varint(number)
    assert read_varint(encoded, 0) == (number, len(encoded))
    # The shortest form: seven bits in each byte.
    assert len(encoded) == max(1, -(-number.bit_length() // 7))
