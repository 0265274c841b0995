"""When each object is asked for next: one pass from the end."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from pipeline.simulators.kernels.compiled import IDS, kernel


@kernel(IDS, types.int64)
def next_accesses(ids: NDArray[np.int32], objects: int) -> NDArray[np.int64]:
    requests = len(ids)
    following = np.empty(requests, np.int64)
    upcoming = np.full(objects, requests)
    for i in range(requests - 1, -1, -1):
        following[i] = upcoming[ids[i]]
        upcoming[ids[i]] = i
    return following
