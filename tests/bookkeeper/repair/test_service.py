"""AutoRecovery on a store in memory: the start of a process."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bookkeeper.repair import service as service_module
from bookkeeper.repair.service import AutoRecovery
from broker.compose.ledger_settings import LedgerSettings
from foundation.model.errors import MetadataError
from tests.bookkeeper.repair.stage import Stage


class NeverElected:
    async def is_elected(self) -> bool:
        return False

    async def resign(self) -> None:
        pass


@pytest.mark.parametrize(("setting_s", "told"), [(600, True), (0, False)])
async def test_start_tells_when_the_stored_delay_outranks_the_setting(
    caplog: pytest.LogCaptureFixture, setting_s: int, told: bool
) -> None:
    stage = Stage(3, LedgerSettings(2, 2, 2))
    for delay_s in (0, setting_s):
        service = AutoRecovery(stage.auditor, stage.worker, stage.marks, NeverElected(), stage.stats)
        await service.start(delay_s)
        await service.close()
    assert await stage.marks.delay_s(1) == 0, "the first start has stored it"
    expected = [
        f"lostBookieRecoveryDelay={setting_s} has no effect: the cluster waits 0 s, as"
        " /ledgers/underreplication/lostBookieRecoveryDelay in its metadata store says;"
        f" `magnetar bookie lostbookierecoverydelay {setting_s}` changes that"
    ]
    assert [one.getMessage() for one in caplog.records] == (expected if told else [])


class ElectedAtLast(NeverElected):
    """The metadata store is away for three looks; then this process is the auditor."""

    def __init__(self) -> None:
        self.asked = 0

    async def is_elected(self) -> bool:
        self.asked += 1
        if self.asked <= 3:
            raise MetadataError("the store is away")
        if self.asked == 5:
            raise ZeroDivisionError("a defect, by the test")
        return True


async def test_auditor_goes_on_after_errors_with_one_line_per_trouble(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "LOOK_S", 0)
    caplog.set_level(logging.INFO, "bookkeeper.repair")
    stage, election = Stage(3, LedgerSettings(2, 2, 2)), ElectedAtLast()
    await stage.written(3)
    service = AutoRecovery(stage.auditor, stage.worker, stage.marks, election, stage.stats)
    await service.start(0)
    stage.lose(0)
    async with asyncio.timeout(60):
        while election.asked < 8 or not stage.stats.auditor.marked_now:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
    await service.close()
    lines = [one.getMessage() for one in caplog.records if "auditor" in one.getMessage()]
    assert lines == [
        "the auditor waits: the store is away",
        "this process is the cluster's auditor",
        "the auditor failed",
    ]
