"""A small execution; `python -m tests.exactly_once` is the large one.

It needs nothing but time (`peer`): each driver that it kills starts Spark again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark, pip install WHEEL[spark]")

from tests.exactly_once.run import SETTINGS, run
from tests.vectors.broker_process import BrokerProcess


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.timeout(600)
def test_stream_loses_and_doubles_no_row_when_tasks_and_driver_are_killed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        outcome = run(broker.addresses.pulsar, tmp_path, "sink", 20_000, 4, 1, print)
    assert (outcome.lost, outcome.doubled) == (0, 0)
    assert outcome.tasks_killed >= 2, "the accidents have happened"
