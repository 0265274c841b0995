"""Tries every kill point of one operation, and prints a line for each."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.crash.counting_broker import counted
from tests.crash.spark_audit import audit_all, snapshot


def try_points(
    points: Sequence[str], run_point: Callable[[str, Path], list[str]], *, keep: bool, audit: bool = False
) -> int:
    """Runs each point in a folder of its own; returns how many failed, and how much the audits found.

    One more where no point had a run of several SENDs.

    `run_point` returns its findings. The folder of a point without any goes, unless `keep`. `audit`: the audits on Spark
    look at the store of each point, which is `data/metadata.sqlite` in its folder.
    """
    failed = runs = 0
    snapshots: dict[str, Path] = {}
    audited = Path(tempfile.mkdtemp(prefix="crash-audits-"))
    width = max(map(len, points))
    for point in points:
        folder = Path(tempfile.mkdtemp(prefix="crash-"))
        began = time.monotonic()
        findings = run_point(point, folder)
        failed += bool(findings)
        runs += counted(folder / "runs")
        print(f"{point:{width}} {time.monotonic() - began:5.1f} s  {'; '.join(findings) or 'ok'}", flush=True)
        if audit:
            snapshots[point] = snapshot(folder / "data" / "metadata.sqlite", audited / point)
        if not (findings or keep):
            shutil.rmtree(folder)
    failed += audit_all(snapshots) if audit else 0
    shutil.rmtree(audited)
    print(f"{runs} runs of several SENDs")
    if not runs:
        print("FAILED: no run had more than one SEND")
    return failed + (not runs)
