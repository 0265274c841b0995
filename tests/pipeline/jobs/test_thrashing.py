"""The model of `thrashing` beside a simulated bookie, and its counts of an access record."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")

from entry_cache.observe.cache_events import Op
from pipeline.jobs.thrashing import (
    amplification,
    cold_readers,
    readahead_that_fits,
    slot_bytes,
    storage_reads,
)


def simulated(batch: int, slots: int, readers: int, per_request: int, requests: int = 200) -> float:
    """Entries read from the log per requested one: readers take turns, each on a ledger of its own, and a miss reads
    `batch` more entries into a cache that evicts its oldest."""
    cached: OrderedDict[tuple[int, int], None] = OrderedDict()
    loaded = 0
    for number in range(requests):
        for reader in range(readers):
            for entry in range(number * per_request, (number + 1) * per_request):
                if (reader, entry) in cached:
                    continue
                for ahead in range(entry, entry + batch + 1):
                    loaded += 1
                    cached[reader, ahead] = None
                    cached.move_to_end((reader, ahead))
                while len(cached) > slots:
                    cached.popitem(last=False)
    return loaded / (requests * readers * per_request)


@pytest.mark.parametrize(("batch", "per_request"), [(9, 1), (31, 8), (99, 10), (63, 32)])
@pytest.mark.parametrize("readers", [2, 7])
def test_model_agrees_with_a_simulated_bookie(batch: int, per_request: int, readers: int) -> None:
    """Well within the cache, where the log is read once, and far beyond it, where each request reads anew."""
    entry_bytes = 1000.0
    for share in (2.0, 1 / readers):
        slots = max(int(readers * (batch + 1) * share), batch + 1)
        told = amplification(batch, slots * slot_bytes(entry_bytes), readers, entry_bytes, per_request)
        # The last load of each reader goes beyond what is asked for.
        assert simulated(batch, slots, readers, per_request) == pytest.approx(told, rel=0.1)


@pytest.mark.parametrize(("entry_bytes", "slot"), [(28, 64), (29, 128), (1000, 1088), (0, 64)])
def test_slot_is_a_multiple_of_64_bytes(entry_bytes: float, slot: float) -> None:
    assert slot_bytes(entry_bytes) == slot


@pytest.mark.parametrize("readers", [0, 1, 3, 50])
@pytest.mark.parametrize("cache_bytes", [1 << 16, 1 << 20, 16 << 20])
def test_readahead_that_fits_is_the_largest(cache_bytes: int, readers: int) -> None:
    batch = readahead_that_fits(cache_bytes, readers, 1000.0)
    if batch:
        assert amplification(batch, cache_bytes, readers, 1000.0, 1.0) == 1.0
    if readers:
        assert amplification(batch + 1, cache_bytes, readers, 1000.0, 1.0) == batch + 2


def test_amplification_is_one_without_readahead() -> None:
    assert amplification(0, 0, 5, 1000.0, 1.0) == 1.0
    assert amplification(0, 0, 5, 1000.0, 10.0) == 1.0, "a request for ten reads ten"
    assert amplification(1000, 0, 5, 1000.0, 10.0) == pytest.approx(100.1)


def frame(spark: Any, rows: list[tuple[int, int, int, int, int, int, int]]) -> Any:
    columns = "ts long, topic int, sub int, ledger long, entry long, count int, op int"
    made = spark.createDataFrame(rows, columns)
    return made.selectExpr("*", "'b' broker", "'s' start", "count * 100L bytes")


def test_storage_reads_count_requested_and_different_entries(spark: Any) -> None:
    miss = Op.MISS.value
    rows = frame(
        spark,
        [
            (0, 1, 1, 5, 0, 10, miss),
            (1, 1, 1, 5, 5, 10, miss),
            (2, 1, 2, 5, 0, 3, miss),
            (3, 1, 1, 5, 0, 99, Op.HIT.value),
        ],
    )
    found = {row["sub"]: row for row in storage_reads(rows).collect()}
    assert (found[1]["requests"], found[1]["entries_asked"], found[1]["different"]) == (2, 20, 15)
    assert (found[2]["requests"], found[2]["entries_asked"], found[2]["different"]) == (1, 3, 3)


def test_cold_readers_are_counted_within_a_second(spark: Any) -> None:
    miss = Op.MISS.value
    second = 1_000_000
    rows = frame(
        spark,
        [
            (0, 1, 1, 5, 0, 1, miss),
            (1, 1, 1, 5, 1, 1, miss),
            (2, 1, 2, 5, 0, 1, miss),
            (3, 2, 1, 6, 0, 1, Op.COALESCED.value),
            (second, 2, 1, 6, 0, 1, miss),
        ],
    )
    assert cold_readers(rows) == 2
    assert cold_readers(rows.where("op = 0")) == 0
