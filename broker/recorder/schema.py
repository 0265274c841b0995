"""The format of access records: columns, the facts in a file's metadata, and the names of files.

A change that an older reader would misunderstand gets another version. A fact that was added later stands under a key of
its own, which older readers pass over, and is None in older files: readers and files of one version always fit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from broker.recorder.errors import RecordError

VERSION: Final = 2
"""The version of the format, in every file's metadata."""
FACTS_KEY: Final = b"magnetar.record"
"""The key of a file's `FileFacts` in its Parquet metadata."""
_LATE_KEY: Final = b"magnetar.record.loop_late_us"
"""The key of `FileFacts.loop_late_us`, which early files of version 2 lack."""

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
"""Names and numpy types, in the order of the file; docs/reference/access_record.md has their meaning."""

DELTA_COLUMNS: Final = ("ts", "entry")
"""Columns encoded as differences; the others have few distinct values and are encoded as dictionaries."""

ROW_GROUP_ROWS: Final = 131_072
"""Rows that are written together."""
COUNT_MAX: Final = 2**31 - 1
"""The largest `count`, an int32; \"no limit\" is recorded as this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """The facts about one file, in its metadata."""

    broker: str
    """The broker's address."""
    start: str
    """The UTC time when the broker started. Ids of topics and subscriptions hold for one lifetime."""

    sequence: int
    """The number of the file within the lifetime, from 0: a gap means missing files."""

    software: str
    """The version of the broker."""

    clock_offset_us: int
    """`ts` minus this is the monotonic time by which the cache decided."""

    settings: str
    """The cache's settings (`CacheSettings.to_text`), which held for the whole file."""

    sample: float = 1.0
    """The share of the entries that are recorded."""
    dropped: int = 0
    """Rows that were lost since the file before was completed."""

    totals: Mapping[str, int] | None = None
    """The broker's own counts (`totals_of`), in the last file of a lifetime that ended in good order."""

    loop_late_us: int | None = None
    """The sum of the event loop's lags while the file was written; None = not recorded."""

    def to_metadata(self) -> dict[bytes, bytes]:
        """Returns the facts and the version as texts of JSON by their keys."""
        facts = {"version": VERSION, **asdict(self)}
        late_us = facts.pop("loop_late_us")
        found = {FACTS_KEY: json.dumps(facts).encode()}
        return found if late_us is None else {**found, _LATE_KEY: json.dumps(late_us).encode()}

    @classmethod
    def from_metadata(cls, metadata: Mapping[bytes, bytes]) -> FileFacts:
        """Parses `to_metadata`. Raises RecordError for a foreign file, another version, or damaged facts."""
        text = metadata.get(FACTS_KEY)
        if text is None:
            raise RecordError("a Parquet file, but not of an access record")
        try:
            found = json.loads(text)
            version = found.pop("version")
            late_us = json.loads(metadata.get(_LATE_KEY, b"null"))
        except (ValueError, KeyError, AttributeError, TypeError):
            raise RecordError("its metadata is damaged") from None
        if version != VERSION:
            raise RecordError(f"it has version {version} of the format, this is for version {VERSION}")
        try:
            return cls(**found, loop_late_us=late_us)
        except TypeError as error:
            raise RecordError(f"its metadata is damaged: {error}") from None


def file_name(start: str, sequence: int) -> str:
    """Returns the name of a complete file; names sort by time."""
    return f"{start}-{sequence:06d}.parquet"


def part_name(name: str) -> str:
    """Returns the name of a file being written; readers of Parquet folders skip names with an underscore."""
    return f"_{name}.part"


def start_of(name: str) -> str:
    """Returns the start of the broker lifetime from a file's name, complete or not."""
    return name.lstrip("_").rpartition("-")[0]


def names_name(start: str) -> str:
    """Returns the name of the file of names."""
    return f"_names-{start}.jsonl"


def broker_folder(broker: str) -> str:
    """Returns the name of the folder of a broker's files, in Hive's form."""
    return f"broker={broker}"
