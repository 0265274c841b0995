"""ManagedLedgerSettings: the values of broker.conf for managed ledgers and cursors."""

from __future__ import annotations

from dataclasses import dataclass

NS_PER_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ManagedLedgerSettings:
    """The settings of all managed ledgers of a broker.

    Replaced as a whole when a setting changes at run time.
    """

    entries_per_ledger_max: int = 50_000
    """`managedLedgerMaxEntriesPerLedger`: a ledger with so many entries is full."""

    ledger_bytes_max: int = 2048 << 20
    """`managedLedgerMaxSizePerLedgerMbytes` in bytes: a ledger of this size is full too."""

    rollover_ns_min: int = 10 * 60 * NS_PER_SECOND
    """`managedLedgerMinLedgerRolloverTimeMinutes`: a full ledger younger than this takes adds on."""

    rollover_ns_max: int = 240 * 60 * NS_PER_SECOND
    """`managedLedgerMaxLedgerRolloverTimeMinutes`: an older ledger is closed, full or not. 0 = never."""

    mark_delete_rate: float = 1.0
    """`managedLedgerDefaultMarkDeleteRateLimit`: writes of a cursor's info per second; 0 or less = after every change."""

    ack_ranges_max: int = 10_000
    """`managedLedgerMaxUnackedRangesToPersist`: further ranges are in memory only, so redelivered after a crash."""

    batch_ack_sets_max: int = 10_000
    """`managedLedgerMaxBatchDeletedIndexToPersist`: likewise for partly acknowledged batches."""

    read_bytes_max: int = 5 << 20
    """Bytes asked of the ledger client in one batch read; must stay below its frame limit."""

    track_mark_delete: bool = False
    """`cacheEvictionByMarkDeletedPosition`: active cursors are ranked by mark-delete instead of read position."""

    expected_reads: bool = True
    """`cacheEvictionByExpectedReadCount`: entries are cached with the number of readers to come."""

    continue_caching_ns: int = 2 * NS_PER_SECOND
    """`managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis`; 0 or less = not at all."""

    backlog_cursors_min_for_caching: int = 0
    """`managedLedgerMinimumBacklogCursorsForCaching`: so many backlogs of similar size make their reads cached;
    0 = never. Like the next three without meaning while `expected_reads`."""

    backlog_entries_min_for_caching: int = 1000
    """`managedLedgerMinimumBacklogEntriesForCaching`: a cursor with fewer entries of backlog is not counted."""

    backlog_between_cursors_max_for_caching: int = 1000
    """`managedLedgerMaxBacklogBetweenCursorsForCaching`: entries by which similar backlogs may differ."""

    cursor_backlogged_threshold: int = 1000
    """`managedLedgerCursorBackloggedThreshold`: with more entries of backlog a cursor is no active one."""

    read_timeout_s: int = 0
    """`managedLedgerReadEntryTimeoutSeconds`: a read for a cursor fails after so long; 0 = the client's time-out."""

    def __post_init__(self) -> None:
        if self.entries_per_ledger_max < 1:
            raise ValueError(f"managedLedgerMaxEntriesPerLedger is below 1: {self.entries_per_ledger_max}")
        if self.ledger_bytes_max < 1:
            raise ValueError(f"managedLedgerMaxSizePerLedgerMbytes is below 1 byte: {self.ledger_bytes_max}")
        if self.read_bytes_max < 1:
            raise ValueError(f"bytes per read are below 1: {self.read_bytes_max}")

    @property
    def cursor_write_interval_ns(self) -> int:
        """Shortest time between two writes of a cursor's info, or 0."""
        return round(NS_PER_SECOND / self.mark_delete_rate) if self.mark_delete_rate > 0 else 0
