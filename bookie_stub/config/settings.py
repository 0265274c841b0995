"""Settings of the bookie's rooms, made of bookkeeper.conf's keys.

`BookieSettings.of(settings)` reads all of them. Each field names its key, so its default stands in `keys.py` alone.
"""

from __future__ import annotations

from pathlib import Path

from bookie_stub.config.fields import bookie_key
from bookie_stub.config.tls import TlsFiles, tls_files
from foundation.settings.computed import receive_sizes
from foundation.settings.errors import SettingsError
from foundation.settings.fields import RoomSettings
from foundation.settings.settings import Settings
from foundation.zookeeper.url import ZookeeperUrl, parse_service_uri


def _receive_sizes(settings: Settings) -> tuple[int, int, int] | None:
    return receive_sizes(
        settings, "byteBufAllocatorSizeMin", "byteBufAllocatorSizeInitial", "byteBufAllocatorSizeMax"
    )


def _group_wait_s(settings: Settings) -> float:
    if settings.bool("journalFlushWhenQueueEmpty"):
        return 0.0
    return settings.int("journalMaxGroupWaitMSec") / 1000


class GroupSettings(RoomSettings):
    """Limits of a journal group. The first one that is reached ends the wait for further records."""

    wait_s: float = bookie_key.rule(_group_wait_s)
    """Age of the oldest record; 0 = the group is what has come while the last one was synced."""
    bytes_max: int = bookie_key.int("journalBufferedWritesThreshold")
    records_max: int = bookie_key.int("journalBufferedEntriesThreshold")


def _major_threshold(settings: Settings) -> float:
    minor, major = settings.float("minorCompactionThreshold"), settings.float("majorCompactionThreshold")
    if 0 < major < minor:
        raise settings.error(
            "majorCompactionThreshold", f"allowed is at least minorCompactionThreshold, {minor:g}"
        )
    return major


def _compaction_rate(settings: Settings) -> float:
    return settings.int(
        "compactionRateByBytes" if settings.bool("isThrottleByBytes") else "compactionRateByEntries"
    )


class CollectionSettings(RoomSettings):
    """Garbage collection and compaction. A threshold is a share of a log's bytes; 0 or less switches off."""

    wait_s: float = bookie_key.float("gcWaitTime", "s")
    verify: bool = bookie_key.bool("verifyMetadataOnGC")
    over_replicated_wait_s: float = bookie_key.float("gcOverreplicatedLedgerWaitTime", "s")
    metadata_rate: float = bookie_key.float("gcMetadataOpRateLimit")
    minor_threshold: float = bookie_key.float("minorCompactionThreshold")
    minor_interval_s: float = bookie_key.float("minorCompactionInterval")
    minor_time_s_max: float = bookie_key.float("minorCompactionMaxTimeMillis", "s")
    major_threshold: float = bookie_key.rule(_major_threshold)
    """Share of living bytes below which a major compaction takes a log."""
    major_interval_s: float = bookie_key.float("majorCompactionInterval")
    major_time_s_max: float = bookie_key.float("majorCompactionMaxTimeMillis", "s")
    force_allowed: bool = bookie_key.bool("forceAllowCompaction")
    by_whole_logs: bool = bookie_key.bool("useTargetEntryLogSizeForGc")
    index_interval_s: float = bookie_key.float("entryLocationCompactionInterval")
    rate: float = bookie_key.rule(_compaction_rate)
    """Entries or bytes copied per second; 0 = no limit."""
    rate_in_bytes: bool = bookie_key.bool("isThrottleByBytes")
    force_when_full: bool = bookie_key.bool("isForceGCAllowWhenNoSpace")

    @property
    def minor(self) -> bool:
        """Minor compactions run by time."""
        return self.minor_threshold > 0 and self.minor_interval_s > 0

    @property
    def minor_by_force(self) -> bool:
        """Minor compactions run on request."""
        return self.minor_threshold > 0 and (self.force_allowed or self.minor)

    @property
    def major(self) -> bool:
        """Major compactions run by time."""
        return self.major_threshold > 0 and self.major_interval_s > 0

    @property
    def major_by_force(self) -> bool:
        """Major compactions run on request."""
        return self.major_threshold > 0 and (self.force_allowed or self.major)


def _warn_share(settings: Settings) -> float:
    return min(settings.float("diskUsageWarnThreshold"), settings.float("diskUsageThreshold"))


def _low_share(settings: Settings) -> float:
    full, low = settings.float("diskUsageThreshold"), settings.float("diskUsageLwmThreshold")
    if low > full:
        raise settings.error("diskUsageLwmThreshold", f"allowed is up to diskUsageThreshold, {full:g}")
    return low


class DiskSettings(RoomSettings):
    """Shares of a disk at which the bookie acts."""

    full: float = bookie_key.float("diskUsageThreshold")
    warn: float = bookie_key.rule(_warn_share)
    """Above it there is no major compaction."""
    low: float = bookie_key.rule(_low_share)
    """Below it a directory that was full takes adds again."""
    interval_s: float = bookie_key.float("diskCheckInterval", "s")
    any_full_is_read_only: bool = bookie_key.bool("readOnlyModeOnAnyDiskFullEnabled")


