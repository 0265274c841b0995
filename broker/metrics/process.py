"""Memory, threads, processors and garbage collection of this process, for the JVM and load boards.

There is no JVM here. The boards' *heap* is the resident set, *direct memory* is the entry cache, the *collectors* are
the generations of Python's collector. Values come from /proc and /sys; a system without these files has no such series.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path
from typing import Final

CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
"""The container's limit of memory: a number of bytes, or `max`."""
STATM: Final = Path("/proc/self/statm")
"""Sizes of the process in pages; the second number is the resident set."""


def resident_bytes() -> int | None:
    """Returns the resident set; None on a system without STATM."""
    try:
        pages = int(STATM.read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_limit_bytes() -> int:
    """Returns the limit of the container, else the memory of the machine."""
    try:
        return int(CGROUP_LIMIT.read_text())
    except (OSError, ValueError):  # No such file, or "max".
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def threads() -> int:
    """Returns the number of Python threads; libraries may have more of their own."""
    return threading.active_count()


class GarbageTimes:
    """Number and time of garbage collections by generation, since `start`."""

    def __init__(self) -> None:
        """Counts nothing before `start`."""
        self.collections = [0, 0, 0]
        """Collections by generation."""
        self.seconds = [0.0, 0.0, 0.0]
        """Their time together by generation."""
        self._begun = 0.0

    def start(self) -> None:
        """Begins to count; the interpreter calls back at each collection."""
        gc.callbacks.append(self._called)

    def stop(self) -> None:
        """Ends the counting. Raises ValueError unless `start` was called."""
        gc.callbacks.remove(self._called)

    def _called(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begun = time.perf_counter()
        else:
            self.collections[info["generation"]] += 1
            self.seconds[info["generation"]] += time.perf_counter() - self._begun


class CpuWindow:
    """The share of all processors that this process used in the last whole window."""

    def __init__(self, now_ns: int) -> None:
        """The first window begins at `now_ns`."""
        self._rolled_ns = now_ns
        self._used_ns = time.process_time_ns()
        self.percent = 0.0
        """0 to 100, 100 being all processors of the machine."""

    def roll(self, now_ns: int) -> None:
        """Closes the window; the percentage stays the same until the next call."""
        used_ns = time.process_time_ns()
        if now_ns > self._rolled_ns:
            share = (used_ns - self._used_ns) / (now_ns - self._rolled_ns)
            self.percent = 100 * share / (os.cpu_count() or 1)
        self._rolled_ns = now_ns
        self._used_ns = used_ns
