"""A metadata store that carries a write out and fails before its answer: no ledger is left without a list."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Write
from broker.managed_ledger.managed_ledger_info import managed_ledger_key
from broker.managed_ledger.records.pulsar_records import decode_ledger_list
from broker.managed_ledger.removal.deletion import ledgers_of
from foundation.model.errors import MetadataError, NotEnoughBookies
from foundation.model.position import EARLIEST
from tests.broker.managed_ledger.ledger_fakes import NAME, World, all_bodies, fill, recorder, shape, until


class LosesAnswers(MemoryMetadataStore):
    """Loses the answer to the next write of several keys while `losing`."""

    losing = False
    refusing = False
    """The next ledger finds too few bookies."""

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        if self.refusing:
            self.refusing = False
            raise NotEnoughBookies("one bookie of two is here")
        versions = await super().put_all(puts)
        if self.losing:
            self.losing = False
            raise MetadataError("the session with the metadata store is lost")
        return versions


async def orphans(store: MemoryMetadataStore) -> list[int]:
    """Returns the ledgers of the store that the list does not name; ids are below 10."""
    found = await store.get(managed_ledger_key(NAME))
    assert found is not None
    named = ledgers_of(decode_ledger_list(found.value))
    stored = [
        int(leaf.removeprefix("L"))
        for high in await store.children("/ledgers")
        if high.isdecimal()
        for low in await store.children(f"/ledgers/{high}")
        for leaf in await store.children(f"/ledgers/{high}/{low}")
    ]
    assert stored
    return sorted(set(stored) - set(named))


@pytest.mark.parametrize("then", ["close", "crash", "trim", "publish"])
async def test_ledger_whose_beginning_was_not_answered_is_not_orphaned(then: str) -> None:
    store = LosesAnswers()
    world = World(store)
    ledger = await world.open(entries_per_ledger_max=2)
    await fill(ledger, 2)
    store.losing = True
    ledger.writer.add([b"waits for the next ledger"], 1, "lost")
    await until(lambda: recorder(ledger).failed)
    assert recorder(ledger).failed == ["lost"]
    confirmed = 2
    if then == "publish":
        await fill(ledger, 3)
        confirmed = 5
    elif then == "trim":
        # Any write of the list; a removal is one.
        await ledger.set_properties({"a": "b"})
    if then != "crash":
        await ledger.close()
    assert await orphans(store) == []
    again = await world.after_crash().open()
    assert len(await all_bodies(again)) == confirmed
    await fill(again, 1)
    await again.close()
    assert await orphans(store) == []


@pytest.mark.parametrize("lost", [False, True])
async def test_first_ledger_after_an_opening_trims_nothing(lost: bool) -> None:
    """Readers that the restart has cut off come back to ledgers that every subscription has consumed."""
    store = LosesAnswers()
    world = World(store)
    ledger = await world.open(entries_per_ledger_max=2)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 4)
    cursor.acknowledge_cumulative(ledger.last_confirmed)
    await ledger.close()
    again = await world.after_crash().open(keep=False, entries_per_ledger_max=2)
    if lost:
        store.losing = True
        again.writer.add([b"finds no ledger"], 1, "lost")
        await until(lambda: recorder(again).failed)
    await fill(again, 1)
    assert shape(again) == [2, 2, 1]
    # The second one trims.
    await fill(again, 2)
    assert shape(again) == [2, 1]
    await again.close()
    assert await orphans(store) == []


async def test_ledger_behind_a_refused_beginning_trims() -> None:
    """The ledger before it was consumed while no ledger followed yet."""
    store = LosesAnswers()
    world = World(store)
    ledger = await world.open(entries_per_ledger_max=2)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 2)
    store.refusing = True
    ledger.writer.add([b"finds no ledger"], 1, "refused")
    await until(lambda: recorder(ledger).failed)
    cursor.acknowledge_cumulative(ledger.last_confirmed)
    ledger.trimming.keep_ms = ledger.trimming.keep_bytes = 0
    await fill(ledger, 1)
    assert shape(ledger) == [1]
    await ledger.close()
    assert await orphans(store) == []
