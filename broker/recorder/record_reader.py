"""Finds the access records in a folder: broker lifetimes, their files in order, and their rows.

A file that is half written, damaged, foreign or of another version is rejected with a reason, and a broker lifetime names
the reason why it cannot be replayed exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from broker.recorder.errors import RecordError
from broker.recorder.names import NamesRead
from broker.recorder.record_file import SCHEMA
from broker.recorder.row_encoder import Columns
from broker.recorder.sampling import Ints
from broker.recorder.schema import COLUMNS, VERSION, FileFacts, names_name
from entry_cache.observe.cache_events import Op
from entry_cache.observe.recorded import Recorded

BATCH_ROWS: Final = 65_536
"""Rows that `events` turns into Python objects at once."""
_OPS: Final = {op.value: op for op in Op}
_NAME: Final = re.compile(r".+-\d{6,}\.parquet")
_PART: Final = ".part"
"""The end of the name of a file being written, see `schema.part_name`."""
_REFUSALS: Final = (OSError, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class RejectedFile:
    """A file that is not read."""

    path: Path
    """The place where it was found."""
    reason: str
    """The defect, in one sentence."""


@dataclass(frozen=True, slots=True)
class FileOnDisk:
    """A complete file of an access record."""

    path: Path
    """The place where it was found."""
    rows: int
    """Events in the file."""
    size_bytes: int
    """The size on disk."""
    facts: FileFacts
    """The facts in its metadata."""


@dataclass(slots=True)
class BrokerLifetime:
    """One broker lifetime: the access record of one broker from its start to its end."""

    broker: str
    """The broker's address."""
    start: str
    """The UTC time when the broker started."""
    files: list[FileOnDisk] = field(default_factory=list)
    """Its files in the order of their events."""
    names: NamesRead | None = None
    """The names of topics and subscriptions; None if the file of names is missing."""

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return sum(file.rows for file in self.files)

    def why_not_exact(self) -> str:
        """Returns the reason against an exact replay; an empty text if it is possible."""
        sample = self.files[0].facts.sample
        if sample < 1:
            return f"it is a sample of {sample:g} of the entries (entryCacheRecordSample)"
        if self.names is None:
            return f"its file of names is missing: {names_name(self.start)}"
        for sequence, file in enumerate(self.files):
            if file.facts.sequence != sequence:
                return f"file {sequence} of it is missing, the next one there is {file.path.name}"
            if file.facts.dropped:
                return f"{file.facts.dropped} rows were dropped before the end of {file.path.name}"
        return ""


@dataclass(slots=True)
class Found:
    """The access records below some folders."""

    lifetimes: list[BrokerLifetime] = field(default_factory=list)
    """Sorted by broker and start."""
    rejected: list[RejectedFile] = field(default_factory=list)
    """Files that are not read."""


def find(folders: Iterable[Path]) -> Found:
    """Returns the records below these folders or files; reads only the ends of the files."""
    found = Found()
    lifetimes: dict[tuple[str, str], BrokerLifetime] = {}
    # A set: overlapping folders would give one file twice, and its events would count twice.
    paths = set(_record_files(folders))
    for path in sorted(paths):
        if path.name.endswith(_PART) and path.with_name(path.name[1 : -len(_PART)]) in paths:
            continue  # Completed while the folder was listed, so both names were found.
        try:
            file = look_at(path)
        except RecordError as error:
            found.rejected.append(RejectedFile(path, str(error)))
            continue
        key = (file.facts.broker, file.facts.start)
        lifetimes.setdefault(key, BrokerLifetime(*key)).files.append(file)
    for key in sorted(lifetimes):
        lifetime = lifetimes[key]
        lifetime.files.sort(key=lambda file: file.facts.sequence)
        lifetime.names = _names_of(lifetime)
        found.lifetimes.append(lifetime)
    return found


def _record_files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        if folder.is_dir():
            # Files being written come first: one that gets its whole name between the two listings is in both, and in
            # the other order it would be in neither.
            yield from folder.rglob("_*.parquet.part")
            yield from folder.rglob("*.parquet")
        else:
            yield folder


