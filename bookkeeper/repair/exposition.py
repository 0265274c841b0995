"""Counters of re-replication for Prometheus, under BookKeeper's names.

BookKeeper's counters have no suffix `_total`; a bookie that runs re-replication adds these lines to its own scrape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from bookkeeper.repair.stats import AuditorStats, RecoveryStats, WorkerStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of the text that `render` returns."""
_COUNTER_SUFFIX = re.compile(rb"^((?:# (?:HELP|TYPE) )?\w+)_total(?= )", re.MULTILINE)
IN_A_BOOKIE = "replication_"
"""Prefix of BookKeeper's names where re-replication runs inside a bookie."""


def render(stats: RecoveryStats, prefix: str = "") -> bytes:
    """Returns the text of one scrape. `prefix` stands in front of BookKeeper's names."""
    return _COUNTER_SUFFIX.sub(rb"\1", generate_latest(_RecoveryCollector(stats, prefix)))


class _RecoveryCollector(Collector):
    def __init__(self, stats: RecoveryStats, prefix: str) -> None:
        self._stats = stats
        self._auditor = f"{prefix}auditor_"
        self._worker = f"{prefix}replication_worker_"

    def collect(self) -> Iterator[Metric]:
        """Yields every family; called by prometheus_client."""
        yield from self._auditor_families(self._stats.auditor)
        yield from self._worker_families(self._stats.worker)

    def _auditor_families(self, auditor: AuditorStats) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "magnetar_auditor_elected", "1 where this process is the cluster's auditor.", auditor.elected
        )
        yield GaugeMetricFamily(
            "magnetar_auditor_under_replicated_ledgers",
            "Marked ledgers, as the elected auditor counted them last.",
            auditor.marked_now if auditor.elected else 0,
        )
        yield _sums(
            f"{self._auditor}NUM_UNDER_REPLICATED_LEDGERS",
            "Ledgers that each search for lost bookies' ledgers marked.",
            auditor.audits,
            auditor.marked_at_audits,
        )
        for name, doc, value in (
            (
                "election_attempts",
                "Looks at the election while another process was the auditor.",
                auditor.elections,
            ),
            ("NUM_LEDGERS_CHECKED", "Ledgers whose copies were asked for.", auditor.checked),
            ("NUM_BOOKIE_AUDITS_DELAYED", "Waits for a lost bookie to come back.", auditor.delayed),
            ("NUM_DELAYED_BOOKIE_AUDITS_CANCELLED", "Waits that ended because it did.", auditor.cancelled),
        ):
            yield CounterMetricFamily(self._auditor + name, doc, value)
        yield CounterMetricFamily("magnetar_auditor_marked_ledgers", "Ledgers marked.", auditor.marked)

    def _worker_families(self, worker: WorkerStats) -> Iterator[Metric]:
        for name, doc, value in (
            (
                "NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED",
                "Ledgers of which a part was copied.",
                worker.replicated,
            ),
            ("NUM_ENTRIES_READ", "Entries read to be copied.", worker.entries_read),
            (
                "NUM_ENTRIES_WRITTEN",
                "Entries copied, after the answer to their adds.",
                worker.entries_written,
            ),
            (
                "NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER",
                "Attempts that left a ledger for later, because copies were still missing.",
                worker.deferred,
            ),
            (
                "NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION",
                "Attempts to read an entry that no bookie could give.",
                worker.unreadable,
            ),
        ):
            yield CounterMetricFamily(self._worker + name, doc, value)
        yield _sums(
            f"{self._worker}NUM_BYTES_READ",
            "Bytes of each entry read.",
            worker.entries_read,
            worker.bytes_read,
        )
        yield _sums(
            f"{self._worker}NUM_BYTES_WRITTEN",
            "Bytes of each entry copied.",
            worker.entries_written,
            worker.bytes_written,
        )
        for name, doc, value in (
            ("finished_ledgers", "Ledgers whose mark was removed.", worker.finished),
            ("failed_attempts", "Attempts at a ledger that ended with an error.", worker.failed),
            ("recovered_ledgers", "Open ledgers that were fenced and closed.", worker.recovered),
        ):
            yield CounterMetricFamily(f"magnetar_rereplication_{name}", doc, value)


def _sums(name: str, doc: str, count: int, total: int) -> Metric:
    """Returns a summary with BookKeeper's label `success`, without quantiles: single values are not kept."""
    family = SummaryMetricFamily(name, doc, labels=["success"])
    family.add_metric(["true"], count, total)
    return family
