"""The list of a ledger's entries: golden bytes of BookKeeper's own class, and a reader of the format."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.entry_runs import encode_entry_runs


def head(groups: int) -> str:
    return f"00000000{groups:08x}" + "00" * 56


def group(first: int, last: int, size: int, period: int) -> str:
    return struct.pack(">qqii", first, last, size, period).hex()


@pytest.mark.parametrize(
    ("entries", "golden"),
    [
        ([], head(0)),
        ([0], head(1) + "000000000000000000000000000000000000000100000000"),
        ([5, 6, 7], head(1) + "000000000000000500000000000000050000000300000000"),
        ([0, 0, 1, 1, 2], head(1) + group(0, 0, 3, 0)),
    ],
)
def test_encoded_runs_equal_golden_bytes(entries: list[int], golden: str) -> None:
    assert encode_entry_runs(entries).hex() == golden


def test_striped_ledger_is_encoded_as_one_group() -> None:
    assert encode_entry_runs(range(0, 3_000_000, 3)).hex() == head(1) + group(0, 2_999_997, 1, 3)
    assert encode_entry_runs([0, 1, 3, 4, 6, 7, 20]).hex() == head(2) + group(0, 6, 2, 3) + group(
        20, 20, 1, 0
    )


def test_ids_too_far_apart_for_an_int32_are_two_groups() -> None:
    """The distance is an int32."""
    assert encode_entry_runs([0, 2**40]).hex() == head(2) + group(0, 0, 1, 0) + group(2**40, 2**40, 1, 0)


@given(st.sets(st.integers(0, 60)))
def test_encoded_runs_decode_to_the_same_ids(entries: set[int]) -> None:
    encoded = encode_entry_runs(sorted(entries))
    version, groups = struct.unpack_from(">ii", encoded)
    assert (version, len(encoded)) == (0, 64 + 24 * groups)
    found: list[int] = []
    for number in range(groups):
        first, last, size, period = struct.unpack_from(">qqii", encoded, 64 + 24 * number)
        for start in range(first, last + 1, period or 1):
            found += range(start, start + size)
    assert found == sorted(entries)
