"""AutoRecoverySettings: the keys of bookkeeper.conf about re-replication."""

from __future__ import annotations

from bookie_stub.config.fields import bookie_key
from settings.fields import RoomSettings


class AutoRecoverySettings(RoomSettings):
    """Times and limits of auditor and worker."""

    lost_bookie_delay_s: int = bookie_key.int("lostBookieRecoveryDelay")
    """Time for a lost bookie to come back; counts only until a delay is stored in the metadata store."""
    check_interval_s: int = bookie_key.int("auditorPeriodicCheckInterval")
    """Time between two checks of all ledgers; 0 = never."""
    bookie_check_interval_s: int = bookie_key.int("auditorPeriodicBookieCheckInterval")
    """Time between two searches of all ledgers for lost bookies; 0 = only when a bookie is lost."""
    open_ledger_grace_ns: int = bookie_key.int("openLedgerRereplicationGracePeriod", "ns")
    """Time for a writer to replace a lost bookie itself, before its ledger is fenced."""
    batch_entries: int = bookie_key.int("rereplicationEntryBatchSize")
    """Entries that are copied at a time."""
    bytes_per_s: int = bookie_key.int("replicationRateByBytes")
    """Limit of the bytes that the process copies; 0 or less = no limit."""
    backoff_ns: int = bookie_key.int("rwRereplicateBackoffMs", "ns")
    """Wait after the first failed attempt at a ledger; it doubles with each further one."""
    backoff_ns_max: int = bookie_key.int("lockReleaseOfFailedLedgerGracePeriod", "ns")
    """Longest wait between two attempts at a ledger."""
