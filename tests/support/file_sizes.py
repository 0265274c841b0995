"""Sizes of files that a running process may remove at any time."""

from __future__ import annotations

import contextlib
from pathlib import Path


def bytes_of(folder: Path, pattern: str) -> int:
    """Bytes of the files that are there; one that is removed while they are listed counts nothing."""
    total = 0
    for path in folder.glob(pattern):
        with contextlib.suppress(FileNotFoundError):  # removed since it was listed
            total += path.stat().st_size
    return total
