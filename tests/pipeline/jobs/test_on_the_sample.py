"""The jobs on the sample that ships: the commands of docs/pipeline.md, and what the answers owe one another."""

from __future__ import annotations

import re
import shlex
from argparse import Namespace
from html import escape
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install magnetar[spark]")

from broker.entry_cache.observe.cache_events import Op
from broker.recorder.record_reader import find
from magnetar.commands.pipeline_command import JOBS, _parser
from pipeline.jobs.answer import Answer
from pipeline.jobs.bounds import baseline_of, requests_of
from pipeline.jobs.hit_report import reads_by
from pipeline.jobs.run import RUN, Session
from pipeline.replays.grid import choices, own_settings, replay_grid
from pipeline.replays.making import accesses_of
from pipeline.traces.record_frames import read_record

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "pipeline" / "sample"
TUTORIAL = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$? ?(?:\.venv/bin/)?magnetar pipeline (.+)$", TUTORIAL, re.M)


class Shared(Session):
    """On the tests' Spark."""

    def __init__(self, spark: Any) -> None:
        super().__init__("local", lambda text: None)
        self._spark = spark

    def __exit__(self, *ended: object) -> None:
        """Others go on with it."""


def run(spark: Any, *words: str) -> tuple[Answer, bool, Namespace]:
    arguments = _parser().parse_args(list(words))
    answer, good = RUN[arguments.job](Shared(spark), arguments)
    return answer, good, arguments


def test_the_sample_is_small_and_complete() -> None:
    found = find([SAMPLE])
    assert [run.why_not_exact() for run in found.runs] == [""]
    assert found.set_aside == []
    assert sum(path.stat().st_size for path in SAMPLE.rglob("*") if path.is_file()) < 300 * 1024


def test_the_tutorial_has_every_job() -> None:
    assert {command.split()[0] for command in COMMANDS} == set(JOBS)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_tutorial(
    command: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    answer, good, _ = run(spark, *shlex.split(command))
    assert good
    page = Session.write(answer, tmp_path)
    text = page.read_text(encoding="utf-8")
    for wanted in (
        f"<title>{answer.title}</title>",
        "<table>",
        *[escape(table.title) for table in answer.tables.values()],
    ):
        assert wanted in text
    assert text.count("<svg") == text.count("</svg>") == len(answer.plots)
    assert not re.search(r'(?:src|href)="https?:', text), "the page needs nothing beside it"
    for name, table in answer.tables.items():
        if table.rows:
            assert pq.read_table(tmp_path / f"{name}.parquet").num_rows == len(table.rows)


def test_reads_by_topic_are_those_of_the_record(spark: Any) -> None:
    record = read_record(spark, [SAMPLE])
    rows = reads_by(record.rows, "topic").collect()
    table = ds.dataset(SAMPLE, format="parquet", exclude_invalid_files=True).to_table(
        columns=["op", "count", "detail"]
    )
    sums = {"hits": 0, "misses": 0, "coalesced": 0}
    kinds = {(Op.ARRIVED, Op.MISS): "misses", (Op.ARRIVED, Op.COALESCED): "coalesced"}
    for one in table.to_pylist():
        kind = "hits" if one["op"] == Op.HIT else kinds.get((one["op"], one["detail"]))
        if kind:
            sums[kind] += one["count"]
    assert {name: sum(row[name] for row in rows) for name in sums} == sums
    totals = record.checked.runs[0].files[-1].facts.totals
    assert totals is not None
    assert {name: totals[name] for name in sums} == sums


def test_the_causes_add_up_to_the_misses(spark: Any) -> None:
    answer, _, _ = run(spark, "hit-report", str(SAMPLE))
    totals = find([SAMPLE]).runs[0].files[-1].facts.totals
    assert totals is not None
    assert sum(int(str(row["entries"])) for row in answer.tables["causes"].rows) == totals["misses"] > 0
    held = [float(str(row["share"])) for row in answer.tables["cache_share"].rows]
    assert sum(held) == pytest.approx(1.0)


def test_the_grid_is_the_same_in_one_task_and_in_many(spark: Any) -> None:
    runs = find([SAMPLE]).runs
    wanted = choices(("pip430-4.2", "fifo-ttl"), (1 << 20, 4 << 20))
    together = replay_grid(spark, runs, wanted)
    alone = [replay_grid(spark, runs, [choice])[0] for choice in wanted]
    assert together == alone
    assert together[0].settings == own_settings(runs[0])


def test_nothing_beats_belady(spark: Any) -> None:
    (one,) = find([SAMPLE]).runs
    size = 2 << 20
    found = {policy: hits for policy, hits, _ in baseline_of((one, size, 1.0, ("FIFO", "LRU", "Belady")))}
    assert found["Belady"] >= max(found["FIFO"], found["LRU"])
    accesses = accesses_of(one)
    assert requests_of(accesses).reads == replay_grid(spark, [one], choices())[0].reads
