"""`direct_memory`: the size that several defaults of Pulsar and BookKeeper are shares of.

A JVM has an option for it and Python has none. So it is `-XX:MaxDirectMemorySize` in `PULSAR_MEM`, as for a JVM,
else the limit of the control group, else the memory of the machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from foundation.settings.errors import SettingsError

MEMORY_VARIABLE = "PULSAR_MEM"
OPTION = "-XX:MaxDirectMemorySize="
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
UNLIMITED = 1 << 60
"""Control groups of version 1 write a number near 2**63 for "no limit"."""


class DirectMemory(NamedTuple):
    """A size and the place that it was read from."""

    size: int
    """Bytes."""
    source: str
    """The place, in words for `config show --origin`."""

    @property
    def mebibytes(self) -> int:
        """The size in whole MiB."""
        return self.size >> 20


def direct_memory(environ: Mapping[str, str], *, root: Path = Path("/")) -> DirectMemory:
    """Returns the direct memory of this process. Raises SettingsError for a malformed size in `PULSAR_MEM`.

    `root` is the folder above `proc` and `sys`; tests give another one.
    """
    given = _from_options(environ.get(MEMORY_VARIABLE, ""))
    if given is not None:
        return DirectMemory(given, f"{OPTION.rstrip('=')} of {MEMORY_VARIABLE}")
    # The limit may be above the machine's memory, in which case it limits nothing.
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _control_group_limit(root)
    if limit is not None and limit < physical:
        return DirectMemory(limit, "limit of the control group")
    return DirectMemory(physical, "memory of the machine")


def _from_options(options: str) -> int | None:
    """Returns the size in the options; of several the last, as for a JVM."""
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
    """Returns the limit files of the process's group and its ancestors.

    The lowest limit holds: a group above may allow less than the group itself.
    """
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
