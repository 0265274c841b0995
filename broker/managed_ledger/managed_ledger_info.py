"""The state of a managed ledger and of a cursor that is stored, and the keys of the metadata store under which it is.

`records/pulsar_records.py` has the stored forms.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote, unquote

from bookkeeper.metadata.documents import READS_AT_ONCE
from bookkeeper.metadata.metadata_store import MetadataStore, Versioned
from broker.managed_ledger.ledger_list import LedgerInfo, LedgerList, OffloadedLedger
from foundation.model.position import Position

NO_NUMBERS: Mapping[str, int] = MappingProxyType({})
"""A cursor's `properties` without any."""
NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
"""The same for texts: of a cursor, a producer, a consumer. One object, because nearly all of them have none."""
SHADOW_SOURCE = "PULSAR.SHADOW_SOURCE"
"""Pulsar's property of a managed ledger that has no log of its own: the name of the topic whose log it reads (PIP-180)."""
ROOT = "/managed-ledgers"
"""Pulsar's path, below which its tools look for managed ledgers."""


@dataclass(slots=True)
class ManagedLedgerInfo:
    """The stored state of a managed ledger."""

    ledgers: list[LedgerInfo] = field(default_factory=list)
    """In order, the current one last."""
    properties: dict[str, str] = field(default_factory=dict)
    """`index` and `brokerTimestamp` of the last entry (PIP-70), and the topic's own."""
    terminated: Position | None = None
    """The last entry, if no entry may follow."""
    deleting: list[int] = field(default_factory=list)
    """Ledgers that are out of the list and whose removal may not be finished."""
    delayed: list[int] = field(default_factory=list)
    """Ledgers that keep buckets of delayed entries; they have no messages."""
    deleted: bool = False
    """The managed ledger itself is being removed; an open finishes that first."""
    beside: list[int] = field(default_factory=list)
    """Ledgers that belong to it and hold no part of its log."""
    created_ms: int = 0
    """When it was made, ms since 1970; 0 = not known."""
    deleting_objects: list[OffloadedLedger] = field(default_factory=list)
    """Copies in other storage whose ledgers are out of the list, and whose removal may not be finished."""


@dataclass(slots=True)
class CursorInfo:
    """The stored state of a cursor."""

    mark_delete: Position
    """The last position up to which every entry is acknowledged."""
    properties: Mapping[str, int] = field(default_factory=dict)
    """Kept with the mark-delete position; deduplication keeps its sequence ids here."""
    acked: list[tuple[int, int, int]] = field(default_factory=list)
    """(ledger, first entry, bits) as `RangeSet.lowest_pages` yields them: a page of 256 entries each, in order."""
    batches: list[tuple[Position, int]] = field(default_factory=list)
    """Partly acknowledged batches with one bit per message, set = not acknowledged."""
    cursor_properties: Mapping[str, str] = field(default_factory=dict)
    """Text that the subscription keeps, whatever its position (Pulsar's subscription properties)."""
    left_out: int = 0
    """Acknowledged entries that the limits left out; not stored."""
    batches_left_out: int = 0
    """Batches acknowledged in part that the limits left out; not stored."""


class StoredNodes(NamedTuple):
    """All that the metadata store has of a closed managed ledger."""

    info: Versioned
    """The list of its ledgers."""
    cursors: tuple[tuple[str, Versioned], ...]
    """Its cursors, by name."""


def managed_ledger_key(name: str) -> str:
    """Returns the metadata store's key of a managed ledger."""
    return f"{ROOT}/{name}"


def cursor_key(ledger_name: str, cursor_name: str) -> str:
    """Returns the key of a cursor, below its managed ledger's key."""
    # A name may hold a slash, which would be one more level of keys.
    return f"{ROOT}/{ledger_name}/{quote(cursor_name, safe='')}"


def cursor_name_of(last_part: str) -> str:
    """Returns the cursor's name from the last part of its key."""
    return unquote(last_part)


async def read_nodes(metadata: MetadataStore, name: str, expected: Sequence[str] = ()) -> StoredNodes | None:
    """Returns the nodes of a managed ledger and its cursors; None without one. Raises MetadataError.

    `expected`: names of cursors that it probably has; on a shared store their nodes come with the list.
    """
    key = managed_ledger_key(name)
    if not metadata.is_shared:
        info = await metadata.get(key)
        return None if info is None else StoredNodes(info, tuple(await read_cursors(metadata, name)))
    expected = expected[:READS_AT_ONCE]
    # All are asked in one turn of the loop, and so in one request to ZooKeeper.
    nodes = asyncio.gather(*map(metadata.get, [key, *(cursor_key(name, one) for one in expected)]))
    (info, *cursors), parts = await asyncio.gather(nodes, metadata.children(key))
    if info is None:
        return None
    known = dict(zip(expected, cursors, strict=True))
    return StoredNodes(info, tuple(await _nodes_of(metadata, name, parts, known)))


async def read_cursors(metadata: MetadataStore, name: str) -> list[tuple[str, Versioned]]:
    """Returns names and nodes of a managed ledger's cursors. Raises MetadataError."""
    return await _nodes_of(metadata, name, await metadata.children(managed_ledger_key(name)), {})


async def _nodes_of(
    metadata: MetadataStore, name: str, parts: Sequence[str], known: dict[str, Versioned | None]
) -> list[tuple[str, Versioned]]:
    """Returns names and nodes of the cursors with these keys below the managed ledger's; reads those that are not known."""
    names = [sys.intern(cursor_name_of(part)) for part in parts]
    # A known one that was made after its read is read again.
    missing = [one for one in names if known.get(one) is None]
    # At once where each read is a round trip.
    at_once = READS_AT_ONCE if metadata.is_shared else 1
    for start in range(0, len(missing), at_once):
        some = missing[start : start + at_once]
        reads = [metadata.get(cursor_key(name, one)) for one in some]
        found = await asyncio.gather(*reads) if len(reads) > 1 else [await reads[0]]
        known.update(zip(some, found, strict=True))
    # None: another broker has deleted it since it was listed.
    return [(one, node) for one in names if (node := known[one]) is not None]


def ledger_list_of(info: ManagedLedgerInfo, closed: list[LedgerInfo], current_id: int) -> LedgerList:
    """Returns the list in memory of a stored one whose ledgers with entries are `closed`."""
    if info.terminated is not None and closed:
        # Nothing will be added: the last ledger stays current.
        return LedgerList(closed[:-1], closed[-1])
    return LedgerList(closed, LedgerInfo(current_id))
