"""`check`: whether every entry that the location index names can be read, has the right ids, and fits its digest.

A bookie does not know a ledger's digest type or password. CRC32C and CRC32 need no password, so they are tried: when
they fit an entry of a ledger, one of it that they do not fit is damaged. Ledgers where neither fits any entry (a MAC,
no digest, or all entries damaged) are counted as not verifiable. Reads files only; the bookie should be down.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from bookie_stub.directories import mark_name, read_marks
from bookie_stub.entry_log_reader import EntryLogReader
from bookie_stub.errors import BookieError
from bookie_stub.file_system import FileSystem
from bookie_stub.journal_chain import flaws_of
from bookie_stub.journal_file import Mark, journal_ids
from bookie_stub.ledger_index import FLAGS_KEY, decode
from bookie_stub.ledger_storage import LEDGERS, LOCATIONS
from bookie_stub.progress import Progress, Say
from bookie_stub.record import KEY
from bookie_stub.rocks import Put, read_rows
from bookie_stub.stored_entries import near_until

_SLICE = 512
_SPAN_BYTES_MAX = 4 << 20
_COVERED = 32
"""The digest covers these first bytes and the payload; it stands between them."""


class Findings:
    def __init__(self) -> None:
        self.entries = 0
        self.verified = 0
        """Entries whose digest fits."""
        self.unverifiable = 0
        self.damaged: list[str] = []
        """Entries and files that are not what they should be, a line for each."""
        self.notes: list[str] = []
        """What is no damage, but worth a look."""


def check(
    journals: Sequence[Path], storages: Sequence[tuple[Path, Path]], entry_bytes_max: int, say: Say
) -> Findings:
    """`storages`: directories of entry logs and of indexes, as pairs. Raises BookieError when an index cannot be read."""
    findings = Findings()
    for number, directory in enumerate(journals):
        marks = [logs / mark_name(number, len(journals)) for logs, _ in storages]
        _check_journals(directory, marks, findings)
    for logs, index in storages:
        _check_storage(logs, index, entry_bytes_max, findings, say)
    return findings


def _check_journals(directory: Path, marks: Sequence[Path], findings: Findings) -> None:
    try:
        mark = read_marks(marks, directory)
    except BookieError as error:
        findings.damaged.append(str(error))
        mark = Mark(min(journal_ids(directory), default=0), 0)
    try:
        findings.damaged += flaws_of(directory, mark)
    except BookieError as error:
        findings.damaged.append(str(error))


def _check_storage(logs: Path, index: Path, entry_bytes_max: int, findings: Findings, say: Say) -> None:
    known = _ledgers_of(index, findings)
    reader = EntryLogReader(logs, entry_bytes_max, FileSystem())
    progress = Progress(f"check {logs}", "entries", say)
    with read_rows(index / LOCATIONS) as rows:
        for ledger_id, group in groupby(rows, key=lambda row: KEY.unpack(row[0])[0]):
            if ledger_id not in known:
                findings.notes.append(
                    f"ledger {ledger_id} has entries in {index / LOCATIONS} and is in no ledger index"
                )
            _check_ledger(group, reader, findings, progress)
    say(f"check {logs}: {progress.text()}")
    reader.close()


def _ledgers_of(index: Path, findings: Findings) -> set[int]:
    known = set()
    with read_rows(index / LEDGERS) as rows:
        for key, value in rows:
            ledger_id = int.from_bytes(key, "big", signed=True)
            known.add(ledger_id)
            try:
                if ledger_id != FLAGS_KEY:
                    decode(value)
            except BookieError as error:
                findings.damaged.append(f"ledger {ledger_id}: {error}")
    return known


class _Row(NamedTuple):
    key: bytes
    location: int


def _check_ledger(
    rows: Iterator[Put], reader: EntryLogReader, findings: Findings, progress: Progress
) -> None:
    """Rows of one ledger."""
    fits = 0
    misfits: list[bytes] = []
    for key, entry in _read_all(rows, reader, findings):
        progress.add(1, len(entry))
        findings.entries += 1
        if digest_fits(entry):
            fits += 1
        else:
            misfits.append(key)
    findings.verified += fits
    if fits:
        findings.damaged += [f"{_name(key)}: its digest does not fit" for key in misfits]
    else:
        findings.unverifiable += len(misfits)


def _read_all(
    rows: Iterator[Put], reader: EntryLogReader, findings: Findings
) -> Iterator[tuple[bytes, bytes]]:
    """Key and bytes of all that can be read; what cannot is noted."""
    waiting: list[_Row] = []
    for key, value in rows:
        location = int.from_bytes(value, "big")
        if location:  # 0 is BookKeeper's "no such entry"
            waiting.append(_Row(key, location))
        if len(waiting) == _SLICE:
            yield from _read_slice(waiting, reader, findings)
            waiting = []
    yield from _read_slice(waiting, reader, findings)


def _read_slice(
    rows: list[_Row], reader: EntryLogReader, findings: Findings
) -> Iterator[tuple[bytes, bytes]]:
    locations = [row.location for row in rows]
    start = 0
    while start < len(rows):
        stop = near_until(locations, start, _SPAN_BYTES_MAX)
        run = rows[start:stop]
        try:
            entries = list(reader.read_run([row.key for row in run], [row.location for row in run]))
            yield from zip([row.key for row in run], entries, strict=True)
        except (BookieError, OSError):
            yield from _read_singly(run, reader, findings)
        start = stop


def _read_singly(
    rows: list[_Row], reader: EntryLogReader, findings: Findings
) -> Iterator[tuple[bytes, bytes]]:
    for row in rows:
        try:
            yield row.key, reader.read(row.key, row.location)
        except (BookieError, OSError) as error:
            findings.entries += 1
            findings.damaged.append(f"{_name(row.key)}: {error}")


def digest_fits(entry: bytes) -> bool:
    """Whether it is a CRC32C (4 bytes) or a CRC32 (8 bytes)."""
    if len(entry) < _COVERED + 4:
        return False
    covered = entry[:_COVERED]
    if crc32c(entry[_COVERED + 4 :], crc32c(covered)) == int.from_bytes(
        entry[_COVERED : _COVERED + 4], "big"
    ):
        return True
    if len(entry) < _COVERED + 8:
        return False
    found = zlib.crc32(entry[_COVERED + 8 :], zlib.crc32(covered))
    return found == int.from_bytes(entry[_COVERED : _COVERED + 8], "big")


def _name(key: bytes) -> str:
    return "ledger {} entry {}".format(*KEY.unpack(key))
