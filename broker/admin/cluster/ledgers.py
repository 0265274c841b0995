"""`/admin/v2/magnetar/ledgers`: the entries of any ledger, and the deletion of one that nothing needs.

For `magnetar admin audit`, which finds such ledgers. The deletion is refused unless the ledger is in quarantine, its own
metadata names Pulsar and an owner, and the owner does not name it: the list of a managed ledger, the node of a cursor, the
locator of a schema. All of that is read at this moment.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from bookkeeper.ensembles.awaited_reads import read_entries
from bookkeeper.ensembles.own_ledger import read_metadata
from bookkeeper.leaks.quarantine import ledger_record_key
from bookkeeper.leaks.rules import is_owned
from bookkeeper.metadata.metadata_store import MetadataStore
from broker.admin.http.answers import BadRequest, PreconditionFailed, answer, done
from broker.admin.service_view import BROKER
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_ledger_info import cursor_key, managed_ledger_key
from broker.managed_ledger.records.pulsar_records import decode_cursor, decode_ledger_list
from broker.managed_ledger.removal.deletion import ledgers_of
from broker.schemas.schema_ledgers import ROOT as SCHEMAS
from broker.schemas.schema_ledgers import ledgers_of_schema
from foundation.model.errors import TopicNotFound
from foundation.value import Json
from protocol.ledger_metadata import LedgerMetadata, LedgerState

PAGE_BYTES: Final = 512 << 10
"""Bytes of entries in one answer, about."""
OWNER: Final = "pulsar/managed-ledger"
"""Key of the managed ledger in a ledger's own metadata, also in that of a cursor's."""
CURSOR: Final = "pulsar/cursor"
"""Key of the cursor there."""
SCHEMA: Final = "pulsar/schemaId"
"""Key of the topic there, of a schema's ledger."""
_LEDGER: Final = r"/admin/v2/magnetar/ledgers/{ledger:\d{1,18}}"


async def entries(request: web.Request) -> web.Response:
    """Returns a run of entries from the number `first` on, in base64, and the ledger's last entry; 404 without metadata.

    A ledger in quarantine that its writer left open is closed first: nothing else would ever end it, and one that is open
    has no last entry, so it could be neither exported nor deleted.
    """
    environment, ledger_id = request.app[BROKER].environment, int(request.match_info["ledger"])
    text = request.query.get("first", "0")
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise BadRequest(f"first={text[:20]}: a number of an entry is allowed")
    metadata = await _metadata(environment, ledger_id)
    if metadata.state is not LedgerState.CLOSED:
        metadata = await close_unneeded(environment, ledger_id, metadata)
    first, last = int(text), metadata.last_entry_id
    found: list[Json] = []
    if first <= last:
        run = await read_entries(environment.ledgers, ledger_id, first, last, PAGE_BYTES)
        found = [base64.b64encode(bytes(one.header) + bytes(one.body)).decode() for one in run]
    return answer({"ledger": ledger_id, "last": last, "first": first, "entries": found})


async def delete(request: web.Request) -> web.Response:
    """Deletes a ledger in quarantine that nothing needs; 412 with the reason for any other, 404 without metadata."""
    environment, ledger_id = request.app[BROKER].environment, int(request.match_info["ledger"])
    metadata = await _metadata(environment, ledger_id)
    if await environment.metadata.get(ledger_record_key(ledger_id)) is None:
        raise PreconditionFailed(f"ledger {ledger_id} is not in quarantine; put it there first")
    await _check_unneeded(environment, ledger_id, metadata)
    await environment.ledgers.delete(ledger_id)
    await environment.metadata.delete(ledger_record_key(ledger_id))
    return done()


async def close_unneeded(
    environment: ManagedLedgerEnvironment, ledger_id: int, metadata: LedgerMetadata
) -> LedgerMetadata:
    """Fences and closes a ledger in quarantine that nothing needs; PreconditionFailed for any other."""
    if await environment.metadata.get(ledger_record_key(ledger_id)) is None:
        raise PreconditionFailed(
            f"ledger {ledger_id} is {metadata.state.name.lower()}; only closed ones, and those in quarantine, are read"
        )
    await _check_unneeded(environment, ledger_id, metadata)
    closed = await environment.ledgers.recover(ledger_id)
    if closed is None:
        raise TopicNotFound(f"ledger {ledger_id} has no metadata")
    return closed


async def _metadata(environment: ManagedLedgerEnvironment, ledger_id: int) -> LedgerMetadata:
    found = await read_metadata(environment.metadata, ledger_id)
    if found is None:
        raise TopicNotFound(f"ledger {ledger_id} has no metadata")
    return found[0]


async def _check_unneeded(
    environment: ManagedLedgerEnvironment, ledger_id: int, metadata: LedgerMetadata
) -> None:
    custom = {key: value.decode(errors="replace") for key, value in metadata.custom.items()}
    known = is_owned(custom.get("application"), custom.get("component"))
    if not known or not custom.keys() & {OWNER, SCHEMA}:
        raise PreconditionFailed(
            f"ledger {ledger_id} does not name an owner that this broker knows; ask its owner"
        )
    holder = await _holder(environment.metadata, ledger_id, custom)
    if holder:
        raise PreconditionFailed(f"ledger {ledger_id} is needed: {holder} names it")


async def _holder(store: MetadataStore, ledger_id: int, custom: Mapping[str, str]) -> str:
    """Returns what names a ledger with this owner; an empty text where nothing does."""
    schema = custom.get(SCHEMA)
    if schema is not None:
        found = await store.get(f"{SCHEMAS}/{schema}")
        named = found is not None and ledger_id in ledgers_of_schema(found.value)
        return f"the schema of {schema}" if named else ""
    owner, cursor = custom[OWNER], custom.get(CURSOR)
    found = await store.get(managed_ledger_key(owner))
    if found is not None and ledger_id in ledgers_of(decode_ledger_list(found.value)):
        return f"the ledger list of {owner}"
    found = None if cursor is None else await store.get(cursor_key(owner, cursor))
    if found is not None and decode_cursor(found.value).ledger_id == ledger_id:
        return f"cursor {cursor} of {owner}"
    return ""


LEDGER_ROUTES = (
    web.get(_LEDGER + "/entries", entries),
    web.delete(_LEDGER, delete),
)
"""The routes."""
