"""kill -9 at each step of a topic compaction, and of expiry with trimming."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from tests.crash import compaction_broker, trimming_broker


@pytest.mark.slow
@pytest.mark.parametrize("point", compaction_broker.POINTS)
def test_view_is_whole_after_a_kill(point: str, tmp_path: Path) -> None:
    from tests.crash.compaction_run import run_point

    assert run_point(point, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("point", trimming_broker.POINTS)
def test_no_message_and_no_ledger_is_lost_by_a_kill_during_trimming(point: str, tmp_path: Path) -> None:
    from tests.crash.trimming_run import run_point

    assert run_point(point, tmp_path) == []
