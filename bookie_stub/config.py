"""What the bookie reads of `bookkeeper.conf`: Pulsar's and BookKeeper's keys, defaults as Pulsar ships them.

`BOOKIE_KEYS` is the table; `BookieSettings` is what the rooms get, with units in the names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieSettings:
    journal_directory: Path
    ledgers_directory: Path
    index_directory: Path
    host: str = "127.0.0.1"
    """Listened on, and the bookie's name in its cookie."""
    port: int = 3181
    http_port: int = 8000
    http_enabled: bool = True
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


def for_directory(data: Path, **changes: object) -> BookieSettings:
    """All directories under one, as `--data` and tests want them."""
    defaults: dict[str, object] = {
        "journal_directory": data / "journal",
        "ledgers_directory": data / "ledgers",
        "index_directory": data / "ledgers",
    }
    return BookieSettings(**{**defaults, **changes})  # type: ignore[arg-type]
