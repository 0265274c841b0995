"""Traces drawn by hypothesis: small, with popular objects, old ones that come back, and all sizes."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from pipeline.simulators.trace import Trace, trace_of


@st.composite
def traces(draw: st.DrawFn, *, requests_max: int = 300, equal_sizes: bool | None = None) -> Trace:
    """One in two has sizes from 1 to 9, unless `equal_sizes` decides."""
    objects = draw(st.integers(1, requests_max // 2))
    keys = draw(st.lists(st.integers(0, objects), min_size=1, max_size=requests_max))
    trace = trace_of(np.array(keys, np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    if draw(st.booleans()) if equal_sizes is None else equal_sizes:
        return trace
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    return Trace(trace.ids, trace.keys, random.integers(1, 10, trace.objects))
