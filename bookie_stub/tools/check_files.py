"""Whether a bookie's files are whole, one kind after the other: cookies, journals, marks, entry logs, tombstones.

What each format can prove: docs/storage_format.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bookie_stub.base.errors import BookieError, BookieStorageError
from bookie_stub.base.file_system import FileSystem
from bookie_stub.base.record import LENGTH_BYTES
from bookie_stub.disk.directories import COOKIE_FILE, check_cookie, read_marks
from bookie_stub.disk.entry_log import log_ids
from bookie_stub.disk.entry_log_writer import LAST_ID_FILE
from bookie_stub.disk.inventory import Listed, read_inventory
from bookie_stub.disk.tombstones import FILE as TOMBSTONES
from bookie_stub.disk.tombstones import Tombstones
from bookie_stub.journal.journal_chain import flaws_of
from bookie_stub.journal.journal_file import Mark, journal_ids
from bookie_stub.tools.check_report import CheckReport
from bookie_stub.tools.log_completeness import ScannedLog, missing_logs
from bookie_stub.tools.progress import Progress, Say


def check_cookies(directories: Sequence[Path], findings: CheckReport) -> None:
    """All directories of a bookie have the same one."""
    cookies: dict[Path, bytes] = {}
    for directory in directories:
        path = directory / COOKIE_FILE
        try:
            cookies[path] = path.read_bytes()
            check_cookie(path)
        except FileNotFoundError:
            findings.damaged.append(f"{path}: is missing")
        except BookieError as error:
            findings.damaged.append(str(error))
    first = next(iter(cookies), None)
    for path, cookie in cookies.items():
        if first is not None and cookie != cookies[first]:
            offset = _first_difference(cookie, cookies[first])
            findings.damaged.append(f"{path} at {offset}: differs from {first}, one of them is damaged")


def _first_difference(one: bytes, other: bytes) -> int:
    pairs = zip(one, other, strict=False)
    shorter = min(len(one), len(other))
    return next((offset for offset, (mine, its) in enumerate(pairs) if mine != its), shorter)


def check_journals(directory: Path, marks: Sequence[Path], findings: CheckReport) -> None:
    """`marks`: its lastMark in each ledger directory."""
    try:
        mark = read_marks(marks, directory)
    except BookieError as error:
        findings.damaged.append(str(error))
        mark = Mark(min(journal_ids(directory), default=0), 0)
    try:
        findings.damaged += flaws_of(directory, mark)
    except BookieError as error:
        findings.damaged.append(str(error))


def listed_of(logs: Path, findings: CheckReport) -> Listed | None:
    try:
        return read_inventory(logs)
    except BookieStorageError as error:
        findings.damaged.append(str(error))
        return None


def check_last_id(logs: Path, findings: CheckReport) -> None:
    path = logs / LAST_ID_FILE
    try:
        last_id = int(path.read_text(errors="replace"), 16)
    except FileNotFoundError:
        return
    except ValueError:
        findings.damaged.append(f"{path} at 0: it is no hexadecimal number")
        return
    newest = max(log_ids(logs), default=-1)
    if last_id < newest:
        findings.damaged.append(f"{path} at 0: it names {last_id:x}, and there is {newest:x}.log")


def check_logs(logs: Path, listed: Listed | None, findings: CheckReport, say: Say) -> None:
    """Every log's records, header and ledgers map, and that none is missing."""
    ids = log_ids(logs)
    findings.damaged += missing_logs(logs, set(ids), listed)
    progress = Progress(f"check {logs}", "records", say)
    for log_id in ids:
        log = ScannedLog(logs, log_id)
        for entry in log:
            progress.add(1, LENGTH_BYTES + entry.size)
        state = log.state(listed)
        if state.flaw:
            findings.damaged.append(state.flaw)
        elif log.torn:
            findings.notes.append(f"{log.torn}: torn by a crash, nothing names them")


def check_tombstones(index: Path, listed: Listed | None, findings: CheckReport) -> None:
    try:
        Tombstones(index / TOMBSTONES, FileSystem(), 0 if listed is None else listed.written.tombstones)
    except BookieStorageError as error:
        findings.damaged.append(str(error))
