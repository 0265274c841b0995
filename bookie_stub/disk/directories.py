"""Directories: the layout of a bookie's data, its owner, its last stop.

```
<journal>/current/   VERSION  *.txn  durable
<ledgers>/current/   VERSION  *.log  lastId  lastMark  inventory  nothingLost  DIRTY
<indexes>/current/   VERSION  ledgers/  locations/  deleted
```

The law: either all directories carry the same cookie, or none does and all are empty. So a bookie never starts on a part
of its data, where every missing ledger would look as if it had never existed.

`DIRTY` exists from a start to a clean stop. Ours also says whether the journal is synced, and if it is not, which boot of
the machine the process runs in: only a machine that went down can lose written bytes, a killed process cannot.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from pathlib import Path

from bookie_stub.base.errors import ForeignDirectory
from bookie_stub.base.file_system import FileSystem
from bookie_stub.disk.cookie import (
    COOKIE_FILE,
    Configured,
    HomeCluster,
    check_layout,
    check_order,
    cookie_text,
    is_of_cluster,
)
from bookie_stub.disk.marks import mark_name, replay_start, write_mark
from bookie_stub.journal.journal_file import Marks

CURRENT = "current"
"""The folder inside each configured directory that holds the files, as at BookKeeper."""
NOTHING_LOST_FILE = "nothingLost"
"""Ours, an empty file: no ledger of this directory was ever in limbo. Removed before the first one is."""
_DIRTY_FILE = "DIRTY"
_SYNCED = "journal synced\n"
_UNSYNCED = "journal not synced, boot "
_DIRTY_TEXT = re.compile(rf"({_SYNCED}|{_UNSYNCED}[0-9a-z-]+\n)?")
"""BookKeeper leaves the file empty; its journal counts as synced."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class LastStop(Enum):
    """The end of the process before this one."""

    CLEAN = auto()
    """The process was stopped and wrote everything out."""
    UNCLEAN = auto()
    """The process was killed, or the machine went down; the journal has all acknowledged records."""
    UNSYNCED = auto()
    """The machine went down while the journal was not synced: acknowledged records may be lost."""


