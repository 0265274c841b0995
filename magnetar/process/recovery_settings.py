"""AutoRecoverySettings: the keys of bookkeeper.conf about re-replication."""

from __future__ import annotations

from bookie_stub.config.fields import bookie_key
from bookkeeper.repair.settings import RecoverySettings
from foundation.settings.fields import RoomSettings


class AutoRecoverySettings(RoomSettings, RecoverySettings):
    """`RecoverySettings` from the keys of bookkeeper.conf."""

    lost_bookie_delay_s: int = bookie_key.int("lostBookieRecoveryDelay")
    check_interval_s: int = bookie_key.int("auditorPeriodicCheckInterval")
    bookie_check_interval_s: int = bookie_key.int("auditorPeriodicBookieCheckInterval")
    open_ledger_grace_ns: int = bookie_key.int("openLedgerRereplicationGracePeriod", "ns")
    batch_entries: int = bookie_key.int("rereplicationEntryBatchSize")
    bytes_per_s: int = bookie_key.int("replicationRateByBytes")
    backoff_ns: int = bookie_key.int("rwRereplicateBackoffMs", "ns")
    backoff_ns_max: int = bookie_key.int("lockReleaseOfFailedLedgerGracePeriod", "ns")
