"""One round of attacks against a broker process, at a test's size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.campaign import run_round
from tests.vectors.broker_process import BrokerProcess


@pytest.mark.one_broker("attacks one process over raw connections that look nothing up")
async def test_attacks_leave_the_broker_and_other_clients_unharmed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        report = await run_round(broker, seed=20261121)
    assert report.all_faults == []
    # The stop has written the rest of the log.
    assert [line for line in broker.log_lines() if "Traceback" in line] == []
    assert report.canary_messages > 20