class Directories:
    """The files in all directories that belong to no ledger."""

    def __init__(
        self,
        journals: Sequence[Path],
        ledgers: Sequence[Path],
        indexes: Sequence[Path],
        file_system: FileSystem,
    ) -> None:
        """Takes the directories as the settings name them. The files are in a folder `current` in each."""
        self._configured = Configured(journals, ledgers, indexes)
        self._file_system = file_system
        self.journals = tuple(path / CURRENT for path in journals)
        """The folders of the journals."""
        self.ledgers = tuple(path / CURRENT for path in ledgers)
        """The folders of the entry logs."""
        self.indexes = tuple(path / CURRENT for path in indexes)
        """The folders of the indexes, one for each of `ledgers`; each may be the same folder."""

    def prepare(self, bookie_id: str, cluster: HomeCluster | None) -> None:
        """Checks the cookies, or makes the directories of a new bookie. Raises ForeignDirectory and OSError."""
        current = {*self.journals, *self.ledgers, *self.indexes}
        found = {path: _read_text(path / COOKIE_FILE) for path in current}
        cookies = {text for text in found.values() if text is not None}
        missing = [path for path, text in found.items() if text is None]
        # Compared as text: a cookie that differs in one byte may be damage, and a start on the wrong directory cannot
        # be undone.
        if len(cookies) > 1:
            raise ForeignDirectory(
                f"{COOKIE_FILE} differs between {', '.join(map(str, sorted(current)))}: they belong to different"
                " bookies, or one file is damaged"
            )
        if cookies and missing:
            raise ForeignDirectory(
                f"{missing[0]} has no {COOKIE_FILE}, others of this bookie have: data missing?"
            )
        if cookies:
            cookie = cookies.pop()
            check_layout(cookie)
            check_order(cookie, self._configured)
            if cluster is not None:
                self._check_cluster(cookie, cluster)
            return
        for path in sorted(current):
            if path.is_dir() and any(path.iterdir()):
                raise ForeignDirectory(
                    f"{path} is not empty and has no {COOKIE_FILE}: give a new bookie empty directories"
                )
        self._begin_new(bookie_id, cluster)

    def _check_cluster(self, cookie: str, cluster: HomeCluster) -> None:
        registered = cluster.cookie
        if registered is None and is_of_cluster(cookie, cluster):
            # The first start ended between the directories' cookies and the cluster's; finish it.
            cluster.keep_cookie(cookie)
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

    def _begin_new(self, bookie_id: str, cluster: HomeCluster | None) -> None:
        if cluster is not None and cluster.cookie is not None:
            raise ForeignDirectory(
                f"the cluster knows {bookie_id}, whose directories are empty here: data missing?"
                f" To begin anew remove its node under cookies/ in the metadata store"
            )
        # Imported for a new directory alone: the module takes 3 ms, which a later start must not pay for.
        from uuid import uuid4

        instance_id = str(uuid4()) if cluster is None else cluster.instance_id
        cookie = cookie_text(bookie_id, instance_id, self._configured)
        for path in sorted({*self.journals, *self.ledgers, *self.indexes}):
            path.mkdir(parents=True, exist_ok=True)
            self._file_system.replace(path / COOKIE_FILE, cookie.encode())
        # Written with the cookie only, so a directory that began with BookKeeper or an older version never has it.
        for path in self.ledgers:
            self._file_system.replace(path / NOTHING_LOST_FILE, b"")
        if cluster is not None:
            # Last: with the cookie in the cluster, empty directories would be taken for lost data.
            cluster.keep_cookie(cookie)

    # Marks.

    def read_marks(self) -> Marks:
        """Returns the place from which each journal is replayed. Raises ForeignDirectory and CorruptJournal."""
        count = len(self.journals)
        return tuple([replay_start(self._mark_files(place), self.journals[place]) for place in range(count)])

    @property
    def have_marks(self) -> bool:
        """True when every ledger directory has the marks of all journals."""
        return all(
            path.exists() for journal in range(len(self.journals)) for path in self._mark_files(journal)
        )

    def write_marks(self, marks: Marks) -> None:
        """Writes the marks into every ledger directory. Raises OSError.

        The caller has everything before them in the entry logs and indexes of all directories.
        """
        for journal, mark in enumerate(marks):
            for path in self._mark_files(journal):
                write_mark(path, mark, self._file_system)

    def _mark_files(self, journal: int) -> list[Path]:
        return [path / mark_name(journal, len(self.journals)) for path in self.ledgers]

    # The flag of an unclean end.

    def last_stop(self) -> LastStop:
        """Returns how the last process ended.

        Raises ForeignDirectory for a damaged DIRTY file.
        Bytes that a killed process wrote are still there while the machine has not gone down, as the boot's id tells.
        """
        boot = _boot()
        last = LastStop.CLEAN
        for path in self.ledgers:
            text = _read_text(path / _DIRTY_FILE)
            if text is not None and not _DIRTY_TEXT.fullmatch(text):
                raise ForeignDirectory(
                    f"{path / _DIRTY_FILE} at 0: {text[:60]!r} is not how a bookie ends; write {_SYNCED.strip()!r} and a"
                    f" line end into it, or with journalSyncData=false {_UNSYNCED + 'lost'!r} and a line end"
                )
            if text is not None and last is not LastStop.UNSYNCED:
                went_down = text.startswith(_UNSYNCED) and text != _UNSYNCED + boot
                last = LastStop.UNSYNCED if went_down else LastStop.UNCLEAN
        return last

    def begin(self, *, journal_synced: bool) -> None:
        """Writes DIRTY.

        To be called when the start has drawn its conclusions from the last stop; OSError.
        Earlier, a start that is killed in its replay would hide from the next one that records may be lost.
        """
        text = _SYNCED if journal_synced else _UNSYNCED + _boot()
        for path in self.ledgers:
            # Unchanged after a kill: a full disk then takes no write.
            if text != _read_text(path / _DIRTY_FILE):
                self._file_system.replace(path / _DIRTY_FILE, text.encode())

    def end(self) -> None:
        """Removes DIRTY after a clean stop."""
        for path in self.ledgers:
            # Not synced: if a power cut brings DIRTY back, the next start replays for nothing, and no more.
            (path / _DIRTY_FILE).unlink(missing_ok=True)


def _boot() -> str:
    # Only Linux has the file. Elsewhere every boot has the same name, so a machine that went down looks like a killed
    # process.
    return _read_text(_BOOT_ID) or "unknown\n"


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ForeignDirectory(f"{path} at {error.start}: it is no text; bring it back as it was") from None
