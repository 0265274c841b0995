"""Recommendations within a budget: the choice, the curve with its knee, and the brokers that differ."""

from __future__ import annotations

import argparse
import json
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")

from broker.compose.cache_settings import EntryCacheSettings
from foundation.units import MIB
from magnetar.commands.pipeline_command import _memory, _parser, _price, _rate
from pipeline.jobs.budget import (
    Budget,
    _refined,
    _sizes,
    best_of_policies,
    recommend_within,
    smallest_within_reads,
    tie_lines,
)
from pipeline.jobs.fleet import fleet_lines, fleet_table
from pipeline.jobs.grid_rows import peak_text
from pipeline.jobs.memory_curve import RecordedTraffic, best_by_size, curve_table, knee_of, saved_per_mib
from pipeline.jobs.page import write
from pipeline.jobs.run import JOB_FUNCTIONS
from pipeline.replays.grid import (
    ENTRIES_MIN,
    OBJECT_ENTRIES_MIN,
    BrokerCounts,
    GridRow,
    Overrides,
    affordable_rate,
)
from pipeline.traces.checking import check_file
from pipeline.traces.record_frames import check_record
from tests.pipeline.jobs.test_on_the_sample import SAMPLE, Shared
from tests.pipeline.made_record import SETTINGS, Ints, make_record

READS = 1000
TRAFFIC = RecordedTraffic(seconds=10.0, brokers=2, price=4.0)


def row(
    size_mib: int,
    ratio: float,
    *,
    policy: str = "pip430",
    ttl_ms: int = 1000,
    brokers: Mapping[str, float] | None = None,
) -> GridRow:
    """A row of a grid: `ratio` of READS reads hit; `brokers`: the same by broker."""
    size = size_mib * MIB
    hits = round(READS * ratio)
    settings = EntryCacheSettings(size, policy=policy, ttl_ns=ttl_ms * 1_000_000)
    counts = {
        broker: BrokerCounts(round(READS * one), READS - round(READS * one), 0, size, settings)
        for broker, one in (brokers or {"b0": ratio}).items()
    }
    overrides = Overrides(policy, size_bytes=size, ttl_ns=ttl_ms * 1_000_000)
    return GridRow(overrides, settings, hits, READS - hits, 0, 0, size, "kernel", counts, 1.0)


def test_knee_is_where_further_memory_begins_to_bring_little() -> None:
    curve = [row(1, 0.2), row(2, 0.5), row(4, 0.9), row(8, 0.92), row(16, 0.94)]
    assert knee_of(curve) is curve[2]
    assert knee_of([row(1, 0.2), row(2, 0.4), row(3, 0.6)]) is None, "a straight line has no knee"
    assert knee_of(curve[:2]) is None
    assert saved_per_mib(curve[1], curve[2], TRAFFIC) == pytest.approx(20.0)
    other = [row(1, 0.3, policy="magnetar")]
    cells = curve_table([curve, other], curve[2], TRAFFIC).rows
    assert [one["knee"] for one in cells] == [False, False, True, False, False, False]
    assert [one["policy"] for one in cells] == ["pip430 4.2"] * 5 + ["magnetar"]
    assert cells[5]["saved_per_s_by_each_mib"] is None, "the size above is of another policy"
    assert cells[2]["bookie_reads_per_s"] == 10.0
    assert cells[4]["cost_per_month"] == pytest.approx(4.0 * 2 * 16 / 1024)


