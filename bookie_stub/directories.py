"""The bookie's directories: layout, cookie, last mark, and the flag of an unclean end.

`<journal>/current/*.txn`, `<ledgers>/current/*.log, lastId, lastMark`, `<index>/current/{ledgers,locations}`;
each `current` has the cookie `VERSION`. Either all of them carry the same cookie or none does: a bookie never
starts on half of its data. One directory of each kind so far.
"""

from __future__ import annotations

import struct
from enum import Enum, auto
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from bookie_stub.errors import ForeignDirectory
from bookie_stub.file_system import FileSystem
from bookie_stub.journal_file import HEADER_BYTES, Mark, file_name, journal_ids

COOKIE_FILE = "VERSION"
MARK_FILE = "lastMark"
DIRTY_FILE = "DIRTY"
COOKIE_LAYOUT = 5
_MARK = struct.Struct(">qq")
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
    def __init__(self, journal: Path, ledgers: Path, index: Path, file_system: FileSystem) -> None:
        """The three directories as configured; everything lives in their `current`."""
        self._configured = (journal, ledgers, index)
        self.journal = journal / "current"
        self.ledgers = ledgers / "current"
        self.index = index / "current"
        self._file_system = file_system

    def prepare(self, bookie_id: str, cluster: Cluster | None) -> None:
        """Create what is missing, and check the cookies. Raises ForeignDirectory."""
        current = {self.journal, self.ledgers, self.index}
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
                f"{self.ledgers} has the data of another cluster or of a bookie on its own:"
                f" this cluster's instanceId is {cluster.instance_id}; give a new bookie empty directories"
            )
        elif registered.strip() != cookie.strip():
            raise ForeignDirectory(
                f"{self.ledgers / COOKIE_FILE} is not the cookie that the cluster has of this bookie:"
                f" {' '.join(cookie.split())} instead of {' '.join(registered.split())}"
            )

    def _begin_new(self, bookie_id: str, cluster: Cluster | None) -> None:
        if cluster is not None and cluster.cookie is not None:
            raise ForeignDirectory(
                f"the cluster knows {bookie_id}, whose directories are empty here: data missing?"
                f" To begin anew remove its node under cookies/ in the metadata store"
            )
        cookie = self._cookie(bookie_id, str(uuid4()) if cluster is None else cluster.instance_id)
        for path in sorted({self.journal, self.ledgers, self.index}):
            path.mkdir(parents=True, exist_ok=True)
            self._file_system.replace(path / COOKIE_FILE, cookie.encode())
        if cluster is not None:
            cluster.keep_cookie(cookie)

    def _cookie(self, bookie_id: str, instance_id: str) -> str:
        journal, ledgers, index = self._configured
        return (
            f'{COOKIE_LAYOUT}\nbookieHost: "{bookie_id}"\njournalDir: "{journal}"\nledgerDirs: "1\\t{ledgers}"\n'
            f'instanceId: "{instance_id}"\nindexDirs: "1\\t{index}"\n'
        )

    def read_mark(self) -> Mark:
        """Where a replay begins. ForeignDirectory when the marked journal is gone: its entries would be lost."""
        try:
            content = (self.ledgers / MARK_FILE).read_bytes()
        except FileNotFoundError:
            return _NO_MARK
        if len(content) < _MARK.size:
            raise ForeignDirectory(f"{self.ledgers / MARK_FILE} has {len(content)} bytes, not {_MARK.size}")
        mark = Mark(*_MARK.unpack_from(content))
        if (
            mark.journal_id
            and mark.journal_id not in journal_ids(self.journal)
            and mark.offset > HEADER_BYTES
        ):
            raise ForeignDirectory(f"{MARK_FILE} names {file_name(mark.journal_id)}, which is missing")
        return mark

    def write_mark(self, mark: Mark) -> None:
        self._file_system.replace(self.ledgers / MARK_FILE, _MARK.pack(*mark))

    def begin(self, *, journal_synced: bool) -> LastRun:
        """Note that the bookie is at work, and how. Returns how the last one ended.

        What a killed process has written is still there when the machine has not gone down since, which the
        boot's id tells. BookKeeper leaves the note empty: its journal counts as synced.
        """
        dirty = self.ledgers / DIRTY_FILE
        boot = _read_text(_BOOT_ID) or "unknown\n"
        note = _read_text(dirty)
        text = _SYNCED if journal_synced else _UNSYNCED + boot
        if text != note:  # a start after a kill on a full disk writes nothing
            self._file_system.replace(dirty, text.encode())
        if note is None:
            return LastRun.CLEAN
        went_down = note.startswith(_UNSYNCED) and note != _UNSYNCED + boot
        return LastRun.UNSYNCED if went_down else LastRun.UNCLEAN

    def end(self) -> None:
        (self.ledgers / DIRTY_FILE).unlink(missing_ok=True)


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


def _check_layout(cookie: str) -> None:
    lines = cookie.splitlines()
    if not lines or lines[0] != str(COOKIE_LAYOUT):
        raise ForeignDirectory(f"{COOKIE_FILE} has layout version {lines[:1]}, not {COOKIE_LAYOUT}")
    for line in lines:
        name, _, value = line.partition(": ")
        if name in ("ledgerDirs", "indexDirs") and not value.startswith('"1\\t'):
            raise ForeignDirectory(f"{COOKIE_FILE} lists several {name}; one is supported: {value}")
