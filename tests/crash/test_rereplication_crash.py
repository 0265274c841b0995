"""Re-replication killed at some of its points; all of them are for `python -m tests.crash --bookie`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.rereplication_run import POINTS, run

SOME = ("batch.sent", "ensemble.stored", "kill.target")


def test_killed_rereplication_is_ended_by_the_next_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = run(SOME, seed=5, folder=tmp_path)
    assert not [finding for outcome in outcomes for finding in outcome.findings], capsys.readouterr().out
    assert all(outcome.entries >= 300 for outcome in outcomes)


def test_points_have_distinct_names() -> None:
    assert len(set(POINTS)) == len(POINTS)
    assert set(SOME) <= set(POINTS)
