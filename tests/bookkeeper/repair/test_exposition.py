"""The scrape of re-replication has BookKeeper's summaries, with and without the prefix of a bookie."""

from __future__ import annotations

from bookkeeper.repair.exposition import IN_A_BOOKIE, render
from bookkeeper.repair.stats import AuditorStats, RecoveryStats, WorkerStats


def lines_of(prefix: str) -> list[str]:
    auditor = AuditorStats(elected=True, marked_now=4, marked=9, marked_at_audits=7, audits=2)
    worker = WorkerStats(entries_read=3, bytes_read=300, entries_written=2, bytes_written=200)
    return render(RecoveryStats(auditor, worker), prefix).decode().splitlines()


def test_summaries_have_counts_and_sums_of_bookkeepers_form() -> None:
    lines = lines_of("")
    assert 'auditor_NUM_UNDER_REPLICATED_LEDGERS_count{success="true"} 2.0' in lines
    assert 'auditor_NUM_UNDER_REPLICATED_LEDGERS_sum{success="true"} 7.0' in lines
    assert 'replication_worker_NUM_BYTES_READ_count{success="true"} 3.0' in lines
    assert 'replication_worker_NUM_BYTES_READ_sum{success="true"} 300.0' in lines
    assert 'replication_worker_NUM_BYTES_WRITTEN_sum{success="true"} 200.0' in lines
    assert "replication_worker_NUM_ENTRIES_WRITTEN 2.0" in lines
    assert "magnetar_auditor_under_replicated_ledgers 4.0" in lines


def test_names_of_bookkeeper_have_the_prefix_of_a_bookie() -> None:
    lines = lines_of(IN_A_BOOKIE)
    assert 'replication_replication_worker_NUM_BYTES_READ_sum{success="true"} 300.0' in lines
    assert "magnetar_auditor_under_replicated_ledgers 4.0" in lines
