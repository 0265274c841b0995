"""RecordSettings: what broker.conf says about the record. Values only; the recorder applies them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RecordSettings:
    directory: Path
    """`entryCacheRecordDirectory`: folder of all brokers' records."""

    broker: str
    """Whose record it is: part of the path."""

    sample: float = 1.0
    """`entryCacheRecordSample`: the part of the entries that are recorded; 1 = all, which an exact replay needs."""

    file_bytes: int = 128 << 20
    """`entryCacheRecordFileMB` in bytes: a file that has grown so large is completed and the next one begun."""

    file_seconds: int = 300
    """`entryCacheRecordFileSeconds`: likewise of age; what a crash loses at most."""

    buffer_rows: int = 65_536
    """`entryCacheRecordBufferRows`: rows that may wait to be written; one more is dropped and counted."""

    kept_bytes: int = 0
    """`entryCacheRecordKeptMB` in bytes: what this broker's files may take; the oldest go first. 0 = all is kept."""
