"""The record's format: columns, the facts about a file that stand in its metadata, and what files are called.

A change that an older reader would misunderstand gets another version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from broker.recorder.errors import RecordError

VERSION: Final = 2
FACTS_KEY: Final = b"magnetar.record"
"""Under this key a file's metadata has its `FileFacts`."""

COLUMNS: Final = {
    "ts": "int64",
    "op": "int8",
    "topic": "int32",
    "sub": "int32",
    "ledger": "int64",
    "entry": "int64",
    "count": "int32",
    "bytes": "int64",
    "detail": "int32",
    "more": "bool",
}
"""Names and numpy types, in the order of the file; docs/reference/access_record.md says what they mean."""

DELTA_COLUMNS: Final = ("ts", "entry")
"""Encoded as differences; the others as dictionaries, since few values come again and again."""

ROW_GROUP_ROWS: Final = 131_072
COUNT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    broker: str
    start: str
    """Which run of the broker: the UTC time of its start. Ids of topics and subscriptions hold for one run."""

    sequence: int
    """Of the file within the run, from 0: a gap says that files are missing."""

    software: str
    """Version of the broker."""

    clock_offset_us: int
    """`ts` less this is the monotonic time by which the cache decided."""

    settings: str
    """The cache's (`EntryCacheSettings.to_text`), as they held for the whole file."""

    sample: float = 1.0
    dropped: int = 0
    """Rows that were lost since the file before was completed."""

    totals: Mapping[str, int] | None = None
    """What the broker itself had counted (`totals_of`), in the last file of a run that ended in good order."""

    def to_bytes(self) -> bytes:
        return json.dumps({"version": VERSION, **asdict(self)}).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> FileFacts:
        """RecordError for another version, and for what is not the facts of a file at all."""
        try:
            found = json.loads(text)
            version = found.pop("version")
        except (ValueError, KeyError, AttributeError, TypeError):
            raise RecordError("its metadata is damaged") from None
        if version != VERSION:
            raise RecordError(f"it has version {version} of the format, this is for version {VERSION}")
        try:
            return cls(**found)
        except TypeError as error:
            raise RecordError(f"its metadata is damaged: {error}") from None


def file_name(start: str, sequence: int) -> str:
    """Names sort by time."""
    return f"{start}-{sequence:06d}.parquet"


def part_name(name: str) -> str:
    """While it is written; readers of a folder of Parquet files pass over it."""
    return f"_{name}.part"


def start_of(name: str) -> str:
    """Of a file that has such a name, complete or not."""
    return name.lstrip("_").rpartition("-")[0]


def names_name(start: str) -> str:
    return f"_names-{start}.jsonl"


def broker_folder(broker: str) -> str:
    return f"broker={broker}"
