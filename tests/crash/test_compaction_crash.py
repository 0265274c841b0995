"""kill -9 at each step of a topic compaction."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from tests.crash.compaction_broker import POINTS


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_view_is_whole_after_a_kill(point: str, tmp_path: Path) -> None:
    from tests.crash.compaction_run import run_point

    assert run_point(point, tmp_path) == []
