"""What the rooms of the bookie take from `bookkeeper.conf`, with units in the names.

The keys, their defaults and their meaning stand in `config_keys`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bookie_stub.config.tls import TlsFiles, tls_files
from settings.errors import SettingsError
from settings.settings import Settings
from zookeeper.url import ZookeeperUrl, parse_service_uri

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """How long a group of the journal is waited with: until the first of these limits."""

    wait_s: float = 0.0
    """Of its oldest record; 0: a group is what is there."""
    bytes_max: int = 512 << 10
    records_max: int = 0
    """0: any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionSettings:
    """Of garbage collection. A share is of a log's bytes, above 0 and below 1; 0 switches off."""

    wait_s: float = 900.0
    """Between two rounds."""
    verify: bool = True
    """Ask the metadata store for each ledger by name before it is deleted."""
    over_replicated_wait_s: float = 86400.0
    """Between two looks for ledgers that are not at home here any more; 0: none."""
    metadata_rate: float = 1000.0
    """Requests to the metadata store in a second, when it is asked for ledgers by name."""
    minor_threshold: float = 0.2
    minor_interval_s: float = 3600.0
    minor_time_s_max: float = 0.0
    """No further log is begun after it; 0 sets no limit."""
    major_threshold: float = 0.5
    major_interval_s: float = 86400.0
    major_time_s_max: float = 0.0
    force_allowed: bool = True
    """A compaction whose interval switches it off may be asked for."""
    by_whole_logs: bool = False
    """What is alive is a share of `logSizeLimit`, if the log is smaller."""
    index_interval_s: float = 0.0
    """Between two compactions of the location index; 0: none."""
    rate: float = 1000.0
    """Copied in a second, entries or bytes."""
    rate_in_bytes: bool = False
    force_when_full: bool = False
    """A disk without room brings a round instead of an end to compactions."""

    @property
    def minor(self) -> bool:
        return self.minor_threshold > 0 and self.minor_interval_s > 0

    @property
    def minor_by_force(self) -> bool:
        return self.minor_threshold > 0 and (self.force_allowed or self.minor)

    @property
    def major(self) -> bool:
        return self.major_threshold > 0 and self.major_interval_s > 0

    @property
    def major_by_force(self) -> bool:
        return self.major_threshold > 0 and (self.force_allowed or self.major)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSettings:
    """Shares of a disk that may be taken."""

    full: float = 0.95
    """Above it a ledger directory takes no adds."""
    warn: float = 0.9
    """Above it there is no major compaction."""
    low: float = 0.95
    """Below it a directory that was full takes adds again."""
    interval_s: float = 10.0
    any_full_is_read_only: bool = True
    """One full directory makes the bookie read-only; else it refuses adds of that directory's ledgers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieSettings:
    journal_directories: tuple[Path, ...]
    ledger_directories: tuple[Path, ...]
    index_directories: tuple[Path, ...]
    """As many as `ledger_directories`."""
    bookie_id: str = "127.0.0.1:3181"
    """Written into the cookie of a new directory, and the name of its nodes in the metadata store."""
    advertised_address: str = "127.0.0.1"
    """The host that clients are told to connect to."""
    metadata: ZookeeperUrl | None = None
    """None: the bookie registers nowhere, and its clients are told its address."""
    metadata_timeout_s: float = 30.0
    host: str = "127.0.0.1"
    """The address that both ports are bound to."""
    port: int = 3181
    http_port: int = 8000
    tls: TlsFiles | None = None
    journal_sync_data: bool = True
    journal_alignment: int = 4096
    journal_bytes_max: int = 2048 * _MIB
    journal_allocate_bytes: int = 16 * _MIB
    journal_backups: int = 5
    journal_group: GroupSettings = GroupSettings()
    skip_invalid_records: bool = False
    write_cache_bytes: int = 64 * _MIB
    """Both halves together."""
    throttle_s_max: float = 10.0
    """How long an add waits for room in the write cache before it is answered "too many requests"."""
    read_cache_bytes: int = 64 * _MIB
    read_cache_policy: str = "ring"
    """A key of `read_cache.POLICIES`."""
    readahead_entries: int = 1000
    """Read ahead of a cold reader with one load, besides the entry that it asked for."""
    readahead_bytes: int = -1
    """The same in bytes; 0 and less set no limit of their own."""
    readahead_stops_at_gap: bool = True
    flush_interval_s: float = 60.0
    entry_log_bytes_max: int = 1 << 30
    read_threads: int = 4
    frame_bytes_max: int = 5_253_120
    """Of a whole frame, its length field included."""
    batch_bytes_max: int = 5 * _MIB
    read_only: bool = False
    collection: CollectionSettings = CollectionSettings()
    disk: DiskSettings = DiskSettings()
    integrity_checking: bool = True
    """After a start that may have lost acknowledged entries: put every ledger in limbo."""


def for_directory(data: Path, **changes: object) -> BookieSettings:
    """All directories under one, as `--data` and tests want them."""
    defaults: dict[str, object] = {
        "journal_directories": (data / "journal",),
        "ledger_directories": (data / "ledgers",),
        "index_directories": (data / "ledgers",),
    }
    return BookieSettings(**{**defaults, **changes})  # type: ignore[arg-type]


def from_settings(settings: Settings) -> BookieSettings:
    """Raises SettingsError for what the keys allow and this bookie cannot do."""
    return BookieSettings(
        journal_directories=_directories(settings, "journalDirectories"),
        ledger_directories=_directories(settings, "ledgerDirectories"),
        index_directories=_index_directories(settings),
        bookie_id=settings.str("bookieId"),
        advertised_address=settings.str("advertisedAddress"),
        metadata=_metadata(settings),
        metadata_timeout_s=settings.int("zkTimeout") / 1000,
        host=settings.str("bindAddress"),
        port=settings.int("bookiePort"),
        http_port=settings.int("prometheusStatsHttpPort"),
        tls=tls_files(settings),
        journal_sync_data=settings.bool("journalSyncData"),
        journal_alignment=_power_of_two(settings, "journalAlignmentSize"),
        journal_bytes_max=settings.int("journalMaxSizeMB") * _MIB,
        journal_allocate_bytes=settings.int("journalPreAllocSizeMB") * _MIB,
        journal_backups=settings.int("journalMaxBackups"),
        journal_group=_group(settings),
        skip_invalid_records=settings.bool("skipReplayJournalInvalidRecord"),
        write_cache_bytes=settings.int("dbStorage_writeCacheMaxSizeMb") * _MIB,
        throttle_s_max=settings.int("dbStorage_maxThrottleTimeMs") / 1000,
        read_cache_bytes=settings.int("dbStorage_readAheadCacheMaxSizeMb") * _MIB,
        read_cache_policy=settings.str("readCachePolicy"),
        readahead_entries=settings.int("dbStorage_readAheadCacheBatchSize"),
        readahead_bytes=settings.int("dbStorage_readAheadCacheBatchBytesSize"),
        readahead_stops_at_gap=settings.bool("readAheadStopsAtGap"),
        flush_interval_s=settings.int("flushInterval") / 1000,
        entry_log_bytes_max=settings.int("logSizeLimit"),
        read_threads=settings.int("numReadWorkerThreads"),
        frame_bytes_max=settings.int("nettyMaxFrameSizeBytes"),
        batch_bytes_max=settings.int("maxBatchReadSize"),
        read_only=settings.bool("forceReadOnlyBookie"),
        integrity_checking=settings.bool("dataIntegrityCheckingEnabled"),
        collection=_collection(settings),
        disk=_disk(settings),
    )


def _group(settings: Settings) -> GroupSettings:
    wait_ms = 0 if settings.bool("journalFlushWhenQueueEmpty") else settings.int("journalMaxGroupWaitMSec")
    return GroupSettings(
        wait_s=wait_ms / 1000,
        bytes_max=settings.int("journalBufferedWritesThreshold"),
        records_max=settings.int("journalBufferedEntriesThreshold"),
    )


def _collection(settings: Settings) -> CollectionSettings:
    minor, major = (
        settings.float("minorCompactionThreshold"),
        settings.float("majorCompactionThreshold"),
    )
    if 0 < major < minor:
        raise SettingsError(
            f"{settings.origin('majorCompactionThreshold')}: majorCompactionThreshold={major:g}:"
            f" allowed is at least minorCompactionThreshold, {minor:g}"
        )
    in_bytes = settings.bool("isThrottleByBytes")
    return CollectionSettings(
        wait_s=settings.int("gcWaitTime") / 1000,
        verify=settings.bool("verifyMetadataOnGC"),
        over_replicated_wait_s=settings.int("gcOverreplicatedLedgerWaitTime") / 1000,
        metadata_rate=settings.int("gcMetadataOpRateLimit"),
        minor_threshold=minor,
        minor_interval_s=settings.int("minorCompactionInterval"),
        minor_time_s_max=settings.int("minorCompactionMaxTimeMillis") / 1000,
        major_threshold=major,
        major_interval_s=settings.int("majorCompactionInterval"),
        major_time_s_max=settings.int("majorCompactionMaxTimeMillis") / 1000,
        force_allowed=settings.bool("forceAllowCompaction"),
        by_whole_logs=settings.bool("useTargetEntryLogSizeForGc"),
        index_interval_s=settings.int("entryLocationCompactionInterval"),
        rate=settings.int("compactionRateByBytes" if in_bytes else "compactionRateByEntries"),
        rate_in_bytes=in_bytes,
        force_when_full=settings.bool("isForceGCAllowWhenNoSpace"),
    )


def _disk(settings: Settings) -> DiskSettings:
    full, low = settings.float("diskUsageThreshold"), settings.float("diskUsageLwmThreshold")
    if low > full:
        raise SettingsError(
            f"{settings.origin('diskUsageLwmThreshold')}: diskUsageLwmThreshold={low:g}:"
            f" allowed is up to diskUsageThreshold, {full:g}"
        )
    warn = min(settings.float("diskUsageWarnThreshold"), full)
    return DiskSettings(
        full=full,
        warn=warn,
        low=low,
        interval_s=settings.int("diskCheckInterval") / 1000,
        any_full_is_read_only=settings.bool("readOnlyModeOnAnyDiskFullEnabled"),
    )


def _directories(settings: Settings, key: str) -> tuple[Path, ...]:
    names = settings.list(key)
    if not names or len(set(names)) < len(names):
        raise SettingsError(
            f"{settings.origin(key)}: {key}={','.join(names)}: allowed are one or more directories, each once"
        )
    return tuple(map(Path, names))


def _index_directories(settings: Settings) -> tuple[Path, ...]:
    directories = _directories(settings, "indexDirectories")
    wanted = len(settings.list("ledgerDirectories"))
    if len(directories) != wanted:
        raise SettingsError(
            f"{settings.origin('indexDirectories')}: indexDirectories={','.join(map(str, directories))}:"
            f" allowed are as many as ledgerDirectories has, {wanted}"
        )
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
        raise SettingsError(
            f"{settings.origin('metadataServiceUri')}: metadataServiceUri={text}: {error}"
        ) from None


def _power_of_two(settings: Settings, key: str) -> int:
    value = settings.int(key)
    if value & (value - 1):
        raise SettingsError(f"{settings.origin(key)}: {key}={value}: allowed is a power of two from 512")
    return value
