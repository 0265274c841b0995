"""The recorder blocks no caller, counts dropped events, and refuses unusable settings with their key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker.recorder.errors import RecordError
from broker.recorder.record_reader import events, find
from broker.recorder.recorder import Recorder
from broker.recorder.settings import RecordSettings
from tests.broker.recorder.record_fakes import hit, settings_row

ROOT = Path(__file__).resolve().parents[3]


def test_recorder_drops_and_counts_events_when_the_buffer_is_full(tmp_path: Path) -> None:
    """An unopened recorder writes nothing, like one whose writer is stuck."""
    recorder = Recorder(RecordSettings(tmp_path, "b", buffer_rows=10), "test")
    recorder.record(settings_row())
    for number in range(14):
        recorder.record(hit(number, 1, reader=0))
    assert recorder.dropped == 5
    recorder.open()
    recorder.close({"hits": 14})
    (run,) = find([tmp_path]).lifetimes
    assert sum(len(batch) for batch in events(run)) == 10
    assert run.why_not_exact().startswith("5 rows were dropped")
    assert (recorder.rows, recorder.files, recorder.errors) == (10, 1, 0)


def test_close_writes_all_buffered_events(tmp_path: Path) -> None:
    recorder = Recorder(RecordSettings(tmp_path, "b", buffer_rows=100_000), "test")
    recorder.open()
    recorder.record(settings_row())
    for number in range(20_000):
        recorder.record(hit(number, 1, reader=0))
    recorder.close({"hits": 20_000})
    (run,) = find([tmp_path]).lifetimes
    assert run.rows == 20_001
    assert run.why_not_exact() == ""
    assert run.files[-1].facts.totals == {"hits": 20_000}


def test_unusable_folder_is_refused_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    recorder = Recorder(RecordSettings(tmp_path / "file", "b"), "test")
    with pytest.raises(RecordError, match=r"^entryCacheRecordDirectory=.*/file: .*Not a directory"):
        recorder.open()


@pytest.mark.parametrize("missing", ["pyarrow", "numpy"])
def test_start_prints_one_line_when_packages_are_missing(tmp_path: Path, missing: str) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from magnetar.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    arguments = [
        "broker",
        "--memory",
        "--set",
        f"entryCacheRecordDirectory={tmp_path}",
        "--log-format",
        "plain",
    ]
    ports = ["--set", "brokerServicePort=0", "--set", "webServicePort=0"]
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments, *ports],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = [line for line in (ended.stdout + ended.stderr).splitlines() if "cannot start" in line]
    assert ended.returncode == 1
    assert len(said) == 1
    assert f"recording needs {missing}, which is not installed: pip install 'WHEEL[record]'" in said[0]
    assert "Traceback" not in ended.stdout + ended.stderr
