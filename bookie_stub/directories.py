"""The bookie's directories: layout, cookie, last mark, and the flag of an unclean end.

`<journal>/current/*.txn`, `<ledgers>/current/*.log, lastId, lastMark`, `<index>/current/{ledgers,locations}`;
each `current` has the cookie `VERSION`. Either all of them carry the same cookie or none does: a bookie never
starts on half of its data. Ledgers are spread over several directories by their id, so their number and order
stay as they were when the bookie began.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from bookie_stub.errors import ForeignDirectory
from bookie_stub.file_system import FileSystem
from bookie_stub.journal_file import HEADER_BYTES, Mark, Marks, file_name, journal_ids

CURRENT = "current"
COOKIE_FILE = "VERSION"
MARK_FILE = "lastMark"
DIRTY_FILE = "DIRTY"
NOTHING_LOST_FILE = "nothingLost"
"""Ours: no ledger of the directory was ever in limbo. Gone with the first that is."""
COOKIE_LAYOUT = 5
_MARK = struct.Struct(">qq")
_MARK_TRAILER = struct.Struct(">4sI")
"""Ours, behind what BookKeeper reads: magic, and the CRC32 of the mark."""
_MARK_MAGIC = b"MGMK"
_COOKIE_LINE = re.compile(r'(bookieHost|journalDir|ledgerDirs|instanceId|indexDirs): ".*"\n')
_TAB = "\\t"
"""As the cookie has it: a backslash and a t."""
_NO_MARK = Mark(0, 0)
_SYNCED = "journal synced\n"
_UNSYNCED = "journal not synced, boot "
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class LastRun(Enum):
    """How the process before this one ended."""

    CLEAN = auto()
    UNCLEAN = auto()
    """Killed, or the machine went down; nothing that was acknowledged is lost."""
    UNSYNCED = auto()
    """The machine went down on a journal that was not synced."""


class Cluster(Protocol):
    """The cluster that a bookie belongs to, as far as its directories have to fit it."""

    instance_id: str

    @property
    def cookie(self) -> str | None:
        """What the cluster has of this bookie."""
        ...

    def keep_cookie(self, cookie: str) -> None: ...


class Directories:
    def __init__(
        self,
        journals: Sequence[Path],
        ledgers: Sequence[Path],
        indexes: Sequence[Path],
        file_system: FileSystem,
    ) -> None:
        """The directories as configured; everything lives in their `current`."""
        self._configured = {"journalDir": journals, "ledgerDirs": ledgers, "indexDirs": indexes}
        self.journals = tuple(path / CURRENT for path in journals)
        self.ledgers = tuple(path / CURRENT for path in ledgers)
        self.indexes = tuple(path / CURRENT for path in indexes)
        self._file_system = file_system

    def prepare(self, bookie_id: str, cluster: Cluster | None) -> None:
        """Create what is missing, and check the cookies. Raises ForeignDirectory."""
        current = {*self.journals, *self.ledgers, *self.indexes}
        found = {path: _read_text(path / COOKIE_FILE) for path in current}
        cookies = {text for text in found.values() if text is not None}
        missing = [path for path, text in found.items() if text is None]
        if len(cookies) > 1:
            raise ForeignDirectory(f"{COOKIE_FILE} differs between {', '.join(map(str, sorted(current)))}")
        if cookies and missing:
            raise ForeignDirectory(
                f"{missing[0]} has no {COOKIE_FILE}, others of this bookie have: data missing?"
            )
        if cookies:
            cookie = cookies.pop()
            _check_layout(cookie)
            self._check_order(cookie)
            if cluster is not None:
                self._check_cluster(cookie, cluster)
            return
        for path in sorted(current):
            if path.is_dir() and any(path.iterdir()):
                raise ForeignDirectory(f"{path} is not empty and has no {COOKIE_FILE}")
        self._begin_new(bookie_id, cluster)

    def _check_cluster(self, cookie: str, cluster: Cluster) -> None:
        registered = cluster.cookie
        if registered is None and f'instanceId: "{cluster.instance_id}"\n' in cookie:
            cluster.keep_cookie(cookie)  # the last start ended between the directories and the cluster
        elif registered is None:
            raise ForeignDirectory(
                f"{self.ledgers[0]} has the data of another cluster or of a bookie on its own:"
                f" this cluster's instanceId is {cluster.instance_id}; give a new bookie empty directories"
            )
        elif registered.strip() != cookie.strip():
            raise ForeignDirectory(
                f"{self.ledgers[0] / COOKIE_FILE} is not the cookie that the cluster has of this bookie:"
                f" {' '.join(cookie.split())} instead of {' '.join(registered.split())}"
            )

    def _begin_new(self, bookie_id: str, cluster: Cluster | None) -> None:
        if cluster is not None and cluster.cookie is not None:
            raise ForeignDirectory(
                f"the cluster knows {bookie_id}, whose directories are empty here: data missing?"
                f" To begin anew remove its node under cookies/ in the metadata store"
            )
        cookie = self._cookie(bookie_id, str(uuid4()) if cluster is None else cluster.instance_id)
        for path in sorted({*self.journals, *self.ledgers, *self.indexes}):
            path.mkdir(parents=True, exist_ok=True)
            self._file_system.replace(path / COOKIE_FILE, cookie.encode())
        for path in self.ledgers:
            self._file_system.replace(path / NOTHING_LOST_FILE, b"")
        if cluster is not None:
            cluster.keep_cookie(cookie)

    def _cookie(self, bookie_id: str, instance_id: str) -> str:
        journals, ledgers, indexes = self._configured.values()
        return (
            f'{COOKIE_LAYOUT}\nbookieHost: "{bookie_id}"\njournalDir: "{",".join(map(str, journals))}"\n'
            f'ledgerDirs: "{_counted(ledgers)}"\ninstanceId: "{instance_id}"\nindexDirs: "{_counted(indexes)}"\n'
        )

    def _check_order(self, cookie: str) -> None:
        """A ledger is found by its directory's place: as many directories as ever, and none in another's place."""
        for line in cookie.splitlines():
            name, _, value = line.partition(": ")
            if name not in self._configured:
                continue
            value = value.strip('"')
            kept = value.split(",") if name == "journalDir" else value.split(_TAB)[1:]
            here = [str(path) for path in self._configured[name]]
            moved = [
                path for place, path in enumerate(here) if path in kept and kept[place : place + 1] != [path]
            ]
            if len(kept) != len(here) or moved:
                raise ForeignDirectory(
                    f"{name} are {', '.join(here)}, but this bookie began with {', '.join(kept)}:"
                    " their number and order must stay, ledgers are found by them"
                )

    def read_marks(self) -> Marks:
        """Where a replay begins. ForeignDirectory when a marked journal is gone: its entries would be lost."""
        return tuple([self._read_mark(index) for index in range(len(self.journals))])

    def _mark_file(self, journal: int) -> str:
        return MARK_FILE if len(self.journals) == 1 else f"{MARK_FILE}.{journal}"

    def _read_mark(self, journal: int) -> Mark:
        """The highest of all ledger directories: it was written when every one of them had what it covers."""
        files = [path / self._mark_file(journal) for path in self.ledgers]
        mark = max([read_mark(path) for path in files if path.exists()], default=_NO_MARK)
        if (
            mark.journal_id
            and mark.journal_id not in journal_ids(self.journals[journal])
            and mark.offset > HEADER_BYTES
        ):
            raise ForeignDirectory(f"{MARK_FILE} names {file_name(mark.journal_id)}, which is missing")
        return mark

    def write_marks(self, marks: Marks) -> None:
        """Everything before them is in the logs and indexes of all ledger directories."""
        for journal, mark in enumerate(marks):
            content = _MARK.pack(*mark)
            for path in self.ledgers:
                self._file_system.replace(path / self._mark_file(journal), content + _mark_trailer(content))

    def last_run(self) -> LastRun:
        """What a killed process has written is still there when the machine has not gone down since, which the
        boot's id tells. BookKeeper leaves the note empty: its journal counts as synced."""
        boot = _boot()
        last = LastRun.CLEAN
        for path in self.ledgers:
            note = _read_text(path / DIRTY_FILE)
            if note is not None and last is not LastRun.UNSYNCED:
                went_down = note.startswith(_UNSYNCED) and note != _UNSYNCED + boot
                last = LastRun.UNSYNCED if went_down else LastRun.UNCLEAN
        return last

    def begin(self, *, journal_synced: bool) -> None:
        """Note that the bookie is at work, and how: when nothing of the last run is to be judged any more."""
        text = _SYNCED if journal_synced else _UNSYNCED + _boot()
        for path in self.ledgers:
            if text != _read_text(path / DIRTY_FILE):  # a start after a kill on a full disk writes nothing
                self._file_system.replace(path / DIRTY_FILE, text.encode())

    def end(self) -> None:
        for path in self.ledgers:
            (path / DIRTY_FILE).unlink(missing_ok=True)


