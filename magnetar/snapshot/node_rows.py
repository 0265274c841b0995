"""Turns a node of the metadata store into rows of a snapshot's tables. Pure: no I/O.

A value that cannot be read becomes a row in `unreadable` with the reason: one damaged node must not end the snapshot of a
million others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from broker.managed_ledger.records.pulsar_records import decode_cursor, show_ledger_list
from broker.service.namespaces.namespaces import GLOBAL
from broker.service.policies.table import MESSAGE_TTL, RETAINED
from foundation.model.errors import MetadataError
from foundation.model.topic_name import POLICY_EVENTS
from foundation.value import Json
from magnetar.snapshot import apache_values
from magnetar.snapshot.node_path import NodePath, describe
from protocol.ledger_metadata import decode
from protocol.stored_schemas_pb2 import SchemaIndex

NodeRow = tuple[str, tuple[object, ...]]
"""Name of the table, and the values of its columns."""
_EVENTS: Final = re.compile(rf"persistent://.+/{POLICY_EVENTS}(-partition-\d+)?")
"""Names of topics with the policies of their namespace's topics."""
_GLOBAL_NODES: Final = "/admin/topic-policies/global/"
"""Below it, the global policies of topics in nodes of Pulsar 5.0."""


class Node(NamedTuple):
    """One node of a metadata store."""

    path: str
    """From the store's root on."""
    value: bytes
    """Without bytes: a parent that no process has put."""
    version: int
    """Number of changes since the node was created; a compare-and-set names it."""
    modified_ms: int | None
    """None where the store keeps no time."""
    children: int | None
    """None where the store does not count them."""


