"""What the process itself uses, under the names that the JVM and load boards ask for.

There is no JVM here: heap is the resident set, direct memory is the entry cache, the collectors are the
generations of Python's own. Read from /proc and /sys; where those are missing the series are left out.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path
from typing import Final

CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
STATM: Final = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    """None where the system does not say."""
    try:
        pages = int(STATM.read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_limit_bytes() -> int:
    """The limit of the container, else the memory of the machine."""
    try:
        return int(CGROUP_LIMIT.read_text())
    except (OSError, ValueError):  # No such file, or "max".
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def threads() -> int:
    return threading.active_count()


class GarbageTimes:
    """How often and how long each generation was collected since `start`."""

    def __init__(self) -> None:
        self.collections = [0, 0, 0]
        self.seconds = [0.0, 0.0, 0.0]
        self._begun = 0.0

    def start(self) -> None:
        gc.callbacks.append(self._called)

    def stop(self) -> None:
        gc.callbacks.remove(self._called)

    def _called(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begun = time.perf_counter()
        else:
            self.collections[info["generation"]] += 1
            self.seconds[info["generation"]] += time.perf_counter() - self._begun


class CpuWindow:
    """The share of all processors that this process used in the last whole window, in percent."""

    def __init__(self, now_ns: int) -> None:
        self._rolled_ns = now_ns
        self._used_ns = time.process_time_ns()
        self.percent = 0.0

    def roll(self, now_ns: int) -> None:
        used_ns = time.process_time_ns()
        if now_ns > self._rolled_ns:
            share = (used_ns - self._used_ns) / (now_ns - self._rolled_ns)
            self.percent = 100 * share / (os.cpu_count() or 1)
        self._rolled_ns = now_ns
        self._used_ns = used_ns
