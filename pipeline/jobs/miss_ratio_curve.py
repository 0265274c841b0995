"""`miss-ratio-curve`: estimates the miss ratio over the size of the cache.

The estimate comes from a sample of the entries (SHARDS).

Error bars are a delete-a-group jackknife over ten groups of the sample, as in `pipeline.simulators.shards`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import sqrt
from typing import Final, NamedTuple

import numpy as np
from pyspark.sql import SparkSession

from broker.recorder.record_reader import BrokerLifetime
from entry_cache.policy_names import POLICY_NAMES
from entry_cache.settings import CacheSettings
from pipeline.jobs.grid_rows import policy_name
from pipeline.jobs.plots import lines_plot
from pipeline.jobs.report import Cell, Plot, Report, Table, bytes_text, percent, time_text
from pipeline.replays.accesses import Accesses
from pipeline.replays.grid import (
    ENTRIES_MIN,
    NO_TTL_NS,
    OBJECT_ENTRIES_MIN,
    OBJECT_REPLAYS,
    Overrides,
    replay_grid,
    usual_settings,
)
from pipeline.replays.making import accesses_of
from pipeline.replays.record_inputs import RecordInputs
from pipeline.replays.replay import BY_KERNEL, replay_with
from pipeline.replays.sampling import groups, only
from pipeline.simulators.shards import GROUPS, STUDENT_T
from pipeline.task_progress import collected
from pipeline.traces.checking import Checked

SAMPLED_ROWS: Final = 2_000_000
"""Rows that are replayed at most, unless a share is given."""
_OBJECT_POLICIES: Final = tuple(policy for policy in POLICY_NAMES if policy not in BY_KERNEL)
POINTS: Final = 12
"""Sizes, unless they are given."""


class ReplayedPoint(NamedTuple):
    """One policy with one size. Reads and misses, and both without each of the groups, over all broker lifetimes."""

    policy: str
    """The name of the line in the plot."""
    size_bytes: int
    """Of the whole cache."""
    reads: float
    """Entries read, scaled to the whole access record."""
    misses: float
    """Entries read from bookies, scaled likewise."""
    reads_without: tuple[float, ...]
    """By group, the reads of all others; empty for the broker's objects, which are too slow to replay each group."""
    misses_without: tuple[float, ...]
    """By group, the misses of all others."""
    rate: float
    """The share of the entries that was replayed."""
    entries: float
    """Entries that fit into the replayed cache, of the broker lifetime with the largest entries."""

    @property
    def miss_ratio(self) -> float:
        """Misses among reads; 0 without reads."""
        return self.misses / self.reads if self.reads else 0.0

    @property
    def is_meaningful(self) -> bool:
        """False where the replayed cache is too small for an error bar."""
        return self.rate >= 1 or self.entries >= (ENTRIES_MIN if self.reads_without else OBJECT_ENTRIES_MIN)

    @property
    def error_bar(self) -> float | None:
        """Half the width of the 95 % interval; 0 where all entries were replayed, None without groups."""
        if not self.reads_without:
            return 0.0 if self.rate >= 1 else None
        ratios = np.array(
            [
                misses / reads if reads else 0.0
                for misses, reads in zip(self.misses_without, self.reads_without, strict=True)
            ]
        )
        spread = float(((ratios - ratios.mean()) ** 2).sum())
        # The last factor is the correction for a finite population: a sample of everything has no error.
        return STUDENT_T * sqrt((GROUPS - 1) / GROUPS * spread * (1 - self.rate))


