"""The receipts of a run are the bytes of its single receipts."""

from __future__ import annotations

import pytest

from protocol.hot_frames import ReceiptWriter
from protocol.varint import varint, varints

EDGES = [0, 120, 16_380, 3 * 2**14 - 4, 2**28 - 5, 2**40]


@pytest.mark.parametrize("step", [1, 10])
@pytest.mark.parametrize("entry_id", EDGES)
@pytest.mark.parametrize("sequence_id", EDGES)
def test_receipts_of_a_run_are_those_of_its_sends(sequence_id: int, entry_id: int, step: int) -> None:
    writer, single = ReceiptWriter(3), ReceiptWriter(3)
    for count in (1, 2, 12):
        for highest in (0, sequence_id + 9):
            expected = [
                single.write(
                    sequence_id + place * step, highest and highest + place * step, 300, entry_id + place
                )
                for place in range(count)
            ]
            found = writer.write_run(sequence_id, highest, step, count, 300, entry_id)
            assert found == b"".join(expected)


@pytest.mark.parametrize("first", EDGES)
def test_varints_are_those_of_single_numbers(first: int) -> None:
    numbers = range(first, first + 60, 7)
    assert varints(numbers) == [varint(number) for number in numbers]
