"""ManagedLedgerSettings: the keys of broker.conf about managed ledgers and their cursors."""

from __future__ import annotations

from bookkeeper.ensembles.settings import Copies
from broker.config.fields import broker_key
from foundation.settings.fields import RoomSettings
from foundation.settings.settings import Settings

NS_PER_SECOND = 1_000_000_000


def _read_bytes_max(settings: Settings) -> int:
    # One batch read must stay below the frame limit of the ledger client, which follows maxMessageSize.
    return min(settings.int("dispatcherMaxReadSizeBytes"), settings.int("maxMessageSize"))


class ManagedLedgerSettings(RoomSettings):
    """Limits of ledgers, persistence of cursors, and the rules for caching."""

    entries_per_ledger_max: int = broker_key.int("managedLedgerMaxEntriesPerLedger")
    """Entries at which a ledger is full."""
    ledger_bytes_max: int = broker_key.int("managedLedgerMaxSizePerLedgerMbytes", "bytes")
    """Size at which a ledger is full."""
    rollover_ns_min: int = broker_key.int("managedLedgerMinLedgerRolloverTimeMinutes", "ns")
    """Age below which a full ledger is written on."""
    rollover_ns_max: int = broker_key.int("managedLedgerMaxLedgerRolloverTimeMinutes", "ns")
    """Age at which a ledger is closed even if it is not full; 0 or less = never."""
    mark_delete_rate: float = broker_key.float("managedLedgerDefaultMarkDeleteRateLimit")
    """Times per second that a cursor's info is written; 0 or less = after every change."""
    ack_ranges_max: int = broker_key.int("managedLedgerMaxUnackedRangesToPersist")
    """Acknowledged ranges that are written; further ones are redelivered after a crash."""
    batch_ack_sets_max: int = broker_key.int("managedLedgerMaxBatchDeletedIndexToPersist")
    """Partly acknowledged batches that are written; further ones are redelivered after a crash."""
    read_bytes_max: int = broker_key.rule(_read_bytes_max)
    """Bytes that one batch read asks of the ledger client."""
    track_mark_delete: bool = broker_key.bool("cacheEvictionByMarkDeletedPosition")
    """Rank active cursors by mark-delete position instead of read position."""
    expected_reads: bool = broker_key.bool("cacheEvictionByExpectedReadCount")
    """Cache entries with the number of their expected reads (PIP-430)."""
    continue_caching_ns: int = broker_key.int(
        "managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis", "ns"
    )
    """Time for which entries are cached after the last active cursor left; 0 or less = none."""
    backlog_cursors_min_for_caching: int = broker_key.int("managedLedgerMinimumBacklogCursorsForCaching")
    """Backlogs of similar size that make reads from storage cached; 0 = never.

    This field and the next three have no effect while `expected_reads`.
    """
    backlog_entries_min_for_caching: int = broker_key.int("managedLedgerMinimumBacklogEntriesForCaching")
    """Entries of backlog below which a cursor is not counted for that."""
    backlog_between_cursors_max_for_caching: int = broker_key.int(
        "managedLedgerMaxBacklogBetweenCursorsForCaching"
    )
    """Entries by which two backlogs of similar size may differ."""
    cursor_backlogged_threshold: int = broker_key.int("managedLedgerCursorBackloggedThreshold")
    """Entries of backlog above which a cursor is not active."""
    copies: Copies | None = broker_key.rule(lambda _: None)
    """Bookies of the next ledger and copies of its entries, by a policy; None = the ledger client's settings."""
    read_timeout_s: int = broker_key.int("managedLedgerReadEntryTimeoutSeconds")
    """Seconds after which a read for a cursor fails; 0 = the ledger client's time-out alone."""
    skips_lost: bool = broker_key.bool("autoSkipNonRecoverableData")
    """Acknowledge entries that are lost, so that their readers go on."""
    delayed_segment_entries: int = broker_key.int("delayedDeliveryMaxIndexesPerBucketSnapshotSegment")
    """Delayed entries of one segment of a bucket; a sealed one is one entry of the bucket's ledger."""
    delayed_bucket_entries: int = broker_key.int("delayedDeliveryMinIndexCountPerBucket")
    """Delayed entries at which a bucket is stored."""

    def __post_init__(self) -> None:
        if self.entries_per_ledger_max < 1:
            raise ValueError(f"managedLedgerMaxEntriesPerLedger is below 1: {self.entries_per_ledger_max}")
        if self.ledger_bytes_max < 1:
            raise ValueError(f"managedLedgerMaxSizePerLedgerMbytes is below 1 byte: {self.ledger_bytes_max}")
        if self.read_bytes_max < 1:
            raise ValueError(f"bytes per read are below 1: {self.read_bytes_max}")

    @property
    def cursor_write_interval_ns(self) -> int:
        """Time between two writes of a cursor's info; 0 = each change is written."""
        return round(NS_PER_SECOND / self.mark_delete_rate) if self.mark_delete_rate > 0 else 0
