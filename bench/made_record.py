"""Writes an access record of the entry cache without a broker, in seconds, for `bench.pipeline`.

Appends of 8 entries, readers at the tail and behind, and the passes of the policy `pip430`, profile 4.2. The topics of the
appends follow a Zipf law.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from broker.entry_cache.observe.cache_events import COUNTS_READS, Op
from broker.entry_cache.settings import EntryCacheSettings
from broker.recorder.record_file import RecordFile
from broker.recorder.row_encoder import Columns
from broker.recorder.schema import FileFacts, file_name, names_name

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

Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
Behind = Callable[[int, Ints, Ints], Ints]
"""Microseconds, by the number of the reader, the topics and the times of the appends."""


def make_record(
    folder: Path, events: int, brokers: int, seed: int = 1, behind_us: Behind | None = None
) -> None:
    """Write an access record with `events` appends and reads over all brokers.

    `behind_us`: gives the lags of the readers instead of BEHIND_US.
    """
    appends = events // brokers // (1 + len(BEHIND_US)) // RUN_ENTRIES
    for number in range(brokers):
        _make_run(folder, number, appends, np.random.default_rng(seed + number), behind_us or _evenly_behind)


def _evenly_behind(sub: int, topic: Ints, ts: Ints) -> Ints:
    return np.full(len(ts), BEHIND_US[sub - 1] + 50 * sub)


def spread_behind(sub: int, topic: Ints, ts: Ints) -> Ints:
    """Gives each reader of each topic another lag every five seconds, so that no size of the cache is a cliff."""
    low, high = np.log(SPREAD_US)
    lags = np.random.default_rng(sub).uniform(low, high, (TOPICS + 1, 128))
    return np.exp(lags[topic, ts // 5_000_000 % 128]).astype(np.int64)


def _make_run(
    folder: Path, number: int, appends: int, random: np.random.Generator, behind_us: Behind
) -> None:
    broker = f"b{number}"
    place = folder / f"broker={broker}"
    place.mkdir(parents=True)
    topic = (random.zipf(1.2, appends) % TOPICS + 1).astype(np.int64)
    ledgers = number * (TOPICS + 1)
    ts = np.arange(appends, dtype=np.int64) * STEP_US
    order = np.argsort(topic, kind="stable")
    begins = np.concatenate([[0], np.flatnonzero(np.diff(topic[order])) + 1])
    within = np.arange(appends) - np.repeat(begins, np.diff(np.append(begins, appends)))
    first = np.empty(appends, np.int64)
    first[order] = within * RUN_ENTRIES
    parts = [_head(topic, ledgers), _rows(Op.APPEND, ts, topic, 0, first, ledgers)]
    for sub in range(1, len(BEHIND_US) + 1):
        at = ts + behind_us(sub, topic, ts)
        parts += [
            _rows(op, at + late, topic, sub, first, ledgers) for op, late in ((Op.HIT, 0), (Op.DELIVER, 10))
        ]
    last = max(int(part["ts"].max()) for part in parts) + 1000
    ticks = np.arange(0, last, 10_000, dtype=np.int64)
    parts.append(_columns(Op.TICK, ticks, 0, 0, 0, 0, 10_000, 0, 0))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    sorted_by_time = np.argsort(columns["ts"], kind="stable")
    columns = {name: column[sorted_by_time] for name, column in columns.items()}
    file = RecordFile(place, file_name(START, 0))
    file.append(columns)
    file.complete(
        FileFacts(
            broker=broker,
            start=START,
            sequence=0,
            software="bench",
            clock_offset_us=0,
            settings=SETTINGS.to_text(),
        )
    )
    lines = [{"topic": one, "name": f"t{one}"} for one in range(1, TOPICS + 1)]
    subs = [
        {"topic": one, "sub": sub, "name": f"s{sub}"}
        for one in range(1, TOPICS + 1)
        for sub in range(1, len(BEHIND_US) + 1)
    ]
    (place / names_name(START)).write_text("\n".join(map(json.dumps, [*lines, *subs])) + "\n")


def _head(topic: Ints, ledgers: int) -> Columns:
    """Open every topic and add its readers before the first append."""
    topics = np.unique(topic)
    opened = _columns(Op.OPEN, np.full(len(topics), -2), topics, 0, 0, 0, 0, 0, int(COUNTS_READS))
    added = [
        _columns(Op.CURSOR_ADDED, np.full(len(topics), -1), topics, sub, topics + ledgers, 0, 0, 0, 0)
        for sub in range(1, len(BEHIND_US) + 1)
    ]
    parts = [_columns(Op.SETTINGS, np.full(1, -3), 0, 0, 0, 0, 0, 0, 0), opened, *added]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _rows(op: Op, ts: Ints, topic: Ints, sub: int, first: Ints, ledgers: int) -> Columns:
    """Return rows about runs. The ledger of a topic is its id plus `ledgers`; entries of a topic have one size."""
    size = RUN_ENTRIES * (200 + topic % 16 * 100)
    return _columns(op, ts, topic, sub, topic + ledgers, first, RUN_ENTRIES, size, 0)


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
