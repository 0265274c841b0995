"""Rows as the cache notes them, for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from broker.compose.cache_settings import EntryCacheSettings
from broker.recorder.record_writer import RecordWriter
from broker.recorder.settings import RecordSettings
from entry_cache.observe.cache_events import CacheEvent, Op

SETTINGS_TEXT = EntryCacheSettings(1 << 20).to_text()
OFFSET_US = 1_763_758_800_000_000
"""2025-11-21 21:00 UTC: the monotonic clock's beginning in these tests."""
START = "20251121T210000.000000"


def row(
    op: Op,
    log: str = "t",
    *,
    at_us: int = 0,
    reader: int = 0,
    ledger: int = 1,
    first: int = 0,
    count: int = 0,
    size: int = 0,
    detail: int = 0,
    who: Sequence[str] = (),
    sizes: Sequence[int] = (),
) -> CacheEvent:
    return (at_us * 1000, op, log, reader, ledger, first, count, size, detail, who, sizes)


def settings_row(text: str = SETTINGS_TEXT, at_us: int = 0) -> CacheEvent:
    return row(Op.SETTINGS, "", at_us=at_us, ledger=0, who=(text,))


def append(
    first: int, sizes: Sequence[int], *, at_us: int = 0, log: str = "t", ledger: int = 1
) -> CacheEvent:
    return row(
        Op.APPEND,
        log,
        at_us=at_us,
        ledger=ledger,
        first=first,
        count=len(sizes),
        size=sum(sizes),
        sizes=sizes,
    )


def hit(first: int, count: int, *, at_us: int = 0, reader: int = 0, size: int = 10) -> CacheEvent:
    return row(Op.HIT, at_us=at_us, reader=reader, first=first, count=count, size=count * size)


def new_writer(
    folder: Path, start: str = START, loop_late_us: Callable[[], int] = lambda: 0, **settings: Any
) -> RecordWriter:
    return RecordWriter(
        RecordSettings(folder, "b-6650", **settings),
        start=start,
        software="test",
        clock_offset_us=OFFSET_US,
        loop_late_us=loop_late_us,
    )
