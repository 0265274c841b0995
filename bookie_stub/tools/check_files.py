"""Looks for damage in a bookie's files, kind by kind.

The kinds are cookies, journals with marks, entry logs and tombstones.

Each function adds lines to a `CheckReport` and raises nothing for damage. docs/reference/storage_format.md says what
each format can prove, and docs/explanation/bookie.md which damage no format shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bookie_stub.base.errors import BookieError, BookieStorageError
from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import LENGTH_BYTES
from bookie_stub.disk.cookie import COOKIE_FILE, check_cookie
from bookie_stub.disk.entry_log import log_ids
from bookie_stub.disk.entry_log_writer import LAST_ID_FILE
from bookie_stub.disk.inventory import InventoryContents, read_inventory
from bookie_stub.disk.marks import replay_start
from bookie_stub.disk.tombstones import FILE as TOMBSTONES
from bookie_stub.disk.tombstones import Tombstones
from bookie_stub.journal.journal_chain import flaws_of
from bookie_stub.journal.journal_file import JournalMark, journal_ids
from bookie_stub.tools.check_report import CheckReport
from bookie_stub.tools.log_completeness import ScannedLog, missing_logs
from bookie_stub.tools.progress import Progress, Say


def check_cookies(directories: Sequence[Path], report: CheckReport) -> None:
    """Checks that every directory has the same, well-formed cookie."""
    cookies: dict[Path, bytes] = {}
    for directory in directories:
        path = directory / COOKIE_FILE
        try:
            cookies[path] = path.read_bytes()
            check_cookie(path)
        except FileNotFoundError:
            report.damaged.append(f"{path}: is missing")
        except BookieError as error:
            report.damaged.append(str(error))
    first = next(iter(cookies), None)
    for path, cookie in cookies.items():
        if first is not None and cookie != cookies[first]:
            offset = _first_difference(cookie, cookies[first])
            report.damaged.append(f"{path} at {offset}: differs from {first}, one of them is damaged")


def _first_difference(one: bytes, other: bytes) -> int:
    pairs = zip(one, other, strict=False)
    shorter = min(len(one), len(other))
    return next((offset for offset, (mine, its) in enumerate(pairs) if mine != its), shorter)


def check_journals(directory: Path, marks: Sequence[Path], report: CheckReport) -> None:
    """Checks the journals of one directory, older ones included.

    `marks` are its mark files in all ledger directories.
    """
    try:
        mark = replay_start(marks, directory)
    except BookieError as error:
        report.damaged.append(str(error))
        # Without a mark all journals are needed, so all of them are checked.
        mark = JournalMark(min(journal_ids(directory), default=0), 0)
    try:
        report.damaged += flaws_of(directory, mark)
    except BookieError as error:
        report.damaged.append(str(error))


def inventory_of(logs: Path, report: CheckReport) -> InventoryContents | None:
    """Returns the inventory, None when there is none or it is damaged."""
    try:
        return read_inventory(logs)
    except BookieStorageError as error:
        report.damaged.append(str(error))
        return None


def check_last_id(logs: Path, report: CheckReport) -> None:
    """Checks that `lastId` is a number no log's id exceeds. Such a log's id would be given out again."""
    path = logs / LAST_ID_FILE
    try:
        last_id = int(path.read_text(errors="replace"), 16)
    except FileNotFoundError:
        return
    except ValueError:
        report.damaged.append(f"{path} at 0: it is no hexadecimal number")
        return
    newest = max(log_ids(logs), default=-1)
    if last_id < newest:
        report.damaged.append(f"{path} at 0: it names {last_id:x}, and there is {newest:x}.log")


def check_logs(logs: Path, inventory: InventoryContents | None, report: CheckReport, say: Say) -> None:
    """Checks each log's records, header and ledgers map. A listed log that is missing is damage too."""
    ids = log_ids(logs)
    report.damaged += missing_logs(logs, ids, inventory)
    progress = Progress(f"check {logs}", "records", say)
    for log_id in ids:
        log = ScannedLog(logs, log_id)
        for entry in log:
            progress.add(1, LENGTH_BYTES + entry.size)
        completeness = log.completeness(inventory)
        if completeness.flaw:
            report.damaged.append(completeness.flaw)
        elif log.torn:
            report.notes.append(f"{log.torn}: torn by a crash, no index names them")


def check_tombstones(index: Path, inventory: InventoryContents | None, report: CheckReport) -> None:
    """Checks the tombstones and their number. The inventory says how many there must be."""
    try:
        Tombstones(index / TOMBSTONES, FileSystem(), 0 if inventory is None else inventory.counts.tombstones)
    except BookieStorageError as error:
        report.damaged.append(str(error))
