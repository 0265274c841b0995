"""`magnetar bookie check`: looks for damage in all files of a bookie.

It also reads every entry that the index names.

A bookie knows neither the digest type of a ledger nor its password. CRC32C and CRC32 need no password, so both are tried:
if one fits some entry of a ledger, an entry of that ledger that it does not fit is damaged. Entries of a ledger where
neither fits any (a MAC, no digest, or everything damaged) count as not verifiable.

It reads files and changes none. The bookie should be down, or files that change meanwhile look damaged.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from bookie_stub.base.errors import BookieError, BookieStorageError
from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import KEY
from bookie_stub.disk.entry_log import file_name
from bookie_stub.disk.entry_log_reader import EntryLogReader
from bookie_stub.disk.inventory import IndexCounts, InventoryContents
from bookie_stub.disk.ledger_index import FLAGS_KEY, decode
from bookie_stub.disk.ledger_storage import LEDGERS, LOCATIONS
from bookie_stub.disk.marks import mark_name
from bookie_stub.disk.rocks import Put, read_rows, sequence_of
from bookie_stub.disk.stored_entries import near_until
from bookie_stub.tools.check_files import (
    check_cookies,
    check_journals,
    check_last_id,
    check_logs,
    check_tombstones,
    inventory_of,
)
from bookie_stub.tools.check_report import CheckReport
from bookie_stub.tools.progress import Progress, Say
from protocol.checksum import crc32c

_SLICE = 512
"""Rows that are read together."""
_SPAN_BYTES_MAX = 4 << 20
_COVERED = 32
"""The digest covers these first bytes and the payload; it stands between them."""


def check(
    journals: Sequence[Path], storages: Sequence[tuple[Path, Path]], entry_bytes_max: int, say: Say
) -> CheckReport:
    """Checks all directories of a bookie.

    `storages` are pairs of a folder of entry logs and one of indexes.
    OSError when a file cannot be read at all.
    """
    report = CheckReport()
    check_cookies(sorted({*journals, *(path for pair in storages for path in pair)}), report)
    # A journal's mark stands in every ledger directory.
    for number, directory in enumerate(journals):
        marks = [logs / mark_name(number, len(journals)) for logs, _ in storages]
        check_journals(directory, marks, report)
    for logs, index in storages:
        _check_storage(logs, index, entry_bytes_max, report, say)
    return report


def _check_storage(logs: Path, index: Path, entry_bytes_max: int, report: CheckReport, say: Say) -> None:
    inventory = inventory_of(logs, report)
    check_last_id(logs, report)
    check_logs(logs, inventory, report, say)
    check_tombstones(index, inventory, report)
    _check_indexes(index, inventory, report)
    known = _ledgers_of(index, report)
    reader = EntryLogReader(logs, entry_bytes_max, FileSystem())
    progress = Progress(f"check {logs}", "entries", say)
    try:
        with read_rows(index / LOCATIONS) as rows:
            for ledger_id, group in groupby(rows, key=lambda row: KEY.unpack(row[0])[0]):
                if known is not None and ledger_id not in known:
                    report.notes.append(
                        f"ledger {ledger_id} has entries in {index / LOCATIONS} and is in no ledger index"
                    )
                _EntriesOfLedger(logs, reader, report, progress).check(group)
    except BookieStorageError as error:
        report.damaged.append(str(error))
    say(f"check {logs}: {progress.text()}")
    reader.close()


def _check_indexes(index: Path, inventory: InventoryContents | None, report: CheckReport) -> None:
    written = IndexCounts() if inventory is None else inventory.counts
    for path, wanted in ((index / LOCATIONS, written.locations), (index / LEDGERS, written.ledgers)):
        try:
            found = sequence_of(path)
        except BookieStorageError:
            continue  # reading its rows reports the same error
        if found < wanted:
            report.damaged.append(f"{path} has {found} changes of {wanted}: its newest rows are lost")


def _ledgers_of(index: Path, report: CheckReport) -> set[int] | None:
    """Returns the ids in the ledger index, None when it cannot be read."""
    # A row that cannot be decoded still makes its ledger known: it is reported once, and not again for each of its
    # entries.
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
                    report.damaged.append(f"{index / LEDGERS}: ledger {ledger_id}: {error}")
    except BookieStorageError as error:
        report.damaged.append(str(error))
        return None
    return known


class _Row(NamedTuple):
    key: bytes
    location: int


class _EntriesOfLedger:
    """Reads the entries of one ledger after the other and judges their digests."""

    def __init__(self, logs: Path, reader: EntryLogReader, report: CheckReport, progress: Progress) -> None:
        self._logs = logs
        self._reader = reader
        self._report = report
        self._progress = progress

    def check(self, rows: Iterator[Put]) -> None:
        """Checks all entries of one ledger. `rows` are its rows of the location index."""
        report = self._report
        fits = 0
        misfits: list[_Row] = []
        for row, entry in self._read_all(rows):
            self._progress.add(1, len(entry))
            report.entries += 1
            if digest_fits(entry):
                fits += 1
            else:
                misfits.append(row)
        report.verified += fits
        # The digest type is per ledger: one entry that fits proves it for all.
        if fits:
            report.damaged += [f"{self._name(row)}: its digest does not fit" for row in misfits]
        else:
            report.unverifiable += len(misfits)

    def _read_all(self, rows: Iterator[Put]) -> Iterator[tuple[_Row, bytes]]:
        """Yields the entries that can be read; the others go into the report."""
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
                # One of them is damaged. Each by itself, so that the others are still checked.
                yield from self._read_singly(run)
            start = stop

    def _read_singly(self, rows: list[_Row]) -> Iterator[tuple[_Row, bytes]]:
        for row in rows:
            try:
                yield row, self._reader.read(row.key, row.location)
            except (BookieError, OSError) as error:
                # Counted here too: such an entry never reaches the loop that counts the readable ones.
                self._report.entries += 1
                self._report.damaged.append(f"{self._name(row)}: {error}")

    def _name(self, row: _Row) -> str:
        path = self._logs / file_name(row.location >> 32)
        ledger_id, entry_id = KEY.unpack(row.key)
        return f"{path} at {row.location & 0xFFFFFFFF}: ledger {ledger_id} entry {entry_id}"


def digest_fits(entry: bytes) -> bool:
    """Returns whether an entry fits its digest.

    It is tried as a CRC32C of 4 bytes and as a CRC32 of 8 bytes, four of them zero.
    """
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
