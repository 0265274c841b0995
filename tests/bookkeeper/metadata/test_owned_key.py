"""OwnedKey: writes whose answers are lost, and writes of another process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bookkeeper.metadata.metadata_store import ABSENT, Put, Versioned
from bookkeeper.metadata.owned_key import OwnedKey
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from foundation.model.errors import BadVersion, MetadataError
from tests.fakes.metadata import FakeMetadata

KEY = "/managed-ledgers/a"


async def cancelled_put(owned: OwnedKey, value: bytes) -> None:
    """Begins a write and gives it up: the store has it in its queue by then."""
    put = asyncio.create_task(owned.put(KEY, value))
    await asyncio.sleep(0)
    put.cancel()
    with pytest.raises(asyncio.CancelledError):
        await put


@pytest.mark.parametrize("known", [ABSENT, 0])
async def test_write_after_cancelled_ones_is_stored(tmp_path: Path, known: int) -> None:
    store = SqliteMetadataStore(tmp_path / "m.db")
    if known != ABSENT:
        await store.put(KEY, b"first")
    owned = OwnedKey(store, known)
    await cancelled_put(owned, b"second")
    await cancelled_put(owned, b"third")
    await owned.put(KEY, b"fourth")
    found = await store.get(KEY)
    assert found == Versioned(b"fourth", owned.version)
    await owned.put(KEY, b"fifth")
    await store.close()


async def test_write_after_a_failed_one_is_stored_whether_that_was_carried_out_or_not() -> None:
    store = FakeMetadata()
    owned = OwnedKey(store, ABSENT)
    store.refusing = True
    with pytest.raises(MetadataError):
        await owned.put(KEY, b"lost")
    store.refusing = False
    await store.put(KEY, b"lost")
    await owned.put(KEY, b"next")
    assert await store.get(KEY) == Versioned(b"next", owned.version)


async def test_write_of_another_process_is_seen_after_a_cancelled_one(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "m.db")
    owned = OwnedKey(store, await store.put(KEY, b"ours"))
    await cancelled_put(owned, b"ours again")
    await store.put(KEY, b"theirs")
    with pytest.raises(BadVersion):
        await owned.put(KEY, b"late")
    found = await store.get(KEY)
    assert found is not None
    assert found.value == b"theirs"
    await store.close()


async def test_equal_value_that_another_process_has_written_later_is_not_ours(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "m.db")
    owned = OwnedKey(store, await store.put(KEY, b"ours"))
    await cancelled_put(owned, b"equal")
    await store.put(KEY, b"theirs")
    await store.put(KEY, b"equal")
    with pytest.raises(BadVersion):
        await owned.put(KEY, b"late")
    await store.close()


async def test_write_beside_others_is_asked_again_with_the_version_found(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "m.db")
    owned = OwnedKey(store, ABSENT)
    await cancelled_put(owned, b"list")
    expected = []

    async def write(put: Put) -> tuple[str, int]:
        expected.append(put.expected)
        (version,) = await store.put_all([put])
        return "made", version

    assert await owned.put_with(KEY, b"list with a ledger", write) == "made"
    assert expected == [ABSENT, 0]
    await store.close()
