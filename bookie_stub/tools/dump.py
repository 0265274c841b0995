"""`magnetar bookie dump`: prints a bookie's files, a line per item.

Damage becomes a line with DAMAGED, and the dump goes on where it can. No file is changed, so it also works beside a
running bookie, on a copy, and on BookKeeper's files. A directory may be named as in the settings, or by its `current`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from bookie_stub.base.errors import BookieError
from bookie_stub.base.record import (
    DELETE_ID,
    EXPLICIT_LAC_ID,
    FENCE_ID,
    FORCE_ID,
    KEY,
    LENGTH_BYTES,
    MASTER_KEY_ID,
    explicit_lac_of,
    lac_of,
    special_body,
)
from bookie_stub.disk.directories import CURRENT
from bookie_stub.disk.entry_log import LogScan, log_ids, read_header, read_ledgers_map
from bookie_stub.disk.entry_log import file_name as log_name
from bookie_stub.disk.ledger_index import FLAGS_KEY, LedgerData, decode
from bookie_stub.disk.ledger_storage import LEDGERS, LOCATIONS
from bookie_stub.disk.rocks import read_rows
from bookie_stub.journal.journal_file import file_name as journal_name
from bookie_stub.journal.journal_file import journal_ids
from bookie_stub.journal.journal_reader import JournalReader

_ENTRY_BYTES_MIN = 32
"""Bytes of an entry up to its length field, which clients write and bookies do not need."""


def files_in(places: list[Path], suffix: str) -> list[Path]:
    """Returns the journals or entry logs in some places, oldest first.

    A place is a file or a directory; `suffix` is `.txn` or `.log`.
    FileNotFoundError for a directory without such a file.
    """
    found: list[Path] = []
    for place in places:
        if place.is_file():
            found.append(place)
            continue
        folder = current(place)
        name, ids = (journal_name, journal_ids(folder)) if suffix == ".txn" else (log_name, log_ids(folder))
        if not ids:
            raise FileNotFoundError(f"{place}: no *{suffix} in it")
        found += [folder / name(each) for each in ids]
    return found


def current(directory: Path) -> Path:
    """Returns the `current` in a directory, or the directory itself."""
    folder = directory / CURRENT
    return folder if folder.is_dir() else directory


# Journals.


def journal_lines(path: Path, wanted: int | None = None) -> Iterator[str]:
    """Yields the records of a journal with their offsets. With `wanted` only those of one ledger."""
    reader = JournalReader(path, skip_invalid=True)
    size = path.stat().st_size
    heading = True
    damaged = False
    try:
        for record in reader:
            if heading:
                yield _journal_heading(reader, size)
                heading = False
            # Said once, at the first record after the damage.
            if reader.damaged and not damaged:
                damaged = True
                yield f"  DAMAGED: acknowledged records are missing before {reader.end}"
            if len(record) < LENGTH_BYTES + KEY.size:
                yield f"  {reader.record_at:>10}  record of {len(record)} bytes, too short"
            elif wanted is None or KEY.unpack_from(record, LENGTH_BYTES)[0] == wanted:
                yield f"  {reader.record_at:>10}  {_record_text(record)}"
    except (BookieError, ValueError) as error:
        yield f"  DAMAGED: {error}"
    if heading:
        yield _journal_heading(reader, size)
    yield f"  {reader.end:>10}  end"


def _journal_heading(reader: JournalReader, size: int) -> str:
    kind = "groups with checksums" if reader.grouped else "records without checksums"
    return f"{reader.path.name}: journal, version {reader.version}, {kind}, {size} bytes"


def _record_text(record: bytes) -> str:
    ledger_id, entry_id = KEY.unpack_from(record, LENGTH_BYTES)
    if entry_id >= 0:
        return entry_text(record[LENGTH_BYTES:])
    if entry_id == MASTER_KEY_ID:
        return f"master key    ledger {ledger_id}  {special_body(record).hex()}"
    if entry_id == EXPLICIT_LAC_ID:
        return f"explicit LAC  ledger {ledger_id}  {explicit_lac_of(special_body(record))}"
    names = {FENCE_ID: "fence", DELETE_ID: "deleted", FORCE_ID: "force"}
    return f"{names.get(entry_id, f'special {entry_id}'):<12}  ledger {ledger_id}"


def entry_text(entry: bytes) -> str:
    """Returns the header fields of an entry as text."""
    ledger_id, entry_id = KEY.unpack_from(entry)
    lac = f"  LAC {lac_of(entry)}" if len(entry) >= KEY.size + 8 else ""
    length = f"  length {int.from_bytes(entry[24:32], 'big')}" if len(entry) >= _ENTRY_BYTES_MIN else ""
    return f"entry         ledger {ledger_id}  entry {entry_id}{lac}{length}  {len(entry)} bytes"


# Entry logs.


def entry_log_lines(path: Path, wanted: int | None = None) -> Iterator[str]:
    """Yields a log's entries with their offsets, and its map. With `wanted` only those of one ledger."""
    size = path.stat().st_size
    try:
        header = read_header(path)
        if header is None:
            yield f"{path.name}: entry log, only allocated, {size} bytes"
            return
        ledgers = read_ledgers_map(path)
    except BookieError as error:
        yield f"DAMAGED: {error}"
        return
    finished = (
        "no ledgers map" if ledgers is None else f"ledgers map of {len(ledgers)} at {header.map_offset}"
    )
    yield f"{path.name}: entry log, version {header.version}, {finished}, {size} bytes"
    scan = LogScan(path)
    with path.open("rb") as file:
        for entry in scan:
            if wanted is None or entry.ledger_id == wanted:
                file.seek(entry.offset + LENGTH_BYTES)
                yield f"  {entry.offset:>10}  {entry_text(file.read(entry.size))}"
    if scan.rest:
        yield f"  {scan.end:>10}  {scan.rest} bytes that are no record: torn by a crash, or DAMAGED"
    for ledger_id, total in sorted((ledgers or {}).items()):
        if wanted is None or ledger_id == wanted:
            yield f"         map  ledger {ledger_id}  {total} bytes"


