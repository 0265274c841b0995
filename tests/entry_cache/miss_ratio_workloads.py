"""Workloads on a cache of its own, for comparing an estimated miss ratio with the exact one.

A workload runs on the broker's cache objects at any size, with a clock of its own, and always asks for the same entries
at the same times. So its miss ratio at another size is exact: run it once more at that size.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from broker.compose.cache_settings import EntryCacheSettings
from entry_cache.active_cursors import ActiveCursors
from entry_cache.compose import ComposedCache
from entry_cache.entry_cache import EntryCache
from entry_cache.listener import StorageRead
from entry_cache.observe.cache_events import CacheEvent
from entry_cache.observe.decisions import Decisions
from entry_cache.policy import NO_LIMIT
from foundation.model.entry import Entry
from foundation.model.position import Position

SECOND_NS = 1_000_000_000
STEP_NS = 100_000_000
"""Time between two steps of a workload, and between two periodic passes."""


def settings_of(size_bytes: int, policy: str = "pip430", ttl_s: float = 10.0) -> EntryCacheSettings:
    return EntryCacheSettings(
        size_bytes_max=size_bytes, policy=policy, profile="4.2", ttl_ns=int(ttl_s * SECOND_NS)
    )


class Log:
    """A log whose readers follow at fixed distances; each step appends a run and every reader reads one."""

    def __init__(self, cache: EntryCache, number: int, *, run: int, size: int, lags: tuple[int, ...]) -> None:
        self.cache = cache
        self.ledger_id = number
        self.run = run
        self.size = size
        self.lags = {f"reader {lag}": lag for lag in lags}
        self.cursors = ActiveCursors(0, 0)
        cache.attach_cursors(self.cursors, 0, counts_reads=True)
        for name in self.lags:
            self.cursors.add(name, Position(number, 0), None)
        self.end = 0
        self.read_to = dict.fromkeys(self.lags, 0)

    def append(self, now_ns: int) -> None:
        entries = [self.entry(self.end + at) for at in range(self.run)]
        self.end += self.run
        self.cache.insert_run(entries, len(self.cursors), now_ns)

    def entry(self, entry_id: int) -> Entry:
        entry = Entry(self.ledger_id, entry_id, b"", b"", 1)
        # Sizes differ, so that the sample's share of the bytes differs from that of the entries.
        entry.size = self.size + entry_id % 7 * self.size // 10
        return entry

    def follow(self, manager_delivered: Callable[[list[Entry]], None], now_ns: int) -> None:
        for name, lag in self.lags.items():
            self.read(name, self.read_to[name], self.end - lag, manager_delivered, now_ns)
            self.read_to[name] = max(self.read_to[name], self.end - lag)

    def read(
        self, name: str, first: int, end: int, delivered: Callable[[list[Entry]], None], now_ns: int
    ) -> None:
        """As a cursor reads: hits in runs, and gaps from storage."""
        reader = self.cache.reader(name)
        while first < end:
            run = self.cache.read_run(reader, self.ledger_id, first, end - 1, NO_LIMIT)
            if not run:
                run = self.fetch(name, first, end, now_ns)
            delivered(run)
            first = run[-1].entry_id + 1
            self.cursors.update(name, Position(self.ledger_id, first))

    def fetch(self, name: str, first: int, end: int, now_ns: int) -> list[Entry]:
        """Reads a gap from storage and offers it to the cache."""
        reader = self.cache.reader(name)
        stop = first
        while stop < end and self.cache.peek(self.ledger_id, stop) is None:
            stop += 1
        self.cache.listener.asked_storage(
            StorageRead.MISS, self.cache, reader, self.ledger_id, first, stop - first
        )
        entries = [self.entry(entry_id) for entry_id in range(first, stop)]
        self.cache.count_arrived(StorageRead.MISS, reader, entries)
        position = self.cursors.position(name)
        assert position is not None
        expected = 1 if position > (self.ledger_id, first) else self.cursors.rank(name)
        self.cache.insert_run(entries, expected, now_ns)
        return entries


@dataclass(frozen=True, slots=True)
class Workload:
    """Logs with their readers."""

    name: str
    logs: tuple[tuple[int, int, tuple[int, ...]], ...]
    """(entries of a step, bytes of an entry, entries that each reader is behind)"""
    seed: int = 0
    """Chooses other ledger ids, and so another sample, and other jumps."""
    jumps: float = 0.0
    """Probability of a step in which one reader of a log goes back to an earlier entry and reads a run there."""


WORKLOADS = (
    Workload("two seconds behind", ((32, 1000, (0, 6400)), (32, 400, (0, 4800)))),
    Workload("many distances", tuple((8, 800, (0, 800 * place)) for place in range(1, 9))),
    Workload("going back", ((32, 1000, (0,)), (32, 1000, (0, 1600))), jumps=0.2),
)


@dataclass(slots=True)
class Played:
    """The reads of a workload."""

    hits: int
    misses: int

    @property
    def miss_ratio(self) -> float:
        return self.misses / (self.hits + self.misses)


Watch = Callable[[ComposedCache, dict[str, ActiveCursors]], Callable[[CacheEvent], object]]
"""Makes an observer of a cache whose logs have these cursors."""


def play(
    workload: Workload,
    settings: EntryCacheSettings,
    steps: int,
    *,
    count_from: int = 0,
    watch: Watch | None = None,
) -> Played:
    """Runs a workload; counts, and calls `watch` for an observer, from the step `count_from` on."""
    now_ns = 0
    chance = random.Random(f"{workload.name}{workload.seed or ''}")
    composed = ComposedCache(settings, Decisions(0, lambda: now_ns))
    manager = composed.manager
    logs = [
        Log(manager.open(f"log {number}"), number, run=run, size=size, lags=lags)
        for number, (run, size, lags) in enumerate(workload.logs, 1 + workload.seed)
    ]
    before = (0, 0)
    for step in range(steps):
        now_ns = step * STEP_NS
        if step == count_from:
            reads = manager.reads()
            before = (reads.hit_entries, reads.miss_entries)
            if watch is not None:
                composed.decisions.watch(watch(composed, {log.cache.name: log.cursors for log in logs}))
        for log in logs:
            log.append(now_ns)
            log.follow(manager.mark_delivered, now_ns)
            if chance.random() < workload.jumps:
                # The same entries at every size: chance decides before the cache is asked.
                first = max(0, log.end - chance.randrange(1, 4000))
                name = next(iter(log.lags))
                back = log.cursors.position(name)
                log.cursors.update(name, Position(log.ledger_id, first))
                log.read(name, first, min(first + 40, log.end), manager.mark_delivered, now_ns)
                log.cursors.update(name, back)
        composed.run_pending(now_ns)
        composed.tick(now_ns)
    reads = manager.reads()
    return Played(reads.hit_entries - before[0], reads.miss_entries - before[1])
