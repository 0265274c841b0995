"""Tries every kill point of one operation, and prints a line for each."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def try_points(points: Sequence[str], run_point: Callable[[str, Path], list[str]], *, keep: bool) -> int:
    """Runs each point in a folder of its own; returns how many failed.

    `run_point` returns its findings. The folder of a point without any goes, unless `keep`.
    """
    failed = 0
    width = max(map(len, points))
    for point in points:
        folder = Path(tempfile.mkdtemp(prefix="crash-"))
        began = time.monotonic()
        findings = run_point(point, folder)
        failed += bool(findings)
        print(f"{point:{width}} {time.monotonic() - began:5.1f} s  {'; '.join(findings) or 'ok'}", flush=True)
        if not (findings or keep):
            shutil.rmtree(folder)
    return failed
