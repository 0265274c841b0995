"""The scrape has every name of the dashboards, and its values follow the requests."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from bookie_stub.base.metrics import Summary
from bookie_stub.http.exposition import ALWAYS_ZERO, render
from tests.bookie_stub.conftest import Bench

NAMES = Path(__file__).resolve().parents[2] / "data/dashboard-metrics.tsv"


def samples(text: bytes) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            name = sample.name.removesuffix("_total")  # the parser puts it behind every counter
            found[name + "".join(f"|{key}={value}" for key, value in sorted(sample.labels.items()))] = (
                sample.value
            )
    return found


async def test_scrape_has_every_name_and_label_of_the_dashboards(bench: Bench) -> None:
    text = render(bench.open()).decode()
    for line in NAMES.read_text().splitlines()[1:]:
        name, labels, _, core = line.split("\t")
        if core != "bookie":
            continue
        found = re.search(rf"^{re.escape(name)}(\{{.*\}})? ", text, re.MULTILINE)
        assert found, name
        for label in {"quantile", "success", "thread"} & set(labels.split(",")):
            assert f"{label}=" in (found[1] or ""), f"{name} has no label {label}"


async def test_scrape_counts_adds_reads_and_deletions(bench: Bench) -> None:
    bookie = bench.open()
    for entry in range(10):
        assert await bench.add(1, entry, b"x" * 100) == 0
    assert await bench.start_add(1, 10, key=b"?" * 20) == 102
    await bench.read(1, 0)
    await bench.read(1, 99)
    found = samples(render(bookie))
    assert found["bookie_ledgers_count"] == found["bookie_storage_ledgers_count"] == 1
    assert found["bookie_storage_entries_count"] == 10
    assert found["bookie_storage_write_cache_size"] == found["bookie_write_cache_size"] > 0
    assert found["bookie_storage_read_cache_size"] == 0
    assert found["bookie_entries_count"] == found["bookie_write_cache_count"] == 10
    assert found["bookkeeper_server_ADD_ENTRY_count|success=true"] == 11  # with the master key record
    assert found["bookkeeper_server_ADD_ENTRY_count|success=false"] == 1
    assert found["bookkeeper_server_READ_ENTRY_count|success=true"] == 1
    assert found["bookkeeper_server_READ_ENTRY_count|success=false"] == 1
    assert found["bookie_journal_JOURNAL_ADD_ENTRY_count|journalIndex=0|success=true"] == 11
    assert found["bookie_journal_JOURNAL_SYNC_count|journalIndex=0|success=true"] >= 1
    assert found["bookie_journal_JOURNAL_SYNC|journalIndex=0|quantile=0.99|success=true"] > 0
    assert found["bookie_WRITE_BYTES"] > 1000
    assert found["bookie_write_cache_hits"] == 1
    assert found["bookie_SERVER_STATUS"] == 1
    await bench.checkpoint()
    bookie.delete_ledger(1)
    found = samples(render(bookie))
    assert found["bookie_ACTIVE_ENTRY_LOG_TOTAL"] == 1
    assert found["bookie_write_cache_count"] == 0
    assert found["bookie_DELETED_LEDGER_TOTAL"] == found["bookie_DELETED_LEDGER_COUNT"] == 1
    assert bookie.stats.flush_entries.sum == 10


async def test_scrape_counts_reads_by_their_source(bench: Bench) -> None:
    bookie = bench.open(readahead_entries=5)
    for entry in range(10):
        assert await bench.add(1, entry, b"x" * 100) == 0
    await bench.batch(1, 0, 4)
    await bench.checkpoint()
    for entry in range(8):
        await bench.read(1, entry)
    await bench.batch(1, 8, 100)
    await bench.read(1, 10)
    found = samples(render(bookie))
    assert found["bookie_write_cache_hits"] == 4
    assert found["bookie_write_cache_misses"] == 11
    # Entry 0 brings 1 to 5, entry 6 brings 7 to 9; there is no entry 10, which is a miss too.
    assert found["bookie_read_cache_misses"] == 3
    assert found["bookie_read_cache_hits"] == 8
    assert found["bookie_readahead_batch_count_count"] == 2
    assert found["bookie_readahead_batch_count_sum"] == 5 + 3
    assert found["bookie_readahead_batch_size_sum"] == 8 * 136
    assert found["bookie_readahead_max_batch_size"] == 5
    assert found["bookie_read_cache_count"] == 10
    assert found["bookie_read_cache_size"] == 10 * 192  # 136 bytes, rounded up to 64
    assert found["bookie_read_entry_count|success=true"] == 14
    assert found["bookie_read_entry_count|success=false"] == 1
    assert found["bookkeeper_server_READ_ENTRY_count|success=true"] == 10
    assert found["bookkeeper_server_READ_ENTRY_count|success=false"] == 1
    assert found["bookie_READ_BYTES"] == 14 * 136
    for name in ("readahead_time", "read_entrylog_time", "read_locations_index_time", "read_entry_sum"):
        assert sum(value for key, value in found.items() if key.startswith(f"bookie_{name}")) > 0, name


async def test_scrape_marks_metrics_that_cannot_change(bench: Bench) -> None:
    text = render(bench.open()).decode()
    for name in (
        "bookie_journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE",
        "bookie_journal_JOURNAL_CB_QUEUE_SIZE",
    ):
        assert re.search(rf"^# HELP {name} .*{ALWAYS_ZERO.strip()}", text, re.MULTILINE), name


def test_summary_quantiles_cover_the_newest_observations() -> None:
    summary = Summary()
    assert all(value != value for value in summary.quantiles((0.5, 1.0)))
    for value in range(5000):
        summary.observe(value)
    assert (summary.count, summary.sum) == (5000, sum(range(5000)))
    assert summary.quantiles((0.0, 0.5, 1.0)) == [5000 - 1024, 5000 - 512, 4999]
    summary.observe(10, 90)
    assert summary.count == 5090
