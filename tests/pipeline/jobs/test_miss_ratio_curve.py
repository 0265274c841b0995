"""The points of a miss ratio curve: what they add up to, and how often their error bars hold."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")

from broker.recorder.record_reader import find
from broker.recorder.sampling import sample_hash
from pipeline.jobs.miss_ratio_curve import ReplayedPoint, added, points_of
from pipeline.replays.accesses import Accesses
from pipeline.replays.grid import ENTRIES_MIN
from pipeline.replays.making import accesses_of
from pipeline.replays.replay import replay_with
from pipeline.replays.sampling import only
from pipeline.simulators.shards import GROUPS, STUDENT_T
from tests.pipeline.made_record import SETTINGS, make_record, spread_behind

FIFO = [("fifo", replace(SETTINGS, policy="fifo-ttl", ttl_ns=1 << 60))]
SIZES = [8 << 20, 24 << 20]


@cache
def spread() -> Accesses:
    """100,000 entries, whose readers are at all distances."""
    with TemporaryDirectory() as folder:
        make_record(Path(folder), 400_000, 1, behind_us=spread_behind)
        return accesses_of(find([Path(folder)]).lifetimes[0])


def share_of(accesses: Accesses, number: int, of: int) -> Accesses:
    """One of so many samples that have no entry in common."""
    hashes = sample_hash(*accesses.numbering.positions(accesses.entries)) / 2.0**64
    return only(accesses, (hashes >= number / of) & (hashes < (number + 1) / of), 1 / of)


def point(misses_without: list[float], rate: float = 0.1) -> ReplayedPoint:
    reads = (90.0,) * GROUPS
    return ReplayedPoint("fifo", 1 << 20, 100.0, 50.0, reads, tuple(misses_without), rate, 100.0)


def test_error_bar_is_the_one_of_the_jackknife() -> None:
    """Of a mean of ten values, where it is the textbook's standard error."""
    values = np.array([0.1, 0.4, 0.2, 0.35, 0.5, 0.3, 0.25, 0.45, 0.15, 0.3])
    without = [(values.sum() - value) * 10.0 for value in values]
    standard_error = values.std(ddof=1) / sqrt(len(values))
    assert point(without).error_bar == pytest.approx(STUDENT_T * standard_error * sqrt(0.9))
    assert point(without, rate=1.0).error_bar == 0.0
    assert point([45.0] * GROUPS).error_bar == 0.0


def test_error_bars_hold_about_19_times_in_20() -> None:
    """19 in 20 by their own account; here twenty samples of a twentieth, each with two sizes."""
    accesses = spread()
    exact = [1 - replay_with(accesses, replace(FIFO[0][1], size_bytes_max=size)).hit_ratio for size in SIZES]
    assert 0.1 < exact[1] < exact[0] < 0.95
    found = [points_of(share_of(accesses, number, 20), FIFO, SIZES) for number in range(20)]
    inside = [
        abs(one.miss_ratio - ratio) <= (one.error_bar or 0.0)
        for points in found
        for one, ratio in zip(points, exact, strict=True)
    ]
    assert np.mean(inside) >= 0.8
    assert max(one.error_bar or 0.0 for points in found for one in points) < 0.1


def test_point_of_all_entries_is_exact() -> None:
    accesses = spread()
    (one,) = points_of(accesses, FIFO, SIZES[:1])
    outcome = replay_with(accesses, replace(FIFO[0][1], size_bytes_max=SIZES[0]))
    assert (one.reads, one.misses, one.error_bar) == (outcome.reads, outcome.totals["misses"], 0.0)
    assert one.is_meaningful


def test_points_of_brokers_are_added_up_group_by_group() -> None:
    first, second = point([40.0] * GROUPS), point([20.0] * GROUPS)._replace(reads=300.0, misses=10.0)
    both = added([first, second])
    assert both.miss_ratio == pytest.approx(60 / 400)
    assert both.misses_without == (60.0,) * GROUPS
    assert both.reads_without == (180.0,) * GROUPS


def test_point_is_meaningless_when_the_share_holds_few_entries() -> None:
    part = share_of(spread(), 0, 20)
    mean = float(part.sizes.mean())
    small, enough = (
        round(entries * mean / part.bytes_rate) for entries in (ENTRIES_MIN / 2, ENTRIES_MIN * 2)
    )
    found = points_of(part, FIFO, [small, enough])
    assert [one.is_meaningful for one in found] == [False, True]
