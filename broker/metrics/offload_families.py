"""Families of tiered storage, under Pulsar's names: copies of ledgers, and reads from them, by namespace."""

from __future__ import annotations

from typing import Final

from broker.numbers.family import Family, by, histogram

OFFLOADS: Final = (
    Family(
        "brk_ledgeroffloader_offload_rate",
        "gauge",
        "offloads.offload_rate",
        "Bytes per second that were copied to tiered storage in the last minute.",
        label="namespace",
    ),
    Family(
        "brk_ledgeroffloader_read_offload_rate",
        "gauge",
        "offloads.read_rate",
        "Bytes per second that were read from tiered storage in the last minute.",
        label="namespace",
    ),
    by(
        "namespace",
        "",
        "brk_ledgeroffloader_offload_error_total",
        "offloads.offload_errors",
        "Copies of ledgers that failed.",
    ),
    by(
        "namespace",
        "",
        "brk_ledgeroffloader_write_storage_error_total",
        "offloads.write_errors",
        "Writes that tiered storage refused.",
    ),
    by(
        "namespace",
        "",
        "brk_ledgeroffloader_read_offload_error_total",
        "offloads.read_errors",
        "Reads from tiered storage that failed.",
    ),
    by(
        "namespace",
        "",
        "brk_ledgeroffloader_read_bytes_total",
        "offloads.read_bytes",
        "Bytes of entries that were read from tiered storage.",
    ),
    by(
        "namespace status",
        "",
        "brk_ledgeroffloader_delete_offload_ops_total",
        "offloads.deletes",
        "Deletions of copies of ledgers, `succeed` or `failed`.",
    ),
)
"""Labels cluster and namespace; deletions have a status besides."""

OFFLOAD_LATENCIES: Final = (
    histogram(
        "namespace",
        "",
        "brk_ledgeroffloader_write_storage_latency",
        "offloads.write_latency",
        "Writes of objects to tiered storage.",
    ),
    histogram(
        "namespace",
        "",
        "brk_ledgeroffloader_read_ledger_latency",
        "offloads.read_ledger_latency",
        "Reads from the bookies for a copy of a ledger.",
    ),
    histogram(
        "namespace",
        "",
        "brk_ledgeroffloader_read_offload_index_latency",
        "offloads.read_index_latency",
        "Reads of the index of a copy.",
    ),
    histogram(
        "namespace",
        "",
        "brk_ledgeroffloader_read_offload_data_latency",
        "offloads.read_data_latency",
        "Range requests for entries of a copy.",
    ),
)
"""Histograms in seconds."""
