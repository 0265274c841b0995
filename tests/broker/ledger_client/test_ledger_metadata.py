"""Ledger metadata in BookKeeper's format version 3, and the ids of ledgers."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.ledger_client.ledger_ids import KEY, LedgerIds, LedgerIdsAbove, LedgerIdsUnused
from broker.ledger_client.ledger_metadata import (
    VERSION_LINE,
    DigestType,
    LedgerMetadata,
    LedgerState,
    Segment,
    decode,
    encode,
    ledger_key,
)
from broker.metadata.memory_metadata_store import MemoryMetadataStore
from broker.model.errors import MetadataError

GOLDEN = LedgerMetadata(
    (Segment(("127.0.0.1:3181", "127.0.0.1:3182")),),
    ensemble_size=2,
    write_quorum=2,
    ack_quorum=2,
    created_ms=1_700_000_000_000,
    creator_token=12345,
)
GOLDEN_BYTES = VERSION_LINE + bytes.fromhex(
    "47 0802 1002 1800 20ffffffffffffffffff01 2801 3222 0a0e"
    + b"127.0.0.1:3181".hex()
    + "0a0e"
    + b"127.0.0.1:3182".hex()
    + "1000 3803 4200 4802 5080d095ffbc31 60b960"
)


def test_bookkeepers_example_byte_for_byte():
    assert encode(GOLDEN) == GOLDEN_BYTES
    assert len(GOLDEN_BYTES) == 102
    assert decode(GOLDEN_BYTES) == GOLDEN


names = st.text(max_size=20)
metadata = st.builds(
    LedgerMetadata,
    st.lists(
        st.builds(Segment, st.lists(names, max_size=3).map(tuple), st.integers(0, 2**40)), max_size=3
    ).map(tuple),
    st.sampled_from(LedgerState),
    st.integers(0, 2**62),
    st.integers(-1, 2**62),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from(DigestType),
    st.binary(max_size=20),
    st.none() | st.integers(0, 2**50),
    st.dictionaries(names, st.binary(max_size=20), max_size=3),
    st.integers(-(2**63), 2**63 - 1),
)


@settings(deadline=None)
@given(metadata)
def test_what_was_encoded_is_decoded(value):
    assert decode(encode(value)) == value


@pytest.mark.parametrize(
    "value",
    [b"", b"BookieMetadataFormatVersion\t2\n", GOLDEN_BYTES[:-1], GOLDEN_BYTES + b"\0", VERSION_LINE],
)
def test_other_bytes_are_refused(value):
    with pytest.raises(MetadataError):
        decode(value)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_random_bytes_are_refused_or_read(message):
    with contextlib.suppress(MetadataError):
        decode(VERSION_LINE + bytes((len(message),)) + message)


@pytest.mark.parametrize(
    ("ledger_id", "key"),
    [
        (0, "/ledgers/00/0000/L0000"),
        (12345678, "/ledgers/00/1234/L5678"),
        (2147483646, "/ledgers/21/4748/L3646"),
        (2147483647, "/ledgers/000/0000/0021/4748/L3647"),
    ],
)
def test_keys_are_bookkeepers_paths(ledger_id, key):
    assert ledger_key(ledger_id) == key


async def test_ids_are_taken_from_the_store_a_block_at_a_time():
    store = MemoryMetadataStore()
    ids = LedgerIds(store, block_ids=10)
    assert [await ids.next() for _ in range(12)] == list(range(12))
    found = await store.get(KEY)
    assert found is not None
    assert found == (b"20", 1)


async def test_two_brokers_never_give_out_the_same_id():
    store = MemoryMetadataStore()
    one, other = LedgerIds(store, 5), LedgerIds(store, 5)
    given_out = [await (one if number % 3 else other).next() for number in range(60)]
    assert len(set(given_out)) == 60


async def test_an_id_is_above_the_ledgers_that_the_log_has():
    store = MemoryMetadataStore()
    one, other = LedgerIds(store, 10), LedgerIds(store, 10)
    assert await one.next() == 0
    assert await other.next() == 10
    assert await one.next(above=10) > 10
    assert await other.next(above=14) == 15
    assert await other.next(above=5) == 16


async def test_a_wiped_store_gives_out_no_id_that_the_bookie_has_had(caplog):
    store = MemoryMetadataStore()
    ids = LedgerIdsAbove(LedgerIds(store, 10), 1234)
    assert [await ids.next() for _ in range(3)] == [1235, 1236, 1237]
    assert await ids.next(above=2000) == 2001
    assert len(caplog.records) == 1
    assert "wiped" in caplog.text
    # And what the store counts is above them from now on.
    after = LedgerIdsAbove(LedgerIds(store, 10), 2001)
    assert await after.next() == 2011
    assert len(caplog.records) == 1


async def test_a_store_that_knows_the_bookies_ids_is_followed(caplog):
    store = MemoryMetadataStore()
    assert await LedgerIds(store, 10).next() == 0
    ids = LedgerIdsAbove(LedgerIds(store, 10), 0)
    assert [await ids.next() for _ in range(2)] == [10, 11]
    assert not caplog.records


class Having:
    """A bookie with entry 0 of some ledgers, without it of others, that hangs when told to; and the set of it alone."""

    def __init__(self, with_entry: range, empty: range = range(0), answers: bool = True) -> None:
        self._with_entry, self._empty, self._answers = with_entry, empty, answers
        self.asked: list[int] = []

    def reachable_clients(self):
        return [self]

    def read(self, ledger_id, entry_id, done):
        assert entry_id == 0
        self.asked.append(ledger_id)
        rc = 0 if ledger_id in self._with_entry else 2 if ledger_id in self._empty else 1
        if self._answers:
            asyncio.get_running_loop().call_soon(done, rc, b"")


async def test_ids_that_a_bookie_has_a_ledger_of_are_passed_over(caplog):
    store = MemoryMetadataStore()
    bookie = Having(range(2500), empty=range(2500, 4000))
    ids = LedgerIdsUnused(LedgerIds(store, 10), bookie)
    assert await ids.next() == 7003
    assert bookie.asked == [0, 1001, 3002, 7003]
    assert len(caplog.records) == 3
    assert "wiped" in caplog.text
    assert [await ids.next() for _ in range(2)] == [7004, 7005]
    assert len(caplog.records) == 3


async def test_a_bookie_that_hangs_holds_up_no_new_ledger(monkeypatch):
    monkeypatch.setattr("broker.ledger_client.ledger_ids.ASKED_S", 0.01)
    ids = LedgerIdsUnused(LedgerIds(MemoryMetadataStore()), Having(range(10), answers=False))
    assert await ids.next() == 0


async def test_many_at_once_reserve_one_block():
    store = MemoryMetadataStore()
    ids = LedgerIds(store, 100)
    assert sorted(await asyncio.gather(*(ids.next() for _ in range(100)))) == list(range(100))
    found = await store.get(KEY)
    assert found is not None
    assert found.version == 0
