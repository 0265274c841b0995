"""The bookie's counters for Prometheus, under BookKeeper's names.

Existing dashboards fit them.

Rules of the names: timers are milliseconds, as summaries with quantiles of the newest observations. A name that
dashboards use and that cannot change in this bookie says so in its HELP. Names of older BookKeeper releases
(`_COUNT`, `bookie_storage_`) stand beside the newer ones, because dashboards use both.

This module imports prometheus_client; `http.server` imports it at the first scrape, to keep start and idle memory
small.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.metrics import CollectionStats, OutcomeTimes, Summary
from bookie_stub.compose.bookie import Bookie
from bookie_stub.wire.server import BookieServer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of the text that `render` returns."""
QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)
"""The quantiles of every summary, as BookKeeper's Prometheus provider has them."""
ALWAYS_ZERO = " Always 0 so far: "
"""Part of the HELP of a metric that cannot change."""
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_:]")
_DASHBOARD_DIRECTORY = "_pulsar_data_bookkeeper_ledgers_0"
"""The ledger directory in a metric's name on Pulsar's stock dashboard."""
_COUNTER_SUFFIX = re.compile(rb"^((?:# (?:HELP|TYPE) )?\w+)_total(?= )", re.MULTILINE)


def render(bookie: Bookie, server: BookieServer | None = None) -> bytes:
    """Returns the text of one scrape. Without `server` no request is in progress."""
    text = generate_latest(BookieCollector(bookie, server))
    # prometheus_client appends `_total` to the name of every counter. BookKeeper's counters have no such suffix.
    return _COUNTER_SUFFIX.sub(rb"\1", text)


class BookieCollector(Collector):
    """Reads all counters of one bookie for each scrape."""

    def __init__(self, bookie: Bookie, server: BookieServer | None) -> None:
        self._bookie = bookie
        self._server = server

    def collect(self) -> Iterator[Metric]:
        """Yields every family; called by prometheus_client."""
        yield from _state(self._bookie)
        yield from _journal(self._bookie)
        yield from _storage(self._bookie)
        yield from _read_cache(self._bookie)
        yield from _collection(self._bookie.stats.collection)
        yield from _requests(self._bookie, self._server)


def _counter(name: str, doc: str, value: float) -> Metric:
    return CounterMetricFamily(name, doc, value)


def _gauge(name: str, doc: str, value: float) -> Metric:
    return GaugeMetricFamily(name, doc, value)


def _summary(name: str, doc: str, summary: Summary) -> Metric:
    family = SummaryMetricFamily(name, doc)
    _add_summary(family, {}, summary)
    return family


def _outcome(name: str, doc: str, outcome: OutcomeTimes) -> Metric:
    return _outcomes(name, doc, [({}, outcome)])


def _outcomes(name: str, doc: str, outcomes: Iterable[tuple[dict[str, str], OutcomeTimes]]) -> Metric:
    family = SummaryMetricFamily(name, doc)
    for labels, outcome in outcomes:
        _add_summary(family, {**labels, "success": "true"}, outcome.ok)
        _add_summary(family, {**labels, "success": "false"}, outcome.failed)
    return family


def _add_summary(family: Metric, labels: dict[str, str], summary: Summary) -> None:
    # SummaryMetricFamily.add_metric knows no quantiles, so all samples are added one by one.
    name = family.name
    for quantile, value in zip(QUANTILES, summary.quantiles(QUANTILES), strict=True):
        family.add_sample(name, {**labels, "quantile": str(quantile)}, value)
    family.add_sample(f"{name}_count", labels, summary.count)
    family.add_sample(f"{name}_sum", labels, summary.sum)


def _state(bookie: Bookie) -> Iterator[Metric]:
    state, availability = bookie.state, bookie.availability
    yield _gauge("bookie_SERVER_STATUS", "1 writable, 0 read-only.", 0 if availability.read_only else 1)
    for name in ("bookie_ledgers_count", "bookie_storage_ledgers_count", "bookie_ACTIVE_LEDGER_TOTAL"):
        yield _gauge(name, "Ledgers known to this bookie.", len(state.ledgers.by_id))
    doc = "Entries: RocksDB's estimate for the index, and those in the write cache."
    entries = state.storages.entry_count_estimate() + state.write_caches.count()
    for name in ("bookie_entries_count", "bookie_storage_entries_count"):
        yield _gauge(name, doc, entries)
    yield _gauge("bookie_ACTIVE_ENTRY_LOG_TOTAL", "Entry log files.", state.storages.entry_log_count())
    directories = bookie.settings.ledger_directories
    yield _gauge("bookie_ledger_num_dirs", "Ledger directories.", len(directories))
    doc = "Ledger directories that take plain adds."
    yield _gauge("bookie_ledger_writable_dirs", doc, availability.writable_directories)
    share_taken = FileSystem().share_taken
    taken = {_NOT_IN_A_NAME.sub("_", str(path.absolute())): share_taken(path) for path in directories}
    # `setdefault`, because a bookie may really have its ledgers in the folder that the dashboard names; a family that
    # comes twice breaks the scrape.
    taken.setdefault(_DASHBOARD_DIRECTORY, share_taken(directories[0]))
    for name, share in taken.items():
        doc = "Percent of the ledger directory's disk in use."
        yield _gauge(f"bookie_ledger_dir_{name}_usage", doc, 100 * share)
    doc = "Ledgers deleted since the start, and over-replicated ones whose entries were given up."
    for name in ("bookie_DELETED_LEDGER_TOTAL", "bookie_DELETED_LEDGER_COUNT"):
        yield _counter(name, doc, bookie.stats.deleted_ledgers)


