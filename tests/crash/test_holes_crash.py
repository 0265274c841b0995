"""One round of kill -9 while pending entries are delivered again, and three where time is."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")


@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_kill_while_pending_entries_are_delivered_again_loses_nothing(
    rounds: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.crash.holes_run import main

    passed = main(rounds, seed=7, folder=tmp_path)
    assert passed, capsys.readouterr().out
