"""How much room disks have."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path


def disk_space(paths: Iterable[Path]) -> tuple[int, int]:
    """Bytes of the disks that hold `paths`, each disk once: all, and free."""
    disks = {path.stat().st_dev: shutil.disk_usage(path) for path in paths}
    return sum(each.total for each in disks.values()), sum(each.free for each in disks.values())