def _journal(bookie: Bookie) -> Iterator[Metric]:
    journals = bookie.stats.journals
    labels = [{"journalIndex": str(index)} for index in range(len(journals))]
    yield _outcomes(
        "bookie_journal_JOURNAL_ADD_ENTRY",
        "Milliseconds from a record's queueing to its group's sync, as of the oldest in the group.",
        zip(labels, [journal.adds for journal in journals], strict=True),
    )
    yield _outcomes(
        "bookie_journal_JOURNAL_SYNC",
        "Milliseconds of a group's write and sync, which are one call.",
        zip(labels, [journal.syncs for journal in journals], strict=True),
    )
    yield _gauge(
        "bookie_journal_JOURNAL_QUEUE_SIZE",
        "Runs of adds, and other records, that wait for a group.",
        bookie.state.journals.queue_length,
    )
    doc = f"Groups that wait for a sync.{ALWAYS_ZERO}one thread writes and syncs."
    yield _gauge("bookie_journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE", doc, 0)
    doc = f"Answers that wait for a thread.{ALWAYS_ZERO}a group is answered by one call into the loop."
    yield _gauge("bookie_journal_JOURNAL_CB_QUEUE_SIZE", doc, 0)
    groups = Summary.merged([journal.groups for journal in journals])
    yield _counter("bookie_journal_JOURNAL_WRITE_BYTES", "Bytes of records.", bookie.stats.journal_bytes)
    yield _counter("bookie_journal_JOURNAL_NUM_FLUSH_EMPTY_QUEUE", "Groups written.", groups.count)
    yield _summary("bookie_journal_JOURNAL_FORCE_WRITE_BATCH_ENTRIES", "Records per group.", groups)
    failures = sum(journal.failures for journal in journals)
    yield _counter("bookie_journal_JOURNAL_FAILURES", "Writes and syncs that failed.", failures)


def _storage(bookie: Bookie) -> Iterator[Metric]:
    stats, caches = bookie.stats, bookie.state.write_caches
    yield _counter("bookie_WRITE_BYTES", "Bytes of records added.", stats.journal_bytes)
    yield _counter("bookie_READ_BYTES", "Bytes of entries read.", stats.read_bytes)
    doc = "Bytes in the active and the flushing write cache."
    for name in ("bookie_write_cache_size", "bookie_storage_write_cache_size"):
        yield _gauge(name, doc, caches.size)
    yield _gauge(
        "bookie_write_cache_count", "Entries in the active and the flushing write cache.", caches.count()
    )
    yield _counter("bookie_write_cache_hits", "Entries served from the write cache.", stats.write_cache_hits)
    yield _counter("bookie_write_cache_misses", "Entries looked for elsewhere.", stats.write_cache_misses)
    yield _outcome("bookie_add_entry", "Milliseconds per add, journal included.", stats.add_entries())
    yield _outcome(
        "bookie_read_entry",
        "Milliseconds per entry read; counted without a time where memory was enough.",
        stats.read_entries,
    )
    yield _summary("bookie_flush", "Milliseconds per checkpoint that wrote entries.", stats.flush)
    yield _summary("bookie_flush_size", "Entries per checkpoint.", stats.flush_entries)
    doc = "Checkpoints that failed and were repeated."
    yield _counter("bookie_flush_failures", doc, stats.checkpoint_failures)
    yield _counter("bookie_throttled_write_requests", "Adds that waited for a flush.", stats.adds_held)
    doc = "Adds that waited too long for one."
    yield _counter("bookie_rejected_write_requests", doc, stats.adds_rejected)


