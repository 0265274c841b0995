"""Four kills around a full disk; fifty are for `python -m tests.crash --full-disk --rounds 50`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")


@pytest.mark.slow
def test_killed_broker_starts_on_the_disk_that_its_producer_has_filled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.crash.full_disk_run import main

    try:
        passed = main(4, seed=7, folder=tmp_path)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"cannot mount a tmpfs: {error}")
    assert passed, capsys.readouterr().out
