"""docs/reference/access_record.md names every event with its number, and its program runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.recorder.schema import COLUMNS
from entry_cache.observe.cache_events import CAUSES_OF_REQUEUES, REASONS, Op
from tests.broker.recorder.record_fakes import hit, new_writer, row, settings_row

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "access_record.md").read_text(
    encoding="utf-8"
)
NEVER_WRITTEN = {Op.READER, Op.NOT_CACHED}
"""Events without a line in the table: names become lines of the names file, NOT_CACHED is for explanations."""


def test_documentation_has_a_line_for_each_event() -> None:
    lines = dict[int, str]()
    for numbers, text in re.findall(r"^\| ([\d, ]+) \| (.*?) \|", TEXT, re.M):
        names = re.findall(r"[A-Z]+(?:_[A-Z]+)?", text)
        lines.update(zip(map(int, numbers.split(", ")), names, strict=False))
    assert lines == {op.value: op.name for op in Op if op not in NEVER_WRITTEN}


def test_documentation_has_each_column_and_detail() -> None:
    kinds = "|".join(sorted(set(COLUMNS.values())))
    rows = re.findall(rf"^\| (`.*`) \| ({kinds}) \|", TEXT, re.M)
    named = {name: kind for names, kind in rows for name in re.findall(r"`(\w+)`", names)}
    assert named == COLUMNS
    assert list(named) == list(COLUMNS)
    assert ", ".join(f"{at} `{reason.value}`" for at, reason in enumerate(REASONS)) in TEXT
    assert ", ".join(f"{at} `{cause}`" for at, cause in enumerate(CAUSES_OF_REQUEUES)) in TEXT


def test_documentation_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = new_writer(tmp_path / "record")
    arrived = row(Op.ARRIVED, first=9, count=4, size=400, detail=Op.MISS)
    writer.write([settings_row(), hit(0, 5), hit(5, 2), arrived], 0.0)
    writer.close(0.0, None)
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "docs/reference/access_record.md", "exec"), {})
    assert sorted(capsys.readouterr().out.splitlines()) == ["1 ARRIVED 4 400", "1 HIT 7 70"]