def test_curve_takes_the_best_time_to_live_of_each_size() -> None:
    curve = best_by_size([row(2, 0.5), row(2, 0.7, ttl_ms=3000), row(1, 0.2), row(4, 0.3)])
    assert [(one.settings.size_bytes_max // MIB, one.hit_ratio) for one in curve] == [(1, 0.2), (2, 0.7)]


def test_tie_of_policies_goes_to_the_default_and_is_told() -> None:
    grid = [row(2, 0.50), row(2, 0.52, policy="magnetar"), row(1, 0.4)]
    assert best_of_policies(grid) is grid[0], "whichever of the two was recorded"
    (line,) = tie_lines(grid, grid[0])
    assert line.startswith("a tie: magnetar has 52.00 % with 2 MiB, which is no more than 3 points better")
    assert line.endswith("ties go to the default policy, pip430")
    grid.append(row(2, 0.55, policy="magnetar"))
    assert best_of_policies(grid) is grid[-1]
    assert tie_lines(grid, grid[-1]) == []


def test_sizes_of_the_curve_are_tried_for_each_budget() -> None:
    own = EntryCacheSettings(2 * MIB, policy="pip430")
    budgets = [Budget(memory_bytes=3 * MIB), Budget(memory_bytes=100 * MIB), Budget(reads_per_s=9.0)]
    for sizes in ({*_sizes(own, budget, few=False)} for budget in budgets):
        assert sizes >= {1 * MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB}
    assert {3 * MIB, 100 * MIB} <= {size for one in budgets for size in _sizes(own, one, few=True)}


def test_peak_above_the_size_has_the_reason_beside_it() -> None:
    assert peak_text(row(3, 0.5)) == "peak 3 MiB"
    above = peak_text(replace(row(3, 0.5), peak_bytes=3 * MIB + MIB // 20))
    assert above == (
        "peak 3.05 MiB (above the size until the end of a turn of the broker's loop, where the size is enforced)"
    )


def test_rate_of_reads_is_kept_by_the_smallest_cache() -> None:
    grid = [row(2, 0.5), row(1, 0.2), row(4, 0.8), row(4, 0.9, policy="magnetar"), row(8, 0.95)]
    assert smallest_within_reads(grid, "pip430", TRAFFIC, 20.0) is grid[2], (
        "the recorded policy, of equal sizes"
    )
    assert smallest_within_reads(grid, "pip430", TRAFFIC, 10.0) is grid[3]
    assert smallest_within_reads(grid, "pip430", TRAFFIC, 1.0) is None
    longer = row(2, 0.501, ttl_ms=3000)
    assert smallest_within_reads([longer, *grid], "pip430", TRAFFIC, 60.0) is grid[0], (
        "no worse, and one line less"
    )


def test_brokers_that_differ_from_the_fleet_are_named() -> None:
    fleet = row(4, 0.9, brokers={"b0": 0.95, "b1": 0.7, "b2": 0.9})
    small = row(1, 0.5, brokers={"b0": 0.3, "b1": 0.3, "b2": 0.9})
    large = row(16, 0.91, brokers={"b0": 0.95, "b1": 0.99, "b2": 0.9})
    table = fleet_table(small, fleet, [small, large])
    assert {one["broker"]: one["differs"] for one in table.rows} == {"b0": "", "b1": "more", "b2": "less"}
    lines = fleet_lines(table)
    assert lines[0] == "2 of 3 brokers differ from the fleet:"
    assert "  b1 needs more: 16 MiB, 1 s, pip430 4.2: hit ratio 70.00 % -> 99.00 %" in lines
    assert fleet_lines(fleet_table(fleet, fleet, [fleet])) == ["the settings fit all 3 brokers"]


def test_settings_that_one_broker_lacks_are_named(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first broker has the recommended size already; the other one has 64 MiB."""
    make_record(tmp_path / "large", 30_000, 2)
    monkeypatch.setattr("tests.pipeline.made_record.SETTINGS", replace(SETTINGS, size_bytes_max=MIB))
    make_record(tmp_path / "small", 30_000, 1)
    (small,), (_, large) = (sorted((tmp_path / name).glob("broker=*")) for name in ("small", "large"))
    report = recommend_within(spark, check_record(spark, [small, large]), Budget(memory_bytes=MIB))
    assert "managedLedgerCacheSizeMB=1" in report.text
    assert report.text[report.text.index("present settings differ:") + 1 :][:2] == [
        "  1 MiB, 1 s, pip430 4.2: b0",
        "  64 MiB, 1 s, pip430 4.2: b1",
    ]
    before, after = report.tables["before_after"].rows
    assert (before["size_bytes"], after["size_bytes"]) == (None, MIB)
    assert ">now<" not in report.plots[0].svg, "brokers with two sizes have no place in the curve"


class _Replayed:
    """Stands for a search whose replays are known."""

    def __init__(self, rows: Sequence[GridRow]) -> None:
        self.own = EntryCacheSettings(MIB, policy="pip430")
        self.traffic = TRAFFIC
        self._rows = {one.overrides: one for one in rows}

    def replay(self, wanted: Sequence[Overrides]) -> list[GridRow]:
        return [self._rows[one] for one in wanted]

    def per_second(self, one: GridRow) -> float:
        return TRAFFIC.per_second(one.misses)


def test_sizes_in_between_are_tried_with_each_time_to_live() -> None:
    """At 8 MiB both times to live do; a full cache of 7 MiB is better with the shorter one."""
    grid = [row(4, 0.5), row(4, 0.5, ttl_ms=3000), row(8, 0.98), row(8, 1.0, ttl_ms=3000)]
    between = [row(size, 0.7, ttl_ms=ttl) for size in (5, 6, 7) for ttl in (1000, 3000)]
    best, longer = row(7, 0.98), row(7, 0.96, ttl_ms=3000)
    search: Any = _Replayed([*between[:4], best, longer])
    assert _refined(search, grid, grid[3], 10.0) is best


def test_fleet_of_which_all_need_less_has_one_line() -> None:
    fleet = row(64, 1.0, brokers={"b0": 1.0, "b1": 1.0})
    small = row(16, 1.0, brokers={"b0": 1.0, "b1": 1.0})
    assert fleet_lines(fleet_table(fleet, fleet, [small])) == ["16 MiB are as good for each of the 2 brokers"]


def test_three_brokers_with_different_workloads_get_one_recommendation(spark: Any, tmp_path: Path) -> None:
    """The readers of b0 are up to 0.3 s behind, those of b1 60 ms, those of b2 6 ms."""
    calls = iter(range(9))

    def behind_us(sub: int, topic: Ints, ts: Ints) -> Ints:
        # Called for three readers of each broker in turn.
        return np.full(len(ts), (100_000, 20_000, 2_000)[next(calls) // 3] * sub)

    make_record(tmp_path / "record", 30_000, 3, behind_us=behind_us)
    words = ["recommend", str(tmp_path / "record"), "--memory", "1MiB"]
    arguments: Namespace = _parser().parse_args(words)
    report, good = JOB_FUNCTIONS["recommend"](Shared(spark), arguments)
    assert good
    rows = {str(one["broker"]): one for one in report.tables["brokers"].rows}
    near, far = (float(str(rows[broker]["hit_ratio_fleet"])) for broker in ("b2", "b0"))
    assert near > far, rows
    assert any("brokers" in line for line in report.text[-4:]), report.text
    page = write(report, tmp_path / "out").read_text(encoding="utf-8")
    found = json.loads(report.as_json())
    for broker in rows:
        assert broker in page
    assert {one["broker"] for one in found["tables"]["brokers"]} == {"b0", "b1", "b2"}


@pytest.mark.parametrize(
    ("text", "size"), [("8MiB", 8 * MIB), ("1 gib", 1024 * MIB), ("512m", 512 * MIB), ("1.5GB", 1536 * MIB)]
)
def test_sizes_of_a_budget_are_understood(text: str, size: int) -> None:
    assert _memory(text) == size


def test_budgets_that_are_none_are_refused_with_the_remedy() -> None:
    assert (_rate("1000/s"), _rate("2.5"), _price("4.5")) == (1000.0, 2.5, 4.5)
    for wrong in ("", "8", "0MiB", "-1MiB", "8KiB", "0.4m"):
        with pytest.raises(argparse.ArgumentTypeError, match="8MiB or 2GiB"):
            _memory(wrong)
    for wrong in ("0/s", "many", "5/min"):
        with pytest.raises(argparse.ArgumentTypeError, match="1000/s"):
            _rate(wrong)
    with pytest.raises(argparse.ArgumentTypeError, match=r"4\.50"):
        _price("1,2")


def test_large_records_are_sampled_without_being_asked() -> None:
    own = EntryCacheSettings(MIB, policy="pip430")
    assert affordable_rate(10_000, 100.0, own, [Overrides()] * 33) == 1.0
    assert affordable_rate(100_000_000, 100.0, own, [Overrides()] * 33) == 0.1
    by_objects = EntryCacheSettings(MIB, policy="magnetar")
    assert affordable_rate(1_200_000, 100.0, by_objects, [Overrides()] * 33) == pytest.approx(0.1, rel=0.05)


def test_sample_is_large_enough_for_the_smallest_cache() -> None:
    """A share of a hundredth of the entries would leave space for one entry in the smaller cache."""
    own = EntryCacheSettings(MIB, policy="pip430")
    sizes = [Overrides(size_bytes=MIB), Overrides(size_bytes=MIB // 8)]
    assert affordable_rate(1_000_000_000, MIB / 1000, own, sizes) == ENTRIES_MIN / 125
    by_objects = [*sizes, Overrides("magnetar", size_bytes=MIB)]
    assert affordable_rate(1_000_000_000, MIB / 1000, own, by_objects) == ENTRIES_MIN / 125
    by_objects.append(Overrides("magnetar", size_bytes=MIB // 8))
    assert affordable_rate(1_000_000_000, MIB / 1000, own, by_objects) == OBJECT_ENTRIES_MIN / 125
    without = EntryCacheSettings(0, policy="pip430")
    assert affordable_rate(1_000_000_000, 1000.0, without, [Overrides()]) == 0.01


def test_requests_are_counted_by_entry_and_not_by_row(tmp_path: Path) -> None:
    """A sample of runs of eight entries keeps most rows, so rows would not bound its replay."""
    make_record(tmp_path, 64_000, 1)
    (path,) = tmp_path.rglob("*.parquet")
    check = check_file(path)
    assert check.requests == 64_000
    assert check.rows < check.requests / 2


def test_recommendation_on_the_sample_keeps_its_budget(spark: Any, tmp_path: Path) -> None:
    """2 MiB, the size that is too small for `pip430`: the other policy brings thirty points within it."""
    checked = check_record(spark, [SAMPLE])
    report = recommend_within(spark, checked, Budget(memory_bytes=2 * MIB, price=5.0))
    assert "entryCachePolicy=magnetar" in report.text
    sizes = [int(one) for one in re.findall(r"managedLedgerCacheSizeMB=(\d+)", "\n".join(report.text))]
    assert sizes == [2]
    before, after = report.tables["before_after"].rows
    assert float(str(after["hit_ratio"])) > float(str(before["hit_ratio"])) + 0.25
    assert {"memory_curve", "combinations"} < report.tables.keys()
    (knee,) = [line for line in report.text if line.startswith("knee of the curve of pip430 4.2: ")]
    assert knee in recommend_within(spark, checked, Budget(memory_bytes=3 * MIB)).text
    assert {row["policy"] for row in report.tables["memory_curve"].rows} == {"pip430 4.2", "magnetar"}
    for row in report.tables["memory_curve"].rows:
        assert any(one["hit_ratio"] == row["hit_ratio"] for one in report.tables["combinations"].rows)
    assert any(line.startswith("cost: ") for line in report.text)
    assert any(line.startswith("memory: 2 MiB of entries are counted; ") for line in report.text)
    assert "</svg>" in report.plots[0].svg


def test_sample_is_told_with_its_error(spark: Any) -> None:
    words = ["recommend", str(SAMPLE), "--memory", "1MiB", "--sample", "0.5"]
    arguments: Namespace = _parser().parse_args(words)
    report, good = JOB_FUNCTIONS["recommend"](Shared(spark), arguments)
    assert good
    line = next(one for one in report.text if one.startswith("own settings by the model"))
    assert re.fullmatch(
        r"own settings by the model on 50 % of the entries: [\d.]+ %; its error of [\d.]+ points is that of the other "
        r"lines, too",
        line,
    )
