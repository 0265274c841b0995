"""Writes an access record of the entry cache without a broker, in seconds.

`python -m tests.pipeline.made_record FOLDER [--events N] [--brokers N]`

With it jobs of `magnetar pipeline` can be timed on records of any size: 1,000,000,000 events of ten brokers are 2 GB,
made in two minutes. It has appends of 8 entries, readers at the tail and slower ones, and the passes of the policy
`pip430`, profile 4.2. The topics of the appends follow a Zipf law.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from broker.compose.cache_settings import EntryCacheSettings
from broker.recorder.record_file import RecordFile
from broker.recorder.row_encoder import Columns
from broker.recorder.schema import FileFacts, file_name, names_name
from entry_cache.observe.cache_events import COUNTS_READS, STILL_EXPECTED, Op

SETTINGS: Final = EntryCacheSettings(
    64 << 20, ttl_ns=1_000_000_000, extend_recently_accessed=False, policy="pip430"
)
START: Final = "20260101T000000.000000"
TOPICS: Final = 2000
RUN_ENTRIES: Final = 8
"""Entries per append: a busy turn of the loop confirms about as many of a topic."""
BEHIND_US: Final = (0, 400_000, 3_000_000)
"""The lags of a topic's readers behind its appends."""
SPREAD_US: Final = (50_000, 20_000_000)
"""The smallest and the largest lag in an access record with all lags."""
STEP_US: Final = 400
"""Between two appends of a broker: 20,000 entries a second."""
TICK_US: Final = 10_000
"""Between two passes."""
SLICE: Final = 1 << 18
"""Appends whose rows are in memory at once."""
_WITHOUT_BYTES: Final = (Op.MISS,)
"""A request is recorded before the bytes are known."""

Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
Behind = Callable[[int, Ints, Ints], Ints]
"""Microseconds, by the number of the reader, the topics and the times of the appends."""


def make_record(
    folder: Path,
    events: int,
    brokers: int,
    seed: int = 1,
    behind_us: Behind | None = None,
    *,
    misses: bool = False,
) -> None:
    """Writes an access record with `events` appends and reads over all brokers.

    `behind_us`: gives the lags of the readers instead of BEHIND_US. `misses`: a cache without requeues is recorded, with its
    inserts and evictions; the last reader comes after its time to live and reads from bookies. Otherwise all reads hit, and
    the record has the inputs of a replay alone.
    """
    appends = events // brokers // (1 + len(BEHIND_US)) // RUN_ENTRIES
    for number in range(brokers):
        broker = _MadeBroker(
            number, np.random.default_rng(seed + number), behind_us or _evenly_behind, misses
        )
        broker.write(folder, appends)


def _evenly_behind(sub: int, topic: Ints, ts: Ints) -> Ints:
    return np.full(len(ts), BEHIND_US[sub - 1] + 50 * sub)


