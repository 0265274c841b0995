"""DiskReserve: a file that keeps a little free space for the time when the disk is full.

SQLite and RocksDB cannot be opened on a disk without a free byte, and acknowledgements and deletions, which free space, need
some to be written. So a process keeps a file in its data folder and removes it when the disk is full:

    held      `reserve` has its size on disk
    released  the file is gone; its space serves metadata and indexes until the disk has space again

Entries do not use it up. A bookie refuses adds while less than two reserves are free besides it (`AddSpace`), and a
checkpoint leaves half of one free (`LedgerStorage`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

NAME: Final = "reserve"
"""The file, in the data folder."""
BYTES_MAX: Final = 4 << 20
"""Size of the reserve, enough for both databases of a start and for thousands of acknowledgements."""
SHARE_MAX: Final = 0.04
"""Largest share of a small disk."""
_INTERVAL_S: Final = 5.0
_FREE_TIMES: Final = 8
"""The reserve comes back when so many times its size are free, or it would be released again at once."""


def reserve_bytes(disk_bytes: int) -> int:
    """Returns the size of the reserve on a disk of so many bytes."""
    return min(BYTES_MAX, int(disk_bytes * SHARE_MAX))


def kept_by_adds(folder: Path) -> int:
    """Returns the free bytes that adds leave on a folder's disk, for indexes, metadata and the files of a start."""
    return 2 * reserve_bytes(shutil.disk_usage(folder).total)


def one_per_disk(folders: Iterable[Path]) -> list[DiskReserve]:
    """Returns a reserve for each disk that the folders are on, in the first of them there. Makes the folders; OSError."""
    reserves: dict[int, DiskReserve] = {}
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        disk = folder.stat().st_dev
        if disk not in reserves:
            reserves[disk] = DiskReserve(folder)
    return list(reserves.values())


class DiskReserve:
    """The reserve of one data folder; a thread looks at the disk every few seconds."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder. Raises OSError when that fails."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / NAME
        self._bytes = reserve_bytes(shutil.disk_usage(folder).total)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disk-reserve", daemon=True)

    @property
    def held(self) -> bool:
        """True while the file is on disk."""
        return self._path.exists()

    def look(self) -> None:
        """Releases the reserve on a full disk, and makes it on one with space. Raises OSError."""
        free = shutil.disk_usage(self._path.parent).free
        if self.held and free < self._bytes:
            self._path.unlink()
            log.warning(
                "! the disk of %s is full: its reserve of %d KiB serves acknowledgements and deletions from now on;"
                " free some space",
                *(self._path.parent, self._bytes >> 10),
            )
        elif not self.held and free > self._bytes * _FREE_TIMES:
            self._make()

    def start(self) -> None:
        """Looks now, and from now on in a thread."""
        try:
            self.look()
        except OSError as error:
            # A quota may be used up on a disk with space. Such a start must succeed too: it is what the reserve is for.
            log.warning("! there is no reserve for a full disk in %s: %s", self._path.parent, error)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; a reserve that is held stays for the next start."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _make(self) -> None:
        part = self._path.with_suffix(".part")
        try:
            with part.open("wb") as file:
                # Allocated, where the system can: zeros in a sparse file would reserve nothing.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, self._bytes)
                else:
                    file.write(bytes(self._bytes))
            part.replace(self._path)
        except OSError:
            part.unlink(missing_ok=True)
            raise

    def _run(self) -> None:
        while not self._closing.wait(_INTERVAL_S):
            with contextlib.suppress(OSError):  # the next check tries again
                self.look()
