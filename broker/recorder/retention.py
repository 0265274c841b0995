"""Retention: what of one broker's record is kept. The oldest files go first, whole ones only."""

from __future__ import annotations

from pathlib import Path

from broker.recorder.schema import names_name


def keep_newest(folder: Path, bytes_max: int, current_start: str) -> int:
    """Remove the oldest complete files of the broker's folder until the rest fits; answers how many. `bytes_max` 0 =
    all is kept. Names of a run without files go too, unless it is the current one. Raises OSError."""
    if bytes_max <= 0:
        return 0
    files = sorted(folder.glob("date=*/hour=*/*.parquet"), key=lambda path: path.name)
    sizes = {path: path.stat().st_size for path in files}
    total = sum(sizes.values())
    removed = 0
    for path in files:
        if total <= bytes_max:
            break
        path.unlink()
        removed += 1
        total -= sizes[path]
        for empty in (path.parent, path.parent.parent):
            if not any(empty.iterdir()):
                empty.rmdir()
    if removed:
        starts = {path.name.rpartition("-")[0] for path in files[removed:]} | {current_start}
        wanted = {names_name(start) for start in starts}
        for path in folder.glob("_names-*.jsonl"):
            if path.name not in wanted:
                path.unlink()
    return removed
