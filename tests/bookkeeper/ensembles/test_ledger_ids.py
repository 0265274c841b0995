"""Ledger ids: blocks from the metadata store, above and beside the ids that bookies already know."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import cast

import pytest

from bookkeeper.client.ledger_client import LedgerClient, ReadDone
from bookkeeper.ensembles.bookies import Bookies
from bookkeeper.ensembles.ledger_ids import KEY, LedgerIds, LedgerIdsAbove, LedgerIdsUnused
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore


async def test_ids_are_reserved_in_blocks() -> None:
    store = MemoryMetadataStore()
    ids = LedgerIds(store, block_ids=10)
    assert [await ids.next() for _ in range(12)] == list(range(12))
    found = await store.get(KEY)
    assert found is not None
    assert found == (b"20", 1)


async def test_two_brokers_never_use_the_same_id() -> None:
    store = MemoryMetadataStore()
    one, other = LedgerIds(store, 5), LedgerIds(store, 5)
    given_out = [await (one if number % 3 else other).next() for number in range(60)]
    assert len(set(given_out)) == 60


async def test_next_id_is_above_the_given_one() -> None:
    store = MemoryMetadataStore()
    one, other = LedgerIds(store, 10), LedgerIds(store, 10)
    assert await one.next() == 0
    assert await other.next() == 10
    assert await one.next(above=10) > 10
    assert await other.next(above=14) == 15
    assert await other.next(above=5) == 16


async def test_ids_begin_above_the_bookies_highest_when_the_store_was_wiped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryMetadataStore()
    ids = LedgerIdsAbove(LedgerIds(store, 10), 1234)
    assert [await ids.next() for _ in range(3)] == [1235, 1236, 1237]
    assert await ids.next(above=2000) == 2001
    assert len(caplog.records) == 1
    assert "wiped" in caplog.text
    # The store's own count has passed the bookie's ids now.
    after = LedgerIdsAbove(LedgerIds(store, 10), 2001)
    assert await after.next() == 2011
    assert len(caplog.records) == 1


async def test_ids_of_an_intact_store_are_used_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryMetadataStore()
    assert await LedgerIds(store, 10).next() == 0
    ids = LedgerIdsAbove(LedgerIds(store, 10), 0)
    assert [await ids.next() for _ in range(2)] == [10, 11]
    assert not caplog.records


class BookieWithLedgers:
    """The only bookie: has entry 0 of some ledgers, knows `empty` ones without it, and may stay silent."""

    def __init__(self, with_entry: range, empty: range = range(0), answers: bool = True) -> None:
        self._with_entry, self._empty, self._answers = with_entry, empty, answers
        self.asked: list[int] = []

    def reachable_clients(self) -> Collection[LedgerClient]:
        return [cast(LedgerClient, self)]

    def read(self, ledger_id: int, entry_id: int, done: ReadDone) -> None:
        assert entry_id == 0
        self.asked.append(ledger_id)
        rc = 0 if ledger_id in self._with_entry else 2 if ledger_id in self._empty else 1
        if self._answers:
            asyncio.get_running_loop().call_soon(done, rc, b"")


async def test_id_is_skipped_when_a_bookie_has_its_ledger(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryMetadataStore()
    bookie = BookieWithLedgers(range(2500), empty=range(2500, 4000))
    ids = LedgerIdsUnused(LedgerIds(store, 10), cast(Bookies, bookie))
    assert await ids.next() == 7003
    assert bookie.asked == [0, 1001, 3002, 7003]
    assert len(caplog.records) == 3
    assert "wiped" in caplog.text
    assert [await ids.next() for _ in range(2)] == [7004, 7005]
    assert len(caplog.records) == 3


async def test_silent_bookie_delays_no_new_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookkeeper.ensembles.ledger_ids.ASKED_S", 0.01)
    ids = LedgerIdsUnused(
        LedgerIds(MemoryMetadataStore()), cast(Bookies, BookieWithLedgers(range(10), answers=False))
    )
    assert await ids.next() == 0


async def test_concurrent_calls_reserve_one_block() -> None:
    store = MemoryMetadataStore()
    ids = LedgerIds(store, 100)
    assert sorted(await asyncio.gather(*(ids.next() for _ in range(100)))) == list(range(100))
    found = await store.get(KEY)
    assert found is not None
    assert found.version == 0
