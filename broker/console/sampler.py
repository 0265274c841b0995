"""Sampler: readings of the whole broker, at a cost that does not grow with the number of silent topics."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sized
from typing import Final

from bookkeeper.client.embedded import embedded_of
from bookkeeper.ensembles.bookies import Bookies
from broker.console.samples import Reading
from broker.console.traffic import Traffic
from entry_cache.entry_cache_manager import EntryCacheManager
from foundation.loop.loop_watch import LoopWatch

COUNT_SHARE: Final = 500
"""A count comes at the earliest after this many times of its own duration: 0.2 % of a core."""

JournalLatency = Callable[[], tuple[float | None, float | None]]
"""Returns median and 99th percentile of the journal's writes in ms; None where they are not known."""


def journal_latency(bookies: Bookies) -> tuple[float | None, float | None]:
    """Returns median and 99th percentile of the embedded bookie's journal writes in ms; None without one."""
    embedded = embedded_of(bookies.sole)
    if embedded is None:
        return None, None
    median, tail = embedded.journal_ms(0.5, 0.99)
    return (None, None) if math.isnan(median) else (median, tail)


class Sampler:
    """Reads one broker."""

    def __init__(
        self,
        cache: EntryCacheManager,
        connections: Sized,
        loop_watch: LoopWatch,
        traffic: Traffic,
        journal: JournalLatency,
        now_ns: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        """`connections`: those of clients. `now_ns` is the monotonic clock, `wall_ms` milliseconds since 1970."""
        self._cache = cache
        self._connections = connections
        self._loop_watch = loop_watch
        self._journal = journal
        self._now_ns = now_ns
        self._wall_ms = wall_ms
        self._traffic = traffic
        self._count_due_ns = 0

    async def read(self) -> Reading:
        """Returns a reading; sums over topics are as old as the pace of the counts makes them."""
        now_ns = self._now_ns()
        if now_ns >= self._count_due_ns:
            cost_ns = await _in_slices(self._traffic.update(now_ns))
            self._count_due_ns = now_ns + COUNT_SHARE * cost_ns
        cache = self._cache
        median, tail = self._journal()
        return Reading(
            at_ns=now_ns,
            at_ms=self._wall_ms(),
            counts=self._traffic.counts,
            levels=self._traffic.levels,
            cache_bytes=cache.used_bytes,
            cache_max_bytes=cache.settings.size_bytes_max,
            cache_entries=cache.entries,
            connections=len(self._connections),
            loop_lag_ms=self._loop_watch.lag_s * 1000,
            journal_p50_ms=median,
            journal_p99_ms=tail,
            counted_ns=self._traffic.counted_ns,
        )


async def _in_slices(slices: Iterator[None]) -> int:
    """Runs all slices, with a turn of the loop between two. Returns the processor time that they took, in ns.

    By the clock on the wall, other programs would lengthen a count of 1 ms to 20 ms, and samples would stand still for 10 s.
    """
    cost_ns = 0
    while True:
        begun_ns = time.thread_time_ns()
        ended = next(slices, slices) is slices
        cost_ns += time.thread_time_ns() - begun_ns
        if ended:
            return cost_ns
        await asyncio.sleep(0)
