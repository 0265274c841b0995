"""Facts: gathers from the rows of a metadata store what the rules of `bookkeeper/leaks/rules.py` need, and judges each row.

The store is walked twice and a finding counts when both walks have it, because brokers go on writing: a topic that is made
between two nodes of one walk would look like a leak. Memory holds one small tuple per node and per reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bookkeeper.leaks import rules
from bookkeeper.leaks.rules import NodeFacts
from magnetar.snapshot.node_path import describe
from magnetar.snapshot.node_rows import Node, rows_of

_PARTITION: Final = re.compile(rules.PARTITION)
_ROOTS: Final = re.compile(rules.ROOTS)
_OF_BROKER: Final = re.compile(rules.OF_BROKER)


class AuditFinding(NamedTuple):
    """One finding of an audit."""

    audit: str
    """`metadata` or `ledgers`, as the audits on Spark."""
    kind: str
    """Its class."""
    subject: str
    """Path of the node, or the ledger's id."""
    reason: str
    """Why it counts as a leak, or as a loss."""
    topic: str | None
    """Its topic, where it is known."""
    version: int | None = None
    """Version of the judged node; one that changes is no finding any more. None for a ledger."""
    at_ms: int | None = None
    """Time of the last change in milliseconds since the epoch; None where it is unknown, or of no concern."""


class _NodeRow(NamedTuple):
    path: str
    kind: str
    namespace: str | None
    topic: str | None
    empty: bool
    version: int
    modified_ms: int | None


class _Ledger(NamedTuple):
    is_owned: bool
    created_ms: int | None


class _Reference(NamedTuple):
    ledger_id: int
    kind: str
    topic: str | None
    owner: str
    closed_with_entries: bool


@dataclass(slots=True)
class LeakFacts:
    """All that was read in one walk."""

    nodes: list[_NodeRow] = field(default_factory=list)
    """Nodes with a rule."""
    references: list[_Reference] = field(default_factory=list)
    """Places that name a ledger."""
    ledgers: dict[int, _Ledger] = field(default_factory=dict)
    """By id, when the ledger was made, and whether its own metadata names an owner whose references are known."""
    closed: dict[int, int] = field(default_factory=dict)
    """By id of a closed ledger, its number of entries."""
    topics: dict[str, int] = field(default_factory=dict)
    """By name of a topic that exists, its partitions."""
    namespaces: set[str] = field(default_factory=set)
    """Namespaces with policies."""
    tenants: set[str] = field(default_factory=set)
    """All tenants."""
    brokers: set[str] = field(default_factory=set)
    """Registered brokers."""
    clusters: set[str] = field(default_factory=set)
    """Clusters."""
    deletions: set[str] = field(default_factory=set)
    """Topics and namespaces whose deletion goes on."""
    unreadable: int = 0
    """Nodes whose value was not understood; none of them is judged."""


def gather(nodes: Iterable[Node]) -> LeakFacts:
    """Reads all nodes of a store."""
    facts = LeakFacts()
    for node in nodes:
        _take_names(facts, node.path)
        for table, row in rows_of(node):
            _take_row(facts, table, row)
    return facts


def _take_names(facts: LeakFacts, path: str) -> None:
    where = describe(path)
    if where.kind == "tenant" and where.name is not None:
        facts.tenants.add(where.name)
    elif where.kind == "namespace" and where.namespace is not None:
        facts.namespaces.add(where.namespace)
    elif where.kind == "deletion":
        facts.deletions.add(where.topic or where.namespace or "")
    for root, names in ((rules.BROKERS, facts.brokers), (rules.CLUSTERS, facts.clusters)):
        if path.startswith(root) and "/" not in path[len(root) :]:
            names.add(path[len(root) :])


