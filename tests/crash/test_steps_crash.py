"""kill -9 at each step of a topic compaction, of expiry with trimming, and of a quarantine."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from tests.crash import compaction_broker, quarantine_run, trimming_broker

QUARANTINE_POINTS = (
    "quarantine.delete.before",
    "put-back.delete.before",
    "export.write.half",
    "delete.request.after",
    "broker.delete.after",
)
"""The points at which a leak is in two places; `python -m tests.crash --quarantine` tries all."""


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


@pytest.mark.slow
@pytest.mark.parametrize("point", QUARANTINE_POINTS)
def test_leak_stays_until_it_is_exported_after_a_kill(point: str, tmp_path: Path) -> None:
    assert quarantine_run.run_point(point, tmp_path) == []
