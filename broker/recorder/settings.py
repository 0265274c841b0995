"""RecordSettings: the settings of the access record. Values only; the recorder applies them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """Where to write, how much, and how large files become."""

    directory: Path
    """`entryCacheRecordDirectory`: folder of all brokers' records."""

    broker: str
    """The broker's address, a part of the path."""

    sample: float = 1.0
    """`entryCacheRecordSample`: the share of the entries that are recorded; 1 = all, which an exact replay needs."""

    file_bytes: int = 128 << 20
    """`entryCacheRecordFileMB` in bytes: a file that has grown so large is completed and the next one begun."""

    file_seconds: int = 300
    """`entryCacheRecordFileSeconds`: the same for its age; a crash loses at most so much."""

    buffer_rows: int = 65_536
    """`entryCacheRecordBufferRows`: rows that may wait to be written; one more is dropped and counted."""

    kept_bytes: int = 0
    """`entryCacheRecordKeptMB` in bytes: the size of all files of this broker; the oldest are deleted first. 0 = no
    limit."""