def spread_behind(sub: int, topic: Ints, ts: Ints) -> Ints:
    """Gives each reader of each topic another lag every five seconds, so that no size of the cache is a cliff."""
    low, high = np.log(SPREAD_US)
    lags = np.random.default_rng(sub).uniform(low, high, (TOPICS + 1, 128))
    return np.exp(lags[topic, ts // 5_000_000 % 128]).astype(np.int64)


class _MadeBroker:
    """Makes the access record of one broker, a slice of its appends after the other."""

    def __init__(self, number: int, random: np.random.Generator, behind_us: Behind, misses: bool) -> None:
        self._name = f"b{number}"
        self._ledgers = number * (TOPICS + 1)
        self._random = random
        self._behind_us = behind_us
        self._misses = misses
        self._appended = np.zeros(TOPICS + 1, np.int64)
        """Entries by topic so far."""

    def write(self, folder: Path, appends: int) -> None:
        """Writes the file of the events and the file of the names."""
        place = folder / f"broker={self._name}"
        place.mkdir(parents=True)
        topics = (self._random.zipf(1.2, appends) % TOPICS + 1).astype(np.int64)
        file = RecordFile(place, file_name(START, 0))
        waiting, end = _head(topics, self._ledgers), 0
        for begin in range(0, appends, SLICE):
            part = topics[begin : begin + SLICE]
            ts = (begin + np.arange(len(part), dtype=np.int64)) * STEP_US
            end = int(ts[-1]) + STEP_US
            rows = _joined([waiting, *self._events(ts, part), _ticks(int(ts[0]), end)])
            # Readers lag, so events of these appends may come after the first ones of the next slice.
            now = rows["ts"] < end
            file.append({name: column[now] for name, column in rows.items()})
            waiting = {name: column[~now] for name, column in rows.items()}
        last = int(waiting["ts"].max()) if len(waiting["ts"]) else end
        file.append(_joined([waiting, _ticks(end, last + 1000)]))
        settings = replace(SETTINGS, requeues_max=0) if self._misses else SETTINGS
        file.complete(
            FileFacts(
                broker=self._name,
                start=START,
                sequence=0,
                software="bench",
                clock_offset_us=0,
                settings=settings.to_text(),
            )
        )
        _write_names(place)

    def _events(self, ts: Ints, topic: Ints) -> Iterator[Columns]:
        """Yields the rows about some appends: themselves, the cache's decisions, and the reads."""
        runs = partial(_rows, topic=topic, first=self._first_entries(topic), ledgers=self._ledgers)
        yield runs(Op.APPEND, ts)
        if self._misses:
            yield runs(Op.INSERT, ts, detail=len(BEHIND_US))
            # After the time to live, while the last reader is still expected.
            expired = ts + SETTINGS.ttl_ns // 1000 + STEP_US
            yield runs(Op.EVICT, expired, detail=STILL_EXPECTED)
        for sub in range(1, len(BEHIND_US) + 1):
            at = ts + self._behind_us(sub, topic, ts)
            if self._misses and sub == len(BEHIND_US):
                yield runs(Op.MISS, at, sub=sub)
                yield runs(Op.CURSOR_MOVED, at, sub=sub, after=True)
                yield runs(Op.FETCHED, at + 900, detail=-1)
                yield runs(Op.ARRIVED, at + 900, sub=sub, detail=int(Op.MISS))
                at = at + 900
            else:
                yield runs(Op.HIT, at, sub=sub)
            yield runs(Op.DELIVER, at + 10, sub=sub)

    def _first_entries(self, topic: Ints) -> Ints:
        """Returns the entry id of each append's first entry."""
        order = np.argsort(topic, kind="stable")
        begins = np.concatenate([[0], np.flatnonzero(np.diff(topic[order])) + 1])
        within = np.arange(len(topic)) - np.repeat(begins, np.diff(np.append(begins, len(topic))))
        first = np.empty(len(topic), np.int64)
        first[order] = within * RUN_ENTRIES
        first += self._appended[topic]
        self._appended += np.bincount(topic, minlength=TOPICS + 1) * RUN_ENTRIES
        return first


def _joined(parts: Sequence[Columns]) -> Columns:
    """Returns the rows of all parts in the order of their times."""
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(columns["ts"], kind="stable")
    return {name: column[order] for name, column in columns.items()}


def _ticks(begin: int, end: int) -> Columns:
    ticks = np.arange(-(-begin // TICK_US) * TICK_US, end, TICK_US, dtype=np.int64)
    return _columns(Op.TICK, ticks, 0, 0, 0, 0, 10_000, 0, 0)


def _write_names(place: Path) -> None:
    lines = [{"topic": one, "name": f"t{one}"} for one in range(1, TOPICS + 1)]
    subs = [
        {"topic": one, "sub": sub, "name": f"s{sub}"}
        for one in range(1, TOPICS + 1)
        for sub in range(1, len(BEHIND_US) + 1)
    ]
    (place / names_name(START)).write_text("\n".join(map(json.dumps, [*lines, *subs])) + "\n")


def _head(topic: Ints, ledgers: int) -> Columns:
    """Opens every topic and adds its readers before the first append."""
    topics = np.unique(topic)
    opened = _columns(Op.OPEN, np.full(len(topics), -2), topics, 0, 0, 0, 0, 0, int(COUNTS_READS))
    added = [
        _columns(Op.CURSOR_ADDED, np.full(len(topics), -1), topics, sub, topics + ledgers, 0, 0, 0, 0)
        for sub in range(1, len(BEHIND_US) + 1)
    ]
    parts = [_columns(Op.SETTINGS, np.full(1, -3), 0, 0, 0, 0, 0, 0, 0), opened, *added]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _rows(
    op: Op,
    ts: Ints,
    *,
    topic: Ints,
    first: Ints,
    ledgers: int,
    sub: int = 0,
    detail: int = 0,
    after: bool = False,
) -> Columns:
    """Returns rows about runs, or with `after` about the positions after them.

    The ledger of a topic is its id plus `ledgers`; entries of a topic have one size.
    """
    if after:
        return _columns(op, ts, topic, sub, topic + ledgers, first + RUN_ENTRIES, 0, 0, detail)
    size = RUN_ENTRIES * (200 + topic % 16 * 100) * (op not in _WITHOUT_BYTES)
    return _columns(op, ts, topic, sub, topic + ledgers, first, RUN_ENTRIES, size, detail)


def _columns(op: Op, ts: object, *values: object) -> Columns:
    at = np.asarray(ts, np.int64)
    names = ("topic", "sub", "ledger", "entry", "count", "bytes", "detail")
    columns = {
        name: np.broadcast_to(np.asarray(value, np.int64), at.shape)
        for name, value in zip(names, values, strict=True)
    }
    return {
        "ts": at,
        "op": np.full(len(at), op.value, np.int64),
        **columns,
        "more": np.zeros(len(at), np.int64),
    }


def main() -> None:
    """Makes the record that the command line asks for."""
    parser = argparse.ArgumentParser(
        "python -m tests.pipeline.made_record", description="Make an access record."
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--events", type=int, default=10_000_000, metavar="N", help="appends and reads (10,000,000)"
    )
    parser.add_argument("--brokers", type=int, default=1, metavar="N")
    options = parser.parse_args()
    make_record(options.folder, options.events, options.brokers)


if __name__ == "__main__":
    main()
