"""Reads of a ledger with two copies: an entry is lost only where neither has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.model.errors import LOST_ENTRY, BrokerError
from foundation.model.position import Position
from tests.broker.managed_ledger.offload.test_ledger_offloads import ENTRIES, Tiered


@pytest.mark.parametrize("bookkeeper_first", [False, True])
@pytest.mark.parametrize("is_away", [True, False])
async def test_entry_that_the_bookies_have_lost_is_lost_when_its_copy_is_there_and_lacks_it(
    tmp_path: Path, bookkeeper_first: bool, is_away: bool
) -> None:
    tiered = Tiered(tmp_path)
    ledger = await tiered.open(2 * ENTRIES + 1, bookkeeper_first=bookkeeper_first)
    await tiered.offload(ledger)
    first = ledger.ledgers.infos()[0].ledger_id
    tiered.world.ledgers.stored.pop(first)
    if is_away:
        tiered.objects.away = True
    else:
        tiered.remove(first)
    with pytest.raises(BrokerError) as found:
        await ledger.read_entry(Position(first, 0))
    assert isinstance(found.value, LOST_ENTRY) is not is_away
