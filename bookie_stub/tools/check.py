"""`check`: whether every file of a bookie is whole, and every entry that the location index names can be read and fits
its digest.

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

from bookie_stub.base.errors import BookieError, BookieStorageError
from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import KEY
from bookie_stub.disk.directories import mark_name
from bookie_stub.disk.entry_log import file_name
from bookie_stub.disk.entry_log_reader import EntryLogReader
from bookie_stub.disk.inventory import Listed, Written
from bookie_stub.disk.ledger_index import FLAGS_KEY, decode
from bookie_stub.disk.ledger_storage import LEDGERS, LOCATIONS
from bookie_stub.disk.rocks import Put, read_rows, sequence_of
from bookie_stub.disk.stored_entries import near_until
from bookie_stub.tools.check_files import (
    check_cookies,
    check_journals,
    check_last_id,
    check_logs,
    check_tombstones,
    listed_of,
)
from bookie_stub.tools.check_report import CheckReport
from bookie_stub.tools.progress import Progress, Say

_SLICE = 512
_SPAN_BYTES_MAX = 4 << 20
_COVERED = 32
"""The digest covers these first bytes and the payload; it stands between them."""


def check(
    journals: Sequence[Path], storages: Sequence[tuple[Path, Path]], entry_bytes_max: int, say: Say
) -> CheckReport:
    """`storages`: directories of entry logs and of indexes, as pairs. OSError where a file cannot be read."""
    findings = CheckReport()
    check_cookies(sorted({*journals, *(path for pair in storages for path in pair)}), findings)
    for number, directory in enumerate(journals):
        marks = [logs / mark_name(number, len(journals)) for logs, _ in storages]
        check_journals(directory, marks, findings)
    for logs, index in storages:
        _check_storage(logs, index, entry_bytes_max, findings, say)
    return findings


def _check_storage(logs: Path, index: Path, entry_bytes_max: int, findings: CheckReport, say: Say) -> None:
    listed = listed_of(logs, findings)
    check_last_id(logs, findings)
    check_logs(logs, listed, findings, say)
    check_tombstones(index, listed, findings)
    _check_indexes(index, listed, findings)
    known = _ledgers_of(index, findings)
    reader = EntryLogReader(logs, entry_bytes_max, FileSystem())
    progress = Progress(f"check {logs}", "entries", say)
    try:
        with read_rows(index / LOCATIONS) as rows:
            for ledger_id, group in groupby(rows, key=lambda row: KEY.unpack(row[0])[0]):
                if known is not None and ledger_id not in known:
                    findings.notes.append(
                        f"ledger {ledger_id} has entries in {index / LOCATIONS} and is in no ledger index"
                    )
                _EntriesOfLedger(logs, reader, findings, progress).check(group)
    except BookieStorageError as error:
        findings.damaged.append(str(error))
    say(f"check {logs}: {progress.text()}")
    reader.close()


def _check_indexes(index: Path, listed: Listed | None, findings: CheckReport) -> None:
    written = Written() if listed is None else listed.written
    for path, wanted in ((index / LOCATIONS, written.locations), (index / LEDGERS, written.ledgers)):
        try:
            found = sequence_of(path)
        except BookieStorageError:
            continue  # whoever reads its rows says it
        if found < wanted:
            findings.damaged.append(f"{path} has {found} changes of {wanted}: its newest rows are lost")


def _ledgers_of(index: Path, findings: CheckReport) -> set[int] | None:
    """None when they cannot be read."""
    known = set()
    try:
        with read_rows(index / LEDGERS) as rows:
            for key, value in rows:
                ledger_id = int.from_bytes(key, "big", signed=True)
                known.add(ledger_id)
                try:
                    if ledger_id != FLAGS_KEY:
                        decode(value)
                except BookieError as error:
                    findings.damaged.append(f"{index / LEDGERS}: ledger {ledger_id}: {error}")
    except BookieStorageError as error:
        findings.damaged.append(str(error))
        return None
    return known


class _Row(NamedTuple):
    key: bytes
    location: int


class _EntriesOfLedger:
    def __init__(self, logs: Path, reader: EntryLogReader, findings: CheckReport, progress: Progress) -> None:
        self._logs = logs
        self._reader = reader
        self._findings = findings
        self._progress = progress

    def check(self, rows: Iterator[Put]) -> None:
        findings = self._findings
        fits = 0
        misfits: list[_Row] = []
        for row, entry in self._read_all(rows):
            self._progress.add(1, len(entry))
            findings.entries += 1
            if digest_fits(entry):
                fits += 1
            else:
                misfits.append(row)
        findings.verified += fits
        if fits:
            findings.damaged += [f"{self._name(row)}: its digest does not fit" for row in misfits]
        else:
            findings.unverifiable += len(misfits)

    def _read_all(self, rows: Iterator[Put]) -> Iterator[tuple[_Row, bytes]]:
        """All that can be read; what cannot is noted."""
        waiting: list[_Row] = []
        for key, value in rows:
            location = int.from_bytes(value, "big")
            if location:  # 0 is BookKeeper's "no such entry"
                waiting.append(_Row(key, location))
            if len(waiting) == _SLICE:
                yield from self._read_slice(waiting)
                waiting = []
        yield from self._read_slice(waiting)

    def _read_slice(self, rows: list[_Row]) -> Iterator[tuple[_Row, bytes]]:
        locations = [row.location for row in rows]
        start = 0
        while start < len(rows):
            stop = near_until(locations, start, _SPAN_BYTES_MAX)
            run = rows[start:stop]
            try:
                entries = list(self._reader.read_run([row.key for row in run], [row.location for row in run]))
                yield from zip(run, entries, strict=True)
            except (BookieError, OSError):
                yield from self._read_singly(run)
            start = stop

    def _read_singly(self, rows: list[_Row]) -> Iterator[tuple[_Row, bytes]]:
        for row in rows:
            try:
                yield row, self._reader.read(row.key, row.location)
            except (BookieError, OSError) as error:
                self._findings.entries += 1
                self._findings.damaged.append(f"{self._name(row)}: {error}")

    def _name(self, row: _Row) -> str:
        path = self._logs / file_name(row.location >> 32)
        ledger_id, entry_id = KEY.unpack(row.key)
        return f"{path} at {row.location & 0xFFFFFFFF}: ledger {ledger_id} entry {entry_id}"


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
