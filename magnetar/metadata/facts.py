"""Facts of a whole store that nodes of different places share: names that exist, and names that others refer to.

Pure: no I/O. `Facts.add` takes one node after the other; `findings.py` compares when all are read. Memory holds names and
numbers, no values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from google.protobuf.message import Message

from bookkeeper.ensembles import racks
from bookkeeper.ensembles.racks import EVERY_GROUP, Affinity
from bookkeeper.leaks import rules
from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE
from broker.managed_ledger.records.pulsar_records import ShownList, StoredCursor
from foundation.model.position import Position
from magnetar.metadata.node_values import Parsed, read_value
from magnetar.snapshot.apache_values import COMPACTED_LEDGER
from magnetar.snapshot.node_path import NodePath, describe
from magnetar.snapshot.node_rows import Node
from protocol.pulsar_metadata_pb2 import SchemaLocator
from protocol.stored_schemas_pb2 import SchemaIndex

_DELETION: Final = re.compile(r"/admin/deletions/([^/]+)/[^/]+")
_CLUSTER: Final = re.compile(re.escape(rules.CLUSTERS) + "([^/]+)")
_CLUSTERS_OF: Final = {
    "tenant": ("allowedClusters",),
    "namespace": ("replication_clusters", "allowed_clusters"),
}
"""By kind, the members that are lists of clusters."""
_IN_NAMESPACES: Final = frozenset(
    ("managed-ledger", "partitioned-topic", "topic-policies", "schema", "schema-index", *rules.OF_NAMESPACES)
)
"""Kinds of nodes that need their namespace. A cursor needs its list, and a schema's version its index."""
_OWN_TENANT: Final = "pulsar"
"""The tenant that brokers make for themselves at their first start."""
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
    logs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Sorted ledgers in the list of each topic that has some and a log of its own."""
    cursors: list[tuple[str, str]] = field(default_factory=list)
    """Path and topic."""
    positions: list[tuple[str, str, Position]] = field(default_factory=list)
    """Path and topic of a cursor, and the position that its node has."""
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
    clusters: set[str] = field(default_factory=set)
    """Clusters that are described, and those of the brokers' own tenant.

    A broker with a file describes its own cluster nowhere else.
    """
    cluster_uses: list[tuple[str, str]] = field(default_factory=list)
    """Path of policies, and a cluster that they name."""
    bookie_groups: set[str] = field(default_factory=set)
    """Groups that have bookies."""
    affinities: list[tuple[str, str]] = field(default_factory=list)
    """Path of a namespace's local policies, and a group of bookies that they name."""

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
        elif found := _CLUSTER.fullmatch(path):
            self.clusters.add(found[1])
        if where.namespace is not None and where.kind in _IN_NAMESPACES:
            self.in_namespaces.append((path, where.namespace))

    def _note_value(self, path: str, where: NodePath, parsed: Parsed) -> None:
        if isinstance(parsed, ShownList):
            self._note_list(path, where, parsed)
        elif isinstance(parsed, StoredCursor):
            self._note_cursor(path, where, parsed)
        elif isinstance(parsed, Message):
            self._note_message(path, where, parsed)
        elif isinstance(parsed, int) and where.kind == "health":
            self.references.append(Reference(path, parsed, "health probe's ledger"))
        elif isinstance(parsed, dict):
            self._note_json(path, where, parsed)

    def _note_list(self, path: str, where: NodePath, shown: ShownList) -> None:
        if shown.info.deleted:
            # Its ledgers may be gone already.
            self.marks.append(DeletionMark(path, where))
            return
        ledgers = {one.ledger_id for one in shown.info.ledgers} - shown.offloaded
        self.references += [Reference(path, one, "ledger") for one in sorted(ledgers)]
        self.references += [Reference(path, one, "delayed-delivery ledger") for one in shown.info.delayed]
        self.references += [Reference(path, one, "compacted ledger") for one in shown.info.beside]
        # A shadow topic's positions are in the log of its source.
        if where.topic is not None and shown.info.ledgers and SHADOW_SOURCE not in shown.info.properties:
            self.logs[where.topic] = tuple(sorted(one.ledger_id for one in shown.info.ledgers))

    def _note_cursor(self, path: str, where: NodePath, cursor: StoredCursor) -> None:
        if cursor.ledger_id >= 0:
            # The position and properties of such a node are older than those in the ledger.
            self.references.append(Reference(path, cursor.ledger_id, "cursor ledger"))
            return
        if (compacted := cursor.info.properties.get(COMPACTED_LEDGER)) is not None:
            self.references.append(Reference(path, compacted, "compacted ledger"))
        if where.topic is not None and cursor.info.mark_delete.entry_id >= 0:
            self.positions.append((path, where.topic, cursor.info.mark_delete))

    def _note_message(self, path: str, where: NodePath, message: Message) -> None:
        if isinstance(message, SchemaLocator):
            places = {one.position.ledgerId for one in (*message.index, message.info)}
            self.references += [Reference(path, one, "schema ledger") for one in sorted(places) if one >= 0]
        elif isinstance(message, SchemaIndex) and where.topic is not None:
            self.schema_indexes[where.topic] = path, {one.version for one in message.entries}

    def _note_json(self, path: str, where: NodePath, found: dict[str, object]) -> None:
        if where.kind == "partitioned-topic" and where.topic is not None and "partitions" in found:
            self.partitions[where.topic] = int(str(found["partitions"]))
        if path == racks.KEY:
            self.bookie_groups.update(group for group, bookies in found.items() if bookies)
        if where.kind in ("partitioned-topic", "namespace", "tenant") and found.get("deleted"):
            self.marks.append(DeletionMark(path, where))
        group = found.get("resource_group_name")
        if where.kind == "namespace" and isinstance(group, str) and group:
            self.group_uses.append((path, group))
        for member in _CLUSTERS_OF.get(where.kind, ()):
            clusters = _names(found, member)
            self.cluster_uses += [(path, one) for one in clusters]
            if where.name == _OWN_TENANT:
                self.clusters.update(clusters)
        if where.kind == "local-policies":
            self._note_affinity(path, found.get("bookieAffinityGroup"))

    def _note_affinity(self, path: str, stored: object) -> None:
        if stored is None:
            return
        if not isinstance(stored, dict):
            raise ValueError("the value cannot be read: bookieAffinityGroup is no JSON object")
        names = ("bookkeeperAffinityGroupPrimary", "bookkeeperAffinityGroupSecondary")
        affinity = Affinity.of(*(stored.get(name) for name in names))
        if affinity is not None:
            groups = (affinity.primary | affinity.secondary) - {EVERY_GROUP}
            self.affinities += [(path, one) for one in sorted(groups)]


def _names(found: dict[str, object], member: str) -> list[str]:
    """Returns the names in a member; none for one that is missing or null."""
    names = found.get(member) or []
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise ValueError(f"the value cannot be read: {member} is no list of names")
    return names
