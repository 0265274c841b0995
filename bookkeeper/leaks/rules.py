"""The rules of both audits of leaks: a few facts in, a finding or None out. Pure: no I/O, no clock.

Two callers gather the facts and judge them here: `pipeline/audits` in Spark, for a snapshot of any size, and
`magnetar/audit` in one process, for a running cluster. All facts are flags and a few words. So Spark evaluates each rule
once per combination and joins the result, instead of calling Python for each of its rows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

PARTITION: Final = r"^(.+)-partition-(0|[1-9][0-9]{0,8})$"
"""Names of partitions: the base, and the index.

A number with leading zeros, or beyond Java's int, is part of the name of a topic that is no partition, as brokers decide
(`foundation/model/topic_name.py`). Taken for a partition, the list of such a topic would go into quarantine.
"""
ROOTS: Final = r"^/(managed-ledgers|ledgers|schemas|schema-versions|namespace|admin/[^/]+|loadbalance/[^/]+)$"
"""Nodes that a cluster creates at its start and that may stay empty."""
OF_BROKER: Final = r"/(?:pulsar|sla-monitor)/(?:[^/]+/)?([^/:]+:\d+)(?:/|$)"
"""Paths of nodes in a broker's own namespaces; the group is the broker's name."""
BROKERS: Final = "/loadbalance/brokers/"
"""Below it, one node per running broker, named `HOST:PORT`; gone with the broker's session."""
CLUSTERS: Final = "/admin/clusters/"
"""Below it, one node per cluster."""
SYSTEM_NAMESPACE: Final = "pulsar/system"
"""The namespace of brokers, which has policies in Magnetar's stores alone."""
BROKER_TENANTS: Final = ("pulsar", "sla-monitor")
"""Tenants in which brokers have namespaces without policies."""

SCHEMAS: Final = ("schema", "schema-index", "schema-version")
"""Kinds of nodes that hold schemas."""
OF_TOPICS: Final = ("managed-ledger", "cursor", "topic-policies", "partitioned-topic", *SCHEMAS)
"""Kinds of nodes that belong to a topic."""
OF_NAMESPACES: Final = ("local-policies", "bundle-owner", "bundle-data")
"""Kinds of nodes that belong to a namespace."""
JUDGED: Final = (*OF_TOPICS, *OF_NAMESPACES, "namespace", "parent", "deletion")
"""Kinds of nodes with a rule."""

NO_PERSISTENT_TOPIC: Final = "no persistent topic has this name; a non-persistent one may use it"
"""Reason of a finding about a schema. Its path tells no domain, and non-persistent topics have no node."""

COMPONENTS: Final = ("managed-ledger", "schema", "compacted-ledger", "delayed-index-bucket")
"""Owners of ledgers whose references are known, as the ledgers' own metadata names them."""
DECIDED: Final = "deleting"
"""Kind of a reference that only says: the removal of this ledger was decided."""
UNCERTAIN: Final = (DECIDED, "beside", "health", "offloaded")
"""Kinds of references to ledgers that may be absent."""


class NodeFacts(NamedTuple):
    """The facts of one node that its rule needs."""

    kind: str
    """One of JUDGED."""
    persistent: bool
    """True when the node belongs to a persistent topic. Others leave no node that would show whether they exist."""
    topic_exists: bool
    """True when its topic has a ledger list that is not being deleted, has partitions, or is one of those partitions.

    Of a schema also: a partitioned topic that is not persistent has its name.
    """
    beyond_partitions: bool
    """True when the node belongs to a partition that its partitioned topic does not have."""
    has_namespace: bool
    """True when its namespace has policies."""
    has_tenant: bool
    """True when its tenant exists."""
    broker_gone: bool
    """True when the node is a broker's own, and other brokers are registered but this one is not."""
    of_brokers: bool
    """True when the node is in a namespace that brokers use for themselves, with or without policies."""
    empty: bool
    """True when the node has no value and no children, and is no root."""
    being_deleted: bool
    """True while the deletion of its topic or namespace is decided and goes on."""


class LeakFinding(NamedTuple):
    """A verdict."""

    kind: str
    """The class of the finding."""
    reason: str
    """Why, for a reader."""


def judge_node(node: NodeFacts) -> str | None:
    """Returns why the node is left over; None for one that is needed, or whose deletion goes on."""
    of_topic, of_owner = node.kind in OF_TOPICS, node.kind in (*OF_TOPICS, *OF_NAMESPACES)
    if node.kind == "deletion":
        return "the deletion was decided and is not finished; a running broker goes on with it"
    if node.being_deleted:
        return None
    if node.kind == "namespace" and not node.has_tenant:
        return "its tenant does not exist"
    if of_owner and node.broker_gone:
        return "it is a broker's own, and no such broker is registered"
    # A health check's schema lacks the cluster that its topic's name has, and a broker's load data are in a non-persistent
    # topic. So the absence of a persistent topic of the schema's name says nothing.
    if of_owner and node.of_brokers:
        return None
    if of_owner and not node.has_namespace:
        return "its namespace does not exist"
    if of_topic and node.beyond_partitions:
        return "it is a partition that its topic does not have"
    may_miss_topic = of_topic and node.kind not in ("managed-ledger", "partitioned-topic")
    if may_miss_topic and node.persistent and not node.topic_exists:
        return NO_PERSISTENT_TOPIC if node.kind in SCHEMAS else "its topic does not exist"
    if node.kind == "parent" and node.empty:
        return "nothing is left below it"
    return None


def judge_unreferenced(*, decided: bool, of_pulsar: bool) -> LeakFinding:
    """Returns the finding for a ledger that nothing needs.

    `decided`: its removal was decided. `of_pulsar`: its metadata names an owner out of COMPONENTS.
    """
    if decided:
        return LeakFinding("deletion-unfinished", "its topic has marked it as deleting")
    if of_pulsar:
        return LeakFinding("orphan", "no topic, cursor, schema, compaction or delayed delivery refers to it")
    return LeakFinding(
        "unknown-owner", "nothing refers to it, and its metadata does not name Pulsar: ask its owner"
    )


def is_old_enough(at_ms: int | None, seen_ms: int, grace_s: int) -> bool:
    """Returns False for a node or ledger that was written less than the grace before it was seen.

    Its owner may not be written yet: other programs than our brokers write the two one after the other. A store that keeps
    no times gives None.
    """
    return at_ms is None or at_ms <= seen_ms - grace_s * 1000


def is_owned(application: str | None, component: str | None) -> bool:
    """Returns True for a ledger whose own metadata names an owner with known references."""
    return application == "pulsar" and component in COMPONENTS


def must_exist(*, reference: str, closed_with_entries: bool) -> bool:
    """Returns True if the reference may not point at an absent ledger.

    The last ledger of a list may be absent while it is empty: a broker may write the list before the ledger. So may a
    ledger beside a list, whose name stays until it is certain that the ledger is gone.
    """
    return reference not in UNCERTAIN and (reference != "managed-ledger" or closed_with_entries)


def missing(reference: str, owner: str) -> LeakFinding:
    """Returns the finding for a reference of this kind, at this place, whose ledger is absent."""
    return LeakFinding(f"missing-{reference}", f"its metadata is missing, and this refers to it: {owner}")