def miss_ratio_curve(
    spark: SparkSession,
    checked: Checked,
    sizes: Sequence[int] = (),
    *,
    rate: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Returns the curve of each policy, and those of PIP-430 and FIFO without a time to live.

    `sizes` in bytes; without them from a sixty-fourth to 32 times the broker's own. `rate`: the share of the entries that
    is replayed, above 0 and at most 1. Table `miss_ratio_curve`: one row per policy and size.
    """
    report = Report("miss-ratio-curve", "Miss ratio curve", checked.summary())
    own = usual_settings(checked.lifetimes)
    sizes = sizes or [max(own.size_bytes_max, 1 << 16) * 2**power // 64 for power in range(POINTS)]
    share = rate if rate is not None else min(1.0, max(0.01, SAMPLED_ROWS / checked.rows))
    settings = _policies(own)
    part = "all entries" if share >= 1 else f"{percent(share)} of the entries"
    say(f"replaying {len(sizes)} sizes of {len(settings)} policies on {part}")
    tasks = [(lifetime, settings, list(sizes), share) for lifetime in checked.lifetimes]
    found = collected(spark, spark.sparkContext.parallelize(tasks, len(tasks)).map(_points), say)
    every = [added(same) for same in zip(*found, strict=True)]
    if all(lifetime.names is not None for lifetime in checked.lifetimes):
        every += _by_objects(spark, checked, own, sizes, share, say)
    else:
        report.text.append(
            "left out: policies without machine code, whose replay needs the record's file of names"
        )
    points = [point for point in every if point.is_meaningful]
    rows: list[dict[str, Cell]] = [
        {
            "policy": point.policy,
            "size_bytes": point.size_bytes,
            "miss_ratio": point.miss_ratio,
            "error_bar": point.error_bar,
            "reads": round(point.reads),
        }
        for point in points
    ]
    report.plots.append(Plot("Miss ratio over size", _drawn(points, is_sample=share < 1)))
    report.tables["miss_ratio_curve"] = Table("Miss ratio by policy and size", rows, shown=200)
    bars_hold = "; error bars hold 19 times in 20" if share < 1 else ", so without the error of a sample"
    report.text.append(f"from {part}{bars_hold}")
    rates = sorted({point.rate for point in every if not point.reads_without})
    if rates and rates[0] < share:
        names = " and ".join(_OBJECT_POLICIES)
        report.text.append(
            f"{names} from {percent(rates[0])} of the entries and without error bars, as their replay is slow"
        )
    if left_out := sorted({point.size_bytes for point in every if not point.is_meaningful}):
        report.text.append(
            f"left out: sizes up to {bytes_text(left_out[-1])}, of which the sample's share holds too few "
            "entries; a larger --sample brings them"
        )
    report.listed = {"miss_ratio_curve": 60}
    return report


def _drawn(points: Sequence[ReplayedPoint], *, is_sample: bool) -> str:
    """Returns a plot with a line per policy, and with error bars for a sample."""
    lines: dict[str, tuple[list[float], list[float]]] = {}
    bars: dict[str, list[float]] = {}
    for point in points:
        xs, ys = lines.setdefault(point.policy, ([], []))
        xs.append(point.size_bytes / (1 << 20))
        ys.append(point.miss_ratio)
        if is_sample and point.error_bar is not None:
            bars.setdefault(point.policy, []).append(point.error_bar)
    return lines_plot(
        lines, "cache size", "miss ratio of reads", x_scale="size", y_scale="ratio", log_x=True, bars=bars
    )


def _policies(own: CacheSettings) -> list[tuple[str, CacheSettings]]:
    fifo = replace(own, policy="fifo-ttl")
    expected = replace(own, policy="pip430", profile="4.2")
    named = [replace(own, policy=policy) for policy in BY_KERNEL]
    return [
        *[(_name(one), one) for one in named],
        (f"{policy_name(expected)}, no time to live", replace(expected, ttl_ns=NO_TTL_NS)),
        ("fifo, no time to live", replace(fifo, ttl_ns=NO_TTL_NS)),
    ]


def _name(settings: CacheSettings) -> str:
    return f"{policy_name(settings)}, {time_text(settings.ttl_ns / 1e6)}"


def _by_objects(
    spark: SparkSession,
    checked: Checked,
    own: CacheSettings,
    sizes: Sequence[int],
    share: float,
    say: Callable[[str], None],
) -> list[ReplayedPoint]:
    """Returns the points of the policies without machine code, of as many entries as take about a minute."""
    wanted = [Overrides(policy, size_bytes=size) for policy in _OBJECT_POLICIES for size in sizes]
    rate = min(share, OBJECT_REPLAYS / max(checked.requests * len(wanted), 1))
    rows = replay_grid(RecordInputs(spark, checked.lifetimes, rate), wanted, say=say)
    return [
        ReplayedPoint(
            _name(replace(own, policy=row.settings.policy)),
            row.settings.size_bytes_max,
            row.reads,
            row.misses,
            (),
            (),
            row.rate,
            row.settings.size_bytes_max * row.rate / max(checked.entry_bytes, 1.0),
        )
        for row in rows
    ]


_Task = tuple[BrokerLifetime, list[tuple[str, CacheSettings]], list[int], float]


def _points(task: _Task) -> list[ReplayedPoint]:
    lifetime, policies, sizes, share = task
    return points_of(accesses_of(lifetime, share), policies, sizes)


def points_of(
    accesses: Accesses, policies: Sequence[tuple[str, CacheSettings]], sizes: Sequence[int]
) -> list[ReplayedPoint]:
    """Replays each named policy with each size, with the whole sample and without each group."""
    # Without a group the sample is smaller, so it needs a smaller cache: with the full one its misses would be too few.
    kept = accesses.rate * (1 - 1 / GROUPS)
    group = groups(accesses, GROUPS)
    parts = [only(accesses, group != number, kept) for number in range(GROUPS)] if accesses.rate < 1 else []
    return [
        _point(name, accesses, parts, replace(settings, size_bytes_max=size))
        for name, settings in policies
        for size in sizes
    ]


def _point(
    name: str, accesses: Accesses, parts: Sequence[Accesses], settings: CacheSettings
) -> ReplayedPoint:
    whole = replay_with(accesses, settings)
    # Everything was replayed: equal groups give an error bar of zero.
    others = [replay_with(part, settings) for part in parts] or [whole] * GROUPS
    scale = 1 / accesses.rate
    mean_bytes = max(float(accesses.sizes.mean()), 1.0) if accesses.entries else 1.0
    return ReplayedPoint(
        name,
        settings.size_bytes_max,
        whole.reads * scale,
        whole.totals["misses"] * scale,
        tuple(one.reads * scale for one in others),
        tuple(one.totals["misses"] * scale for one in others),
        accesses.rate,
        settings.size_bytes_max * accesses.bytes_rate / mean_bytes,
    )


def added(same: Sequence[ReplayedPoint]) -> ReplayedPoint:
    """Adds up the points of all broker lifetimes for the same policy and size."""
    first = same[0]
    return first._replace(
        reads=sum(point.reads for point in same),
        misses=sum(point.misses for point in same),
        reads_without=tuple(map(sum, zip(*[point.reads_without for point in same], strict=True))),
        misses_without=tuple(map(sum, zip(*[point.misses_without for point in same], strict=True))),
        # The lifetime with the fewest entries decides if the sum is meaningful.
        entries=min(point.entries for point in same),
    )
