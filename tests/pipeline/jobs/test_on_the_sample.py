"""The jobs on the shipped sample: the commands of docs/how-to/pipeline.md, and figures that must agree with each other."""

from __future__ import annotations

import re
import shlex
import shutil
from argparse import Namespace
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")

from broker.compose.cache_settings import EntryCacheSettings
from broker.recorder.record_reader import find
from entry_cache.observe.cache_events import Op
from entry_cache.policy_names import POLICY_NAMES
from magnetar.commands.pipeline_command import JOBS, _parser
from pipeline.jobs.bounds import baseline_of, requests_of
from pipeline.jobs.budget import POLICY_WORTH
from pipeline.jobs.grid_rows import memory_line
from pipeline.jobs.hit_report import reads_by
from pipeline.jobs.report import Report
from pipeline.jobs.run import JOB_FUNCTIONS, Session
from pipeline.replays.grid import override_grid, own_settings, replay_grid
from pipeline.replays.inputs import read_inputs
from pipeline.replays.making import accesses_of
from pipeline.replays.record_inputs import RecordInputs
from pipeline.traces.record_frames import read_record

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "pipeline" / "sample"
MANUAL = (ROOT / "docs" / "how-to" / "pipeline.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "pipeline.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$? ?(?:\.venv/bin/)?magnetar pipeline (.+)$", MANUAL, re.M)


def schema_in_the_reference(table: str, columns: list[str]) -> bool:
    """Returns True if a row of the reference lists the table with these columns, in any order."""
    rows = [line for line in REFERENCE.splitlines() if line.startswith("| `") and line.count("|") == 3]
    for line in rows:
        names, described = line.strip("| ").split("|")
        listed = set(re.findall(r"`([^`]+)`", described))
        if f"`{table}`" in names and set(columns) <= listed:
            return True
    return False


class Shared(Session):
    """On the tests' Spark."""

    def __init__(self, spark: Any) -> None:
        super().__init__("local", lambda text: None)
        self._spark = spark

    def __exit__(self, *ended: object) -> None:
        """Leaves the session open for other tests."""


def run(spark: Any, *words: str) -> tuple[Report, bool, Namespace]:
    arguments = _parser().parse_args(list(words))
    report, good = JOB_FUNCTIONS[arguments.job](Shared(spark), arguments)
    return report, good, arguments


def test_sample_is_small_and_complete() -> None:
    found = find([SAMPLE])
    assert [run.why_not_exact() for run in found.lifetimes] == [""]
    assert found.rejected == []
    assert sum(path.stat().st_size for path in SAMPLE.rglob("*") if path.is_file()) < 300 * 1024


def test_own_settings_have_one_row_of_what_if(spark: Any) -> None:
    alone, _, _ = run(spark, "what-if", str(SAMPLE))
    assert len(alone.tables["what_if"].rows) == 1
    # The sample was recorded with 1 MiB: an equal row would look like another setting of the same effect.
    beside, _, _ = run(spark, "what-if", str(SAMPLE), "--sizes-mb", "1,2,4")
    rows = [(row["settings"], row["size_bytes"]) for row in beside.tables["what_if"].rows]
    assert rows == [("own", 1 << 20), ("tried", 2 << 20), ("tried", 4 << 20)]
    svg = beside.plots[0].svg
    for size in ("1 MiB", "2 MiB", "4 MiB", "now"):
        assert f">{size}<" in svg
    assert "requeues" not in svg, "a setting that is equal in all lines is no part of their names"


def test_manual_has_every_job() -> None:
    assert {command.split()[0] for command in COMMANDS} == set(JOBS)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_manual_write_a_page_and_tables(
    command: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    words = shlex.split(command)
    if "--out" in words:
        words[words.index("--out") + 1] = str(tmp_path / "out")
    report, good, _ = run(spark, *words)
    assert good
    page = Session.write(report, tmp_path)
    text = page.read_text(encoding="utf-8")
    for wanted in (
        f"<title>{report.title}</title>",
        "<table role",
        *[escape(table.title) for table in report.tables.values()],
    ):
        assert wanted in text
    assert text.count("<svg") == text.count("</svg>") == len(report.plots)
    assert not re.search(r'(?:src|href)="https?:', text), "the page is self-contained"
    for name, table in report.tables.items():
        if table.rows:
            assert schema_in_the_reference(name, list(table.rows[0])), f"{name} in docs/reference/pipeline.md"
            assert pq.read_table(tmp_path / f"{name}.parquet").num_rows == len(table.rows)


def test_reads_by_topic_equal_the_events_and_the_totals(spark: Any) -> None:
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
    totals = record.checked.lifetimes[0].files[-1].facts.totals
    assert totals is not None
    assert {name: totals[name] for name in sums} == sums


def test_causes_add_up_to_the_misses(spark: Any) -> None:
    report, _, _ = run(spark, "hit-report", str(SAMPLE))
    totals = find([SAMPLE]).lifetimes[0].files[-1].facts.totals
    assert totals is not None
    assert sum(int(str(row["entries"])) for row in report.tables["causes"].rows) == totals["misses"] > 0
    held = [float(str(row["share"])) for row in report.tables["cache_share"].rows]
    assert sum(held) == pytest.approx(1.0)


def test_grid_is_the_same_in_one_task_and_in_many(spark: Any) -> None:
    runs = find([SAMPLE]).lifetimes
    wanted = override_grid(("pip430-4.2", "fifo-ttl"), (1 << 20, 4 << 20))
    inputs = RecordInputs(spark, runs)
    together = replay_grid(inputs, wanted)
    alone = [replay_grid(inputs, [overrides])[0] for overrides in wanted]
    assert together == alone
    assert together[0].settings == own_settings(runs[0])


def test_sample_is_replayed_again_without_its_files(spark: Any, tmp_path: Path) -> None:
    """Spark has kept it: a job reads its record once, however often it replays."""
    shutil.copytree(SAMPLE, tmp_path / "record")
    inputs = RecordInputs(spark, find([tmp_path / "record"]).lifetimes, 0.5)
    wanted = override_grid(("pip430-4.2", "magnetar"), (1 << 20,))
    first = replay_grid(inputs, wanted)
    lower = replay_grid(inputs, wanted[:1], rate=0.2)
    shutil.rmtree(tmp_path / "record")
    assert replay_grid(inputs, wanted) == first
    assert replay_grid(inputs, wanted[:1], rate=0.2) == lower
    assert lower == replay_grid(RecordInputs(spark, find([SAMPLE]).lifetimes, 0.2), wanted[:1])


def test_no_general_policy_beats_belady_on_the_sample(spark: Any) -> None:
    (one,) = find([SAMPLE]).lifetimes
    size = 2 << 20
    batches = list(read_inputs(one))
    answers = baseline_of(one, batches, 1.0, size_bytes=size, policies=("FIFO", "LRU", "Belady"))
    found = {policy: hits for policy, hits, _ in answers}
    assert found["Belady"] >= max(found["FIFO"], found["LRU"])
    accesses = accesses_of(one)
    assert requests_of(accesses).reads == replay_grid(RecordInputs(spark, [one]), override_grid())[0].reads


def test_recommend_proposes_magnetar_when_the_record_shows_a_gain(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample was recorded with `pip430`, in a cache that is too small for two of three readers."""
    report, _, _ = run(spark, "recommend", str(SAMPLE))
    recorded, magnetar = report.tables["policies"].rows
    assert (recorded["policy"], magnetar["policy"]) == ("pip430 4.2", "magnetar")
    assert recorded["size_bytes"] == magnetar["size_bytes"] == 1 << 20
    assert any(
        line.startswith("memory: 12 MiB of entries are counted; with 510 bytes") for line in report.text
    )
    gain = float(str(magnetar["hit_ratio"])) - float(str(recorded["hit_ratio"]))
    assert gain > POLICY_WORTH
    assert "entryCachePolicy=magnetar" in report.text
    monkeypatch.setattr("pipeline.jobs.recommend.POLICY_WORTH", gain)
    report, _, _ = run(spark, "recommend", str(SAMPLE))
    assert "entryCachePolicy=magnetar" not in report.text
    assert any(line.startswith("keep the policy pip430 4.2: magnetar, ") for line in report.text)
    # Knee and end of the curve, the point between them that is proposed, and the reason.
    knee, end, proposed = report.text[-3:]
    assert knee.startswith("knee of the curve of pip430 4.2: 8 MiB, ")
    assert end == "end of the curve: 32 MiB, hit ratio 100.00 %"
    assert re.fullmatch(
        r"proposed: 12 MiB, the smallest cache within 0\.2 points of the best hit ratio; the knee takes 33\.33 % less "
        r"memory and hits 12\.06 points less: --memory 8MiB proposes for it",
        proposed,
    )


@pytest.mark.slow
def test_curve_has_a_line_for_each_policy(spark: Any) -> None:
    report, _, _ = run(spark, "miss-ratio-curve", str(SAMPLE), "--sizes-mb", "1,4")
    rows = report.tables["miss_ratio_curve"].rows
    names = {str(row["policy"]).removesuffix(", 1 s") for row in rows if str(row["policy"]).endswith(", 1 s")}
    assert names == {"pip430 4.2" if name == "pip430" else name for name in POLICY_NAMES}
    found = {(row["policy"], row["size_bytes"]): row["miss_ratio"] for row in rows}
    grid, _, _ = run(spark, "what-if", str(SAMPLE), "--sizes-mb", "1,4", "--policies", "magnetar")
    for row in grid.tables["what_if"].rows[1:]:
        misses = float(str(row["bookie_reads"])) / 24_000
        assert found["magnetar, 1 s", row["size_bytes"]] == pytest.approx(misses)
    assert {row["error_bar"] for row in rows} == {0.0}


def test_recommend_names_what_it_leaves_out_when_the_simulator_is_missing(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.jobs.recommend.library_is_installed", lambda: False)
    report, _, _ = run(spark, "recommend", str(SAMPLE))
    assert "baseline" not in report.tables
    assert any("Belady's bound are left out: libcachesim is not installed" in line for line in report.text)


def test_recommendation_states_the_size_and_the_memory_of_a_full_cache() -> None:
    bytes_alone = EntryCacheSettings(size_bytes_max=64 << 20)
    assert memory_line(bytes_alone, 510.0) == (
        "memory: 64 MiB of entries are counted; with 510 bytes for the objects of each entry, whose mean size is 510 bytes, "
        "a full cache takes about 128 MiB"
    )
    charged = replace(bytes_alone, charges_overhead=True)
    assert memory_line(charged, 510.0) == (
        "memory: 64 MiB, of which managedLedgerCacheChargesOverhead counts 510 bytes for the objects of each entry"
    )
