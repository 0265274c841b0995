"""The auditor on a store in memory: lost bookies, delays, and the check of all ledgers."""

from __future__ import annotations

from unittest.mock import AsyncMock

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.repair.auditor import all_ledgers
from bookkeeper.repair.marks import BadMark
from broker.compose.ledger_settings import LedgerSettings
from foundation.model.errors import MetadataError
from protocol.ledger_metadata import ledger_key
from protocol.underreplication import mark_key
from tests.bookkeeper.ensembles.ensemble_fakes import LEDGER
from tests.bookkeeper.repair.stage import Stage

WHOLE = LedgerSettings(2, 2, 2)


async def test_ledger_of_a_lost_bookie_is_marked_with_its_name() -> None:
    stage = Stage(3, WHOLE)
    await stage.written(3)
    await stage.auditor.look()
    assert await stage.marked() == []
    stage.lose(0)
    await stage.auditor.look()
    found = await stage.marks.get(LEDGER)
    assert found is not None
    assert found.mark.replicas == (stage.cluster.names[0],)
    assert found.mark.marked_ms == stage.wall_ms


async def test_bookie_that_was_lost_before_the_election_is_found() -> None:
    stage = Stage(3, WHOLE)
    await stage.written(3)
    stage.lose(1)
    await stage.auditor.look()
    assert await stage.marked() == [LEDGER]


async def test_bookie_without_entries_marks_nothing() -> None:
    stage = Stage(3, WHOLE)
    await stage.written(3)
    await stage.auditor.look()
    stage.lose(2)
    await stage.auditor.look()
    assert await stage.marked() == []


async def test_one_lost_bookie_has_the_delay_to_come_back() -> None:
    stage = Stage(3, WHOLE)
    await stage.written(3)
    await stage.marks.set_delay_s(60)
    await stage.auditor.look()
    stage.lose(0)
    await stage.auditor.look()
    stage.wait(59)
    await stage.auditor.look()
    assert await stage.marked() == []
    stage.lost.clear()
    await stage.auditor.look()
    assert (stage.stats.auditor.delayed, stage.stats.auditor.cancelled) == (1, 1)
    stage.lose(0)
    await stage.auditor.look()
    stage.wait(59)
    await stage.auditor.look()
    assert await stage.marked() == []
    stage.wait(1)
    await stage.auditor.look()
    assert await stage.marked() == [LEDGER]


async def test_second_lost_bookie_ends_the_delay() -> None:
    stage = Stage(3, WHOLE)
    await stage.written(3)
    await stage.marks.set_delay_s(60)
    await stage.auditor.look()
    stage.lose(0)
    await stage.auditor.look()
    stage.lose(2)
    await stage.auditor.look()
    assert await stage.marked() == [LEDGER]


async def test_write_of_the_delay_asks_for_an_audit_at_once() -> None:
    """BookKeeper's shell triggers an audit by writing the same delay again."""
    stage = Stage(3, WHOLE)
    await stage.written(3)
    await stage.marks.set_delay_s(60)
    await stage.auditor.look()
    stage.lose(0)
    await stage.auditor.look()
    assert await stage.marked() == []
    await stage.marks.set_delay_s(60)
    await stage.auditor.look()
    assert await stage.marked() == [LEDGER]


async def test_cluster_without_any_bookie_marks_nothing() -> None:
    stage = Stage(2, WHOLE)
    await stage.written(3)
    stage.lose(0, 1)
    await stage.auditor.look()
    assert await stage.marked() == []


async def test_periodic_check_marks_a_ledger_whose_bookie_lost_entries() -> None:
    stage = Stage(3, WHOLE, check_interval_s=100)
    await stage.written(3)
    await stage.auditor.look()
    assert await stage.marks.checked_ms() == stage.wall_ms
    stage.cluster.bookies[1].forget(2)
    stage.wait(99)
    await stage.auditor.look()
    assert await stage.marked() == []
    stage.wait(1)
    await stage.auditor.look()
    assert await stage.marked() == [LEDGER]
    assert await stage.marks.checked_ms() == stage.wall_ms


async def test_check_time_in_the_future_does_not_stop_the_checks() -> None:
    stage = Stage(3, WHOLE, check_interval_s=100)
    await stage.written(3)
    await stage.marks.note_checked(stage.wall_ms + 10**9)
    stage.cluster.bookies[1].forget(2)
    await stage.auditor.look()
    assert await stage.marked() == [LEDGER]


async def test_switched_off_auditor_marks_nothing() -> None:
    stage = Stage(3, WHOLE)
    await stage.written(3)
    await stage.marks.set_enabled(False)
    stage.lose(0)
    await stage.auditor.look()
    assert await stage.marked() == []


async def test_all_ledgers_are_found_and_other_nodes_left_out() -> None:
    store = MemoryMetadataStore()
    ledger_ids = [0, 7, 12_345_678, 2**31 - 2, 2**31 - 1, 2**62]
    for ledger_id in ledger_ids:
        await store.put(ledger_key(ledger_id), b"x")
    for key in ("/ledgers/LAYOUT", "/ledgers/available/b:1", "/ledgers/idgen", "/ledgers/cookies/b:1"):
        await store.put(key, b"x")
    await store.put("/ledgers/underreplication/ledgers/0000/0000/0000/0007/urL0000000007", b"x")
    assert sorted([each async for each in all_ledgers(store)]) == ledger_ids


async def test_mark_that_cannot_be_read_does_not_keep_other_ledgers_unmarked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage(3, WHOLE)
    await stage.written(3)
    found = await stage.store.get(ledger_key(LEDGER))
    assert found is not None
    other = LEDGER - 1
    await stage.store.put(ledger_key(other), found.value)
    await stage.store.put(mark_key(other), b"not a mark")
    assert [one async for one in all_ledgers(stage.store)] == [other, LEDGER]
    stage.lose(0)
    await stage.auditor.look()
    assert await stage.marks.get(LEDGER) is not None
    assert "a mark stays as it is" in caplog.text
    with pytest.raises(BadMark, match="remove the node"):
        await stage.marks.get(other)


async def test_audit_that_was_asked_for_and_failed_is_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(3, WHOLE)
    await stage.written(3)
    await stage.marks.set_delay_s(60)
    await stage.auditor.look()
    stage.lose(0)
    await stage.marks.set_delay_s(60)
    with monkeypatch.context() as broken:
        broken.setattr(stage.marks, "add", AsyncMock(side_effect=MetadataError("the session is lost")))
        with pytest.raises(MetadataError):
            await stage.auditor.look()
    assert await stage.marked() == []
    await stage.auditor.look()
    assert await stage.marked() == [LEDGER]
