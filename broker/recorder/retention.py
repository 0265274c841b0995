"""Retention: what of one broker's record is kept. The oldest files go first, whole ones only."""

from __future__ import annotations

from pathlib import Path

from broker.recorder.schema import names_name, start_of


def keep_newest(folder: Path, bytes_max: int, current_start: str) -> int:
    """Remove the oldest files of the broker's folder until the rest fits; answers how many. `bytes_max` 0 = all is
    kept. Halves that earlier runs left behind count and go like whole files, and names of a run with its last
    file. Raises OSError."""
    if bytes_max <= 0:
        return 0
    files = [
        path
        for pattern in ("*.parquet", "_*.parquet.part")
        for path in folder.glob(f"date=*/hour=*/{pattern}")
        if not (path.name.startswith("_") and start_of(path.name) == current_start)
    ]
    files.sort(key=lambda path: path.name.lstrip("_"))
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
        starts = {start_of(path.name) for path in files[removed:]} | {current_start}
        wanted = {names_name(start) for start in starts}
        for path in folder.glob("_names-*.jsonl"):
            if path.name not in wanted:
                path.unlink()
    return removed
