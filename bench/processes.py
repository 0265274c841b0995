"""CPU time and memory of a process and its children, as the kernel accounts them in /proc.

Law: reads only; a process that has ended counts as nothing. Linux only.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Memory(NamedTuple):
    """Resident and proportional set size in MiB."""

    rss: float
    """Resident set size; pages shared by processes count in each."""
    pss: float
    """Proportional set size; shared pages are divided among the processes."""


def tree(pid: int) -> list[int]:
    """Returns the process and all its descendants."""
    found = [pid]
    for parent in found:
        for task in _list(Path(f"/proc/{parent}/task")):
            found.extend(int(child) for child in _read(task / "children").split())
    return found


def cpu_s(pid: int) -> float:
    """Returns user and system time of all threads of the process and its children, in seconds (10 ms steps)."""
    ticks = 0
    for member in tree(pid):
        stat = _read(Path(f"/proc/{member}/stat"))
        if stat:
            fields = stat.rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_S


def memory(pid: int) -> Memory:
    """Returns the memory of the process and its children."""
    rss = pss = 0
    for member in tree(pid):
        for line in _read(Path(f"/proc/{member}/smaps_rollup")).splitlines():
            name, _, rest = line.partition(":")
            if name == "Rss":
                rss += int(rest.split()[0])
            elif name == "Pss":
                pss += int(rest.split()[0])
    return Memory(rss / 1024, pss / 1024)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def _list(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []
