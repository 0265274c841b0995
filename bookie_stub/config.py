"""What the rooms of the bookie take from `bookkeeper.conf`, with units in the names.

The keys, their defaults and their meaning stand in `config_keys`. One directory of each kind is supported
so far: several are refused, not silently ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bookie_stub.metadata_uri import MetadataUri, parse_metadata_uri
from settings.errors import SettingsError
from settings.settings import Settings

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieSettings:
    journal_directory: Path
    ledgers_directory: Path
    index_directory: Path
    bookie_id: str = "127.0.0.1:3181"
    """Written into the cookie of a new directory, and the name of its nodes in the metadata store."""
    advertised_address: str = "127.0.0.1"
    """The host that clients are told to connect to."""
    metadata: MetadataUri | None = None
    """None: the bookie registers nowhere, whoever uses it knows its address."""
    metadata_timeout_s: float = 30.0
    host: str = "127.0.0.1"
    """The address that both ports are bound to."""
    port: int = 3181
    http_port: int = 8000
    journal_sync_data: bool = True
    journal_alignment: int = 4096
    journal_bytes_max: int = 2048 * _MIB
    journal_allocate_bytes: int = 16 * _MIB
    journal_backups: int = 5
    skip_invalid_records: bool = False
    write_cache_bytes: int = 64 * _MIB
    """Both halves together."""
    throttle_s_max: float = 10.0
    """How long an add waits for room in the write cache before it is answered "too many requests"."""
    flush_interval_s: float = 60.0
    entry_log_bytes_max: int = 1 << 30
    read_threads: int = 4
    frame_bytes_max: int = 5_253_120
    """Of a whole frame, its length field included."""
    batch_bytes_max: int = 5 * _MIB
    read_only: bool = False
    integrity_checking: bool = False
    """After a start that may have lost acknowledged entries: put every ledger in limbo."""


def for_directory(data: Path, **changes: object) -> BookieSettings:
    """All directories under one, as `--data` and tests want them."""
    defaults: dict[str, object] = {
        "journal_directory": data / "journal",
        "ledgers_directory": data / "ledgers",
        "index_directory": data / "ledgers",
    }
    return BookieSettings(**{**defaults, **changes})  # type: ignore[arg-type]


def from_settings(settings: Settings) -> BookieSettings:
    """Raises SettingsError for what the keys allow and this bookie cannot do."""
    return BookieSettings(
        journal_directory=_only_directory(settings, "journalDirectories"),
        ledgers_directory=_only_directory(settings, "ledgerDirectories"),
        index_directory=_only_directory(settings, "indexDirectories"),
        bookie_id=settings.str("bookieId"),
        advertised_address=settings.str("advertisedAddress"),
        metadata=_metadata(settings),
        metadata_timeout_s=settings.int("zkTimeout") / 1000,
        host=settings.str("bindAddress"),
        port=settings.int("bookiePort"),
        http_port=settings.int("prometheusStatsHttpPort"),
        journal_sync_data=settings.bool("journalSyncData"),
        journal_alignment=_power_of_two(settings, "journalAlignmentSize"),
        journal_bytes_max=settings.int("journalMaxSizeMB") * _MIB,
        journal_allocate_bytes=settings.int("journalPreAllocSizeMB") * _MIB,
        journal_backups=settings.int("journalMaxBackups"),
        skip_invalid_records=settings.bool("skipReplayJournalInvalidRecord"),
        write_cache_bytes=settings.int("dbStorage_writeCacheMaxSizeMb") * _MIB,
        throttle_s_max=settings.int("dbStorage_maxThrottleTimeMs") / 1000,
        flush_interval_s=settings.int("flushInterval") / 1000,
        entry_log_bytes_max=settings.int("logSizeLimit"),
        read_threads=settings.int("numReadWorkerThreads"),
        frame_bytes_max=settings.int("nettyMaxFrameSizeBytes"),
        batch_bytes_max=settings.int("maxBatchReadSize"),
        read_only=settings.bool("forceReadOnlyBookie"),
        integrity_checking=settings.bool("dataIntegrityCheckingEnabled"),
    )


def _only_directory(settings: Settings, key: str) -> Path:
    directories = settings.list(key)
    if len(directories) != 1:
        raise SettingsError(
            f"{key}={','.join(directories)}: allowed is one directory (several are not supported)"
        )
    return Path(directories[0])


def _metadata(settings: Settings) -> MetadataUri | None:
    text = settings.str("metadataServiceUri")
    if not text:
        return None
    if settings.int("bookiePort") == 0 and not settings.is_set("bookieId"):
        raise SettingsError("bookiePort=0: a bookie that registers needs a port or a bookieId to be known by")
    try:
        return parse_metadata_uri(text)
    except ValueError as error:
        raise SettingsError(
            f"{settings.origin('metadataServiceUri')}: metadataServiceUri={text}: {error}"
        ) from None


def _power_of_two(settings: Settings, key: str) -> int:
    value = settings.int(key)
    if value & (value - 1):
        raise SettingsError(f"{settings.origin(key)}: {key}={value}: allowed is a power of two from 512")
    return value
