"""The kernel of each policy, all called the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline.simulators.kernels.arc import arc
from pipeline.simulators.kernels.belady import belady
from pipeline.simulators.kernels.clock import clock
from pipeline.simulators.kernels.fifo import fifo
from pipeline.simulators.kernels.lfu import lfu
from pipeline.simulators.kernels.lirs import lirs
from pipeline.simulators.kernels.lru import lru
from pipeline.simulators.kernels.s3fifo import s3fifo
from pipeline.simulators.kernels.sieve import sieve
from pipeline.simulators.kernels.slru import slru
from pipeline.simulators.kernels.two_q import two_q
from pipeline.simulators.kernels.w_tiny_lfu import sketch_cells, w_tiny_lfu
from pipeline.simulators.trace import Trace, next_accesses

Hits: TypeAlias = NDArray[np.bool_]
_Kernel: TypeAlias = Callable[[NDArray[np.int32], NDArray[np.int64], int], Hits]


def _plain(kernel: _Kernel) -> Callable[[Trace, int], Hits]:
    return lambda trace, capacity: kernel(trace.ids, trace.sizes, capacity)


def _belady(trace: Trace, capacity: int) -> Hits:
    return belady(trace.ids, trace.sizes, capacity, next_accesses(trace))


def _w_tiny_lfu(trace: Trace, capacity: int) -> Hits:
    return w_tiny_lfu(trace.ids, trace.sizes, capacity, sketch_cells(trace.keys, capacity))


KERNELS: dict[str, Callable[[Trace, int], Hits]] = {
    "ARC": _plain(arc),
    "Belady": _belady,
    "Clock": _plain(clock),
    "FIFO": _plain(fifo),
    "LFU": _plain(lfu),
    "LIRS": _plain(lirs),
    "LRU": _plain(lru),
    "S3FIFO": _plain(s3fifo),
    "SLRU": _plain(slru),
    "Sieve": _plain(sieve),
    "TwoQ": _plain(two_q),
    "WTinyLFU": _w_tiny_lfu,
}
"""By the policy's name; each answers with hit or miss for every request."""
