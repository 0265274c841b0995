"""The write cache's memory: its size is about what it takes, and it is freed a little at a time."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie_stub.disk import arena, write_cache
from bookie_stub.disk.arena import Arena
from bookie_stub.disk.checkpoint import free_slice
from bookie_stub.disk.ledger_entries import RecordRun
from bookie_stub.disk.write_cache import WriteCache
from tests.bookie_stub.conftest import record_of

Fill = Callable[[WriteCache], None]


@pytest.fixture(autouse=True)
def _runs_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_cache, "_RUN_BYTES_MIN", 100)


def singles(ledgers: int, entries: int, size: int) -> Fill:
    def fill(cache: WriteCache) -> None:
        for number in range(ledgers * entries):
            ledger, entry = number % ledgers, 10**6 + number
            cache.put(10**9 + ledger, entry, record_of(ledger, entry, bytes(size)))

    return fill


def runs(ledgers: int, number: int, count: int, size: int, *, even: bool) -> Fill:
    def fill(cache: WriteCache) -> None:
        for place in range(ledgers * number):
            ledger, first = place % ledgers, 10**6 + place * count
            records = [record_of(ledger, first, bytes(size))] * count
            ends = list(accumulate(map(len, records)))
            data = memoryview(b"".join(records))
            ids: Sequence[int] = range(first, first + count)
            starts: Sequence[int] = range(0, len(data), ends[0])
            if not even:
                ids, starts = tuple(ids), (0, *ends[:-1])
            cache.put_run(10**9 + ledger, RecordRun(ids, data, starts))

    return fill


@pytest.mark.parametrize(
    "fill",
    [
        pytest.param(singles(10_000, 1, 100), id="one small entry of many ledgers"),
        pytest.param(singles(1, 10_000, 100), id="small entries"),
        pytest.param(singles(1, 500, 20_000), id="large entries"),
        pytest.param(runs(1, 1000, 10, 100, even=True), id="runs"),
        pytest.param(runs(1, 1000, 10, 100, even=False), id="uneven runs"),
        pytest.param(runs(5000, 1, 10, 100, even=True), id="a run of many ledgers"),
    ],
)
def test_write_cache_size_is_about_the_memory_taken(fill: Fill) -> None:
    cache = WriteCache()
    tracemalloc.start()
    try:
        fill(cache)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.5 * cache.size < taken < 1.3 * cache.size


@given(st.lists(st.integers(1, 6000), min_size=1, max_size=200))
def test_arena_wastes_a_quarter_at_most(sizes: list[int]) -> None:
    blocks: list[int] = []
    plain = arena._block

    def counted(size: int) -> memoryview:
        blocks.append(size)
        return plain(size)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(arena, "_block", counted)
        cut = Arena(16 * 16_384)  # blocks of 16 KiB
        pieces = [cut.store(bytes([number % 251]) * size) for number, size in enumerate(sizes)]
    for number, (size, piece) in enumerate(zip(sizes, pieces, strict=True)):
        assert piece == bytes([number % 251]) * size
    assert sum(blocks) <= sum(sizes) / 0.75 + 16_384


def test_free_slice_is_a_mebibyte_or_two_thousand_records() -> None:
    small = [record_of(1, entry) for entry in range(5000)]
    assert free_slice(small) == 2000
    large = [bytes(300_000)] * 10
    assert free_slice(large) == 4
    assert free_slice([*small, bytes(4 << 20)]) == 1
    assert free_slice([*large, *small[:100]]) == 104
    assert free_slice(small[:1]) == 1
