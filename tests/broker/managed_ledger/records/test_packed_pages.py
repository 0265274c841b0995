"""Packed pages of acknowledged entries: read as they were written, damage named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.managed_ledger.records.packed_pages import pack_pages, unpack_pages
from foundation.model.errors import MetadataError


@given(
    st.dictionaries(
        st.tuples(st.integers(1, 3), st.integers(0, 2**24)),
        st.integers(1, 2**256 - 1),
        max_size=20,
    )
)
def test_packed_pages_are_read_as_they_were_written(bits: dict[tuple[int, int], int]) -> None:
    pages = [(ledger_id, number * 256, bits[ledger_id, number]) for ledger_id, number in sorted(bits)]
    packed = list(pack_pages(pages))
    assert [page for ledger_id, some in packed for page in unpack_pages(ledger_id, some)] == pages


def test_packed_pages_come_in_packs_of_4096() -> None:
    pages = [(7, number * 256, 1) for number in range(5000)]
    packed = list(pack_pages(pages))
    assert [len(list(unpack_pages(*each))) for each in packed] == [4096, 904]


@pytest.mark.parametrize("cut", [0, 1, 9, -1])
def test_packed_pages_that_are_damaged_are_an_error_with_the_ledger(cut: int) -> None:
    ((ledger_id, packed),) = pack_pages([(7, 0, 5)])
    with pytest.raises(MetadataError, match="ledger 7 cannot be read"):
        list(unpack_pages(ledger_id, packed[:cut]))
