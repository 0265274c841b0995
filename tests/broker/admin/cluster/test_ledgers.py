"""A ledger in quarantine is deleted unless its owner names it: a cursor's node, a schema's locator, or a ledger list."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from bookkeeper.leaks.quarantine import ledger_record_key
from bookkeeper.metadata.metadata_store import ABSENT
from broker.compose.broker_service import BrokerService
from broker.managed_ledger.managed_ledger_info import cursor_key
from protocol.managed_ledger_records_pb2 import ManagedCursorInfo
from protocol.pulsar_metadata_pb2 import SchemaLocator

OWNER = "public/default/persistent/t"
LEDGER = 1_000_000
OF_CURSOR = {"component": b"managed-ledger", "pulsar/managed-ledger": OWNER.encode(), "pulsar/cursor": b"s"}
OF_SCHEMA = {"component": b"schema", "pulsar/schemaId": b"public/default/t"}


def cursor_naming(ledger_id: int) -> bytes:
    return ManagedCursorInfo(
        cursorsLedgerId=ledger_id, markDeleteLedgerId=1, markDeleteEntryId=2
    ).SerializeToString()


def schema_naming(ledger_id: int) -> bytes:
    entry = SchemaLocator.IndexEntry(
        version=0, position=SchemaLocator.PositionInfo(ledgerId=ledger_id, entryId=0), hash=b"h"
    )
    return SchemaLocator(info=entry, index=[entry]).SerializeToString()


async def deleted(broker: BrokerService, admin: ClientSession, custom: dict[str, bytes]) -> tuple[int, str]:
    """Puts a ledger with this owner into quarantine; returns the answer to its deletion."""
    environment = broker.environment
    await environment.ledgers.create(LEDGER, {"application": b"pulsar", **custom})
    await environment.metadata.put(ledger_record_key(LEDGER), b"{}", ABSENT)
    async with admin.delete(f"/admin/v2/magnetar/ledgers/{LEDGER}") as response:
        return response.status, await response.text()


@pytest.mark.parametrize("named", [LEDGER, LEDGER + 1])
async def test_ledger_of_a_cursor_stays_while_its_node_names_it(
    broker: BrokerService, admin: ClientSession, named: int
) -> None:
    await broker.environment.metadata.put(cursor_key(OWNER, "s"), cursor_naming(named), ABSENT)
    status, text = await deleted(broker, admin, OF_CURSOR)
    assert status == (412 if named == LEDGER else 204)
    assert ("is needed: cursor s of" in text) is (named == LEDGER)


@pytest.mark.parametrize("named", [LEDGER, LEDGER + 1])
async def test_ledger_of_a_schema_stays_while_its_locator_names_it(
    broker: BrokerService, admin: ClientSession, named: int
) -> None:
    await broker.environment.metadata.put("/schemas/public/default/t", schema_naming(named), ABSENT)
    status, text = await deleted(broker, admin, OF_SCHEMA)
    assert status == (412 if named == LEDGER else 204)
    assert ("is needed: the schema of public/default/t" in text) is (named == LEDGER)


async def test_ledger_without_an_owner_stays(broker: BrokerService, admin: ClientSession) -> None:
    status, text = await deleted(broker, admin, {"component": b"managed-ledger"})
    assert status == 412
    assert "does not name an owner" in text
