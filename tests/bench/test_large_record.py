"""The bench on a very large record: spilled bytes come from Spark's own event log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="needs the extra pipeline, pip install WHEEL[pipeline]")
pytest.importorskip("pyarrow", reason="needs the extra pipeline, pip install WHEEL[pipeline]")
pytest.importorskip("numba", reason="needs the extra pipeline, pip install WHEEL[pipeline]")

from bench.large_record import spilled_bytes


def test_spilled_bytes_are_the_sums_over_all_tasks(tmp_path: Path) -> None:
    def ended(memory: int, disk: int) -> str:
        metrics = {"Memory Bytes Spilled": memory, "Disk Bytes Spilled": disk}
        return json.dumps({"Event": "SparkListenerTaskEnd", "Task Metrics": metrics})

    folder = tmp_path / "eventlog_v2_local-1"
    folder.mkdir()
    lost = json.dumps({"Event": "SparkListenerTaskEnd", "Task Metrics": None})
    (folder / "events_1").write_text("\n".join(['{"Event":"SparkListenerJobStart"}', ended(70, 7), lost]))
    (folder / "events_2").write_text(ended(30, 3))
    assert spilled_bytes(tmp_path) == (100, 10)
