"""The simulators' bench from end to end, on a short trace."""

from __future__ import annotations

import sys

import pytest

from bench import simulators

pytest.importorskip("numba")
pytest.importorskip("libcachesim", reason="has no wheel for this platform")


def test_simulators_bench_prints_a_row_for_each_policy_and_capacity(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulators, "OBJECTS", 2_000)
    monkeypatch.setattr(sys, "argv", ["bench.simulators", "--requests", "20000", "--only", "FIFO", "LRU"])
    assert simulators.main() == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines[2:6]]
    assert [row[0] for row in rows] == ["FIFO", "FIFO", "LRU", "LRU"]
    assert all(float(figure.replace(",", "")) > 0 for row in rows for figure in row[1:])
    assert lines[6].startswith("numbering objects ")
    assert "SHARDS left out: a capacity of 17 is too small" in lines[6]
