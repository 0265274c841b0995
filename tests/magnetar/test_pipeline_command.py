"""`magnetar pipeline`: usage, bad input in one sentence, and a whole run as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from magnetar import pipeline_command

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "pipeline" / "sample"


def run(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "magnetar", "pipeline", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=170)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["what-if", "x", "--policies", "lru"], "no such policy: 'lru'"),
        (["what-if", "x", "--sizes-mb", "a"], "'a' is not numbers"),
        (["what-if", "x", "--sizes-mb", "-1"], "'-1' has a number below 0"),
        (["what-if", "x", "--extend-accessed", "maybe"], "'maybe' is not true"),
        (["recommend", "x", "--sample", "2"], "'2' is no share"),
        (["unknown", "x"], "invalid choice: 'unknown'"),
    ],
)
def test_wrong_usage(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        pipeline_command.main(words)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_folder_without_a_record_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    assert pipeline_command.main(["recommend", str(tmp_path)]) == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "no access record in" in said[0]
    assert pipeline_command.main(["recommend", str(tmp_path / "nowhere")]) == 1
    assert "there is no " in capsys.readouterr().err


def test_a_missing_extra_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith(("pyspark", "pipeline.jobs"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert pipeline_command.main(["recommend", str(SAMPLE)]) == 1
    assert "pip install 'magnetar[pipeline,spark]'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_whole_run(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    done = run("recommend", str(SAMPLE), "--master", "local[2]", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "binding: " in done.stdout
    assert "managedLedgerCacheSizeMB=" in done.stdout
    assert "Traceback" not in done.stderr
    assert (tmp_path / "recommend.html").stat().st_size > 10_000
