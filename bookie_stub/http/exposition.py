"""The bookie's counters as Prometheus text, under BookKeeper's names, so that existing dashboards fit.

Timers are milliseconds, as summaries with quantiles of the newest observations. A name that dashboards ask
for and that cannot move yet says so in its HELP. Names of older BookKeeper releases (`_COUNT`) stand beside
the newer ones (`_TOTAL`), because dashboards use both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.metrics import CollectionStats, Outcome, Summary, merged
from bookie_stub.compose.bookie import Bookie

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)
ALWAYS_ZERO = " Always 0 so far: "
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_:]")
DASHBOARD_DIRECTORY = "_pulsar_data_bookkeeper_ledgers_0"
"""The directory that a stock dashboard has in the name of its panel."""


class Load(Protocol):
    """What the TCP side has in hand."""

    @property
    def adds_in_progress(self) -> int: ...

    @property
    def reads_in_progress(self) -> int: ...

    blocked: int


class _NoLoad:
    adds_in_progress = reads_in_progress = blocked = 0


class _Text:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def single(self, kind: str, name: str, doc: str, value: float, labels: str = "") -> None:
        self._head(kind, name, doc)
        self.lines.append(f"{name}{{{labels}}} {_number(value)}" if labels else f"{name} {_number(value)}")

    def gauge(self, name: str, doc: str, value: float, labels: str = "") -> None:
        self.single("gauge", name, doc, value, labels)

    def counter(self, names: str, doc: str, value: float) -> None:
        """`names`: one or more, divided by blanks."""
        for name in names.split():
            self.single("counter", name, doc, value)

    def summary(self, name: str, doc: str, summary: Summary) -> None:
        self._head("summary", name, doc)
        self._summary(name, "", summary)

    def outcome(self, names: str, doc: str, outcome: Outcome) -> None:
        for name in names.split():
            self.outcomes(name, doc, [("", outcome)])

    def outcomes(self, name: str, doc: str, outcomes: Sequence[tuple[str, Outcome]]) -> None:
        """Each with its labels in front."""
        self._head("summary", name, doc)
        for labels, outcome in outcomes:
            for success, summary in (("true", outcome.ok), ("false", outcome.failed)):
                self._summary(name, f'{labels}success="{success}",', summary)

    def _summary(self, name: str, labels: str, summary: Summary) -> None:
        for quantile, value in zip(QUANTILES, summary.quantiles(QUANTILES), strict=True):
            self.lines.append(f'{name}{{{labels}quantile="{quantile}"}} {_number(value)}')
        rest = f"{{{labels[:-1]}}}" if labels else ""
        self.lines.append(f"{name}_count{rest} {summary.count}")
        self.lines.append(f"{name}_sum{rest} {_number(summary.sum)}")

    def _head(self, kind: str, name: str, doc: str) -> None:
        self.lines += (f"# HELP {name} {doc}", f"# TYPE {name} {kind}")


def render(bookie: Bookie, load: Load | None = None) -> str:
    """The whole scrape."""
    text = _Text()
    _state(text, bookie)
    _journal(text, bookie)
    _storage(text, bookie)
    _collection(text, bookie.stats.collection)
    _requests(text, bookie, load or _NoLoad())
    return "\n".join(text.lines) + "\n"


def _state(text: _Text, bookie: Bookie) -> None:
    stats = bookie.stats
    text.gauge("bookie_SERVER_STATUS", "1 writable, 0 read-only.", 0 if bookie.read_only else 1)
    text.gauge("bookie_ledgers_count", "Ledgers known to this bookie.", bookie.ledger_count)
    text.gauge("bookie_ACTIVE_LEDGER_TOTAL", "Ledgers known to this bookie.", bookie.ledger_count)
    text.gauge(
        "bookie_entries_count",
        "Entries: RocksDB's estimate for the index, and those in the write cache.",
        bookie.entry_count,
    )
    text.gauge("bookie_ACTIVE_ENTRY_LOG_TOTAL", "Entry log files.", bookie.entry_log_count)
    directories = bookie.settings.ledger_directories
    text.gauge("bookie_ledger_num_dirs", "Ledger directories.", len(directories))
    writable = bookie.writable_directories
    text.gauge("bookie_ledger_writable_dirs", "Ledger directories that take plain adds.", writable)
    share_taken = FileSystem().share_taken
    taken = {_NOT_IN_A_NAME.sub("_", str(path.absolute())): share_taken(path) for path in directories}
    taken.setdefault(DASHBOARD_DIRECTORY, share_taken(directories[0]))
    for name, share in taken.items():
        doc = "Percent of the ledger directory's disk in use."
        text.gauge(f"bookie_ledger_dir_{name}_usage", doc, 100 * share)
    deleted = "Ledgers deleted since the start, and over-replicated ones whose entries were given up."
    text.counter("bookie_DELETED_LEDGER_TOTAL bookie_DELETED_LEDGER_COUNT", deleted, stats.deleted_ledgers)


def _journal(text: _Text, bookie: Bookie) -> None:
    journals = bookie.stats.journals
    labels = [f'journalIndex="{index}",' for index in range(len(journals))]
    text.outcomes(
        "bookie_journal_JOURNAL_ADD_ENTRY",
        "Milliseconds from a record's queueing to its group's sync, as of the oldest in the group.",
        [(label, journal.adds) for label, journal in zip(labels, journals, strict=True)],
    )
    text.outcomes(
        "bookie_journal_JOURNAL_SYNC",
        "Milliseconds of a group's write and sync, which are one call.",
        [(label, journal.syncs) for label, journal in zip(labels, journals, strict=True)],
    )
    text.gauge(
        "bookie_journal_JOURNAL_QUEUE_SIZE",
        "Runs of adds, and other records, that wait for a group.",
        bookie.journal_queue_length,
    )
    text.gauge(
        "bookie_journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE",
        f"Groups that wait for a sync.{ALWAYS_ZERO}one thread writes and syncs.",
        0,
    )
    text.gauge(
        "bookie_journal_JOURNAL_CB_QUEUE_SIZE",
        f"Answers that wait for a thread.{ALWAYS_ZERO}a group is answered by one call into the loop.",
        0,
    )
    groups = merged([journal.groups for journal in journals])
    text.counter("bookie_journal_JOURNAL_WRITE_BYTES", "Bytes of records.", bookie.stats.journal_bytes)
    text.counter("bookie_journal_JOURNAL_NUM_FLUSH_EMPTY_QUEUE", "Groups written.", groups.count)
    text.summary("bookie_journal_JOURNAL_FORCE_WRITE_BATCH_ENTRIES", "Records per group.", groups)
    failures = sum(journal.failures for journal in journals)
    text.counter("bookie_journal_JOURNAL_FAILURES", "Writes and syncs that failed.", failures)


def _storage(text: _Text, bookie: Bookie) -> None:
    stats, cache = bookie.stats, bookie.write_cache
    text.counter("bookie_WRITE_BYTES", "Bytes of records added.", stats.journal_bytes)
    text.counter("bookie_READ_BYTES", "Bytes of entries read.", stats.read_bytes)
    text.gauge("bookie_write_cache_size", "Bytes in the write cache, both halves.", cache.size)
    text.gauge("bookie_write_cache_count", "Entries in the write cache, both halves.", cache.count())
    text.counter("bookie_write_cache_hits", "Entries served from the write cache.", stats.write_cache_hits)
    text.counter("bookie_write_cache_misses", "Entries looked for elsewhere.", stats.write_cache_misses)
    _read_cache(text, bookie)
    text.outcome("bookie_add_entry", "Milliseconds per add, journal included.", stats.add_entries())
    text.outcome(
        "bookie_read_entry",
        "Milliseconds per entry read; counted without a time where memory was enough.",
        stats.read_entries,
    )
    text.summary("bookie_flush", "Milliseconds per checkpoint that wrote entries.", stats.flush)
    text.summary("bookie_flush_size", "Entries per checkpoint.", stats.flush_entries)
    text.counter(
        "bookie_flush_failures", "Checkpoints that failed and were repeated.", stats.checkpoint_failures
    )
    text.counter("bookie_throttled_write_requests", "Adds that waited for a flush.", stats.adds_held)
    text.counter("bookie_rejected_write_requests", "Adds that waited too long for one.", stats.adds_rejected)


def _collection(text: _Text, stats: CollectionStats) -> None:
    text.counter(
        "bookie_MAJOR_COMPACTION_TOTAL bookie_MAJOR_COMPACTION_COUNT", "Major compactions.", stats.majors
    )
    text.counter(
        "bookie_MINOR_COMPACTION_TOTAL bookie_MINOR_COMPACTION_COUNT", "Minor compactions.", stats.minors
    )
    text.counter("bookie_ENTRY_LOCATION_COMPACTION_TOTAL", "Compactions of location indexes.", stats.indexes)
    text.counter(
        "bookie_RECLAIMED_COMPACTION_SPACE_BYTES",
        "Bytes of entry logs that compactions freed.",
        stats.reclaimed_by_compaction,
    )
    text.counter(
        "bookie_RECLAIMED_DELETION_SPACE_BYTES",
        "Bytes of entry logs removed because all their ledgers were deleted.",
        stats.reclaimed_by_deletion,
    )
    text.gauge(
        "bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES",
        "Bytes of living ledgers in finished entry logs, as of the last round of garbage collection.",
        stats.alive_bytes,
    )
    text.gauge("bookie_ENTRY_LOG_SPACE_BYTES", "Bytes of these logs.", stats.log_bytes)
    text.outcome("bookie_THREAD_RUNTIME", "Milliseconds per round of garbage collection.", stats.rounds)
    text.outcome("bookie_COMPACT_RUNTIME", "Milliseconds per compaction.", stats.compactions)


def _read_cache(text: _Text, bookie: Bookie) -> None:
    stats, cache = bookie.stats, bookie.read_cache
    text.gauge("bookie_read_cache_size", "Bytes in the read cache, entries rounded up to 64.", cache.size)
    text.gauge("bookie_read_cache_count", "Entries in the read cache.", cache.count)
    text.counter(
        "bookie_read_cache_hits",
        "Entries that a load had brought before they were due.",
        stats.read_cache_hits,
    )
    text.counter("bookie_read_cache_misses", "Entries that a load was started for.", stats.read_cache_misses)
    text.summary(
        "bookie_readahead_batch_count",
        "Entries per load besides the one that it was for.",
        stats.readahead_entries,
    )
    text.summary("bookie_readahead_batch_size", "Bytes of these per load.", stats.readahead_bytes)
    text.gauge(
        "bookie_readahead_max_batch_size",
        "dbStorage_readAheadCacheBatchSize.",
        bookie.settings.readahead_entries,
    )
    text.counter("bookie_readahead_time", "Milliseconds of loads that read ahead.", stats.readahead_ns / 1e6)
    text.counter("bookie_read_entrylog_time", "Milliseconds in entry logs.", stats.read_logs_ns / 1e6)
    text.counter(
        "bookie_read_locations_index_time", "Milliseconds in the location index.", stats.read_index_ns / 1e6
    )


def _requests(text: _Text, bookie: Bookie, load: Load) -> None:
    stats = bookie.stats
    text.outcome(
        "bookkeeper_server_ADD_ENTRY bookkeeper_server_ADD_ENTRY_REQUEST",
        "Milliseconds per add until its answer.",
        stats.add_entries(),
    )
    text.outcome(
        "bookkeeper_server_READ_ENTRY bookkeeper_server_READ_ENTRY_REQUEST",
        "Milliseconds per read until its answer; counted without a time where it was served from memory.",
        stats.read_requests,
    )
    text.gauge("bookkeeper_server_ADD_ENTRY_IN_PROGRESS", "Adds not yet answered.", load.adds_in_progress)
    text.gauge("bookkeeper_server_READ_ENTRY_IN_PROGRESS", "Reads not yet answered.", load.reads_in_progress)
    for kind in ("ADD", "READ"):
        doc = "Connections that are not read from until some of their requests are answered."
        text.gauge(f"bookkeeper_server_{kind}_ENTRY_BLOCKED", doc, load.blocked)
    doc = "Reads that wait for a thread. Of the high priority one always 0: nothing takes a way of its own."
    text._head("gauge", "bookkeeper_server_thread_executor_queue", doc)
    text.lines += _thread_queues(bookie)


def _thread_queues(bookie: Bookie) -> Iterable[str]:
    name = "bookkeeper_server_thread_executor_queue"
    yield f'{name}{{thread="BookieReadThreadPool-0"}} {bookie.read_queue_length}'
    # Fences and recovery adds take the same way as everything else, so nothing waits here.
    yield f'{name}{{thread="BookieHighPriorityThread-0"}} 0'


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    return str(int(value)) if value == int(value) else repr(float(value))
