"""The lateness of readers and of the event loop: what a record tells, and the cause where a promise was not kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")

from bench.sample_record import SETTINGS, TOPICS, work
from broker.recorder.record_reader import BrokerLifetime, find
from pipeline.jobs.compare import promise_lines
from pipeline.jobs.lateness import Pace, reads_by_lag
from pipeline.replays.making import accesses_of
from tests.pipeline.jobs.test_on_the_sample import run
from tests.pipeline.made_record import BEHIND_US, make_record
from tests.vectors.broker_process import BrokerProcess

ROUNDS = 150
LIFETIME = BrokerLifetime("b0", "20260101T000000.000000")


def pace(bucket: int, loop_share: float | None) -> Pace:
    counts = np.zeros(80, np.int64)
    counts[bucket] = 100
    return Pace(counts, loop_share)


def test_lags_are_those_of_the_readers(tmp_path: Path) -> None:
    """A third of the reads each at the tail, 0.4 s and 3 s after the append."""
    make_record(tmp_path, 50_000, 1)
    found = Pace(reads_by_lag(accesses_of(find([tmp_path]).lifetimes[0])), None)
    for share, lag_us in zip((0.3, 0.6, 0.9), BEHIND_US, strict=True):
        assert lag_us / 1000 <= found.lag_ms(share) <= lag_us / 1000 * 1.2 + 1
    (line,) = found.lines()
    assert line.startswith("a promise holds while readers keep this pace: half of the reads within 4")
    assert Pace(found.counts, 0.125).lines()[1] == "the broker's event loop was late for 12.50 % of the time"


def test_promise_that_was_not_kept_names_later_readers_and_a_later_loop() -> None:
    early, late = pace(40, 0.01), pace(60, 0.3)
    lines = promise_lines(LIFETIME, 0.902, 0.774, early, late)
    assert lines == [
        "b0, started 20260101T000000.000000: the record before it promised a hit ratio of 90.20 % with these settings, and "
        "it has 77.40 %",
        "  readers came later: 99 in 100 within 33 ms of the append, before 1 ms",
        "  the event loop was late for 30.00 % of the time, before 1.00 %",
    ]
    assert len(promise_lines(LIFETIME, 0.902, 0.89, early, late)) == 1, "within the error of a replay"
    assert "neither readers nor" in promise_lines(LIFETIME, 0.902, 0.774, late, early)[1]
    assert "neither readers nor" in promise_lines(LIFETIME, 0.902, 0.774, pace(40, None), pace(40, 0.3))[1]


@pytest.mark.one_broker("looks at the record of one process")
def test_compare_names_readers_that_came_later_than_in_the_record_before(spark: Any, tmp_path: Path) -> None:
    """The second lifetime of a broker has the settings of the first, and a reader so late that its entries are gone."""
    settings = {
        **SETTINGS,
        "entryCacheRecordDirectory": str(tmp_path / "record"),
        "managedLedgerCacheEvictionTimeThresholdMillis": "60000",
    }
    for lag in (2, 100):
        folder = tmp_path / str(lag)
        folder.mkdir()
        with BrokerProcess(folder, settings, memory=True) as broker:
            work(broker.addresses.pulsar, ROUNDS, {"tail": 0, "late": lag}, (2000,) * len(TOPICS), 0.0)
    assert all(one.files[-1].facts.loop_late_us is not None for one in find([tmp_path / "record"]).lifetimes)
    report, good, _ = run(spark, "compare", str(tmp_path / "record"))
    assert good
    at = next(at for at, line in enumerate(report.text) if "the record before it promised" in line)
    assert report.text[at + 1].startswith("  readers came later: "), report.text