def _names_of(lifetime: BrokerLifetime) -> NamesRead | None:
    for folder in lifetime.files[0].path.parents:
        path = folder / names_name(lifetime.start)
        if path.is_file():
            return NamesRead(path)
    return None


def look_at(path: Path) -> FileOnDisk:
    """Reads the end of a file: its facts and columns. Raises RecordError with its defect."""
    if path.name.endswith(_PART):
        raise RecordError("it is being written, or its writer did not end it")
    if not path.exists():
        raise RecordError("there is no such file")
    try:
        # The broker may remove its oldest file at any moment, so every look at the file is in here.
        size_bytes = path.stat().st_size
        with pq.ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
    except _REFUSALS as error:
        raise RecordError(f"not a whole Parquet file: {_one_line(error)}") from None
    # Parquet's own metadata, so that a file tells everything about itself when it is moved or copied.
    facts = FileFacts.from_metadata(metadata.metadata or {})
    # A version alone would not reveal a file that another program has rewritten with other types.
    if not schema.remove_metadata().equals(SCHEMA):
        raise RecordError(f"its columns are not those of version {VERSION} of the format")
    return FileOnDisk(path, metadata.num_rows, size_bytes, facts)


def batches(file: FileOnDisk, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file in order, at most `BATCH_ROWS` at a time. Raises RecordError if they are damaged.

    `columns`: the names of those to read; None = all. Whatever the size of the file, one batch is in memory.
    """
    try:
        with pq.ParquetFile(file.path, page_checksum_verification=True) as opened:
            yield from opened.iter_batches(BATCH_ROWS, columns=columns)
    except _REFUSALS as error:
        raise RecordError(f"{file.path}: damaged: {_one_line(error)}") from None


def events(lifetime: BrokerLifetime) -> Iterator[list[Recorded]]:
    """Yields the events of a lifetime in order, `BATCH_ROWS` at a time.

    They have names instead of ids, and the monotonic times that the cache decided by. Raises RecordError.
    """
    for file in lifetime.files:
        for batch in batches(file):
            yield events_of(lifetime, file, {name: _values(batch.column(name)) for name in COLUMNS})


def events_of(lifetime: BrokerLifetime, file: FileOnDisk, arrays: Columns) -> list[Recorded]:
    """Returns rows of one of the lifetime's files as events. Raises RecordError for rows without names."""
    names = lifetime.names
    if names is None:
        raise RecordError(lifetime.why_not_exact())
    try:
        return _events_of(arrays, file.facts, names)
    # An id without a line in the file of names, or the number of an operation of a newer version.
    except KeyError as error:
        raise RecordError(
            f"{file.path}: {error} stands for nothing that this version knows, or has no line in the file of names"
        ) from None


def _events_of(arrays: Columns, facts: FileFacts, names: NamesRead) -> list[Recorded]:
    columns: dict[str, list[int]] = {name: array.tolist() for name, array in arrays.items()}
    offset = facts.clock_offset_us
    subs, topics = names.subs, names.topics
    return list(
        map(
            Recorded,
            [(ts - offset) * 1000 for ts in columns["ts"]],
            [_OPS[op] for op in columns["op"]],
            [topics[topic] for topic in columns["topic"]],
            [
                subs[topic, sub] if sub else ""
                for topic, sub in zip(columns["topic"], columns["sub"], strict=True)
            ],
            columns["ledger"],
            columns["entry"],
            columns["count"],
            columns["bytes"],
            columns["detail"],
            map(bool, columns["more"]),
            [facts.settings if op == Op.SETTINGS else "" for op in columns["op"]],
        )
    )


def _values(column: pa.Array) -> Ints:
    """Returns the numbers of a column from its bytes: ten times as fast as by pyarrow's scalars, and without pandas."""
    # Booleans are packed eight to a byte, so they have no bytes to look at.
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    kind = np.dtype(column.type.to_pandas_dtype())
    values = np.frombuffer(column.buffers()[1], kind)[column.offset :][: len(column)]
    # 64 bits: the sum of narrow numbers of a run would overflow.
    return values.astype(np.int64)


def _one_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
