"""RecordSettings: the keys of broker.conf about the access record."""

from __future__ import annotations

from pathlib import Path

from broker.config.fields import broker_key
from foundation.settings.fields import RoomSettings


class RecordSettings(RoomSettings):
    """Place and limits of one broker's access record."""

    directory: Path
    """`entryCacheRecordDirectory`: the folder for the records of all brokers."""
    broker: str
    """Name of the recorded broker, a part of the files' path."""
    sample: float = broker_key.float("entryCacheRecordSample")
    file_bytes: int = broker_key.int("entryCacheRecordFileMB", "bytes")
    file_seconds: int = broker_key.int("entryCacheRecordFileSeconds")
    buffer_rows: int = broker_key.int("entryCacheRecordBufferRows")
    kept_bytes: int = broker_key.int("entryCacheRecordKeptMB", "bytes")
