"""Recorded miss counts of libCacheSim, one capacity of each policy, and messages about differences and absent traces.

All rows are checked by `python -m tests.vectors` with the folder of the golden files, in about two minutes.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.vectors import cachesim
from tests.vectors.fetch_traces import COMMAND, TRACES, fetch, find_trace
from tests.vectors.folder import find_vectors_folder

pytest.importorskip("libcachesim", reason="has no wheel for this platform")


def _rows() -> list[cachesim.Row]:
    folder = find_vectors_folder()
    if folder is None or not (folder / "cachesim/golden.csv").exists():
        return []
    with (folder / "cachesim/golden.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _one_per_policy() -> list[cachesim.Row]:
    """The first row of each trace and policy: `python -m tests.vectors` checks the others."""
    first: dict[tuple[str, str], cachesim.Row] = {}
    for row in _rows():
        first.setdefault((row["trace"], row["policy"]), row)
    return list(first.values())


ROWS = _one_per_policy()


@pytest.mark.slow
@pytest.mark.skipif(not ROWS, reason="no golden files; set MAGNETAR_VECTORS")
@pytest.mark.parametrize("trace", dict.fromkeys(row["trace"] for row in ROWS))
def test_every_policy_misses_as_often_as_recorded(trace: str) -> None:
    rows = [row for row in ROWS if row["trace"] == trace]
    try:
        cachesim.trace_named(trace, rows[0]["sha256"])
    except cachesim.TraceMissing as reason:
        pytest.skip(str(reason))
    result = cachesim.run_rows(trace, rows)
    assert result.messages == []
    assert (result.passed, result.failed) == (len(rows), 0)


def row(**changed: str) -> cachesim.Row:
    """A row of a trace of three hundred requests, of which LRU hits the tailing reads alone."""
    made = {
        "trace": "brokerlog_t2_e100",
        "sha256": "803205d2bb751746818c7667a84551dbdd8498e87501c0deb037e8c6865af737",
        "n_req": "300",
        "n_unique": "200",
        "total_bytes": "300",
        "ignore_obj_size": "1",
        "policy": "LRU",
        "cache_size": "2",
        "unit": "objects",
        "miss_count": "200",
        "miss_ratio": "0.6666666667",
        "byte_miss_ratio": "0.6666666667",
    }
    return made | changed


def write(path: Path, *rows: cachesim.Row) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_difference_is_named_with_trace_policy_and_size(tmp_path: Path) -> None:
    result = cachesim.run_file(
        write(
            tmp_path / "golden.csv",
            row(),
            row(miss_count="199"),
            row(policy="LUR"),
            row(cache_size="5", policy="S3FIFO"),
        )
    )
    assert (result.passed, result.failed) == (1, 3)
    assert result.messages[0] == "brokerlog_t2_e100 LRU 2 objects: miss_count: expected 199, got 200"
    assert "there is no policy 'LUR'" in result.messages[1]
    assert "S3FIFO cannot work with a capacity of 5" in result.messages[2]


def test_rows_fail_when_the_trace_differs_from_the_recorded_one(tmp_path: Path) -> None:
    result = cachesim.run_file(write(tmp_path / "golden.csv", row(sha256="0" * 64), row(sha256="0" * 64)))
    assert (result.passed, result.failed) == (0, 2)
    assert "another trace than the recorded one" in result.messages[0]


def test_rows_of_a_missing_trace_are_skipped_with_the_command_that_fetches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGNETAR_TRACES", str(tmp_path / "none"))
    result = cachesim.run_file(write(tmp_path / "golden.csv", row(trace="tea.bin"), row(trace="tea.bin")))
    assert (result.passed, result.failed) == (0, 0)
    assert result.messages == [
        f"tea.bin: 2 rows skipped: not in {tmp_path / 'none'}; fetch it with `{COMMAND}`"
    ]


def test_table_fails_when_columns_are_missing(tmp_path: Path) -> None:
    (tmp_path / "golden.csv").write_text("a,b\n1,2\n")
    result = cachesim.run_file(tmp_path / "golden.csv")
    assert (result.passed, result.failed) == (0, 1)
    assert "no column byte_miss_ratio, cache_size, " in result.messages[0]


def test_trace_is_found_under_another_name_by_its_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGNETAR_TRACES", str(tmp_path))
    name, checksum = next(iter(TRACES.items()))
    assert find_trace("other.bin", checksum) is None
    (tmp_path / name).touch()
    assert find_trace("other.bin", checksum) == tmp_path / name
    assert find_trace("other.bin", "0" * 64) is None


def test_traces_are_fetched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "tests.vectors.fetch_traces.TRACES",
        {"empty": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    )
    (tmp_path / "empty").touch()
    fetch(tmp_path)
    assert capsys.readouterr().out == f"all 1 traces are in {tmp_path}\n"
