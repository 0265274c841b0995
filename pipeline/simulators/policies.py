"""The policies by name: what can be replayed, and how each is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.simulators.arc import ARC
from pipeline.simulators.belady import Belady
from pipeline.simulators.cache import Cache
from pipeline.simulators.clock import Clock
from pipeline.simulators.fifo import FIFO
from pipeline.simulators.lfu import LFU
from pipeline.simulators.lirs import LIRS
from pipeline.simulators.lru import LRU
from pipeline.simulators.s3fifo import S3FIFO
from pipeline.simulators.sieve import Sieve
from pipeline.simulators.slru import SLRU
from pipeline.simulators.trace import Trace, next_accesses
from pipeline.simulators.two_q import TwoQ
from pipeline.simulators.w_tiny_lfu import WTinyLFU


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    capacity_min: int
    new_cache: Callable[[Trace, int], Cache]
    """An empty cache of that capacity; the trace matters to those that know the future."""


def _needs_no_trace(cache: type[Cache]) -> Policy:
    return Policy(cache.__name__, cache.capacity_min, lambda _, capacity: cache(capacity))


_BELADY = Policy(
    Belady.__name__,
    Belady.capacity_min,
    lambda trace, capacity: Belady(capacity, next_accesses(trace).tolist()),
)

POLICIES = {
    policy.name: policy
    for policy in (
        *map(_needs_no_trace, (FIFO, LRU, Clock, Sieve, S3FIFO, TwoQ, SLRU, ARC, LFU, LIRS, WTinyLFU)),
        _BELADY,
    )
}


def policy_named(name: str) -> Policy:
    if name not in POLICIES:
        raise ValueError(f"there is no policy {name!r}; there are {', '.join(POLICIES)}")
    return POLICIES[name]
