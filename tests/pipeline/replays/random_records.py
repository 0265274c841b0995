"""Random access records: every kind of event, in random order, with several topics, readers and ledgers.

They compare two replays with each other, so their decisions need not be those of a real cache.
"""

from __future__ import annotations

import random
from pathlib import Path

from broker.recorder.record_reader import BrokerLifetime, find
from entry_cache.observe.cache_events import (
    BY_MARK_DELETE,
    COUNTS_READS,
    HIT_MOVES,
    HIT_REDELIVERY,
    HIT_STAYS,
    CacheEvent,
    Op,
)
from tests.broker.recorder.record_fakes import append, new_writer, row, settings_row

READERS = ("a", "b", "c", "__peek")
TURN_US = 700


class RandomRecord:
    def __init__(self, seed: int, topics: int = 3) -> None:
        self.random = random.Random(seed)
        self.rows: list[CacheEvent] = [settings_row()]
        self.now_us = 0
        self.ledger_of = {f"t{number}": number + 1 for number in range(topics)}
        self.next_ledger = topics + 1
        self.appended = dict.fromkeys(self.ledger_of.values(), 0)
        self.sizes: dict[tuple[int, int], int] = {}
        self.open: set[str] = set()
        for log in self.ledger_of:
            self.open_log(log)

    def open_log(self, log: str) -> None:
        flags = self.random.choice((COUNTS_READS, COUNTS_READS, COUNTS_READS | BY_MARK_DELETE, 0))
        self.add(Op.OPEN, log, ledger=0, size=self.random.choice((0, 5000)), detail=flags)
        if log not in self.open:
            for number, name in enumerate(READERS, 1):
                self.add(Op.READER, log, reader=number, ledger=0, who=(name,))
        self.open.add(log)

    def add(self, op: Op, log: str = "", **facts: object) -> None:
        self.rows.append(row(op, log, at_us=self.now_us, **facts))  # type: ignore[arg-type]

    def steps(self, count: int) -> None:
        kinds = [
            *[self.append] * 6,
            *[self.read] * 8,
            *[self.request] * 5,
            *[self.deliver] * 5,
            *[self.move] * 4,
            *[self.passes] * 4,
            self.forget,
        ]
        for _ in range(count):
            self.now_us += self.random.choice((0, 3, 50, TURN_US, 5000))
            if self.random.random() < 0.003:
                self.now_us += 400_000
            self.random.choice(kinds)(self.random.choice(list(self.ledger_of)))

    def append(self, log: str) -> None:
        if self.random.random() < 0.02:
            self.ledger_of[log] = self.next_ledger
            self.appended[self.next_ledger] = 0
            self.next_ledger += 1
        ledger = self.ledger_of[log]
        first = self.appended[ledger]
        sizes = [self.random.choice((10, 10, 30)) for _ in range(self.random.randint(1, 6))]
        self.appended[ledger] += len(sizes)
        for at, size in enumerate(sizes):
            self.sizes[ledger, first + at] = size
        self.rows.append(append(first, sizes, at_us=self.now_us, log=log, ledger=ledger))

    def run(self, log: str) -> dict[str, int]:
        ledger = self.ledger_of[log]
        first = self.random.randrange(self.appended[ledger] + 1)
        first = max(first, self.appended[ledger] - 30) if self.random.random() < 0.7 else first
        count = min(self.random.randint(1, 8), self.appended[ledger] - first)
        size = sum(self.sizes[ledger, first + at] for at in range(count))
        return {"ledger": ledger, "first": first, "count": count, "size": size}

    def read(self, log: str) -> None:
        run = self.run(log)
        if run["count"]:
            detail = self.random.choice((HIT_MOVES, HIT_MOVES, HIT_STAYS, HIT_REDELIVERY))
            self.add(Op.HIT, log, reader=self.random.randint(1, 4), detail=detail, **run)

    def request(self, log: str) -> None:
        run = self.run(log)
        if not run["count"]:
            return
        reader = self.random.randint(1, 4)
        what = self.random.choice((Op.MISS, Op.COALESCED))
        cached = self.random.choice((0, 0, 0, 0, 1))
        self.add(what, log, reader=reader, detail=cached, **{**run, "size": 0})
        self.now_us += self.random.choice((0, 900))
        end = self.random.choice((Op.ARRIVED, Op.ARRIVED, Op.ARRIVED, Op.FAILED, None))
        if end is Op.ARRIVED:
            sizes = [self.sizes[run["ledger"], run["first"] + at] for at in range(run["count"])]
            self.rows.append(
                row(
                    Op.FETCHED,
                    log,
                    at_us=self.now_us,
                    detail=self.random.randint(-1, 3),
                    sizes=sizes,
                    ledger=run["ledger"],
                    first=run["first"],
                    count=run["count"],
                    size=run["size"],
                )
            )
            self.add(Op.ARRIVED, log, reader=reader, detail=int(what), **run)
        elif end is Op.FAILED:
            self.add(Op.FAILED, log, reader=reader, **{**run, "size": 0})

    def deliver(self, log: str) -> None:
        run = self.run(log)
        if run["count"]:
            op = self.random.choice((Op.DELIVER, Op.DELIVER, Op.DELIVER, Op.REDELIVERY))
            self.add(op, log, detail=self.random.choice((0, 0, 0, 1)), **run)

    def move(self, log: str) -> None:
        op = self.random.choice((Op.CURSOR_ADDED, Op.CURSOR_MOVED, Op.CURSOR_MOVED, Op.CURSOR_LEFT, Op.ACK))
        place = {"ledger": self.ledger_of[log], "first": self.run(log)["first"]}
        self.add(op, log, reader=self.random.randint(1, 3), **place)

    def passes(self, log: str) -> None:
        self.add(self.random.choice((Op.TICK, Op.TICK, Op.SIZE_CHECK)), ledger=0, count=10_000)

    def forget(self, log: str) -> None:
        kind = self.random.random()
        place = {"ledger": self.ledger_of[log], "first": self.run(log)["first"]}
        if kind < 0.6:
            self.add(Op.INVALIDATE, log, **place)
        elif kind < 0.8:
            self.add(Op.INVALIDATE, log, ledger=place["ledger"], detail=1)
        else:
            self.add(Op.CLOSE, log, ledger=0)
            self.open_log(log)

    def write(self, folder: Path) -> BrokerLifetime:
        writer = new_writer(folder)
        writer.write(self.rows, 0.0)
        writer.close(0.0, None)
        (lifetime,) = find([folder]).lifetimes
        return lifetime
