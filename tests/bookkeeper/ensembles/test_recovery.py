"""Recoveries with damaged copies, with failing bookies, and beside a writer that goes on."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.ensembles.own_ledger import RecoveringLedger, read_metadata
from bookkeeper.metadata.metadata_store import Check
from broker.compose.ledger_settings import LedgerSettings
from foundation.model.errors import LedgerFenced, MetadataError, NotEnoughBookies, PersistenceError
from protocol.ledger_metadata import LedgerState
from tests.bookkeeper.ensembles.ensemble_fakes import IO_ERROR, LEDGER, Cluster, turns

LAC, LENGTH, PAYLOAD = (16, 0x80), (31, 1), (-1, 1)
"""Bits of a stored entry to flip: some in its header and some in its payload. The first turns the LAC -1 into the
highest int64."""
ENTRIES = 4


async def filled(
    bookies: int, ensemble: int = 2, write_quorum: int = 2, ack_quorum: int = 2, entries: int = ENTRIES
) -> Cluster:
    cluster = Cluster(bookies, LedgerSettings(ensemble, write_quorum, ack_quorum))
    await cluster.begin()
    await cluster.fill(entries)
    return cluster


def copies(cluster: Cluster, entry_id: int) -> list[bytes]:
    return [bookie.stored(entry_id) for bookie in cluster.bookies]


@pytest.mark.parametrize("at", [LAC, LENGTH, PAYLOAD])
@pytest.mark.parametrize("entry_id", range(ENTRIES))
async def test_recovery_ignores_a_damaged_copy(entry_id: int, at: tuple[int, int]) -> None:
    """The damaged copy is the first answer."""
    cluster = await filled(3, 3, 3, 2)
    good = cluster.bookies[0].stored(entry_id)
    cluster.bookies[entry_id % 3].damage(entry_id, *at)
    closed = await cluster.restarted(LedgerSettings()).recover(LEDGER)
    assert closed is not None
    assert (closed.last_entry_id, closed.length) == (ENTRIES - 1, ENTRIES * len(b"body 0"))
    await turns()
    assert copies(cluster, entry_id) == [good] * 3, "and it was written over"


@pytest.mark.parametrize("at", [LAC, LENGTH, PAYLOAD])
async def test_recovery_fails_when_every_copy_is_damaged(at: tuple[int, int]) -> None:
    cluster = await filled(2, 2, 2, 2)
    for bookie in cluster.bookies:
        bookie.damage(ENTRIES - 1, *at)
    with pytest.raises(PersistenceError, match="too few bookies can tell"):
        await cluster.restarted(LedgerSettings()).recover(LEDGER)
    found = await read_metadata(cluster.metadata, LEDGER)
    assert found is not None
    assert found[0].state is LedgerState.IN_RECOVERY


@pytest.mark.parametrize("at", [LAC, LENGTH, PAYLOAD])
@pytest.mark.parametrize("entry_id", range(ENTRIES))
async def test_recovery_keeps_the_place_of_a_damaged_entry_when_told_to(
    entry_id: int, at: tuple[int, int]
) -> None:
    """The end stays that of the highest entry, so nothing good behind the damaged one is cut off."""
    cluster = await filled(2, 2, 2, 2)
    for bookie in cluster.bookies:
        bookie.damage(entry_id, *at)
    closed = await cluster.restarted(LedgerSettings()).recover(LEDGER, keeps_damaged=True)
    assert closed is not None
    assert closed.last_entry_id == ENTRIES - 1
    whole = ENTRIES - 1 if entry_id == ENTRIES - 1 else ENTRIES
    assert closed.length == whole * len(b"body 0")


@pytest.mark.parametrize("failed", range(3))
async def test_recovery_needs_only_an_ack_quorum_without_a_spare_bookie(failed: int) -> None:
    cluster = await filled(3, 3, 3, 2)
    cluster.bookies[failed].rc = IO_ERROR
    closed = await cluster.restarted(LedgerSettings()).recover(LEDGER)
    assert closed is not None
    assert (closed.last_entry_id, len(closed.segments)) == (ENTRIES - 1, 1)
    ledgers = cluster.restarted(LedgerSettings())
    assert await cluster.read(0, ENTRIES - 1, ledgers) == [b"body %d" % entry for entry in range(ENTRIES)]


@pytest.mark.parametrize("entries", [1, ENTRIES])
@pytest.mark.parametrize("refusing", [(0, 1), (1, 2), (0, 1, 2)])
async def test_recovery_fails_below_an_ack_quorum_and_can_be_repeated(
    refusing: tuple[int, ...], entries: int
) -> None:
    cluster = await filled(3, 3, 3, 2, entries=entries)
    for number in refusing:
        cluster.bookies[number].rc = IO_ERROR
    with pytest.raises(NotEnoughBookies, match="writing back entry 6:"):
        await asyncio.wait_for(cluster.restarted(LedgerSettings()).recover(LEDGER), 60)
    cluster.bookies[refusing[0]].rc = 0
    if len(refusing) < 3:
        closed = await cluster.restarted(LedgerSettings()).recover(LEDGER)
        assert closed is not None
        assert closed.last_entry_id == entries - 1


async def test_recovery_fails_when_a_second_bookie_fails_later() -> None:
    cluster = await filled(3, 3, 3, 2, entries=1)
    first, second, third = cluster.bookies
    first.rc = IO_ERROR
    second.held = third.held = True
    recovering = asyncio.create_task(cluster.restarted(LedgerSettings()).recover(LEDGER))
    await turns()
    assert not recovering.done()
    second.fail_held()
    with pytest.raises(NotEnoughBookies):
        await asyncio.wait_for(recovering, 60)


async def test_failed_bookie_counts_as_refusal_of_each_entry() -> None:
    cluster = await filled(3, 3, 3, 2, entries=2)
    first, second, _ = cluster.bookies
    first.held = second.held = True
    recovering = asyncio.create_task(cluster.restarted(LedgerSettings()).recover(LEDGER))
    await turns()
    first._closed = True
    first.adds.pop(0)()  # entry 0 fails there, and the other two have it
    second.adds.pop(0)()
    await turns()
    second.fail_held()
    await turns()
    assert not recovering.done()
    first.release()
    with pytest.raises(NotEnoughBookies, match="writing back entry 6:1"):
        await asyncio.wait_for(recovering, 60)


async def test_refusal_of_a_replaced_bookie_does_not_count() -> None:
    cluster = await filled(4, 3, 3, 2, entries=1)
    first, second, third, _ = cluster.bookies
    first.rc = IO_ERROR
    second.held = third.held = True
    recovering = asyncio.create_task(cluster.restarted(LedgerSettings()).recover(LEDGER))
    await turns()
    second.fail_held()  # and no other is left
    await turns()
    third.release()
    closed = await asyncio.wait_for(recovering, 60)
    assert closed is not None
    assert closed.segments[-1].members == (cluster.names[3], *cluster.names[1:3])


async def test_striped_ledger_is_closed_when_every_entry_has_its_ack_quorum() -> None:
    cluster = await filled(3, 3, 2, 2)
    cluster.bookies[0].rc = IO_ERROR
    with pytest.raises(NotEnoughBookies):
        await cluster.restarted(LedgerSettings()).recover(LEDGER)


async def test_writer_changes_no_metadata_during_a_recovery() -> None:
    cluster = await filled(4, 3, 3, 2)
    own = cluster.own
    assert own is not None
    assert isinstance(await RecoveringLedger.take_over(cluster.metadata, LEDGER), RecoveringLedger)
    with pytest.raises(LedgerFenced, match="in_recovery"):
        await own.change_ensemble(ENTRIES, tuple(cluster.names[1:]))
    with pytest.raises(LedgerFenced, match="in_recovery"):
        await own.close(ENTRIES - 1, 24)
    found = await read_metadata(cluster.metadata, LEDGER)
    assert found is not None
    assert (found[0].state, len(found[0].segments)) == (LedgerState.IN_RECOVERY, 1)


async def test_take_over_without_its_lease_leaves_the_writer_alone() -> None:
    cluster = await filled(4, 3, 3, 2)
    own = cluster.own
    assert own is not None
    await cluster.metadata.put("/lease", b"another broker")
    await cluster.metadata.put("/lease", b"another broker, once more")
    with pytest.raises(MetadataError, match="another broker's to take over"):
        await RecoveringLedger.take_over(cluster.metadata, LEDGER, lambda: Check("/lease", 0))
    await own.change_ensemble(ENTRIES, tuple(cluster.names[1:]))
    taken = await RecoveringLedger.take_over(cluster.metadata, LEDGER, lambda: Check("/lease", 1))
    assert isinstance(taken, RecoveringLedger)
