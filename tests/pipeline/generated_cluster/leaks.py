"""Plants leaks of each class in a generated cluster, and notes each as a finding that the audits must make."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tests.pipeline.generated_cluster.tables import (
    DAY_MS,
    LEDGER_BYTES,
    Cluster,
    add_cursors,
    add_ledgers,
    add_nodes,
    refer,
)


def plant(cluster: Cluster, count: int) -> None:
    """Plants `count` leaks of each class."""
    numbers = np.arange(count).astype(str)
    _nodes_of_dead_topics(cluster, numbers)
    _nodes_of_dead_namespaces(cluster, numbers)
    _partitions_beyond_their_topic(cluster, numbers)
    _empty_parents(cluster, numbers)
    _ledgers(cluster, numbers)
    _references(cluster, numbers)
    _subscriptions(cluster, numbers)
    _overdue_ledgers(cluster, numbers)


def _nodes_of_dead_topics(cluster: Cluster, numbers: np.ndarray) -> None:
    namespace = np.full(len(numbers), "tenant/ns-0")
    topic = np.char.add("persistent://tenant/ns-0/dead-", numbers)
    quoted = np.char.add("persistent%3A%2F%2Ftenant%2Fns-0%2Fdead-", numbers)
    paths = {
        "schema": np.char.add("/schemas/tenant/ns-0/dead-", numbers),
        "topic-policies": np.char.add("/admin/topic-policies/", quoted),
        "cursor": np.char.add(np.char.add("/managed-ledgers/tenant/ns-0/persistent/dead-", numbers), "/s"),
    }
    for kind, path in paths.items():
        add_nodes(cluster, kind, path, namespace, topic)
        cluster.must_find("metadata", kind, path)
    young = np.char.add("/schemas/tenant/ns-0/new-", numbers)
    add_nodes(
        cluster,
        "schema",
        young,
        namespace,
        np.char.add("persistent://tenant/ns-0/new-", numbers),
        age_ms=1000,
    )
    passing = np.char.add("/admin/topic-policies/non-persistent%3A%2F%2Ftenant%2Fns-0%2Fx-", numbers)
    topic = np.char.add("non-persistent://tenant/ns-0/x-", numbers)
    add_nodes(cluster, "topic-policies", passing, namespace, topic)


def _nodes_of_dead_namespaces(cluster: Cluster, numbers: np.ndarray) -> None:
    namespace = np.char.add("tenant/gone-", numbers)
    topic = np.char.add(np.char.add("persistent://", namespace), "/t")
    cluster.add("topics", topic=topic, namespace=namespace, partitions=np.zeros(len(numbers), int))
    for kind, root, end in (
        ("managed-ledger", "/managed-ledgers/", "/persistent/t"),
        ("partitioned-topic", "/admin/partitioned-topics/", "/persistent/t"),
        ("local-policies", "/admin/local-policies/", ""),
        ("bundle-owner", "/namespace/", "/0x00000000_0xffffffff"),
        ("bundle-data", "/loadbalance/bundle-data/", "/0x00000000_0xffffffff"),
    ):
        path = np.char.add(np.char.add(root, namespace), end)
        with_topic = topic if "/t" in end else None
        add_nodes(cluster, kind, path, namespace, with_topic)
        cluster.must_find("metadata", kind, path)
    homeless = np.char.add(np.char.add("no-tenant-", numbers), "/ns")
    path = np.char.add("/admin/policies/", homeless)
    add_nodes(cluster, "namespace", path, homeless)
    cluster.must_find("metadata", "namespace", path)


def _partitions_beyond_their_topic(cluster: Cluster, numbers: np.ndarray) -> None:
    """Adds partitions above the number of their topic, and partitions of a topic that is not partitioned."""
    namespace = np.full(len(numbers), "tenant/ns-0")
    partitions = np.arange(len(numbers)) + 12
    for base in (np.full(len(numbers), "topic-0"), np.char.add("plain-", numbers)):
        name = np.char.add(np.char.add(base, "-partition-"), partitions.astype(str))
        topic = np.char.add("persistent://tenant/ns-0/", name)
        path = np.char.add("/managed-ledgers/tenant/ns-0/persistent/", name)
        cluster.add("topics", topic=topic, namespace=namespace, partitions=np.zeros(len(numbers), int))
        add_nodes(cluster, "managed-ledger", path, namespace, topic)
        cluster.must_find("metadata", "managed-ledger", path)


def _empty_parents(cluster: Cluster, numbers: np.ndarray) -> None:
    path = np.char.add("/managed-ledgers/left-", numbers)
    add_nodes(cluster, "parent", path, bytes_=0)
    cluster.must_find("metadata", "parent", path)
    add_nodes(cluster, "parent", np.array(["/managed-ledgers", "/schemas", "/admin/policies"]), bytes_=0)


def _ledgers(cluster: Cluster, numbers: np.ndarray) -> None:
    """Adds ledgers without a reference; the audits must leave out the young ones."""
    for kind, component, age_ms in (
        ("orphan", "managed-ledger", 700 * DAY_MS),
        ("orphan", "schema", 700 * DAY_MS),
        ("unknown-owner", None, 700 * DAY_MS),
        ("unknown-owner", "another-application", 700 * DAY_MS),
        (None, "managed-ledger", 1000),
        ("deletion-unfinished", "managed-ledger", 700 * DAY_MS),
    ):
        ids = cluster.ledger_ids(len(numbers))
        add_ledgers(cluster, ids, component, age_ms)
        if kind is not None:
            cluster.must_find("ledgers", kind, ids)
        if kind == "deletion-unfinished":
            topic = np.full(len(ids), "persistent://tenant/ns-0/topic-500")
            cluster.add(
                "references", ledger_id=ids, kind=np.full(len(ids), "deleting"), topic=topic, owner=topic
            )


def _references(cluster: Cluster, numbers: np.ndarray) -> None:
    """Adds references to absent ledgers, and to existing ledgers of cursors and compacted topics."""
    topic = np.char.add("persistent://tenant/ns-3/refers-", numbers)
    for kind in ("managed-ledger", "cursor", "schema", "compacted"):
        ids = cluster.ledger_ids(len(numbers))
        columns = {"ledger_id": ids, "kind": np.full(len(ids), kind), "topic": topic, "owner": topic}
        if kind == "managed-ledger":
            columns |= {
                "ordinal": np.zeros(len(ids), int),
                "entries": np.ones(len(ids), int),
                "bytes": np.ones(len(ids), int),
                "closed_ms": np.full(len(ids), cluster.taken_ms - DAY_MS),
            }
        cluster.add("references", **columns)
        cluster.must_find("ledgers", f"missing-{kind}", ids)
    for kind, component in (("cursor", "managed-ledger"), ("compacted", "compacted-ledger")):
        refer(cluster, kind, topic, topic, component)


def _list_of(cluster: Cluster, topic: np.ndarray, closed_ms: int, entries: int, bytes_: int) -> np.ndarray:
    """Adds a closed ledger and an open one for each topic; returns the ids of the closed ones."""
    ids = cluster.ledger_ids(2 * len(topic))
    for ordinal, some in enumerate((ids[::2], ids[1::2])):
        cluster.add(
            "references",
            ledger_id=some,
            kind=np.full(len(topic), "managed-ledger"),
            topic=topic,
            owner=topic,
            ordinal=np.full(len(topic), ordinal),
            entries=np.full(len(topic), 0 if ordinal else entries),
            bytes=np.full(len(topic), 0 if ordinal else bytes_),
            closed_ms=pa.nulls(len(topic), pa.int64()) if ordinal else np.full(len(topic), closed_ms),
        )
    add_ledgers(cluster, ids, "managed-ledger")
    return ids[::2]


def _topics(cluster: Cluster, space: int, name: str, numbers: np.ndarray) -> tuple[np.ndarray, ...]:
    namespace = np.full(len(numbers), f"tenant/ns-{space}")
    names = np.char.add(f"{name}-", numbers)
    topic = np.char.add(f"persistent://tenant/ns-{space}/", names)
    log = np.char.add(f"/managed-ledgers/tenant/ns-{space}/persistent/", names)
    add_nodes(cluster, "managed-ledger", log, namespace, topic)
    cluster.add("topics", topic=topic, namespace=namespace, partitions=np.zeros(len(numbers), int))
    return topic, log, namespace


def _subscriptions(cluster: Cluster, numbers: np.ndarray) -> None:
    """Adds subscriptions with many holes, and others far from the end of the log, on topics with endless retention."""
    for kind, entries, bytes_, ranges in (("holes", 10_000, 10_000, 5000), ("backlog", 4000, 2 << 30, 0)):
        topic, log, namespace = _topics(cluster, 3, kind, numbers)
        ids = _list_of(cluster, topic, cluster.taken_ms - 60_000, entries, bytes_)
        add_cursors(cluster, topic, log, namespace, "s", ids, ranges)
        cluster.must_find("acks", kind, np.char.add(topic, " s"))


def _overdue_ledgers(cluster: Cluster, numbers: np.ndarray) -> None:
    """Adds ledgers kept past their TTL, and ledgers passed by all subscriptions, in a namespace without retention."""
    for kind in ("expired", "consumed"):
        topic, log, namespace = _topics(cluster, 1, kind, numbers)
        ids = _list_of(cluster, topic, cluster.taken_ms - 40 * DAY_MS, 10, LEDGER_BYTES)
        add_cursors(cluster, topic, log, namespace, "s", ids if kind == "expired" else ids + 1)
        cluster.must_find("lifecycle", kind, ids)
