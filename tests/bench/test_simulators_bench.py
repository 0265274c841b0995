"""The simulators' bench end to end, on a short trace: every figure is there, and misses are compared."""

from __future__ import annotations

import sys

import pytest

from bench import simulators

pytest.importorskip("numba")


def test_a_row_for_each_policy_and_capacity(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulators, "OBJECTS", 2_000)
    monkeypatch.setattr(sys, "argv", ["bench.simulators", "--requests", "20000", "--only", "FIFO", "LRU"])
    assert simulators.main() == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines[2:6]]
    assert [row[0] for row in rows] == ["FIFO", "FIFO", "LRU", "LRU"]
    assert all(float(figure) > 0 for row in rows for figure in row[2:])
    assert lines[6].startswith("dense ids ")
    assert "SHARDS left out: a capacity of 17 is too small" in lines[6]


def test_other_misses_than_theirs_are_told_by_line_and_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulators, "OBJECTS", 2_000)
    monkeypatch.setattr(simulators, "measure_libcachesim", lambda *_: {("FIFO", 100): (1.0, 7)})
    command = ["bench.simulators", "--requests", "20000", "--only", "FIFO", "--libcachesim"]
    monkeypatch.setattr(sys, "argv", command)
    trace = simulators.zipf(1.0, 2_000, 20_000, 42)
    monkeypatch.setattr(simulators, "CAPACITY_SHARES", (100.5 / trace.objects,))
    assert simulators.main() == 1
    assert "MISSES DIFFER: " in capsys.readouterr().out
