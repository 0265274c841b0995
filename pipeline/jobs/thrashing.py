"""`thrashing`: counts repeated reads from bookies, and computes a fitting readahead.

A bookie that reads ahead B entries for each request for R of them, and has evicted them before the reader's next request,
reads (B + 1) / R entries for each requested one (docs/explanation/bookie.md). The access record has R, the
number of cold readers at a time and the size of their entries; together they give the largest B that a read cache can
hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from entry_cache.observe.cache_events import Op
from pipeline.jobs.plots import lines_plot
from pipeline.jobs.report import Cell, Plot, Report, Table, bytes_text
from pipeline.traces.record_frames import Record

BATCH: Final = 1000
"""`dbStorage_readAheadCacheBatchSize` as Pulsar ships it."""
ALIGN: Final = 64
"""Bytes that an entry's slot in the read cache is a multiple of."""
HEADER: Final = 36
"""Bytes that a slot has before its entry."""
CACHES_MIB: Final = (16, 64, 256, 1024, 4096)
"""Sizes of a read cache that the table has rows for."""
LIFETIME: Final = ("broker", "start")
"""Columns that identify a broker lifetime."""


def storage_reads(rows: DataFrame) -> DataFrame:
    """Counts requests to bookies by ledger and reader.

    One row per broker lifetime, topic, reader and ledger: broker, start, topic, sub, ledger, requests, entries_asked,
    different (entries that were requested at least once).
    """
    # A request without entries asks bookies for nothing, and `sequence` below would count it backwards from its entry.
    asked = rows.where(f.col("op") == Op.MISS.value).where(f.col("count") > 0)
    by_request = asked.groupBy(*LIFETIME, "topic", "sub", "ledger").agg(
        f.count("*").alias("requests"), f.sum(f.col("count").cast("long")).alias("entries_asked")
    )
    each = asked.select(
        *LIFETIME,
        "topic",
        "sub",
        "ledger",
        f.explode(f.expr("sequence(entry, entry + count - 1)")).alias("one"),
    )
    # Counted entry by entry: ranges of repeated requests overlap, so their lengths do not add up.
    different = each.groupBy(*LIFETIME, "topic", "sub", "ledger").agg(
        f.countDistinct("one").alias("different")
    )
    return by_request.join(different, [*LIFETIME, "topic", "sub", "ledger"])


def cold_readers(rows: DataFrame) -> int:
    """Returns the largest number of readers that read from bookies within one second."""
    asked = rows.where(f.col("op") == Op.MISS.value)
    second = (f.col("ts") / 1_000_000).cast("long")
    counted = asked.groupBy(second.alias("second")).agg(
        f.countDistinct("broker", "topic", "sub").alias("readers")
    )
    most = counted.agg(f.max("readers")).collect()[0][0]
    return int(most or 0)


def thrashing(record: Record, say: Callable[[str], None] = lambda text: None) -> Report:
    """Returns the report for an access record.

    Tables: `storage_reads` (one row per reader and ledger), `readahead` (one row per size of the read cache).
    """
    report = Report("thrashing", "Reads from bookies", record.checked.summary())
    say("reads from bookies")
    found = storage_reads(record.rows).join(record.topics, [*LIFETIME, "topic"], "left")
    named = found.join(record.readers, [*LIFETIME, "topic", "sub"], "left").orderBy(f.desc("entries_asked"))
    rows: list[dict[str, Cell]] = [
        {
            "topic": row["topic_name"],
            "subscription": row["sub_name"],
            "ledger": row["ledger"],
            "requests": row["requests"],
            "entries_asked": row["entries_asked"],
            "different": row["different"],
            "amplification": row["entries_asked"] / row["different"],
            "per_request": row["entries_asked"] / row["requests"],
        }
        for row in named.collect()
    ]
    if not rows:
        report.text.append("no entry was read from a bookie in this access record")
        return report
    report.tables["storage_reads"] = Table("By ledger and reader, most entries first", rows)
    asked = sum(int(str(row["entries_asked"])) for row in rows)
    requests = sum(int(str(row["requests"])) for row in rows)
    readers, entry_bytes = cold_readers(record.rows), _entry_bytes(record.rows)
    report.text += [
        f"{asked:,} entries read from bookies in {requests:,} requests, {asked / requests:.1f} each; "
        f"{asked / sum(int(str(row['different'])) for row in rows):.2f} times per ledger, reader and entry",
        f"at most {readers} cold readers within a second, entries of {entry_bytes:,.0f} bytes",
    ]
    _add_model(report, readers, entry_bytes, asked / requests)
    return report


def _entry_bytes(rows: DataFrame) -> float:
    came = rows.where(f.col("op") == Op.FETCHED.value)
    size, count = came.agg(f.sum("bytes"), f.sum("count")).collect()[0]
    return float(size) / float(count) if count else 0.0


def slot_bytes(entry_bytes: float) -> float:
    """Returns the bytes that an entry takes in a read cache."""
    return -(-(entry_bytes + HEADER) // ALIGN) * ALIGN


def readahead_that_fits(cache_bytes: float, readers: int, entry_bytes: float) -> int:
    """Returns the largest batch that fits into the cache for all cold readers.

    0 where none fits.
    """
    # Less one: a bookie reads the requested entry and B more.
    return max(0, int(cache_bytes / max(readers, 1) / slot_bytes(entry_bytes)) - 1)


def amplification(
    batch: int, cache_bytes: float, readers: int, entry_bytes: float, per_request: float
) -> float:
    """Returns the entries that a bookie reads per requested one. The model assumes equally fast readers."""
    # All or nothing: with equally fast readers each one's readahead is evicted just before it is used, once
    # they do not fit together.
    fits = readers * (batch + 1) * slot_bytes(entry_bytes) <= cache_bytes
    return 1.0 if fits else max(1.0, (batch + 1) / per_request)


def _add_model(report: Report, readers: int, entry_bytes: float, per_request: float) -> None:
    rows: list[dict[str, Cell]] = []
    lines: dict[str, tuple[list[float], list[float]]] = {}
    batches = [1 << power for power in range(4, 12)]
    for cache_mib in CACHES_MIB:
        cache = cache_mib << 20
        fits = min(readahead_that_fits(cache, readers, entry_bytes), BATCH)
        # A readahead shorter than one request would make the bookie read the log several times for it.
        best = max(fits, round(per_request))
        rows.append(
            {
                "read_cache_bytes": cache,
                "amplification_with_1000": amplification(BATCH, cache, readers, entry_bytes, per_request),
                "dbStorage_readAheadCacheBatchSize": best,
                "amplification_then": amplification(best, cache, readers, entry_bytes, per_request),
            }
        )
        ys = [amplification(batch, cache, readers, entry_bytes, per_request) for batch in batches]
        lines[bytes_text(cache)] = (list(map(float, batches)), ys)
    report.tables["readahead"] = Table(
        "The readahead to set, by the size of a bookie's read cache (one directory)",
        rows,
        "A model: equally fast readers, all on one bookie. docs/reference/benchmarks.md has the measurements.",
    )
    svg = lines_plot(lines, "readahead, entries", "entries read per requested entry", log_x=True)
    report.plots.append(Plot("Amplification over readahead", svg))
    report.listed = {"readahead": 20}
