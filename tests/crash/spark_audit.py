"""The audits of leaks on Spark, on snapshots of the stores that crash runs leave."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from magnetar.__main__ import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AUDITED: Final = ("metadata", "ledgers")
"""The audits that find leaks; the others are about costs."""


def snapshot(store: Path, folder: Path) -> Path:
    """Takes a snapshot of a SQLite store, as `magnetar admin snapshot` does, and returns its folder."""
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(["admin", "snapshot", str(folder), "--metadata-url", f"file:{store}"])
    assert code == 0, f"no snapshot of {store}"
    return folder


def findings(spark: SparkSession, folder: Path) -> list[str]:
    """Returns what the audits find in a snapshot, however young it is."""
    from pipeline.audits.limits import Limits
    from pipeline.audits.run import AUDITS
    from pipeline.audits.snapshot import open_snapshot

    return [
        f"audit {name}: {row['class']} {row.subject}: {row.reason}"
        for name in AUDITED
        for row in AUDITS[name](open_snapshot(spark, folder), Limits(grace_s=0)).collect()
    ]


def audit_all(snapshots: Mapping[str, Path]) -> int:
    """Audits snapshots, by the names of their runs, in a session of its own; prints and counts the findings."""
    from pipeline.session import start_session

    session = start_session("crash runs", master="local[2]", quick_start=True, settings={})
    try:
        found = [
            f"{name}: {text}" for name, folder in snapshots.items() for text in findings(session, folder)
        ]
    finally:
        session.stop()
    for line in found:
        print(line)
    print(f"{len(snapshots)} snapshots audited on Spark, {len(found)} findings")
    return len(found)
