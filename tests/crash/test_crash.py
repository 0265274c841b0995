"""Two rounds of the crash run; twenty are for `python -m tests.crash --rounds 20`."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")


@pytest.mark.slow
def test_killed_broker_loses_nothing_confirmed_in_two_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.crash.__main__ import run

    passed = run(2, seed=7, folder=tmp_path)
    assert passed, capsys.readouterr().out
