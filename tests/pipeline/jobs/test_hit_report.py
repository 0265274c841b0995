"""The counts of the hit report are those of Spark SQL on the rows of the same record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install magnetar[spark]")

from pyspark.sql import functions as f

from pipeline.jobs.hit_report import hit_report, reads_by
from pipeline.jobs.report import Report
from pipeline.replays.record_counts import STEPS, RecordCounts, count_record, step_us
from pipeline.traces.record_frames import Record, read_record
from tests.pipeline.made_record import make_record

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "pipeline" / "sample"
COUNTS = ("hits", "misses", "coalesced", "bytes")
LIFETIME = ("broker", "start", "topic")
CONTENTS = """
    select broker, start, topic, ts,
           case when op = 2 then bytes else -bytes end as change
    from rows where op in (2, 10)
"""


@pytest.fixture(scope="module", params=["sample", "two brokers"])
def record(request: Any, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """The sample is of a real broker, whose cache was too small; the other has hits and misses of two brokers."""
    if request.param == "sample":
        return read_record(spark, [SAMPLE])
    folder = tmp_path_factory.mktemp("made")
    make_record(folder, 200_000, 2, misses=True)
    return read_record(spark, [folder])


@pytest.fixture(params=[1000, 1 << 16])
def counts(request: Any, record: Record, monkeypatch: pytest.MonkeyPatch) -> list[RecordCounts]:
    """Counted with batches of that many rows."""
    monkeypatch.setattr("broker.recorder.record_reader.BATCH_ROWS", request.param)
    return [count_record(lifetime, record.checked.span_us) for lifetime in record.checked.lifetimes]


def test_reads_by_reader_and_minute_are_those_of_sql(record: Record, counts: list[RecordCounts]) -> None:
    wanted = {
        (row["broker"], row["topic"], row["sub"]): [row[name] for name in COUNTS]
        for row in reads_by(record.rows, "broker", "topic", "sub").collect()
    }
    found = {
        (lifetime.broker, topic, sub): reads
        for lifetime, one in zip(record.checked.lifetimes, counts, strict=True)
        for (topic, sub), reads in zip(one.readers.tolist(), one.by_reader.tolist(), strict=True)
    }
    assert found == wanted
    minutes = {
        int(row["at"]): [row[name] for name in COUNTS]
        for row in reads_by(record.rows, "minute").withColumn("at", f.unix_timestamp("minute")).collect()
    }
    sums = np.sum([one.by_minute for one in counts], axis=0)
    first = record.checked.span_us[0] // 60_000_000
    assert {(first + at) * 60: sums[at].tolist() for at in np.flatnonzero(sums.any(axis=1))} == minutes


def test_contents_of_the_cache_are_those_of_sql(
    spark: Any, record: Record, counts: list[RecordCounts]
) -> None:
    record.rows.createOrReplaceTempView("rows")
    begin, end = record.checked.span_us
    held = f"select broker, start, topic, sum(change * ({end} - ts)) / {end - begin} as mean from ({CONTENTS}) group by all"
    wanted = {tuple(row[name] for name in LIFETIME): row["mean"] for row in spark.sql(held).collect()}
    found = {
        (lifetime.broker, lifetime.start, topic): mean_bytes
        for lifetime, one in zip(record.checked.lifetimes, counts, strict=True)
        for topic, mean_bytes in zip(one.topics.tolist(), one.mean_bytes.tolist(), strict=True)
    }
    assert found == pytest.approx(wanted)
    step = step_us((begin, end))
    changes = f"select broker, div(ts - {begin}, {step}) as step, sum(change) as change from ({CONTENTS}) group by all"
    by_step = {(row["broker"], row["step"]): row["change"] for row in spark.sql(changes).collect()}
    for lifetime, one in zip(record.checked.lifetimes, counts, strict=True):
        assert one.changes.tolist() == [by_step.get((lifetime.broker, at), 0) for at in range(STEPS + 2)]


def test_report_has_the_names_and_the_sums_of_all_brokers(spark: Any, record: Record) -> None:
    report: Report = hit_report(spark, record.checked, lambda text: None)
    named = (
        reads_by(record.rows, *LIFETIME, "sub")
        .join(record.topics, [*LIFETIME])
        .join(record.readers, [*LIFETIME, "sub"])
    )
    wanted = {
        (row["broker"], row["topic_name"], row["sub_name"]): [row[name] for name in COUNTS]
        for row in named.collect()
    }
    rows = report.tables["by_subscription"].rows
    assert {
        (row["broker"], row["topic"], row["subscription"]): [row[name] for name in COUNTS] for row in rows
    } == wanted
    for table in ("by_topic", "by_minute"):
        for name in COUNTS:
            assert sum(int(str(row[name])) for row in report.tables[table].rows) == sum(
                one[COUNTS.index(name)] for one in wanted.values()
            )
    misses = [int(str(row["misses"])) for row in rows]
    assert misses == sorted(misses, reverse=True)