# Indexes.


def location_lines(directory: Path, wanted: int | None = None) -> Iterator[str]:
    """Yields the place of each entry in the location index. BookieStorageError."""
    path = current(directory) / LOCATIONS
    yield f"{path}: location index"
    with read_rows(path) as rows:
        for key, value in rows:
            ledger_id, entry_id = KEY.unpack(key)
            if wanted is None or ledger_id == wanted:
                location = int.from_bytes(value, "big")
                place = f"{location >> 32:x}.log at {location & 0xFFFFFFFF}" if location else "none"
                yield f"  ledger {ledger_id}  entry {entry_id}  {place}"


def ledger_lines(directory: Path, wanted: int | None = None) -> Iterator[str]:
    """Yields key, fence, explicit LAC and entries of each ledger. They come from both indexes. BookieStorageError."""
    path = current(directory)
    yield f"{path / LEDGERS}: ledger index"
    ranges = _entry_ranges(path / LOCATIONS, wanted)
    with read_rows(path / LEDGERS) as rows:
        for key, value in rows:
            ledger_id = int.from_bytes(key, "big", signed=True)
            if ledger_id == FLAGS_KEY:
                yield f"  storage flags  {int.from_bytes(value, 'big'):#x}"
            elif wanted is None or ledger_id == wanted:
                yield f"  ledger {ledger_id}  {_ledger_text(decode(value))}  {ranges.pop(ledger_id, 'no entry')}"
    for ledger_id, text in ranges.items():
        yield f"  ledger {ledger_id}  not in the ledger index  {text}"


def _ledger_text(data: LedgerData) -> str:
    lac = "" if data.explicit_lac is None else f"  explicit LAC {explicit_lac_of(data.explicit_lac)}"
    state = ("  fenced" if data.fenced else "") + ("  limbo" if data.limbo else "")
    return f"key {data.master_key.hex() or 'none'}{state}{lac}"


def _entry_ranges(path: Path, wanted: int | None) -> dict[int, str]:
    """Returns, by ledger id, texts such as `entries 0-99, 120`."""
    texts: dict[int, str] = {}
    with read_rows(path) as rows:
        ids = (KEY.unpack(key) for key, _ in rows)
        for ledger_id, group in groupby(ids, key=lambda pair: pair[0]):
            if wanted is None or ledger_id == wanted:
                texts[ledger_id] = f"entries {_ranges_text(entry_id for _, entry_id in group)}"
    return texts


def _ranges_text(ids: Iterator[int]) -> str:
    ranges: list[list[int]] = []
    for entry_id in ids:
        if ranges and entry_id == ranges[-1][1] + 1:
            ranges[-1][1] = entry_id
        else:
            ranges.append([entry_id, entry_id])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
