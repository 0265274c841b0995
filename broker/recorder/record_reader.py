"""Reads access records: the broker lifetimes in a folder, their files in order, and their rows.

No doubtful file is read silently: a file that is incomplete, damaged, foreign or of another version is set aside with the
reason, and a lifetime says why it cannot be replayed exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from broker.entry_cache.observe.cache_events import Op
from broker.entry_cache.observe.recorded import Recorded
from broker.recorder.errors import RecordError
from broker.recorder.names import NamesRead
from broker.recorder.record_file import SCHEMA
from broker.recorder.schema import COLUMNS, FACTS_KEY, VERSION, FileFacts, names_name

BATCH_ROWS: Final = 65_536
"""Rows that are read together."""
_OPS: Final = {op.value: op for op in Op}
_NAME: Final = re.compile(r".+-\d{6,}\.parquet")
_REFUSALS: Final = (OSError, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class SetAside:
    """A file that is not read, and the reason."""

    path: Path
    """The file."""
    reason: str
    """A sentence for people."""


@dataclass(frozen=True, slots=True)
class FileOnDisk:
    """A complete file of an access record."""

    path: Path
    """The file."""
    rows: int
    """Its number of rows."""
    size_bytes: int
    """Its size."""
    facts: FileFacts
    """Its metadata."""


@dataclass(slots=True)
class RunOfBroker:
    """The access record of one broker lifetime, from a start to its end."""

    broker: str
    """The broker's address."""
    start: str
    """The UTC time of the start."""
    files: list[FileOnDisk] = field(default_factory=list)
    """The files in their order."""
    names: NamesRead | None = None
    """The names by id; None if the file of names is missing."""

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return sum(file.rows for file in self.files)

    def why_not_exact(self) -> str:
        """Returns the reason why no replay can repeat it exactly; empty if one can."""
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

    runs: list[RunOfBroker] = field(default_factory=list)
    """The broker lifetimes, sorted by broker and start."""
    set_aside: list[SetAside] = field(default_factory=list)
    """The files that are not read."""


def find(folders: Iterable[Path]) -> Found:
    """Returns the records in these folders and below; reads only the ends of files. A path may be a file."""
    found = Found()
    runs: dict[tuple[str, str], RunOfBroker] = {}
    for path in sorted(set(_record_files(folders))):
        try:
            file = look_at(path)
        except RecordError as error:
            found.set_aside.append(SetAside(path, str(error)))
            continue
        key = (file.facts.broker, file.facts.start)
        runs.setdefault(key, RunOfBroker(*key)).files.append(file)
    for key in sorted(runs):
        run = runs[key]
        run.files.sort(key=lambda file: file.facts.sequence)
        run.names = _names_of(run)
        found.runs.append(run)
    return found


def _record_files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        if folder.is_dir():
            yield from folder.rglob("*.parquet")
            yield from folder.rglob("_*.parquet.part")
        else:
            yield folder


def _names_of(run: RunOfBroker) -> NamesRead | None:
    for folder in run.files[0].path.parents:
        path = folder / names_name(run.start)
        if path.is_file():
            return NamesRead(path)
    return None


def look_at(path: Path) -> FileOnDisk:
    """Returns the facts about a file. Raises RecordError with the reason if it is not a complete one."""
    if path.name.endswith(".part"):
        raise RecordError("it is being written, or its writer did not end it")
    if not path.exists():
        raise RecordError("there is no such file")
    try:
        with pq.ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
    except _REFUSALS as error:
        raise RecordError(f"not a whole Parquet file: {_one_line(error)}") from None
    text = (metadata.metadata or {}).get(FACTS_KEY)
    if text is None:
        raise RecordError("a Parquet file, but not of an access record")
    facts = FileFacts.from_bytes(text)
    if not schema.remove_metadata().equals(SCHEMA):
        raise RecordError(f"its columns are not those of version {VERSION} of the format")
    return FileOnDisk(path, metadata.num_rows, path.stat().st_size, facts)


def read_table(file: FileOnDisk) -> pa.Table:
    """Returns all rows of a file. Raises RecordError if they are damaged."""
    try:
        return pq.read_table(file.path, page_checksum_verification=True, partitioning=None)
    except _REFUSALS as error:
        raise RecordError(f"{file.path}: damaged: {_one_line(error)}") from None


def read_tables(found: Found) -> Iterator[tuple[FileOnDisk, pa.Table]]:
    """Yields the tables of all files; a file that turns out to be damaged is added to `set_aside`."""
    for run in found.runs:
        for file in run.files:
            try:
                table = read_table(file)
            except RecordError as error:
                found.set_aside.append(SetAside(file.path, str(error)))
                continue
            yield file, table


def events(run: RunOfBroker) -> Iterator[list[Recorded]]:
    """Yields the rows of one lifetime in batches, in order, with names and with the cache's monotonic times.

    Raises RecordError if a file is damaged or names are missing.
    """
    names = run.names
    if names is None:
        raise RecordError(run.why_not_exact())
    for file in run.files:
        try:
            with pq.ParquetFile(file.path, page_checksum_verification=True) as opened:
                for batch in opened.iter_batches(BATCH_ROWS):
                    yield _events_of(batch, file.facts, names)
        except _REFUSALS as error:
            raise RecordError(f"{file.path}: damaged: {_one_line(error)}") from None
        except KeyError as error:
            raise RecordError(
                f"{file.path}: {error} stands for nothing that this version knows, or has no line in the file of names"
            ) from None


def _events_of(batch: pa.RecordBatch, facts: FileFacts, names: NamesRead) -> list[Recorded]:
    columns = {name: _values(batch.column(name)) for name in COLUMNS}
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


def _values(column: pa.Array) -> list[int]:
    """Returns numbers from the bytes: ten times as fast as from pyarrow's scalars, and without pandas."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    kind = np.dtype(column.type.to_pandas_dtype())
    values: list[int] = np.frombuffer(column.buffers()[1], kind)[column.offset :][: len(column)].tolist()
    return values


def _one_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
