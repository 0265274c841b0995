"""Space of disks: total and free bytes, and errors that say that there is none."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from pathlib import Path


def is_full(error: Exception) -> bool:
    """Returns True when a write failed because the disk has no space, or the user no quota."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def disk_space(paths: Iterable[Path]) -> tuple[int, int]:
    """Returns the total and the free bytes of the disks under `paths`.

    Several directories on one disk count once: the device number tells. OSError when a directory is missing.
    """
    # Keyed by device: two directories on one disk would otherwise double its free space.
    disks = {path.stat().st_dev: shutil.disk_usage(path) for path in paths}
    return sum(each.total for each in disks.values()), sum(each.free for each in disks.values())
