"""How long does the disk itself take for one small synced write? The base line of latencies.

Law: the same file system as the peers' data, the same rate as the latency workload, no broker.
"""

from __future__ import annotations

import os
import tempfile
import time

WRITE = b"x" * 1100
"""A 1 KiB message with what a journal puts around it."""


def fdatasync_us(count: int, rate: float) -> list[int]:
    """Returns the sorted durations of `count` appends with fdatasync in microseconds, paced at `rate` a second."""
    durations = []
    with tempfile.TemporaryFile(prefix="bench-disk-") as file:
        descriptor = file.fileno()
        due = time.perf_counter()
        for _ in range(count):
            began = time.perf_counter()
            os.write(descriptor, WRITE)
            os.fdatasync(descriptor)
            durations.append(int((time.perf_counter() - began) * 1e6))
            due += 1 / rate
            time.sleep(max(0.0, due - time.perf_counter()))
    return sorted(durations)
