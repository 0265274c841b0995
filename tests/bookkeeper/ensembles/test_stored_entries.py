"""`decode_run` against digest check and block split, each done on its own."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.client.digest import OVERHEAD_BYTES, check, seal
from bookkeeper.ensembles.stored_entries import decode_run
from foundation.model.entry import Entry
from foundation.model.errors import PersistenceError
from protocol.broker_entry_metadata import EntryStamp, split

bodies = st.one_of(st.binary(max_size=60), st.binary(max_size=10).map(lambda tail: b"\x0e\x01" + tail))
headers = st.sampled_from(
    [b"", *EntryStamp(timestamp=True, index=True, now_ms=lambda: 1_700_000_000_000).stamp(3, 1)]
)


def stored(ledger_id: int, entry_id: int, header: bytes, body: bytes) -> bytes:
    return b"".join(seal(ledger_id, entry_id, entry_id - 1, 1000, header, body))


def decoded(ledger_id: int, first: int, run: list[bytes]) -> list[Entry]:
    entries: list[Entry] = []
    decode_run(ledger_id, first, run, entries)
    return entries


@settings(deadline=None)
@given(st.lists(st.tuples(headers, bodies.filter(lambda body: body[:2] != b"\x0e\x02")), max_size=5))
def test_decode_run_returns_the_sealed_entries(parts: list[tuple[bytes, bytes]]) -> None:
    run = [stored(7, 3 + place, header, body) for place, (header, body) in enumerate(parts)]
    entries = decoded(7, 3, run)
    assert [(entry.header, bytes(entry.body)) for entry in entries] == parts
    assert [entry.entry_id for entry in entries] == list(range(3, 3 + len(parts)))
    for entry, whole in zip(entries, run, strict=True):
        header, body = split(check(7, entry.entry_id, whole))
        assert (entry.header, entry.body) == (header, body)
        assert entry.size == len(whole) - OVERHEAD_BYTES


@settings(deadline=None)
@given(headers, bodies, st.data())
def test_decode_run_refuses_any_changed_byte(header: bytes, body: bytes, data: st.DataObject) -> None:
    whole = bytearray(stored(7, 3, header, body))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(PersistenceError, match="7:3"):
        decoded(7, 3, [bytes(whole)])


@pytest.mark.parametrize("length", range(OVERHEAD_BYTES))
def test_decode_run_refuses_short_entries(length: int) -> None:
    with pytest.raises(PersistenceError, match="7:3"):
        decoded(7, 3, [stored(7, 3, b"", b"body")[:length]])


@pytest.mark.parametrize(("ledger_id", "entry_id"), [(8, 3), (7, 4)])
def test_decode_run_refuses_another_entry(ledger_id: int, entry_id: int) -> None:
    with pytest.raises(PersistenceError, match="7:3"):
        decoded(7, 3, [stored(ledger_id, entry_id, b"", b"a body of some length")])


def test_decode_run_refuses_a_block_longer_than_its_entry() -> None:
    with pytest.raises(PersistenceError, match="7:3"):
        decoded(7, 3, [stored(7, 3, b"", b"\x0e\x02\0\0\1\0x")])