def _directories(settings: Settings, key: str) -> tuple[Path, ...]:
    names = settings.list(key)
    if not names or len(set(names)) < len(names):
        raise settings.error(key, "allowed are one or more directories, each once")
    return tuple(map(Path, names))


def _journal_directories(settings: Settings) -> tuple[Path, ...]:
    return _directories(settings, "journalDirectories")


def _ledger_directories(settings: Settings) -> tuple[Path, ...]:
    return _directories(settings, "ledgerDirectories")


def _index_directories(settings: Settings) -> tuple[Path, ...]:
    directories = _directories(settings, "indexDirectories")
    wanted = len(settings.list("ledgerDirectories"))
    if len(directories) != wanted:
        raise settings.error("indexDirectories", f"allowed are as many as ledgerDirectories has, {wanted}")
    return directories


def _metadata(settings: Settings) -> ZookeeperUrl | None:
    text = settings.str("metadataServiceUri")
    if not text:
        return None
    if settings.int("bookiePort") == 0 and not settings.is_set("bookieId"):
        raise SettingsError("bookiePort=0: a bookie that registers needs a port or a bookieId to be known by")
    try:
        return parse_service_uri(text)
    except ValueError as error:
        raise settings.error("metadataServiceUri", str(error)) from None


def _journal_alignment(settings: Settings) -> int:
    value = settings.int("journalAlignmentSize")
    if value & (value - 1):
        raise settings.error("journalAlignmentSize", "allowed is a power of two from 512")
    return value


class BookieSettings(RoomSettings):
    """Everything that a bookie is told at its start. `of` raises SettingsError for values it cannot work with."""

    journal_directories: tuple[Path, ...] = bookie_key.rule(_journal_directories)
    """One journal each."""
    ledger_directories: tuple[Path, ...] = bookie_key.rule(_ledger_directories)
    """Entry logs; a ledger's id chooses its directory."""
    index_directories: tuple[Path, ...] = bookie_key.rule(_index_directories)
    """Location indexes, as many as `ledger_directories`."""
    bookie_id: str = bookie_key.str("bookieId")
    advertised_address: str = bookie_key.str("advertisedAddress")
    metadata: ZookeeperUrl | None = bookie_key.rule(_metadata)
    """Store in which the bookie registers; None = its users must know its address."""
    metadata_timeout_s: float = bookie_key.float("zkTimeout", "s")
    host: str = bookie_key.str("bindAddress")
    port: int = bookie_key.int("bookiePort")
    http_port: int = bookie_key.int("prometheusStatsHttpPort")
    tls: TlsFiles | None = bookie_key.rule(tls_files)
    """Files of TLS on the data port; None = TLS is off."""
    journal_sync_data: bool = bookie_key.bool("journalSyncData")
    journal_alignment: int = bookie_key.rule(_journal_alignment)
    """Bytes to whose multiple a group is padded."""
    journal_bytes_max: int = bookie_key.int("journalMaxSizeMB", "bytes")
    journal_allocate_bytes: int = bookie_key.int("journalPreAllocSizeMB", "bytes")
    journal_backups: int = bookie_key.int("journalMaxBackups")
    journal_group: GroupSettings = bookie_key.rule(GroupSettings.of)
    """End of the wait for a group."""
    skip_invalid_records: bool = bookie_key.bool("skipReplayJournalInvalidRecord")
    write_cache_bytes: int = bookie_key.int("dbStorage_writeCacheMaxSizeMb", "bytes")
    throttle_s_max: float = bookie_key.float("dbStorage_maxThrottleTimeMs", "s")
    read_cache_bytes: int = bookie_key.int("dbStorage_readAheadCacheMaxSizeMb", "bytes")
    read_cache_policy: str = bookie_key.str("readCachePolicy")
    readahead_entries: int = bookie_key.int("dbStorage_readAheadCacheBatchSize")
    readahead_bytes: int = bookie_key.int("dbStorage_readAheadCacheBatchBytesSize")
    readahead_stops_at_gap: bool = bookie_key.bool("readAheadStopsAtGap")
    flush_interval_s: float = bookie_key.float("flushInterval", "s")
    entry_log_bytes_max: int = bookie_key.int("logSizeLimit")
    read_threads: int = bookie_key.int("numReadWorkerThreads")
    frame_bytes_max: int = bookie_key.int("nettyMaxFrameSizeBytes")
    receive_sizes: tuple[int, int, int] | None = bookie_key.rule(_receive_sizes)
    """Smallest, first and largest read of a connection in bytes; None: each takes as much as is there."""
    batch_bytes_max: int = bookie_key.int("maxBatchReadSize")
    read_only: bool = bookie_key.bool("forceReadOnlyBookie")
    collection: CollectionSettings = bookie_key.rule(CollectionSettings.of)
    """Garbage collection and compaction."""
    disk: DiskSettings = bookie_key.rule(DiskSettings.of)
    """Shares of the disks."""
    integrity_checking: bool = bookie_key.bool("dataIntegrityCheckingEnabled")
