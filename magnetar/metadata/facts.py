"""Facts of a whole store that nodes of different places share: names that exist, and names that others refer to.

Pure: no I/O. `Facts.add` takes one node after the other; `findings.py` compares when all are read. Memory holds names and
numbers, no values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from google.protobuf.message import Message

from broker.managed_ledger.records.pulsar_records import ShownList, StoredCursor
from magnetar.metadata.node_values import Parsed, read_value
from magnetar.snapshot.apache_values import COMPACTED_LEDGER
from magnetar.snapshot.node_path import NodePath, describe
from magnetar.snapshot.node_rows import Node
from protocol.pulsar_metadata_pb2 import SchemaLocator
from protocol.stored_schemas_pb2 import SchemaIndex

_DELETION: Final = re.compile(r"/admin/deletions/([^/]+)/[^/]+")
_GROUP: Final = re.compile(r"/admin/resourcegroups/([^/]+)")


class Reference(NamedTuple):
    """A node that names a ledger."""

    path: str
    """Path of the node."""
    ledger_id: int
    """The ledger."""
    role: str
    """The ledger's part, in words."""


class DeletionMark(NamedTuple):
    """A mark that a deletion is decided."""

    path: str
    """Path of the marked node."""
    where: NodePath
    """The deleted thing."""


@dataclass(slots=True)
class Facts:
    """All names of a store."""

    nodes: int = 0
    """Nodes that were read."""
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    """Path, and the reason."""
    has_ledgers: bool = False
    """True when the store has nodes of BookKeeper, so that a missing ledger means something."""
    ledgers: set[int] = field(default_factory=set)
    """Ledgers with metadata."""
    lists: dict[str, str] = field(default_factory=dict)
    """Path of the list of each topic."""
    cursors: list[tuple[str, str]] = field(default_factory=list)
    """Path and topic."""
    tenants: set[str] = field(default_factory=set)
    """Names."""
    namespaces: set[str] = field(default_factory=set)
    """Full names, of those with policies."""
    in_namespaces: list[tuple[str, str]] = field(default_factory=list)
    """Path of a node, and the namespace that it needs."""
    partitions: dict[str, int] = field(default_factory=dict)
    """Count of each partitioned topic."""
    references: list[Reference] = field(default_factory=list)
    """Ledgers that nodes name."""
    marks: list[DeletionMark] = field(default_factory=list)
    """Marks of decided deletions."""
    intents: set[tuple[str, str]] = field(default_factory=set)
    """Kind and name of each intent of a deletion."""
    schema_indexes: dict[str, tuple[str, set[int]]] = field(default_factory=dict)
    """Path and usable versions of each topic's schema."""
    schema_versions: dict[str, set[int]] = field(default_factory=dict)
    """Versions whose definition is stored, by topic."""
    groups: set[str] = field(default_factory=set)
    """Resource groups."""
    group_uses: list[tuple[str, str]] = field(default_factory=list)
    """Path of a namespace's policies, and the resource group that they name."""

    def add(self, node: Node) -> None:
        """Takes one node."""
        self.nodes += 1
        self.has_ledgers = self.has_ledgers or node.path.startswith("/ledgers/")
        if not node.value:
            return
        where = describe(node.path)
        self._note_place(node.path, where)
        try:
            self._note_value(node.path, where, read_value(node.path, node.value).parsed)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.unreadable.append((node.path, str(error)))

    def _note_place(self, path: str, where: NodePath) -> None:
        if where.kind == "ledger" and where.ledger_id is not None:
            self.ledgers.add(where.ledger_id)
        elif where.kind == "managed-ledger" and where.topic is not None:
            self.lists[where.topic] = path
        elif where.kind == "cursor" and where.topic is not None:
            self.cursors.append((path, where.topic))
        elif where.kind == "tenant" and where.name is not None:
            self.tenants.add(where.name)
        elif where.kind == "namespace" and where.namespace is not None:
            self.namespaces.add(where.namespace)
        elif where.kind == "deletion" and (found := _DELETION.fullmatch(path)):
            self.intents.add((found[1], str(where.topic or where.namespace or where.name)))
        elif where.kind == "schema-version" and where.topic is not None:
            version = path.rpartition("/")[2]
            if version.isdecimal():
                self.schema_versions.setdefault(where.topic, set()).add(int(version))
        elif found := _GROUP.fullmatch(path):
            self.groups.add(found[1])
        if where.namespace is not None and where.kind in (
            "managed-ledger",
            "local-policies",
            "partitioned-topic",
        ):
            self.in_namespaces.append((path, where.namespace))

    def _note_value(self, path: str, where: NodePath, parsed: Parsed) -> None:
        if isinstance(parsed, ShownList):
            self._note_list(path, where, parsed)
        elif isinstance(parsed, StoredCursor):
            if parsed.ledger_id >= 0:
                self.references.append(Reference(path, parsed.ledger_id, "cursor ledger"))
            # The other properties of such a node are older than the position in the ledger.
            elif (compacted := parsed.info.properties.get(COMPACTED_LEDGER)) is not None:
                self.references.append(Reference(path, compacted, "compacted ledger"))
        elif isinstance(parsed, Message):
            self._note_message(path, where, parsed)
        elif isinstance(parsed, dict):
            self._note_json(path, where, parsed)

    def _note_list(self, path: str, where: NodePath, shown: ShownList) -> None:
        if shown.info.deleted:
            # Its ledgers may be gone already.
            self.marks.append(DeletionMark(path, where))
            return
        ledgers = {one.ledger_id for one in shown.info.ledgers} - shown.offloaded
        self.references += [Reference(path, one, "ledger") for one in sorted(ledgers)]

    def _note_message(self, path: str, where: NodePath, message: Message) -> None:
        if isinstance(message, SchemaLocator):
            places = {one.position.ledgerId for one in (*message.index, message.info)}
            self.references += [Reference(path, one, "schema ledger") for one in sorted(places) if one >= 0]
        elif isinstance(message, SchemaIndex) and where.topic is not None:
            self.schema_indexes[where.topic] = path, {one.version for one in message.entries}

    def _note_json(self, path: str, where: NodePath, found: dict[str, object]) -> None:
        if where.kind == "partitioned-topic" and where.topic is not None and "partitions" in found:
            self.partitions[where.topic] = int(str(found["partitions"]))
        if where.kind in ("partitioned-topic", "namespace", "tenant") and found.get("deleted"):
            self.marks.append(DeletionMark(path, where))
        group = found.get("resource_group_name")
        if where.kind == "namespace" and isinstance(group, str) and group:
            self.group_uses.append((path, group))
