"""Tells how late readers and the broker's event loop were in a record.

A replay has readers read at the recorded times, so its promise holds while they keep their pace. Where a later record has
fewer hits than the one before it promised, later readers are the first cause to look for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from broker.recorder.record_reader import BrokerLifetime
from pipeline.jobs.report import percent, time_text
from pipeline.replays.accesses import (
    APPEND,
    CAME_TO_NOTHING,
    FORCED,
    READ,
    STORAGE_READ,
    Accesses,
    runs_expanded,
)
from pipeline.replays.inputs import InputBatch
from pipeline.replays.making import make_accesses
from pipeline.replays.record_inputs import RecordInputs
from pipeline.traces.checking import Checked

REQUESTS: Final = 2_000_000
"""Requests of which the lags are taken at most; a sample of the entries has the same lags."""
SHARES: Final = (("half of the reads", 0.5), ("9 in 10", 0.9), ("99 in 100", 0.99))
"""The shares of the reads whose lags are told."""
_STEPS: Final = 4
"""Buckets by doubling of the lag."""
_BUCKETS: Final = 48 * _STEPS
_LATER: Final = 1.5
"""Lags that are so many times longer are a cause of fewer hits."""
_LOOP_LATER: Final = 0.02
"""A share of the time by which the event loop was later, which is one too."""

Counts = NDArray[np.int64]
"""Reads by bucket of their lag."""


class Pace(NamedTuple):
    """The lateness of readers and of the event loop in one or more broker lifetimes."""

    counts: Counts
    """Entries read, by the bucket of the time since they were appended."""
    loop_share: float | None
    """The share of the time by which the event loop was late; None in records of older brokers."""

    def lag_ms(self, share: float) -> float:
        """Returns the milliseconds after the append within which this share of the reads came."""
        reached = np.searchsorted(np.cumsum(self.counts), share * self.counts.sum())
        # Two digits: a bucket is no more exact.
        return float(f"{2.0 ** (int(reached) / _STEPS) / 1000:.2g}")

    def lines(self) -> list[str]:
        """Returns a line about the readers and one about the event loop."""
        found = []
        if self.counts.any():
            lags = ", ".join(f"{name} within {time_text(self.lag_ms(share))}" for name, share in SHARES)
            found.append(f"a promise holds while readers keep this pace: {lags} of the append")
        if self.loop_share is not None:
            found.append(f"the broker's event loop was late for {percent(self.loop_share)} of the time")
        return found


def reads_by_lag(accesses: Accesses) -> Counts:
    """Returns the entries read by the time since they were appended, those that were appended in the record."""
    rows = accesses.rows
    appends = rows.take(rows.op == APPEND)
    row, ids = runs_expanded(appends.first, appends.entries)
    appended_ns = np.full(accesses.entries, np.iinfo(np.int64).max, np.int64)
    appended_ns[ids] = appends.at_ns[row]
    came = (rows.op == STORAGE_READ) & ((rows.detail & ~FORCED) != CAME_TO_NOTHING)
    reads = rows.take((rows.op == READ) | came)
    row, ids = runs_expanded(reads.first, reads.entries)
    lag_us = (reads.at_ns[row] - appended_ns[ids]) // 1000
    # Of entries that were appended before the record, the lag is not known.
    lag_us = lag_us[lag_us >= 0]
    bucket = np.ceil(np.log2(np.maximum(lag_us, 1)) * _STEPS).astype(np.int64)
    return np.bincount(np.minimum(bucket, _BUCKETS - 1), minlength=_BUCKETS).astype(np.int64)


def loop_share(lifetimes: Iterable[BrokerLifetime], checked: Checked) -> float | None:
    """Returns the share of the recorded time by which the event loop was late; None if a file does not tell."""
    late_us = total_us = 0
    for file in (file for lifetime in lifetimes for file in lifetime.files):
        if file.facts.loop_late_us is None:
            return None
        first_us, last_us = checked.file_spans_us[str(file.path)]
        late_us += file.facts.loop_late_us
        total_us += last_us - first_us
    return min(late_us / total_us, 1.0) if total_us else None


def pace_lines(inputs: RecordInputs, checked: Checked, say: Callable[[str], None]) -> list[str]:
    """Returns lines about the lateness in all lifetimes of a record."""
    rate = min(inputs.rate, REQUESTS / max(checked.requests, 1))
    counts = sum(
        inputs.replayed([[_counted]] * len(inputs.lifetimes), rate, say), np.zeros(_BUCKETS, np.int64)
    )
    return Pace(counts, loop_share(checked.lifetimes, checked)).lines()


def _counted(lifetime: BrokerLifetime, batches: list[InputBatch], rate: float) -> list[Counts]:
    return [reads_by_lag(make_accesses(lifetime, batches, rate))]


def later_lines(before: Pace, after: Pace) -> list[str]:
    """Returns the lateness of a record that explains fewer hits than the one before it promised."""
    found = []
    for name, share in SHARES[::-1]:
        was, now = before.lag_ms(share), after.lag_ms(share)
        if now > _LATER * was:
            found.append(
                f"readers came later: {name} within {time_text(now)} of the append, before {time_text(was)}"
            )
            break
    if None not in (before.loop_share, after.loop_share):
        was, now = before.loop_share or 0.0, after.loop_share or 0.0
        if now > was + _LOOP_LATER:
            found.append(f"the event loop was late for {percent(now)} of the time, before {percent(was)}")
    return found
