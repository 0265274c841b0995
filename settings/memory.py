"""How much "direct memory" the process has: the number that Pulsar's and BookKeeper's defaults are shares of.

A JVM is told it; Python is not. So: what `PULSAR_MEM` gives a JVM (`-XX:MaxDirectMemorySize`), else the
limit of the control group, else the machine's memory. The answer says which.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from settings.errors import SettingsError

MEMORY_VARIABLE = "PULSAR_MEM"
OPTION = "-XX:MaxDirectMemorySize="
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
UNLIMITED = 1 << 60
"""Version 1 control groups say "no limit" by a number near 2**63."""


class DirectMemory(NamedTuple):
    size: int
    """Bytes."""
    source: str

    @property
    def mebibytes(self) -> int:
        return self.size >> 20


def direct_memory(environ: Mapping[str, str], *, root: Path = Path("/")) -> DirectMemory:
    """`root` is where `proc` and `sys` are, for tests. Raises SettingsError for a size that is none."""
    told = _told(environ.get(MEMORY_VARIABLE, ""))
    if told is not None:
        return DirectMemory(told, f"{OPTION.rstrip('=')} of {MEMORY_VARIABLE}")
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _control_group_limit(root)
    if limit is not None and limit < physical:
        return DirectMemory(limit, "limit of the control group")
    return DirectMemory(physical, "memory of the machine")


def _told(options: str) -> int | None:
    """The last one counts, as for the JVM."""
    sizes = [option.removeprefix(OPTION) for option in options.split() if option.startswith(OPTION)]
    if not sizes:
        return None
    match = re.fullmatch(r"([1-9][0-9]*)([kmgt]?)", sizes[-1].lower())
    if match is None:
        allowed = "allowed is a number of bytes, or of k, m, g or t"
        raise SettingsError(f"environment {MEMORY_VARIABLE}: {OPTION}{sizes[-1]}: {allowed}")
    return int(match[1]) * UNITS[match[2]]


def _control_group_limit(root: Path) -> int | None:
    limits = [limit for path in _limit_files(root) if (limit := _read_limit(path)) is not None]
    return min(limits, default=None)


def _limit_files(root: Path) -> list[Path]:
    """Of the process's own group and every group above it; a limit anywhere holds for all below."""
    groups = root / "sys/fs/cgroup"
    files = [groups / "memory.max", groups / "memory/memory.limit_in_bytes"]
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return files
    for line in lines:
        _, controllers, path = line.split(":", 2)
        names = [name for name in path.split("/") if name not in ("", "..")]
        for depth in range(1, len(names) + 1):
            below = "/".join(names[:depth])
            if not controllers:
                files.append(groups / below / "memory.max")
            elif "memory" in controllers.split(","):
                files.append(groups / "memory" / below / "memory.limit_in_bytes")
    return files


def _read_limit(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() and 0 < int(text) < UNLIMITED else None
