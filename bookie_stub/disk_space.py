"""How much room disks have."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path


def disk_space(paths: Iterable[Path]) -> tuple[int, int]:
    """Bytes of the disks that hold `paths`, each disk once: all, and free."""
    disks = {path.stat().st_dev: shutil.disk_usage(path) for path in paths}
    return sum(each.total for each in disks.values()), sum(each.free for each in disks.values())


def share_taken(path: Path) -> float:
    """Of the disk that holds `path`, by what a process may still take: 0 to 1."""
    usage = shutil.disk_usage(path)
    return 1 - usage.free / usage.total
