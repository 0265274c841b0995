"""A record that is replayed with its own settings by the model gives the broker's own counts."""

from __future__ import annotations

import random

import pytest

from broker.compose.cache_settings import EntryCacheSettings
from entry_cache.listener import CursorChange, StorageRead
from entry_cache.observe.cache_events import COUNTS_READS, Op
from entry_cache.observe.recorded import Recorded
from entry_cache.observe.totals import totals_of
from entry_cache.reader import Reader
from foundation.model.entry import Entry
from foundation.model.position import Position
from pipeline.replays.objects import WhatIf
from tests.entry_cache.cache_fakes import Acknowledging
from tests.entry_cache.observe.test_replay import Recording

US = 1000
MS = 1_000_000
TICK_NS = 10 * MS
LAGS = {"tail": 0, "near": 100, "middle": 200, "far": 300, "last": 400}
"""By reader, how many entries it stands behind the tail; together they ask for 400 entries."""
PER_ROUND = 5
ROUNDS = 400
STORED_BYTES = 236
"""Of which the broker keeps a slice without the first 36."""
BODY_BYTES = STORED_BYTES - 36


class Workload(Recording):
    """Readers at several lags in a cache of half their demand, in turns of a loop with a clock of its own."""

    def __init__(self, settings: EntryCacheSettings) -> None:
        super().__init__(settings)
        self.random = random.Random(17)
        self.readers: dict[str, Reader] = {}
        self.at = dict.fromkeys(LAGS, 0)
        self.of_log = {name: Acknowledging(1, -1) for name in LAGS}
        self.last_tick_ns = 0
        for name in LAGS:
            self.join(name)
        self.leave(delete=True)

    def join(self, name: str) -> None:
        self.readers[name] = self.cache.reader(name)
        self.cursors.add(name, Position(1, 0), self.of_log[name])
        self.tell(name, CursorChange.ADDED, Position(1, 0))

    def append(self, entries: list[Entry]) -> None:
        self.cache.listener.appended(self.cache, entries, self.now)
        self.cache.insert_run(entries, len(self.cursors), self.now)

    def tell(self, name: str, change: CursorChange, position: Position) -> None:
        self.cache.listener.cursor_changed(change, self.cache, self.readers[name], position)

    def run(self) -> None:
        for number in range(ROUNDS):
            self.turn()
            first = number * PER_ROUND
            self.append([_stored(first + at) for at in range(PER_ROUND)])
            asked = [run for name in LAGS if (run := self.read(name, first + PER_ROUND))]
            self.end_turn()
            while asked:
                self.turn()
                for name, wanted in asked:
                    self.arrive(name, wanted)
                for name, _ in asked:
                    self.cursors.update(name, Position(1, self.at[name]))
                    self.tell(name, CursorChange.MOVED, Position(1, self.at[name]))
                asked = [run for name, _ in asked if (run := self.read(name, first + PER_ROUND))]
                self.end_turn()
            for name, at in self.at.items():
                self.of_log[name].mark_delete_position = Position(1, at - 1)
                self.tell(name, CursorChange.ACKNOWLEDGED, Position(1, at - 1))

    def turn(self) -> None:
        """Begins the next turn of the loop, before it a periodic pass that is due."""
        self.now += self.random.choice((80, 150, 700)) * US
        if self.now - self.last_tick_ns >= TICK_NS and self.manager.queue_length:
            self.last_tick_ns = self.now
            self.manager.tick(self.now, 10_000)

    def end_turn(self) -> None:
        if self.manager.eviction.size_checks_due:
            self.manager.run_pending(self.now, 10_000)

    def read(self, name: str, end: int) -> tuple[str, range] | None:
        """Reads what the cache has, and returns the run that the reader asks of storage."""
        # A turn takes long at times: a pass may scan the whole cache, and the machine may have other work.
        self.now += self.random.choice((5, 20, 20, 4000)) * US
        end -= LAGS[name]
        while self.at[name] < end:
            run = self.cache.read_run(self.readers[name], 1, self.at[name], end - 1, 1 << 20)
            if not run:
                listener = self.cache.listener
                listener.asked_storage(
                    StorageRead.MISS, self.cache, self.readers[name], 1, self.at[name], end - self.at[name]
                )
                return name, range(self.at[name], end)
            self.at[name] += len(run)
            self.cursors.update(name, Position(1, self.at[name]))
            self.manager.mark_delivered(run)
        return None

    def arrive(self, name: str, wanted: range) -> None:
        self.now += self.random.choice((10, 30, 3000)) * US
        entries = [_stored(entry_id) for entry_id in wanted]
        self.fetch(entries, self.cursors.rank(name))
        self.cache.count_arrived(StorageRead.MISS, self.readers[name], entries)
        self.at[name] = wanted.stop


def _stored(entry_id: int) -> Entry:
    return Entry(1, entry_id, b"", memoryview(bytes(STORED_BYTES))[-BODY_BYTES:], 1)


@pytest.mark.parametrize("policy", ["magnetar", "pip430", "pip430-stash"])
def test_replay_with_the_recorded_settings_counts_what_the_broker_counted(policy: str) -> None:
    """Turns last longer than a size check may wait, and entries of storage reads are slices of what was stored."""
    size = 400 * BODY_BYTES // 2
    settings = EntryCacheSettings(size, ttl_ns=60_000 * MS, requeues_max=5, policy=policy)
    workload = Workload(settings)
    workload.run()
    replay = WhatIf(settings, TICK_NS)
    replay.feed(workload.record())
    counted = totals_of(workload.manager)
    assert counted["hits"] > counted["misses"] / 4
    assert counted["evicted: size"] > 1000
    assert replay.outcome.totals == counted


def _event(op: Op, at_us: int, first: int, entries: int = 0, detail: int = 0) -> Recorded:
    return Recorded(at_us * US, op, "log", "sub", 1, first, entries, 10 * entries, detail)


def test_read_that_is_a_hit_here_alone_moves_its_cursor_at_once() -> None:
    """The recorded broker had to read entries 0 to 3; a size pass runs before they arrive there."""
    record = [
        _event(Op.OPEN, 0, 0, detail=COUNTS_READS),
        _event(Op.CURSOR_ADDED, 0, 0),
        _event(Op.ACK, 0, -1),
        _event(Op.APPEND, 1, 0, 4),
        _event(Op.MISS, 2, 0, 4),
        _event(Op.APPEND, 3, 4, 6),
        _event(Op.SIZE_CHECK, 4, 0),
        _event(Op.FETCHED, 5, 0, 4, detail=1),
        _event(Op.ARRIVED, 5, 0, 4, detail=Op.MISS),
        _event(Op.CURSOR_MOVED, 5, 4),
        _event(Op.HIT, 6, 4, 6),
    ]
    settings = EntryCacheSettings(100, watermark=0.6, ttl_ns=60_000 * MS, policy="magnetar")
    replay = WhatIf(settings, TICK_NS)
    replay.feed(record)
    assert replay.outcome.totals["evicted: size"] == 4
    assert (replay.outcome.totals["hits"], replay.outcome.totals["misses"]) == (10, 0)
