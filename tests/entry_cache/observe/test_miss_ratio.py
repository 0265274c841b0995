"""The estimated miss ratios of other sizes, compared with workloads that run at these sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.compose.cache_settings import EntryCacheSettings
from entry_cache.active_cursors import ActiveCursors
from entry_cache.compose import ComposedCache
from entry_cache.observe import miss_ratio
from entry_cache.observe.cache_events import NOT_COUNTED, CacheEvent, Op
from entry_cache.observe.miss_ratio import ENTRIES_MAX, FACTORS, MissRatios, estimate
from entry_cache.observe.spatial_sample import BLOCK_ENTRIES, FOLDS, SpatialSample
from tests.entry_cache.miss_ratio_workloads import SECOND_NS, WORKLOADS, Workload, play, settings_of

RATE = 1 / 8
STEPS = 300


class Sampling:
    """Samples a workload from its first step on."""

    def __init__(self, settings: EntryCacheSettings, cached_entries: int = 0) -> None:
        self.settings = settings
        self.cached_entries = cached_entries
        self.ratios: MissRatios | None = None

    def watch(
        self, cache: ComposedCache, cursors: dict[str, ActiveCursors]
    ) -> Callable[[CacheEvent], object]:
        self.ratios = MissRatios(self.settings, self.cached_entries, cursors.get, 0)
        return self.ratios.take


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit but that of the memory: the workloads are as fast as the machine."""
    monkeypatch.setattr(miss_ratio, "PER_SECOND_MAX", 10**9)
    monkeypatch.setattr(miss_ratio, "SETTLE_NS", 10**18)


@pytest.mark.parametrize("policy", ["pip430", "magnetar"])
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name.replace(" ", "_"))
@pytest.mark.usefixtures("unlimited")
def test_estimates_are_near_the_exact_ratios(workload: Workload, policy: str) -> None:
    settings = settings_of(4_800_000, policy)
    sampling = Sampling(settings, int(ENTRIES_MAX / FACTORS[-1] / RATE))
    played = play(workload, settings, STEPS, watch=sampling.watch)
    assert sampling.ratios is not None
    curve = sampling.ratios.curve()
    assert (curve.rate, curve.unknown_share) == (RATE, 0)
    assert curve.measured == pytest.approx(played.miss_ratio)
    assert len(curve.points) == len(FACTORS)
    # `magnetar` decides by segments, of which a miniature has few.
    bias = 0.02 if policy == "pip430" else 0.04
    for point in curve.points:
        exact = play(workload, settings_of(point.size_bytes, policy), STEPS).miss_ratio
        assert abs(point.miss_ratio - exact) <= bias + 2 * point.standard_error, (point, exact)


