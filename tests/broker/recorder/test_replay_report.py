"""The output of `magnetar cache replay` and its exit status."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from entry_cache.observe.cache_events import CacheEvent, Op
from entry_cache.observe.totals import totals_of
from magnetar.__main__ import main
from tests.broker.recorder.record_fakes import new_writer
from tests.entry_cache.observe.test_replay import SETTINGS, Recording, some_life


def recorded_life(folder: Path, rows: list[CacheEvent] | None = None, **settings: Any) -> Mapping[str, int]:
    """A short one, ended in good order; answers what the cache counted."""
    recording = Recording(SETTINGS)
    some_life(recording)
    totals = totals_of(recording.manager)
    writer = new_writer(folder, **settings)
    writer.write(recording.rows if rows is None else rows, 0.0)
    writer.close(0.0, totals)
    return totals


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_report_tells_an_exact_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    totals = recorded_life(tmp_path)
    assert main(["cache", "replay", str(tmp_path)]) == 0
    lines = said(capsys)
    assert re.fullmatch(r"b-6650, started 20251121T210000\.000000: 1 files, \d+ rows", lines[0])
    assert lines[1].startswith("policy 4.2, ")
    assert lines[-1] == "equal: every event and every total"
    table = {line[:28].strip(): line[28:].split() for line in lines[3:-1]}
    assert table == {name: [f"{count:,}"] * 3 for name, count in totals.items()}


def test_report_replays_a_cut_record_up_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = Recording(SETTINGS)
    some_life(recording)
    writer = new_writer(tmp_path, file_seconds=10)
    writer.write(recording.rows[:-5], 0.0)
    writer.tick(10.0)
    writer.write(recording.rows[-5:], 11.0)
    assert main(["cache", "replay", str(tmp_path)]) == 0
    lines = said(capsys)
    assert lines[0].startswith("rejected: ")
    assert lines[0].endswith("parquet.part: it is being written, or its writer did not end it")
    assert lines[-2:] == [
        "the broker's own totals and the last event are missing: it did not end in good order",
        "equal: every event and every total",
    ]


def test_report_tells_the_first_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = Recording(SETTINGS)
    some_life(recording)
    rows = [row for row in recording.rows if row[1] != Op.SIZE_CHECK]
    recorded_life(tmp_path, rows)
    assert main(["cache", "replay", str(tmp_path)]) == 1
    lines = said(capsys)
    assert any(line.startswith("first difference at event ") for line in lines)
    assert lines[-1].startswith("NOT EQUAL: ")


def test_report_tells_totals_that_differ_without_an_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker counted a hit without an event."""
    recording = Recording(SETTINGS)
    some_life(recording)
    writer = new_writer(tmp_path)
    writer.write(recording.rows, 0.0)
    writer.close(0.0, {**totals_of(recording.manager), "hits": 4})
    assert main(["cache", "replay", str(tmp_path)]) == 1
    assert said(capsys)[-1] == "NOT EQUAL: every event was repeated, but the totals differ"


def test_report_says_why_a_record_cannot_be_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded_life(tmp_path / "sampled", sample=0.5)
    assert main(["cache", "replay", str(tmp_path / "sampled")]) == 1
    assert said(capsys)[-1].startswith("cannot be replayed exactly: it is a sample of 0.5")
    (tmp_path / "empty").mkdir()
    assert main(["cache", "replay", str(tmp_path / "empty")]) == 1
    assert said(capsys) == ["no access record here"]


def test_report_prints_one_line_when_folder_or_package_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["cache", "replay", str(tmp_path / "nowhere")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        line == f"magnetar cache: no such folder: {tmp_path / 'nowhere'}; name an entryCacheRecordDirectory"
    )
    for module in ("broker.recorder.replay_report", "broker.recorder.record_reader"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["cache", "replay", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        "magnetar cache: pyarrow is not installed: pip install 'WHEEL[record]'\n"
    )
