"""One round of the crash run, and two where time is; twenty are for `python -m tests.crash --rounds 20`."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")


@pytest.mark.parametrize("rounds", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_killed_broker_loses_nothing_confirmed(
    rounds: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.crash.__main__ import run

    passed = run(rounds, seed=7, folder=tmp_path)
    assert passed, capsys.readouterr().out
