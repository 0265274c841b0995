"""The bookie's directories: layout, cookie, last mark, and the flag of an unclean end.

`<journal>/current/*.txn`, `<ledgers>/current/*.log, lastId, lastMark`, `<index>/current/{ledgers,locations}`;
each `current` has the cookie `VERSION`. Either all of them carry the same cookie or none does: a bookie never
starts on half of its data. Ledgers are spread over several directories by their id, so their number and order
stay as they were when the bookie began.
"""

from __future__ import annotations

import logging
import re
import struct
import zlib
from collections.abc import Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from bookie_stub.base.errors import CorruptJournal, ForeignDirectory
from bookie_stub.base.file_system import FileSystem
from bookie_stub.journal.journal_file import NO_MARK, Mark, Marks, file_name, journal_ids, read_header

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
_REPLAY_ALL = "without the file a start replays the journals from their beginning, which is safe"
_COOKIE_LINE = re.compile(r'(bookieHost|journalDir|ledgerDirs|instanceId|indexDirs): ".*"\n')
_INSTANCE = re.compile(r'^instanceId: "(.*)"$', re.MULTILINE)
_TAB = "\\t"
"""As the cookie has it: a backslash and a t."""
_SYNCED = "journal synced\n"
_UNSYNCED = "journal not synced, boot "
_NOTE = re.compile(rf"({_SYNCED}|{_UNSYNCED}[0-9a-z-]+\n)?")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


log = logging.getLogger(__name__)


class LastStop(Enum):
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
        """Where a replay begins. ForeignDirectory or CorruptJournal when one is damaged."""
        count = len(self.journals)
        return tuple([read_marks(self._mark_files(at), self.journals[at]) for at in range(count)])

    @property
    def have_marks(self) -> bool:
        return all(
            path.exists() for journal in range(len(self.journals)) for path in self._mark_files(journal)
        )

    def _mark_files(self, journal: int) -> list[Path]:
        return [path / mark_name(journal, len(self.journals)) for path in self.ledgers]

    def write_marks(self, marks: Marks) -> None:
        """Everything before them is in the logs and indexes of all ledger directories."""
        for journal, mark in enumerate(marks):
            content = _MARK.pack(*mark)
            for path in self._mark_files(journal):
                self._file_system.replace(path, content + _mark_trailer(content))

    def last_stop(self) -> LastStop:
        """What a killed process has written is still there when the machine has not gone down since, which the
        boot's id tells. BookKeeper leaves the note empty: its journal counts as synced."""
        boot = _boot()
        last = LastStop.CLEAN
        for path in self.ledgers:
            note = _read_text(path / DIRTY_FILE)
            if note is not None and not _NOTE.fullmatch(note):
                raise ForeignDirectory(
                    f"{path / DIRTY_FILE} at 0: {note[:60]!r} is not how a bookie ends; write {_SYNCED.strip()!r} and a"
                    f" line end into it, or with journalSyncData=false {_UNSYNCED + 'lost'!r} and a line end"
                )
            if note is not None and last is not LastStop.UNSYNCED:
                went_down = note.startswith(_UNSYNCED) and note != _UNSYNCED + boot
                last = LastStop.UNSYNCED if went_down else LastStop.UNCLEAN
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
        raise ForeignDirectory(f"{path} has {len(content)} bytes, not {_MARK.size}; {_REPLAY_ALL}")
    trailer = content[_MARK.size : _MARK.size + _MARK_TRAILER.size]
    if trailer.startswith(_MARK_MAGIC) and trailer != _mark_trailer(content[: _MARK.size]):
        raise ForeignDirectory(f"{path} at 0: it does not fit its checksum; {_REPLAY_ALL}")
    return Mark(*_MARK.unpack_from(content))


def mark_name(journal: int, count: int) -> str:
    """Of journal number `journal` of `count`."""
    return MARK_FILE if count == 1 else f"{MARK_FILE}.{journal}"


def read_marks(files: Sequence[Path], journals: Path) -> Mark:
    """Where a replay of one journal directory begins: the highest mark of all ledger directories, as it was written when
    every one of them had what it covers. Without one that can be believed it is the beginning of the oldest journal."""
    marks = {path: read_mark(path) for path in files if path.exists()}
    if ours := [mark for path, mark in marks.items() if _is_checked(path)]:
        return max(ours)
    for path, mark in marks.items():
        _check_foreign(path, mark, journals)
    highest = max(marks.values(), default=NO_MARK)
    ids = journal_ids(journals)
    if highest.journal_id and not _is_of_ours(highest, journals, ids):
        return highest
    if ids:
        log.warning("%s is missing or has no checksum: all journals are replayed", files[0])
    return Mark(ids[0], 0) if ids else NO_MARK


def _is_checked(path: Path) -> bool:
    """Whether a whole mark has the checksum that ours have, and BookKeeper's have not."""
    return path.read_bytes()[_MARK.size :].startswith(_MARK_MAGIC)


def _check_foreign(path: Path, mark: Mark, journals: Path) -> None:
    """CorruptJournal where a mark without a checksum names a place that its journal has not."""
    if mark.journal_id not in journal_ids(journals):
        return
    size = (journals / file_name(mark.journal_id)).stat().st_size
    if not 0 <= mark.offset <= size:
        raise CorruptJournal(
            f"{path} at 8: it names {mark.offset} in {file_name(mark.journal_id)}, which has {size} bytes; "
            + _REPLAY_ALL
        )


def _is_of_ours(mark: Mark, journals: Path, ids: Sequence[int]) -> bool:
    """Whether it names a journal of ours. Then a mark without a checksum is not to be believed."""
    if mark.journal_id not in ids:
        return False
    try:
        header = read_header(journals / file_name(mark.journal_id))
    except CorruptJournal:
        return True
    return header is not None and header.grouped


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
    except UnicodeDecodeError as error:
        raise ForeignDirectory(f"{path} at {error.start}: it is no text; bring it back as it was") from None


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


def instance_of(path: Path) -> str:
    """The cluster that a cookie was written for. OSError; ForeignDirectory when it does not say."""
    found = _INSTANCE.search(path.read_text(errors="replace"))
    if found is None:
        raise ForeignDirectory(f"{path} has no instanceId")
    return found[1]
