"""The replication worker on bookies in memory: copies, ensembles, open ledgers, locks, and what stops it."""

from __future__ import annotations

import pytest

from bookkeeper.ensembles.racks import Racks
from bookkeeper.repair.worker import RepairOutcome
from broker.compose.ledger_settings import LedgerSettings
from foundation.model.errors import PersistenceError
from protocol.ledger_metadata import LedgerSegment, LedgerState
from tests.bookkeeper.ensembles.ensemble_fakes import LEDGER
from tests.bookkeeper.repair.stage import GRACE_NS, SECOND_NS, Stage

WHOLE = LedgerSettings(2, 2, 2)
STRIPED = LedgerSettings(3, 2, 2)


async def lost_bookie(settings: LedgerSettings, bookies: int, entries: int = 20) -> Stage:
    """A closed ledger whose first member is lost, and marked."""
    stage = Stage(bookies, settings)
    await stage.written(entries)
    stage.lose(0)
    await stage.auditor.look()
    assert await stage.marked() == [LEDGER]
    return stage


async def test_every_entry_is_copied_and_the_ensemble_changed() -> None:
    stage = await lost_bookie(WHOLE, 3)
    assert await stage.worker.work()
    b0, b1, b2 = stage.cluster.names
    assert (await stage.metadata()).segments == (LedgerSegment((b2, b1)),)
    assert stage.cluster.bookies[2].has == list(range(20))
    assert await stage.marked() == []
    assert not stage.locks.taken
    assert (stage.stats.worker.entries_written, stage.stats.worker.finished) == (20, 1)
    assert await stage.cluster.read(0, 19, stage.cluster.restarted(WHOLE)) == [
        b"body %d" % n for n in range(20)
    ]
    assert b0 not in (await stage.metadata()).segments[0].members


async def test_copies_go_to_the_rack_that_was_lost() -> None:
    for other in (2, 3):
        stage = Stage(4, WHOLE)
        b0, b1, b2, b3 = stage.cluster.names
        racks: Racks = {"g": {b0: {"rack": "r1"}, b1: {"rack": "r2"}, b2: {"rack": "r2"}, b3: {"rack": "r2"}}}
        racks["g"][stage.cluster.names[other]] = {"rack": "r1"}
        await stage.cluster.ledgers.racks.change(lambda _, racks=racks: racks)  # type: ignore[misc]
        await stage.written(20)
        assert (await stage.metadata()).segments[0].members == (b0, b1)
        stage.lose(0)
        await stage.auditor.look()
        assert await stage.worker.work()
        assert (await stage.metadata()).segments == (LedgerSegment((stage.cluster.names[other], b1)),)


async def test_striped_ledger_gets_the_entries_of_the_position_alone() -> None:
    stage = await lost_bookie(STRIPED, 4)
    before = stage.cluster.bookies[0].has
    assert await stage.worker.work()
    assert stage.cluster.bookies[3].has == before == [n for n in range(20) if n % 3 != 1]


async def test_two_lost_bookies_are_replaced_by_different_ones() -> None:
    stage = Stage(5, LedgerSettings(3, 3, 2))
    await stage.written(9)
    stage.lose(0, 2)
    await stage.auditor.look()
    assert await stage.worker.work()
    members = (await stage.metadata()).segments[0].members
    assert len(set(members)) == 3
    assert set(members) == {stage.cluster.names[n] for n in (1, 3, 4)}
    assert [stage.cluster.bookies[n].has for n in (3, 4)] == [list(range(9))] * 2


async def test_registered_bookie_that_lost_its_entries_gets_them_back() -> None:
    stage = Stage(2, WHOLE)
    await stage.written(20)
    for entry_id in range(20):
        stage.cluster.bookies[1].forget(entry_id)
    assert await stage.auditor.check_all(await stage.registered()) == 1
    before = await stage.metadata()
    assert await stage.worker.work()
    assert stage.cluster.bookies[1].has == list(range(20))
    assert await stage.metadata() == before


async def test_ledger_stays_marked_while_no_bookie_is_spare() -> None:
    stage = await lost_bookie(WHOLE, 2)
    assert not await stage.worker.work()
    assert await stage.marked() == [LEDGER]
    assert not stage.locks.taken
    assert stage.stats.worker.failed == 1
    assert not await stage.worker.work()
    assert stage.stats.worker.failed == 1, "tried again before its time"
    stage.wait(stage.settings.backoff_ns / SECOND_NS)
    assert not await stage.worker.work()
    assert stage.stats.worker.failed == 2


