"""Findings of `magnetar metadata verify`: values that cannot be read, and names that point nowhere. Pure: no I/O."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from bookkeeper.leaks import rules
from magnetar.metadata.facts import DeletionMark, Facts
from magnetar.snapshot.node_rows import Node

_PARTITION: Final = re.compile(r"(.+)-partition-(\d+)")


class Finding(NamedTuple):
    """Something wrong at a node."""

    path: str
    """Path of the node."""
    text: str
    """A sentence."""


def facts_of(nodes: Iterable[Node]) -> Facts:
    """Returns the facts of all nodes of a store."""
    facts = Facts()
    for node in nodes:
        facts.add(node)
    return facts


def findings_of(facts: Facts) -> list[Finding]:
    """Returns all that is wrong, sorted by path."""
    found = chain(
        (Finding(path, reason) for path, reason in facts.unreadable),
        _missing_ledgers(facts),
        _cursors(facts),
        _positions(facts),
        _namespaces(facts),
        _partitions(facts),
        _marks(facts),
        _schemas(facts),
        _groups(facts),
        _clusters(facts),
        _affinities(facts),
    )
    return sorted(found)


def _missing_ledgers(facts: Facts) -> Iterator[Finding]:
    if not facts.has_ledgers:
        return
    for path, ledger_id, role in facts.references:
        if ledger_id not in facts.ledgers:
            yield Finding(path, f"names the {role} {ledger_id}, which has no metadata")


def _cursors(facts: Facts) -> Iterator[Finding]:
    for path, topic in facts.cursors:
        if topic not in facts.lists:
            yield Finding(path, f"is a cursor of {topic}, which has no list of ledgers")


def _positions(facts: Facts) -> Iterator[Finding]:
    for path, topic, (ledger_id, entry_id) in facts.positions:
        ledgers = facts.logs.get(topic, ())
        at = bisect_left(ledgers, ledger_id)
        # Ledgers before the first one were trimmed, and a trim changes no cursor.
        if at > 0 and ledger_id not in ledgers[at : at + 1]:
            yield Finding(path, f"is at {ledger_id}:{entry_id}, and the list of {topic} lacks that ledger")


def _namespaces(facts: Facts) -> Iterator[Finding]:
    for name in facts.namespaces:
        tenant = name.partition("/")[0]
        if tenant not in facts.tenants:
            yield Finding(f"/admin/policies/{name}", f"is in the tenant {tenant}, which does not exist")
    for path, namespace in facts.in_namespaces:
        # Apache's brokers use namespaces without policies for themselves: `host:port`, and the one of the system.
        of_brokers = ":" in namespace or namespace == rules.SYSTEM_NAMESPACE
        intents = {("namespace", namespace), ("tenant", namespace.partition("/")[0])}
        if namespace not in facts.namespaces and not of_brokers and not intents & facts.intents:
            yield Finding(path, f"is in the namespace {namespace}, which does not exist")


def _partitions(facts: Facts) -> Iterator[Finding]:
    for topic, path in facts.lists.items():
        found = _PARTITION.fullmatch(topic)
        count = facts.partitions.get(found[1]) if found is not None else None
        if found is not None and count is not None and int(found[2]) >= count:
            yield Finding(path, f"is partition {found[2]} of {found[1]}, which has {count} partitions")


def _marks(facts: Facts) -> Iterator[Finding]:
    for mark in facts.marks:
        if not facts.intents.intersection(_carriers(mark)):
            yield Finding(mark.path, "is marked as deleted, and no intent carries the deletion out")


def _carriers(mark: DeletionMark) -> Iterator[tuple[str, str]]:
    """Yields kind and name of the intents that may have set a mark."""
    where = mark.where
    if where.topic is not None:
        found = _PARTITION.fullmatch(where.topic)
        yield from (("topic", where.topic), ("partitioned", where.topic))
        if found is not None:
            yield "partitioned", found[1]
    if where.namespace is not None:
        yield from (("namespace", where.namespace), ("tenant", where.namespace.partition("/")[0]))
    if where.name is not None:
        yield "tenant", where.name


def _schemas(facts: Facts) -> Iterator[Finding]:
    for topic, (path, versions) in facts.schema_indexes.items():
        for version in sorted(versions - facts.schema_versions.get(topic, set())):
            yield Finding(path, f"names version {version} of a schema, whose definition is missing")
    for topic in facts.schema_versions.keys() - facts.schema_indexes.keys():
        path = f"/schema-versions/{topic.partition('://')[2]}"
        yield Finding(path, "has versions of a schema, and no index names them")


def _groups(facts: Facts) -> Iterator[Finding]:
    for path, group in facts.group_uses:
        if group not in facts.groups:
            yield Finding(path, f"names the resource group {group}, which does not exist")


def _clusters(facts: Facts) -> Iterator[Finding]:
    for path, cluster in facts.cluster_uses:
        if cluster not in facts.clusters:
            yield Finding(path, f"names the cluster {cluster}, which does not exist")


def _affinities(facts: Facts) -> Iterator[Finding]:
    for path, group in facts.affinities:
        if group not in facts.bookie_groups:
            yield Finding(path, f"names the group {group} of bookies, which no bookie is in")
