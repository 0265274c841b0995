"""Retention: removes the oldest files of one broker's record, always whole files."""

from __future__ import annotations

from pathlib import Path

from broker.recorder.schema import names_name, start_of


def keep_newest(folder: Path, bytes_max: int, current_start: str) -> int:
    """Removes the oldest files of the broker's folder until the rest fits. Returns how many it removed.

    `bytes_max`: 0 = keep all. Incomplete files of earlier lifetimes count and are removed like complete ones; the file
    of names is removed with the last file of its lifetime. Raises OSError.
    """
    if bytes_max <= 0:
        return 0
    files = [
        path
        for pattern in ("*.parquet", "_*.parquet.part")
        for path in folder.glob(f"date=*/hour=*/{pattern}")
        # The incomplete file of this lifetime is being written at this moment.
        if not (path.name.startswith("_") and start_of(path.name) == current_start)
    ]
    # Names begin with the start and the number, so their order is that of time, across lifetimes too.
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
            # An empty folder of an hour would stay for ever, because no file is written into a past hour.
            if not any(empty.iterdir()):
                empty.rmdir()
    if removed:
        starts = {start_of(path.name) for path in files[removed:]} | {current_start}
        # Ids are unreadable without their names, so the file of names goes with the last file of its lifetime
        # and no earlier.
        wanted = {names_name(start) for start in starts}
        for path in folder.glob("_names-*.jsonl"):
            if path.name not in wanted:
                path.unlink()
    return removed
