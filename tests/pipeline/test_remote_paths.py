"""Paths with a scheme go through Spark's file systems, and keep their slashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")

from pipeline.audits.snapshot import open_snapshot
from pipeline.jobs.history_runs import JobRun, RunFolder
from pipeline.remote_paths import CannotFetch, fetch, name_of, place
from pipeline.traces.checking import find_files
from pipeline.traces.record_frames import check_record
from tests.pipeline.generated_cluster.generator import generate

SAMPLE = Path(__file__).resolve().parents[2] / "pipeline" / "sample"


def test_place_keeps_the_text_of_a_path_with_a_scheme() -> None:
    for text in ("s3a://bucket/record", "hdfs://host:8020/record", "file:///record"):
        assert place(text) == text
    assert place("record/a:b") == Path.cwd() / "record/a:b"
    assert [name_of(place(text)) for text in ("s3a://bucket/record/", "a/record")] == ["record", "record"]


def test_relative_paths_are_the_drivers_for_every_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors of a cluster have working directories of their own."""
    monkeypatch.chdir(SAMPLE.parent)
    assert place("sample") == SAMPLE
    files = find_files([Path("sample")]).files
    assert [file.path.is_relative_to(SAMPLE) for file in files] == [True]
    generate(tmp_path / "snapshot", 3000, leaks=1)
    monkeypatch.chdir(tmp_path)
    assert open_snapshot(None, Path("snapshot")).folder == tmp_path / "snapshot"  # type: ignore[arg-type]
    assert RunFolder(Path("history")).reads_of([JobRun("1", [])]) == [str(tmp_path / "history/runs/1/reads")]


def test_record_with_a_scheme_is_copied_unchanged(spark: Any, tmp_path: Path) -> None:
    copy = fetch(spark, SAMPLE.as_uri(), tmp_path)
    assert copy == tmp_path / SAMPLE.name
    found, original = (check_record(spark, [folder]) for folder in (copy, SAMPLE))
    assert found.rows == original.rows > 0
    assert found.rejected == []
    assert found.lifetimes[0].why_not_exact() == "", "the file of names has come too"
    files = {path.relative_to(copy) for path in copy.rglob("*")}
    assert files == {path.relative_to(SAMPLE) for path in SAMPLE.rglob("*")}, "and nothing beside them"


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("file:///nowhere/record", "there is no file:///nowhere/record"),
        ("s3a://bucket/record", "S3AFileSystem not found; Spark needs the package"),
        ("unknown://host/record", 'No FileSystem for scheme "unknown"; Spark needs the package'),
    ],
)
def test_path_that_cannot_be_fetched_is_one_sentence(
    spark: Any, tmp_path: Path, where: str, sentence: str
) -> None:
    with pytest.raises(CannotFetch) as caught:
        fetch(spark, where, tmp_path)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
