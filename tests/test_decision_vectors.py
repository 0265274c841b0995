"""Every recorded decision of the Java classes against ours, one test per golden file (together some 10 s)."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from tests.vectors.__main__ import main
from tests.vectors.folder import find_vectors_folder

KINDS = ("adaptive", "cursors", "eviction", "key_shared", "limiter", "pending_reads")


def _files() -> list[Path]:
    folder = find_vectors_folder()
    return sorted(file for kind in KINDS for file in (folder / kind).glob("*.jsonl*")) if folder else []


@pytest.mark.skipif(not _files(), reason="no golden files; set MAGNETAR_VECTORS")
@pytest.mark.parametrize(
    "file", [pytest.param(file, id=f"{file.parent.name}/{file.name}") for file in _files()]
)
def test_script_decides_as_recorded(file: Path) -> None:
    result = importlib.import_module(f"tests.vectors.{file.parent.name}").run_file(file)
    assert result.messages == []
    assert result.failed == 0
    assert result.passed > 0


def _cursor_script(rank: int) -> str:
    return json.dumps(
        {
            "name": "one cursor",
            "kind": "cursors",
            "profile": "5.0",
            "config": {"continue_caching_ms": 0, "created_at_ms": 0},
            "ops": [
                {"op": "add", "name": "a", "position": [1, 1], "expect": {"size": 1}},
                {"op": "rank", "name": "a", "expect": {"rank": rank, "true_rank": rank}},
            ],
        }
    )


def test_vectors_name_and_count_a_difference_and_exit_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wrong.jsonl").write_text(_cursor_script(1) + "\n" + _cursor_script(2) + "\n")
    assert main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("wrong.jsonl one cursor op 1 ")
    assert lines[0].endswith("rank: expected 2, got 1; true_rank: expected 2, got 1")
    assert lines[1:] == ["1 passed, 1 failed"]


def test_vectors_name_a_file_without_a_replayer_and_exit_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "golden.csv").write_text("a,b\n")
    (tmp_path / "other.jsonl").write_text('{"name": "x", "kind": "tea_leaves", "ops": []}\n')
    assert main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "golden.csv: skipped, no replayer for golden.csv"
    assert lines[1:] == ["other.jsonl: skipped, no replayer for tea_leaves", "0 passed, 0 failed"]


def test_vectors_fail_when_a_path_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["/nowhere/at/all"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 1 failed"
