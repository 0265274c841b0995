"""RecoverySettings: times and limits of re-replication."""

from __future__ import annotations

from foundation.value import Value


class RecoverySettings(Value, kw_only=True):
    """Times and limits of auditor and worker."""

    lost_bookie_delay_s: int
    """Time for a lost bookie to come back; counts only until a delay is stored in the metadata store."""
    check_interval_s: int
    """Time between two checks of all ledgers; 0 = never."""
    bookie_check_interval_s: int
    """Time between two searches of all ledgers for lost bookies; 0 = only when a bookie is lost."""
    open_ledger_grace_ns: int
    """Time for a writer to replace a lost bookie itself, before its ledger is fenced."""
    batch_entries: int
    """Entries that are copied at a time."""
    bytes_per_s: int
    """Limit of the bytes that the process copies; 0 or less = no limit."""
    backoff_ns: int
    """Wait after the first failed attempt at a ledger; it doubles with each further one."""
    backoff_ns_max: int
    """Longest wait between two attempts at a ledger."""