def read_mark(path: Path) -> Mark:
    """ForeignDirectory when the file is cut or damaged. BookKeeper's have no checksum."""
    content = path.read_bytes()
    if len(content) < _MARK.size:
        raise ForeignDirectory(f"{path} has {len(content)} bytes, not {_MARK.size}")
    trailer = content[_MARK.size : _MARK.size + _MARK_TRAILER.size]
    if trailer.startswith(_MARK_MAGIC) and trailer != _mark_trailer(content[: _MARK.size]):
        raise ForeignDirectory(
            f"{path} at 0: it does not fit its checksum; without the file a start replays the journals from their"
            " beginning, which is safe"
        )
    return Mark(*_MARK.unpack_from(content))


def _mark_trailer(mark: bytes) -> bytes:
    return _MARK_TRAILER.pack(_MARK_MAGIC, zlib.crc32(mark))


def _counted(paths: Sequence[Path]) -> str:
    return _TAB.join([str(len(paths)), *map(str, paths)])


def _boot() -> str:
    return _read_text(_BOOT_ID) or "unknown\n"


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


def _check_layout(cookie: str) -> None:
    lines = cookie.splitlines()
    if not lines or lines[0] != str(COOKIE_LAYOUT):
        raise ForeignDirectory(f"{COOKIE_FILE} has layout version {lines[:1]}, not {COOKIE_LAYOUT}")


def check_cookie(path: Path) -> None:
    """ForeignDirectory, with the offset, where a line is not as cookies have it."""
    cookie = path.read_text(errors="replace")
    offset = 0
    for number, line in enumerate(cookie.splitlines(keepends=True)):
        if not (_COOKIE_LINE.fullmatch(line) if number else line == f"{COOKIE_LAYOUT}\n"):
            raise ForeignDirectory(f"{path} at {offset}: {line[:60]!r} is no line of a cookie")
        offset += len(line.encode())