def _take_row(facts: LeakFacts, table: str, row: tuple[object, ...]) -> None:
    if table == "nodes":
        path, kind, namespace, topic, size, version, modified_ms, children = row
        if kind in rules.JUDGED:
            # A store that does not count children has no empty parents either.
            empty = size == 0 and children == 0 and not _ROOTS.search(str(path))
            assert isinstance(version, int)
            names = str(path), str(kind), _text(namespace), _text(topic)
            facts.nodes.append(_NodeRow(*names, empty, version, _number(modified_ms)))
    elif table == "topics":
        topic, _, partitions = row
        assert isinstance(partitions, int)
        facts.topics[str(topic)] = max(partitions, facts.topics.get(str(topic), 0))
    elif table == "references":
        ledger_id, kind, topic, owner, _, entries, _, closed_ms = row
        assert isinstance(ledger_id, int)
        facts.references.append(
            _Reference(
                ledger_id, str(kind), _text(topic), str(owner), bool(entries) and closed_ms is not None
            )
        )
    elif table == "ledgers":
        ledger_id, state, entries, _, created_ms, application, component = row
        assert isinstance(ledger_id, int)
        is_owned = rules.is_owned(_text(application), _text(component))
        facts.ledgers[ledger_id] = _Ledger(is_owned, _number(created_ms))
        if state == "CLOSED" and isinstance(entries, int):
            facts.closed[ledger_id] = entries
    elif table == "unreadable":
        facts.unreadable += 1


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _number(value: object) -> int | None:
    assert value is None or isinstance(value, int)
    return value


def judge(facts: LeakFacts) -> Iterator[AuditFinding]:
    """Yields every finding in the facts of one walk."""
    for node in facts.nodes:
        reason = rules.judge_node(_node_facts(facts, node))
        if reason is not None:
            yield AuditFinding(
                "metadata", node.kind, node.path, reason, node.topic, node.version, node.modified_ms
            )
    needed = {one.ledger_id for one in facts.references if one.kind != rules.DECIDED}
    decided = {one.ledger_id: one.topic for one in facts.references if one.kind == rules.DECIDED}
    for ledger_id, (of_pulsar, created_ms) in facts.ledgers.items():
        if ledger_id not in needed:
            is_decided = ledger_id in decided
            kind, reason = rules.judge_unreferenced(decided=is_decided, of_pulsar=of_pulsar)
            # A decided deletion is one at any age: its owner was written before.
            at_ms = None if is_decided else created_ms
            yield AuditFinding("ledgers", kind, str(ledger_id), reason, decided.get(ledger_id), at_ms=at_ms)
    for one in facts.references:
        if one.ledger_id not in facts.ledgers and rules.must_exist(
            reference=one.kind, closed_with_entries=one.closed_with_entries
        ):
            kind, reason = rules.missing(one.kind, one.owner)
            yield AuditFinding("ledgers", kind, str(one.ledger_id), reason, one.topic)


def _node_facts(facts: LeakFacts, node: _NodeRow) -> NodeFacts:
    topic, namespace = node.topic or "", node.namespace or ""
    partition = _PARTITION.match(topic)
    base = partition[1] if partition else ""
    is_partition = bool(partition) and int(partition[2]) < facts.topics.get(base, 0) if partition else False
    # A schema's path does not tell whether its topic is persistent.
    twin = f"non-{topic}" if node.kind in rules.SCHEMAS else topic
    tenant, _, second = namespace.partition("/")
    broker = _OF_BROKER.search(node.path)
    above_brokers = tenant in rules.BROKER_TENANTS and second in facts.clusters
    return NodeFacts(
        node.kind,
        persistent=topic.startswith("persistent://"),
        topic_exists=topic in facts.topics or twin in facts.topics or is_partition,
        beyond_partitions=bool(partition) and not is_partition,
        has_namespace=namespace in facts.namespaces,
        has_tenant=tenant in facts.tenants,
        broker_gone=broker is not None and bool(facts.brokers) and broker[1] not in facts.brokers,
        of_brokers=broker is not None or above_brokers or namespace == rules.SYSTEM_NAMESPACE,
        empty=node.empty,
        being_deleted=bool({topic, base, namespace} & facts.deletions - {""}),
    )
