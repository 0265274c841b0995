"""From a live broker to a better one: its record, the settings that the record asks for, and what they bring.

Real clients read at the tail and behind it, in a cache that is too small. `what-if` with the broker's own settings gives its
counters exactly; the recommended settings, applied, give the promised hit ratio within one point.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install magnetar[spark]")

from bench.sample_record import record
from broker.recorder.record_reader import RunOfBroker, find
from pipeline.jobs.compare import compare
from pipeline.jobs.recommend import recommend
from pipeline.traces.record_frames import check_record

ROUNDS = 80
LAG_ROUNDS = {"tail": 0, "billing": 40, "archive": 80}
"""At 50 ms each: one subscription is too far behind for the size, one for the time to live as well."""
POINTS = 0.01


def run_of(folder: Path) -> RunOfBroker:
    (run,) = find([folder]).runs
    return run


def hit_ratio(run: RunOfBroker) -> float:
    totals = run.files[-1].facts.totals
    assert totals is not None
    return totals["hits"] / (totals["hits"] + totals["misses"] + totals["coalesced"])


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["pip430", "magnetar"])
def test_what_is_recommended_is_what_it_brings(spark: Any, tmp_path: Path, policy: str) -> None:
    settings = {"entryCachePolicy": policy}
    record(tmp_path / "before", ROUNDS, settings, LAG_ROUNDS)
    checked = check_record(spark, [tmp_path / "before"])
    answer, equal = compare(spark, checked)
    assert equal, answer.text
    advice = recommend(spark, checked)
    before, after = advice.tables["before_after"].rows
    assert float(str(before["hit_ratio"])) == pytest.approx(
        hit_ratio(run_of(tmp_path / "before")), abs=POINTS
    )
    promised = float(str(after["hit_ratio"]))
    assert promised > float(str(before["hit_ratio"])) + 0.2
    lines = re.findall(r"^(\w+)=(\d+)$", "\n".join(advice.text), re.M)
    assert lines, advice.text
    record(tmp_path / "after", ROUNDS, {**settings, **dict(lines)}, LAG_ROUNDS)
    assert hit_ratio(run_of(tmp_path / "after")) == pytest.approx(promised, abs=POINTS)