@pytest.mark.parametrize("policy", ["pip430", "magnetar"])
@pytest.mark.parametrize("runs", [10, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("unlimited")
def test_band_holds_the_exact_ratio_in_19_of_20_runs(policy: str, runs: int) -> None:
    settings = settings_of(1_200_000, policy)
    outside = dict.fromkeys(FACTORS, 0)
    for seed in range(runs):
        workload = Workload("going back", ((16, 1000, (0,)), (16, 1000, (0, 400))), seed=97 * seed, jumps=0.3)
        sampling = Sampling(settings, ENTRIES_MAX)
        play(workload, settings, 100, watch=sampling.watch)
        assert sampling.ratios is not None
        curve = sampling.ratios.curve()
        assert curve.measured is not None
        for point in curve.points:
            factor = point.size_bytes / settings.size_bytes_max
            other = settings_of(point.size_bytes, policy)
            # The band at the present size reaches to the measured ratio, whatever the sample says.
            exact = curve.measured if factor == 1.0 else play(workload, other, 100).miss_ratio
            outside[factor] += abs(point.miss_ratio - exact) > 2 * point.standard_error + 1e-9
    assert all(number <= runs / 20 for number in outside.values()), outside


@pytest.mark.usefixtures("unlimited")
def test_larger_sizes_help_where_reads_come_back() -> None:
    """Guards the test above against workloads on which every size is the same."""
    ratios = [
        play(WORKLOADS[-1], settings_of(int(4_800_000 * factor)), STEPS).miss_ratio for factor in FACTORS
    ]
    assert ratios[0] > ratios[-1] + 0.3


def test_sample_shrinks_instead_of_costing_more() -> None:
    settings = settings_of(1 << 30, ttl_s=60)
    sampling = Sampling(settings)
    play(Workload("busy", ((200, 100, (0, 400)),)), settings, 300, watch=sampling.watch)
    ratios = sampling.ratios
    assert ratios is not None
    assert ratios.entries <= ENTRIES_MAX
    assert ratios.curve().rate <= 1 / 8


def test_reads_of_older_entries_count_as_they_went() -> None:
    settings = settings_of(4_800_000)
    sampling = Sampling(settings)
    workload = Workload("far behind", ((8, 1000, (2000,)),))
    played = play(workload, settings, 300, count_from=250, watch=sampling.watch)
    assert sampling.ratios is not None
    curve = sampling.ratios.curve()
    # The reader is so far behind that it has met no entry of the time of the sampling.
    assert curve.unknown_share == 1
    assert curve.points[0].miss_ratio == pytest.approx(played.miss_ratio, abs=0.01)


def test_counts_begin_anew_when_the_miniatures_have_filled() -> None:
    sampling = Sampling(settings_of(4_800_000), ENTRIES_MAX)
    # 400 steps of 100 ms.
    play(Workload("busy", ((8, 1000, (0,)),)), sampling.settings, 400, watch=sampling.watch)
    assert sampling.ratios is not None
    curve = sampling.ratios.curve()
    assert miss_ratio.SETTLE_NS <= curve.since_ns < miss_ratio.SETTLE_NS + SECOND_NS
    assert curve.reads == pytest.approx(8 * 100 * curve.rate, rel=0.2)


def test_sizes_that_the_sample_is_too_small_for_are_left_out() -> None:
    settings = settings_of(100_000)
    sampling = Sampling(settings, ENTRIES_MAX)
    play(Workload("small", ((8, 1000, (0,)),)), settings, 300, watch=sampling.watch)
    assert sampling.ratios is not None
    curve = sampling.ratios.curve()
    assert [point.size_bytes for point in curve.points] == [400_000]


def test_closed_logs_are_forgotten() -> None:
    cursors = {"open": ActiveCursors(0, 0)}
    ratios = MissRatios(settings_of(4_800_000), 0, cursors.get, 0)

    def insert(log: str, at_ns: int) -> None:
        ratios.take((at_ns, Op.INSERT, log, 0, 1, 0, 10, 1000, NOT_COUNTED, (), ()))

    insert("open", 1)
    for number in range(100):
        insert(f"closed {number}", 1)
    assert ratios.logs == 101
    insert("open", miss_ratio.HALF_LIFE_NS)
    assert ratios.logs == 1


def test_error_is_that_of_leaving_out_each_part() -> None:
    assert estimate([0.0] * FOLDS, [0.0] * FOLDS) == (0.0, 0.0)
    assert estimate([10.0] * FOLDS, [5.0] * FOLDS) == (0.5, 0.0)
    ratio, error = estimate([10.0] * FOLDS, [10.0, 0.0] * (FOLDS // 2))
    assert ratio == 0.5
    # Sixteen independent outcomes of 0 or 1 have a mean with the error sqrt(0.25 / 15).
    assert error == pytest.approx((0.25 / (FOLDS - 1)) ** 0.5)


def test_smaller_sample_is_a_part_of_a_larger_one() -> None:
    kept: set[tuple[int, int]] | None = None
    for halvings in range(6):
        sample = SpatialSample(1 / 2**halvings)
        now = {(ledger, entry) for ledger in (3, 17) for entry in range(4096) if sample.has(ledger, entry)}
        assert len(now) == 2 * 4096 / 2**halvings
        assert kept is None or now < kept
        kept = now


def test_parts_of_a_run_are_its_sampled_entries() -> None:
    sample = SpatialSample(1 / 4)
    for first, count in ((0, 1), (3, 40), (1021, 7), (5, 1)):
        parts = [entry for begin, end, _ in sample.parts(9, first, count) for entry in range(begin, end)]
        assert parts == [entry for entry in range(first, first + count) if sample.has(9, entry)]
    assert len(list(SpatialSample(1.0).parts(9, 0, 10 * BLOCK_ENTRIES))) == 10
