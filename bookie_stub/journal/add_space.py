"""AddSpace: the bytes that adds may still take on the disks.

The law: an add is accepted only while its bytes fit twice, into the journal now and into an entry log with the next
checkpoint, and twice the reserve of the disk stays free besides (`DiskReserve`). So a checkpoint finds its space, and a
start needs none of the adds' own. Asked for each piece that a journal file grows by, never for an add.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bookie_stub.base.disk_reserve import kept_by_adds
from bookie_stub.base.file_system import FileSystem


class AddSpace:
    """The disks of one journal and of all ledger directories."""

    def __init__(
        self, journal: Path, ledgers: Sequence[Path], file_system: FileSystem, unwritten: Callable[[], int]
    ) -> None:
        """`unwritten` returns the bytes of entries that no entry log has yet, an upper limit. Called by any thread."""
        self._file_system = file_system
        self._unwritten = unwritten
        self._journal_disk = journal.stat().st_dev
        # Keyed by device: directories on one disk have the same bytes free.
        self._logs = {path.stat().st_dev: path for path in ledgers}
        self._paths = {self._journal_disk: journal, **self._logs}
        self._kept = {disk: kept_by_adds(path) for disk, path in self._paths.items()}

    def room(self) -> int:
        """Returns the bytes by which the journal may grow, negative on a disk that is short. OSError."""
        return min(map(self._room_on, self._paths))

    def _room_on(self, disk: int) -> int:
        left = self._file_system.free_bytes(self._paths[disk]) - self._kept[disk]
        if disk not in self._logs:
            return left
        left -= self._unwritten()
        return left // 2 if disk == self._journal_disk else left
