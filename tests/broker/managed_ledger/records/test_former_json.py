"""Values of versions up to 0.2.0: read with everything in them, and replaced by Pulsar's records at the next write."""

from __future__ import annotations

import base64
import json

import pytest

from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.managed_ledger_info import (
    CursorInfo,
    ManagedLedgerInfo,
    cursor_key,
    managed_ledger_key,
)
from broker.managed_ledger.records.packed_pages import pack_pages
from broker.managed_ledger.records.pulsar_records import (
    StoredCursor,
    decode_cursor,
    decode_ledger_list,
    show_ledger_list,
)
from foundation.model.errors import MetadataError
from foundation.model.position import EARLIEST, Position
from tests.broker.managed_ledger.ledger_fakes import EVERY_CHANGE, NAME, World, all_bodies, at, fill
from tests.fakes.metadata import FakeMetadata

LIST = (
    b'{"ledgers":[{"id":5,"entries":50000,"size":51200000,"closed":1700000000000},{"id":9}],'
    b'"properties":{"index":"49999"},"terminated":[9,12],"deleting":[3],"delayed":[7],"beside":[8],'
    b'"created":1690000000000,"deleted":true}'
)
CURSOR = (
    b'{"markDelete":[5,17],"properties":{"x":1},"acked":{"5":{"0":"280000","256":"f"}},'
    b'"batches":[[5,41,"6"]],"cursorProperties":{"team":"billing"}}'
)


def test_former_list_is_read_whole() -> None:
    info = ManagedLedgerInfo(
        [LedgerInfo(5, 50_000, 51_200_000, 1_700_000_000_000), LedgerInfo(9)],
        {"index": "49999"},
        Position(9, 12),
        deleting=[3],
        delayed=[7],
        deleted=True,
        beside=[8],
        created_ms=1_690_000_000_000,
    )
    assert decode_ledger_list(LIST) == info
    assert show_ledger_list(LIST).info == info


def test_former_cursor_is_read_whole() -> None:
    assert decode_cursor(CURSOR) == StoredCursor(
        CursorInfo(
            Position(5, 17),
            {"x": 1},
            [(5, 0, 0x280000), (5, 256, 0xF)],
            [(Position(5, 41), 6)],
            {"team": "billing"},
        )
    )


def test_former_packed_pages_are_read() -> None:
    pages = [(5, 256 * number, 5) for number in range(5000)]
    texts = [base64.b64encode(packed).decode() for _, packed in pack_pages(pages)]
    value = json.dumps({"markDelete": [5, -1], "ackedPages": {"5": texts}}).encode()
    assert decode_cursor(value).info.acked == pages


@pytest.mark.parametrize("damage", [b'["AAAA"]', b'["x"]', b"[7]", b'"eJwDAAAAAAE="'])
def test_former_packed_pages_that_are_damaged_are_an_error_with_a_reason(damage: bytes) -> None:
    with pytest.raises(MetadataError, match="cannot be read"):
        decode_cursor(b'{"markDelete":[5,1],"ackedPages":{"5":%s}}' % damage)


@pytest.mark.parametrize("value", [b"{", b'{"ledgers":1}', b'{"ledgers":[{}]}', b"{}"])
def test_former_values_that_are_damaged_are_an_error_with_a_reason(value: bytes) -> None:
    with pytest.raises(MetadataError, match="cannot be read"):
        decode_ledger_list(value)
    with pytest.raises(MetadataError, match="cannot be read"):
        decode_cursor(value)


async def test_former_store_opens_and_is_taken_over_by_its_next_writes() -> None:
    metadata = FakeMetadata()
    world = World(metadata)
    ledger = await world.open(mark_delete_rate=EVERY_CHANGE)
    cursor = await ledger.cursors.open("s", EARLIEST)
    await fill(ledger, 10)
    cursor.acknowledge([at(ledger, 0), at(ledger, 3)])
    bodies = await all_bodies(ledger)
    await ledger.close()
    keys = managed_ledger_key(NAME), cursor_key(NAME, "s")
    stored = [await metadata.get(key) for key in keys]
    assert all(found is not None and not found.value.startswith(b"{") for found in stored)
    (only,) = decode_ledger_list(stored[0].value if stored[0] else b"").ledgers
    closed = {"id": only.ledger_id, "entries": 10, "size": only.size_bytes, "closed": 1}
    log = {"ledgers": [closed], "properties": {"index": "9"}}
    await metadata.put(keys[0], json.dumps(log).encode())
    acked = {"markDelete": [only.ledger_id, 0], "acked": {str(only.ledger_id): {"0": "8"}}}
    await metadata.put(keys[1], json.dumps(acked).encode())

    ledger = await world.open(mark_delete_rate=EVERY_CHANGE)
    cursor = await ledger.cursors.open("s", EARLIEST)
    assert await all_bodies(ledger) == bodies
    assert cursor.mark_delete_position == Position(only.ledger_id, 0)
    assert cursor.backlog == 8
    await fill(ledger, 1)
    cursor.acknowledge([Position(only.ledger_id, 1)])
    await ledger.close()
    for key in keys:
        found = await metadata.get(key)
        assert found is not None
        assert not found.value.startswith(b"{")