async def test_bookie_that_refuses_is_passed_over() -> None:
    stage = await lost_bookie(WHOLE, 4)
    stage.cluster.bookies[2].rc = 105
    stage.cluster.bookies[3].rc = 0
    assert await stage.worker.work()
    members = (await stage.metadata()).segments[0].members
    assert members == (stage.cluster.names[3], stage.cluster.names[1])


async def test_damaged_entry_is_read_from_another_bookie_and_never_copied() -> None:
    stage = Stage(4, LedgerSettings(3, 3, 2))
    await stage.written(20)
    stage.cluster.bookies[1].damage(11)
    stage.lose(0)
    await stage.auditor.look()
    assert await stage.worker.work()
    assert stage.cluster.bookies[3].stored(11) == stage.cluster.bookies[2].stored(11)


async def test_entry_that_nothing_can_give_keeps_the_mark() -> None:
    stage = await lost_bookie(WHOLE, 3)
    stage.cluster.bookies[1].forget(7)
    with pytest.raises(PersistenceError, match=f"entry {LEDGER}:7 can be read from none of"):
        await stage.worker.replicate(LEDGER)
    assert await stage.marked() == [LEDGER]
    assert not stage.locks.taken
    assert stage.stats.worker.unreadable == 1


async def test_open_ledger_is_fenced_after_the_grace_period() -> None:
    stage = Stage(3, WHOLE)
    await stage.written(5, closed=False)
    stage.lose(0)
    await stage.auditor.look()
    assert await stage.worker.replicate(LEDGER) is RepairOutcome.WAITS
    stage.wait(GRACE_NS / SECOND_NS - 1)
    assert await stage.worker.replicate(LEDGER) is RepairOutcome.WAITS
    assert (await stage.metadata()).state is LedgerState.OPEN
    stage.wait(1)
    assert await stage.worker.replicate(LEDGER) is RepairOutcome.FINISHED
    metadata = await stage.metadata()
    assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, 4)
    assert stage.cluster.names[0] not in metadata.segments[-1].members
    assert await stage.marked() == []


async def test_writer_that_replaces_the_bookie_itself_is_not_fenced() -> None:
    stage = Stage(3, WHOLE)
    own = await stage.written(5, closed=False)
    stage.lose(0)
    await stage.auditor.look()
    assert await stage.worker.replicate(LEDGER) is RepairOutcome.WAITS
    await own.change_ensemble(5, (stage.cluster.names[2], stage.cluster.names[1]))
    stage.wait(GRACE_NS / SECOND_NS)
    assert await stage.worker.replicate(LEDGER) is RepairOutcome.FINISHED
    metadata = await stage.metadata()
    assert metadata.state is LedgerState.OPEN
    assert all(stage.cluster.names[0] not in segment.members for segment in metadata.segments)


async def test_deleted_ledger_loses_its_mark() -> None:
    stage = await lost_bookie(WHOLE, 3)
    await stage.cluster.ledgers.delete(LEDGER)
    assert await stage.worker.replicate(LEDGER) is RepairOutcome.GONE
    assert await stage.marked() == []


async def test_locked_ledger_is_left_alone() -> None:
    stage = await lost_bookie(WHOLE, 3)
    stage.locks.taken.add(LEDGER)
    assert await stage.worker.replicate(LEDGER) is RepairOutcome.TAKEN
    assert stage.cluster.bookies[2].has == []


async def test_mark_and_ensemble_stay_when_the_lock_was_lost() -> None:
    stage = await lost_bookie(WHOLE, 3)
    before = await stage.metadata()
    stage.locks.stolen = True
    with pytest.raises(PersistenceError, match="the lock of ledger 6 was lost"):
        await stage.worker.replicate(LEDGER)
    assert await stage.marked() == [LEDGER]
    assert await stage.metadata() == before, "copies that may be given up must not be named"
    stage.locks.stolen = False
    assert await stage.worker.replicate(LEDGER) is RepairOutcome.FINISHED


async def test_mark_that_has_changed_stays() -> None:
    stage = await lost_bookie(WHOLE, 3)
    marked = await stage.marks.get(LEDGER)
    assert marked is not None
    await stage.marks.add(LEDGER, ["another"], 1)
    assert not await stage.marks.remove(marked)
    assert await stage.marked() == [LEDGER]


async def test_nothing_is_done_while_it_is_switched_off() -> None:
    stage = await lost_bookie(WHOLE, 3)
    await stage.marks.set_enabled(False)
    assert not await stage.worker.work()
    assert stage.cluster.bookies[2].has == []
    await stage.marks.set_enabled(True)
    assert await stage.worker.work()