def _read_cache(bookie: Bookie) -> Iterator[Metric]:
    stats, cache = bookie.stats, bookie.state.read_cache
    doc = "Bytes in the read cache, entries rounded up to 64."
    for name in ("bookie_read_cache_size", "bookie_storage_read_cache_size"):
        yield _gauge(name, doc, cache.size)
    yield _gauge("bookie_read_cache_count", "Entries in the read cache.", cache.count)
    doc = "Entries that a load had brought before they were due."
    yield _counter("bookie_read_cache_hits", doc, stats.read_cache_hits)
    doc = "Entries that a load was started for."
    yield _counter("bookie_read_cache_misses", doc, stats.read_cache_misses)
    doc = "Entries evicted from the read cache before they were first served."
    yield _counter("magnetar_read_cache_evicted_unserved", doc, cache.evicted_unserved)
    doc = (
        "Share of the entries read ahead in the last minute that were evicted before they were first served."
    )
    share = bookie.state.read_cache_watch.share(time.monotonic_ns())
    yield _gauge("magnetar_read_cache_wasted_readahead", doc, share)
    doc = "Entries per load besides the one that it was for."
    yield _summary("bookie_readahead_batch_count", doc, stats.readahead_entries)
    yield _summary("bookie_readahead_batch_size", "Bytes of these per load.", stats.readahead_bytes)
    doc = "dbStorage_readAheadCacheBatchSize."
    yield _gauge("bookie_readahead_max_batch_size", doc, bookie.settings.readahead_entries)
    for name, doc, elapsed_ns in (
        ("bookie_readahead_time", "Milliseconds of loads that read ahead.", stats.readahead_ns),
        ("bookie_read_entrylog_time", "Milliseconds in entry logs.", stats.read_logs_ns),
        ("bookie_read_locations_index_time", "Milliseconds in the location index.", stats.read_index_ns),
    ):
        yield _counter(name, doc, elapsed_ns / 1e6)


def _collection(stats: CollectionStats) -> Iterator[Metric]:
    for suffix in ("TOTAL", "COUNT"):
        yield _counter(f"bookie_MAJOR_COMPACTION_{suffix}", "Major compactions.", stats.majors)
        yield _counter(f"bookie_MINOR_COMPACTION_{suffix}", "Minor compactions.", stats.minors)
    doc = "Compactions of location indexes."
    yield _counter("bookie_ENTRY_LOCATION_COMPACTION_TOTAL", doc, stats.indexes)
    yield _counter(
        "bookie_RECLAIMED_COMPACTION_SPACE_BYTES",
        "Bytes of entry logs that compactions freed.",
        stats.reclaimed_by_compaction,
    )
    yield _counter(
        "bookie_RECLAIMED_DELETION_SPACE_BYTES",
        "Bytes of entry logs removed because all their ledgers were deleted.",
        stats.reclaimed_by_deletion,
    )
    yield _gauge(
        "bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES",
        "Bytes of living ledgers in finished entry logs, as of the last round of garbage collection.",
        stats.alive_bytes,
    )
    yield _gauge("bookie_ENTRY_LOG_SPACE_BYTES", "Bytes of these logs.", stats.log_bytes)
    yield _outcome("bookie_THREAD_RUNTIME", "Milliseconds per round of garbage collection.", stats.rounds)
    yield _outcome("bookie_COMPACT_RUNTIME", "Milliseconds per compaction.", stats.compactions)


def _requests(bookie: Bookie, server: BookieServer | None) -> Iterator[Metric]:
    adds_in_progress = reads_in_progress = blocked = 0
    if server is not None:
        adds_in_progress, reads_in_progress = server.adds_in_progress, server.reads_in_progress
        blocked = server.blocked
    adds, reads = bookie.stats.add_entries(), bookie.stats.read_requests
    for suffix in ("", "_REQUEST"):
        doc = "Milliseconds per add until its answer."
        yield _outcome(f"bookkeeper_server_ADD_ENTRY{suffix}", doc, adds)
        doc = (
            "Milliseconds per read until its answer; counted without a time where it was served from memory."
        )
        yield _outcome(f"bookkeeper_server_READ_ENTRY{suffix}", doc, reads)
    yield _gauge("bookkeeper_server_ADD_ENTRY_IN_PROGRESS", "Adds not yet answered.", adds_in_progress)
    yield _gauge("bookkeeper_server_READ_ENTRY_IN_PROGRESS", "Reads not yet answered.", reads_in_progress)
    doc = "Connections that are not read from until some of their requests are answered."
    for kind in ("ADD", "READ"):
        yield _gauge(f"bookkeeper_server_{kind}_ENTRY_BLOCKED", doc, blocked)
    yield _thread_queues(
        # Fences and adds of a recovery take the same way as all others, so no high priority thread exists.
        [("BookieReadThreadPool-0", bookie.state.read_pool.queue_length), ("BookieHighPriorityThread-0", 0)]
    )


def _thread_queues(lengths: Sequence[tuple[str, int]]) -> Metric:
    doc = (
        "Reads that wait for a thread. Of the high priority one always 0: no request has a thread of its own."
    )
    family = GaugeMetricFamily("bookkeeper_server_thread_executor_queue", doc, labels=["thread"])
    for thread, length in lengths:
        family.add_metric([thread], length)
    return family
