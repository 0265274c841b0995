"""kill -9 at steps of a deletion: `make test` takes some points of each kind, `make test-slow` the others."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")

from tests.crash.counting_broker import counted
from tests.crash.deletion_broker import POINTS
from tests.support.slow import slow_but

QUICK = (
    "topic.log.before",
    "topic.finish.before",
    "partitioned.partitions.after",
    "namespace.topics.after",
    "tenant.namespaces.after",
)


@pytest.mark.parametrize("point", slow_but(QUICK, POINTS))
def test_deletion_is_finished_after_a_kill(point: str, tmp_path: Path) -> None:
    from tests.crash.deletion_run import run_point

    assert run_point(point, tmp_path) == []
    assert counted(tmp_path / "runs") > 0