def rows_of(node: Node) -> Iterator[NodeRow]:
    """Yields a row of `nodes`, and the rows of other tables that the node's value gives."""
    where = describe(node.path)
    yield (
        "nodes",
        (
            node.path,
            where.kind,
            where.namespace,
            where.topic,
            len(node.value),
            node.version,
            node.modified_ms,
            node.children,
        ),
    )
    if not node.value:
        return
    try:
        # As a list: a value that cannot be read halfway must leave no row of its readable part.
        yield from list(_READERS.get(where.kind, _nothing)(node, where))
    except (MetadataError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        yield "unreadable", (node.path, f"{type(error).__name__}: {error}")


def _nothing(node: Node, where: NodePath) -> Iterator[NodeRow]:
    return iter(())


def _log(node: Node, where: NodePath) -> Iterator[NodeRow]:
    """Yields the rows of a log. One that is being deleted is no topic, but its ledgers are still references."""
    shown = show_ledger_list(node.value)
    info = shown.info
    ledgers = [(one.ledger_id, one.entries, one.size_bytes, one.closed_at_ms) for one in info.ledgers]
    yield (
        "managed_ledgers",
        (
            where.topic,
            where.namespace,
            len(ledgers),
            sum(entries for _, entries, _, _ in ledgers),
            sum(size for _, _, size, _ in ledgers),
            info.deleted,
        ),
    )
    if not info.deleted:
        yield "topics", (where.topic, where.namespace, 0)
        if ledgers and _EVENTS.fullmatch(where.topic or ""):
            # The open ledger counts 0 entries in the list, so whether there are events is known by reading it alone.
            yield "policies", _policy_row("topic-events", where.namespace, None, None)
    for ordinal, (ledger_id, entries, size, closed_ms) in enumerate(ledgers):
        # A ledger in tiered storage alone has no metadata, and is not missing.
        kind = "offloaded" if ledger_id in shown.offloaded else "managed-ledger"
        row = (ledger_id, kind, where.topic, node.path, ordinal, entries, size, closed_ms)
        yield "references", row
    for ledger_id in info.delayed:
        yield "references", _reference(ledger_id, "delayed", node, where)
    # Bookies may still have these, and an audit must not call them orphans.
    for ledger_id in info.deleting:
        yield "references", _reference(ledger_id, "deleting", node, where)
    # Compacted ledgers, also one that is being written, which no cursor names yet.
    for ledger_id in info.beside:
        yield "references", _reference(ledger_id, "beside", node, where)


def _cursor(node: Node, where: NodePath) -> Iterator[NodeRow]:
    stored = decode_cursor(node.value)
    if stored.ledger_id >= 0:
        yield "references", _reference(stored.ledger_id, "cursor", node, where)
    compacted = stored.info.properties.get(apache_values.COMPACTED_LEDGER)
    if compacted is not None:
        # A node that names a ledger is older than the last position there, and so is the compacted ledger that it names.
        kind = "beside" if stored.ledger_id >= 0 else "compacted"
        yield "references", _reference(compacted, kind, node, where)
    runs = [run for page in stored.info.acked for run in _runs(*page)]
    # While a cursor has a ledger, its acknowledgements are there alone.
    yield "cursors", _cursor_row(node, where, stored.info.mark_delete, runs, known=stored.ledger_id < 0)


def _cursor_row(
    node: Node, where: NodePath, mark: tuple[int, int], acked: list[tuple[int, int, int]], *, known: bool
) -> tuple[object, ...]:
    """Returns the row. `acked`: (ledger, entry before the run, last entry of the run); adjacent runs count as one."""
    runs = 0
    last: tuple[int, int] | None = None
    for ledger_id, above, upto in sorted(acked):
        # A run that begins after the last one's end continues it: pages cut runs at their borders.
        runs += last != (ledger_id, above)
        last = (ledger_id, upto)
    return (
        where.topic,
        where.name,
        *mark,
        runs,
        sum(upto - above for _, above, upto in acked),
        *(last or (None, None)),
        len(node.value),
        known,
        node.modified_ms,
    )


def _runs(ledger_id: int, first: int, bits: int) -> Iterator[tuple[int, int, int]]:
    """Yields the runs of ones of a page, as (ledger, entry before the run, last entry of the run)."""
    entry = first
    # Skip the zeros, then the ones, with a few operations on the whole number: a page may have thousands of bits.
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        # `~bits & bits + 1` has a single bit: that of the lowest zero.
        ones = (~bits & bits + 1).bit_length() - 1
        bits >>= ones
        entry += zeros + ones
        yield ledger_id, entry - ones - 1, entry - 1


def _ledger(node: Node, where: NodePath) -> Iterator[NodeRow]:
    metadata = decode(node.value)
    custom = {key: value.decode(errors="replace") for key, value in metadata.custom.items()}
    yield (
        "ledgers",
        (
            where.ledger_id,
            metadata.state.name,
            metadata.last_entry_id + 1,
            metadata.length,
            metadata.created_ms if metadata.created_ms is not None else node.modified_ms,
            custom.get("application"),
            custom.get("component"),
        ),
    )


def _schema(node: Node, where: NodePath) -> Iterator[NodeRow]:
    versions, ledger_ids = apache_values.schema_ledgers(node.value)
    yield "schemas", (where.topic, versions)
    for ledger_id in ledger_ids:
        yield "references", _reference(ledger_id, "schema", node, where)


def _schema_index(node: Node, where: NodePath) -> Iterator[NodeRow]:
    try:
        index = SchemaIndex.FromString(node.value)
    except DecodeError as error:
        raise ValueError(f"the index of a schema cannot be parsed: {error}") from error
    yield "schemas", (where.topic, len(index.entries))


def _partitioned(node: Node, where: NodePath) -> Iterator[NodeRow]:
    yield "topics", (where.topic, where.namespace, int(json.loads(node.value)["partitions"]))


def _policies(node: Node, where: NodePath) -> Iterator[NodeRow]:
    """Yields the policies of a namespace, or those of a topic in both scopes; a policy that is not set is None."""
    found = json.loads(node.value)
    if where.topic is None:
        ttl, retention = MESSAGE_TTL.name, RETAINED.name
        yield "policies", _policy_row("namespace", where.namespace, found.get(ttl), found.get(retention))
        return
    ttl, retention = MESSAGE_TTL.topic_name, RETAINED.topic_name
    scopes = [("topic-global", "")]
    if not node.path.startswith(_GLOBAL_NODES):
        scopes = [("topic", ""), ("topic-global", GLOBAL)]
    for level, prefix in scopes:
        yield (
            "policies",
            _policy_row(level, where.topic, found.get(f"{prefix}{ttl}"), found.get(f"{prefix}{retention}")),
        )


def _policy_row(level: str, name: str | None, ttl_s: object, retention: Json) -> tuple[object, ...]:
    kept = retention or {}  # Pulsar writes null for policies that are not set.
    if not isinstance(kept, dict):
        raise TypeError(f"the retention is no object: {kept}")
    return level, name, ttl_s, kept.get("retentionTimeInMinutes"), kept.get("retentionSizeInMB")


def _health(node: Node, where: NodePath) -> Iterator[NodeRow]:
    """Yields the ledger that the broker's health check writes to, which its key names."""
    yield "references", _reference(int(node.value), "health", node, where)


def _reference(ledger_id: int, kind: str, node: Node, where: NodePath) -> tuple[object, ...]:
    return (ledger_id, kind, where.topic, node.path, None, None, None, None)


_READERS = {
    "managed-ledger": _log,
    "cursor": _cursor,
    "ledger": _ledger,
    "schema": _schema,
    "schema-index": _schema_index,
    "partitioned-topic": _partitioned,
    "namespace": _policies,
    "topic-policies": _policies,
    "health": _health,
}
