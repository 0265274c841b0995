"""kill -9 at each step of a deletion."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from tests.crash.deletion_broker import POINTS


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_deletion_is_finished_after_a_kill(point: str, tmp_path: Path) -> None:
    from tests.crash.deletion_run import run_point

    assert run_point(point, tmp_path) == []
