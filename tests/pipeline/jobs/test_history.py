"""A history over days: each file is counted once, drops are explained, and thresholds end the command with 3."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")

from broker.compose.cache_settings import EntryCacheSettings
from broker.recorder.errors import RecordError
from broker.recorder.record_file import RecordFile
from broker.recorder.schema import FileFacts, file_name, names_name
from entry_cache.observe.cache_events import Op
from magnetar.commands import pipeline_command
from pipeline.jobs.history import Thresholds, failures, history
from pipeline.jobs.history_runs import READS, HistoryError, JobRun, RunFolder
from pipeline.jobs.report import FAILED, Report
from pipeline.jobs.trend import DayCounts, shares_of_drop
from tests.pipeline.jobs.killed_history import POINTS
from tests.pipeline.jobs.test_on_the_sample import SAMPLE, Shared

DAY = date(2026, 11, 20)
SETTINGS = EntryCacheSettings(64 << 20, policy="pip430")
Reads = Mapping[tuple[str, str], tuple[int, int]]
"""Hits and misses by topic and subscription."""
USUAL: Reads = {("orders", "tail"): (900, 100), ("clicks", "tail"): (950, 50)}


def write_day(
    folder: Path,
    day: int,
    reads: Reads = USUAL,
    *,
    broker: str = "b0",
    settings: EntryCacheSettings = SETTINGS,
    ops: tuple[Op, Op] = (Op.HIT, Op.ARRIVED),
) -> Path:
    """Writes the access record of one broker lifetime on a day; `ops` stand for hits and misses."""
    at = datetime(DAY.year, DAY.month, DAY.day, 12, tzinfo=UTC) + timedelta(days=day)
    start = at.strftime("%Y%m%dT%H%M%S.%f")
    place = folder / f"broker={broker}"
    place.mkdir(parents=True, exist_ok=True)
    rows: list[tuple[int, ...]] = []
    lines: list[dict[str, object]] = []
    for number, ((topic, sub), (hits, misses)) in enumerate(sorted(reads.items()), 1):
        lines += [{"topic": number, "name": topic}, {"topic": number, "sub": 1, "name": sub}]
        rows += [(ops[0], number, hits, 0), (ops[1], number, misses, Op.MISS)]
    kinds, topics, counts, details = np.array(rows, np.int64).T
    zeros = np.zeros(len(rows), np.int64)
    file = RecordFile(place, file_name(start, 0))
    file.append(
        {
            **dict.fromkeys(("ledger", "entry", "more"), zeros),
            "ts": zeros + int(at.timestamp() * 1e6) + np.arange(len(rows)),
            "op": kinds,
            "topic": topics,
            "sub": zeros + 1,
            "count": counts,
            "bytes": counts * 100,
            "detail": details,
        }
    )
    file.complete(
        FileFacts(
            broker=broker,
            start=start,
            sequence=0,
            software="test",
            clock_offset_us=0,
            settings=settings.to_text(),
        )
    )
    (place / names_name(start)).write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return place


def day_name(day: int) -> str:
    return (DAY + timedelta(days=day)).isoformat()


def run(spark: Any, folder: Path, out: Path, limits: Thresholds | None = None) -> Report:
    return history(lambda: spark, [folder], out, limits or Thresholds())


def reads_of(report: Report) -> dict[str, int]:
    return {str(row["day"]): int(str(row["reads"])) for row in report.tables["days"].rows}


def test_each_file_is_counted_once_over_runs_kills_and_moves(spark: Any, tmp_path: Path) -> None:
    record, out = tmp_path / "record", tmp_path / "out"
    write_day(record, 0)
    first = run(spark, record, out)
    assert reads_of(first) == {day_name(0): 2000}
    write_day(record, 1)
    # As a killed run leaves it: its folder has no name of a run yet.
    left = out / "runs" / ".20261121T000000.000000.part"
    (left / "reads").mkdir(parents=True)
    assert reads_of(run(spark, record, out)) == {day_name(0): 2000, day_name(1): 2000}
    assert not left.exists()
    moved = tmp_path / "moved"
    shutil.move(record, moved)
    again = run(spark, moved, out)
    assert reads_of(again) == {day_name(0): 2000, day_name(1): 2000}
    assert "no new files since the last run" in again.text
    assert [row["files"] for row in again.tables["runs"].rows] == [1, 1]


def test_history_without_a_record_does_not_start_spark(tmp_path: Path) -> None:
    (tmp_path / "half.parquet").write_bytes(b"PAR1")

    def start() -> Any:
        raise AssertionError("Spark was started")

    with pytest.raises(
        RecordError, match=r"no access record in .* \(1 file rejected, the first because not a whole"
    ):
        history(start, [tmp_path], tmp_path / "out", Thresholds())


def test_drop_is_explained_by_settings_topics_and_subscriptions(spark: Any, tmp_path: Path) -> None:
    record, out = tmp_path / "record", tmp_path / "out"
    for day in range(3):
        write_day(record, day)
    smaller = replace(SETTINGS, size_bytes_max=8 << 20)
    changed = {
        **USUAL,
        ("orders", "tail"): (500, 500),
        ("orders", "audit"): (100, 900),
        ("new", "tail"): (0, 300),
    }
    write_day(record, 3, changed, settings=smaller)
    report = run(spark, record, out)
    (drop,) = {row["day"] for row in report.tables["drops"].rows}
    assert drop == day_name(3)
    text = "\n".join(report.text)
    assert "setting of b0: managedLedgerCacheSizeMB 64 MiB -> 8 MiB" in text
    assert "audit of orders is new: 1,000 reads, hit ratio 10.00 %" in text
    assert "tail of new is new, as is its topic: 300 reads, hit ratio 0.00 %" in text
    assert "tail of orders hit ratio 90.00 % -> 50.00 %, 1,000 reads" in text
    assert "clicks" not in text
    assert [row["drop"] for row in report.tables["days"].rows] == [False, False, False, True]


def test_shares_of_readers_add_up_to_the_drop() -> None:
    before = {
        ("a", "s"): DayCounts(90, 10),
        ("b", "s"): DayCounts(50, 50, 7),
        ("gone", "s"): DayCounts(80, 0),
    }
    now = {("a", "s"): DayCounts(40, 60), ("b", "s"): DayCounts(500, 500), ("new", "s"): DayCounts(1, 99)}
    total = [DayCounts(*map(sum, zip(*one.values(), strict=True))) for one in (before, now)]
    shares = shares_of_drop(before, now)
    assert sum(shares.values()) == pytest.approx(total[0].hit_ratio - total[1].hit_ratio)
    assert shares["gone", "s"] > 0, "a reader that hit often is missing"
    assert next(iter(shares)) == ("b", "s"), "the largest share is first"


def test_thresholds_judge_the_newest_day() -> None:
    by_day = {"2026-11-20": DayCounts(95, 5), "2026-11-21": DayCounts(80, 20)}
    assert failures(by_day, Thresholds()) == []
    assert failures(by_day, Thresholds(hit_ratio_min=0.8, drop_max=0.2)) == []
    low, drop = failures(by_day, Thresholds(hit_ratio_min=0.9, drop_max=0.1))
    assert low == "the hit ratio of 2026-11-21, 80.00 %, is below --min-hit-ratio 0.9"
    assert "is more than --max-drop 0.1 below 95.00 %" in drop


def test_old_counts_are_removed_and_their_files_not_read_again(spark: Any, tmp_path: Path) -> None:
    record, out = tmp_path / "record", tmp_path / "out"
    place = write_day(record, 0)
    run(spark, record, out)
    write_day(record, 10)
    limits = Thresholds(keep_days=5)
    assert reads_of(run(spark, record, out, limits)) == {day_name(10): 2000}
    assert reads_of(run(spark, record, out, limits)) == {day_name(10): 2000}
    assert [row["counts_kept"] for row in run(spark, record, out, limits).tables["runs"].rows] == [
        True,
        False,
    ]
    for path in place.glob("20261120*.parquet"):
        path.unlink()
    report = run(spark, record, out, limits)
    assert [row["counts_kept"] for row in report.tables["runs"].rows] == [True]


def test_run_that_is_being_forgotten_does_not_count_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    with folder.locked():
        run_id, part = folder.begin()
        (part / READS).mkdir()
        folder.finish(JobRun(run_id, [("b0", "s", 0)], ["2026-11-20"]), part)

        def killed(path: Path) -> None:
            (path / READS).rmdir()
            raise KeyboardInterrupt

        monkeypatch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            folder.forget(folder.runs(), "2026-11-21", set())
        monkeypatch.undo()
    with RunFolder(tmp_path).locked():
        assert folder.runs() == []
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [".lock"]


def test_record_without_reads_is_told_until_there_are_some(spark: Any, tmp_path: Path) -> None:
    record, out = tmp_path / "record", tmp_path / "out"
    write_day(record, 0, ops=(Op.APPEND, Op.APPEND))
    report = run(spark, record, out, Thresholds(hit_ratio_min=0.5))
    assert "no entry was read from the cache or from bookies so far" in report.text
    assert "no entry was read" in report.failed[0]
    write_day(record, 1)
    report = run(spark, record, out, Thresholds(hit_ratio_min=0.5))
    assert (reads_of(report), report.failed) == ({day_name(1): 2000}, [])


def test_several_brokers_have_lines_of_their_own(spark: Any, tmp_path: Path) -> None:
    for day in range(2):
        write_day(tmp_path / "record", day)
        write_day(tmp_path / "record", day, {("orders", "tail"): (10, 90)}, broker="b1")
    report = run(spark, tmp_path / "record", tmp_path / "out")
    rows = report.tables["days_by_broker"].rows
    assert [(row["broker"], row["hit_ratio"]) for row in rows] == [("b0", 0.925), ("b1", 0.1)] * 2
    assert ">b1<" in report.plots[0].svg


def test_second_run_at_the_same_time_and_damaged_state_are_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.locked(), pytest.raises(HistoryError, match="wait for its end"), RunFolder(tmp_path).locked():
        pass
    (tmp_path / "runs" / "x").mkdir()
    (tmp_path / "runs" / "x" / "run.json").write_text("{")
    with pytest.raises(HistoryError, match=r"run\.json is damaged: remove the folder .*x"):
        folder.runs()


def _damaged(number: int) -> int:
    raise RecordError(f"part {number} of the record is damaged")


def test_error_of_a_task_is_one_sentence(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def job(session: Shared, arguments: object) -> tuple[Report, bool]:
        spark.sparkContext.parallelize([7], 1).map(_damaged).collect()
        raise AssertionError

    monkeypatch.setattr("pipeline.jobs.run.Session", lambda master, say: Shared(spark))
    monkeypatch.setattr("pipeline.jobs.run.JOB_FUNCTIONS", {"compare": job})
    assert pipeline_command.main(["compare", str(SAMPLE), "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "magnetar pipeline: part 7 of the record is damaged\n"


def test_command_prints_json_and_exits_with_3_below_a_threshold(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.jobs.run.Session", lambda master, say: Shared(spark))
    for job in ("history", "hit-report"):
        words = [job, str(SAMPLE), "--out", str(tmp_path / job), "--format", "json"]
        assert pipeline_command.main([*words, "--min-hit-ratio", "0.3"]) == 0
        assert json.loads(capsys.readouterr().out)["failed"] == []
        assert pipeline_command.main([*words, "--min-hit-ratio", "0.4"]) == FAILED == 3
        found = json.loads(capsys.readouterr().out)
        assert "33.50 %" in found["failed"][0]
        assert found["tables"]
        assert (tmp_path / job / f"{job}.html").exists()


def no_session() -> Any:
    raise AssertionError("Spark was started without a new file")


def test_run_without_new_files_needs_no_session(spark: Any, tmp_path: Path) -> None:
    record, out = tmp_path / "record", tmp_path / "out"
    write_day(record, 0)
    first = run(spark, record, out)
    again = history(no_session, [record], out, Thresholds())
    assert "no new files since the last run" in again.text
    assert again.tables["days"].rows == first.tables["days"].rows


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_run_killed_between_its_writes_counts_each_read_once(spark: Any, tmp_path: Path, point: str) -> None:
    record, out = tmp_path / "record", tmp_path / "out"
    write_day(record, 0)
    run(spark, record, out)
    write_day(record, 1)
    words = [sys.executable, "-m", "tests.pipeline.jobs.killed_history", str(record), str(out), point]
    killed = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    finished = [path for path in (out / "runs").iterdir() if not path.name.startswith(".")]
    assert len(finished) == (2 if point == "run named" else 1)
    assert reads_of(run(spark, record, out)) == {day_name(0): 2000, day_name(1): 2000}
    assert not list(out.glob("runs/.*.part"))


def test_removal_of_a_run_killed_halfway_leaves_no_run_without_counts(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, out = tmp_path / "record", tmp_path / "out"
    old = write_day(record, 0)
    run(spark, record, out)
    shutil.rmtree(old)
    write_day(record, 100)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda folder: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(spark, record, out)
    assert reads_of(run(spark, record, out)) == {day_name(100): 2000}
    assert not list(out.glob("runs/.*.part"))
