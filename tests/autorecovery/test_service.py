"""AutoRecovery on a store in memory: the start of a process."""

from __future__ import annotations

import pytest

from autorecovery.service import AutoRecovery
from broker.ledger_client.settings import LedgerSettings
from tests.autorecovery.stage import Stage


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
