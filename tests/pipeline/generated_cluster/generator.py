"""Generates the snapshot of a cluster of any size, with planted leaks and the list of them.

A fifth of the topics are partitions, ten to a topic. Every topic has up to five ledgers and two subscriptions, every
third a schema. `planted` lists the findings that the audits must make, and the audits must make no other. The healthy part
has cases that resemble leaks: young ledgers without a reference, a backlog of a year that no TTL forbids,
unused partitions, ten acked ranges.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.pipeline.generated_cluster.leaks import plant
from tests.pipeline.generated_cluster.tables import (
    DAY_MS,
    LEDGER_BYTES,
    LEDGER_ENTRIES,
    Cluster,
    add_cursors,
    add_ledgers,
    add_nodes,
    join,
    refer,
    write,
)

TOPICS_PER_NAMESPACE = 600
LEDGERS_MAX = 5
HOUR_MS = 3_600_000


def generate(folder: Path, topics: int, seed: int = 1, leaks: int | None = None) -> Cluster:
    """Writes the snapshot and `planted` into a new folder.

    `leaks`: how many of each class; None = a hundredth of the topics.
    """
    cluster = Cluster(time.time_ns() // 1_000_000)
    random = np.random.default_rng(seed)
    _healthy(cluster, topics, random)
    plant(cluster, topics // 100 if leaks is None else leaks)
    write(cluster, folder)
    return cluster


def _healthy(cluster: Cluster, count: int, random: np.random.Generator) -> None:
    spaces = -(-count // TOPICS_PER_NAMESPACE)
    _namespaces(cluster, spaces)
    number = np.arange(count)
    space = number // TOPICS_PER_NAMESPACE
    namespace = np.char.add("tenant/ns-", space.astype(str))
    partitioned = number % TOPICS_PER_NAMESPACE < TOPICS_PER_NAMESPACE // 5
    base = np.char.add("topic-", np.where(partitioned, number // 10 * 10, number).astype(str))
    suffix = np.where(partitioned, np.char.add("-partition-", (number % 10).astype(str)), "")
    name = np.char.add(base, suffix)
    topic = join("persistent://", namespace, "/", name)
    log = join("/managed-ledgers/", namespace, "/persistent/", name)
    cluster.add("topics", topic=topic, namespace=namespace, partitions=np.zeros(count, int))
    add_nodes(cluster, "managed-ledger", log, namespace, topic)
    parents = partitioned & (number % 10 == 0)
    _partitioned(cluster, namespace[parents], base[parents])
    schemas = number % 3 == 0
    _schemas(cluster, namespace[schemas & ~partitioned], name[schemas & ~partitioned])
    _logs(cluster, topic, namespace, log, space, random)


def _namespaces(cluster: Cluster, spaces: int) -> None:
    """Gives a quarter each a TTL and a retention of days, a TTL alone, neither, and an endless retention."""
    numbers = np.arange(spaces)
    names = np.char.add("tenant/ns-", numbers.astype(str))
    cluster.add(
        "policies",
        level=np.full(spaces, "namespace"),
        name=names,
        ttl_s=np.choose(numbers % 4, [3 * 86_400, 86_400, 0, 86_400]),
        retention_minutes=np.choose(numbers % 4, [2 * 1440, 0, 0, -1]),
        retention_mb=np.choose(numbers % 4, [-1, 0, 0, -1]),
    )
    add_nodes(cluster, "tenant", np.array(["/admin/policies/tenant"]), None, None)
    for kind, root, end in (
        ("namespace", "/admin/policies/", ""),
        ("local-policies", "/admin/local-policies/", ""),
        ("bundle-owner", "/namespace/", "/0x00000000_0xffffffff"),
        ("bundle-data", "/loadbalance/bundle-data/", "/0x00000000_0xffffffff"),
    ):
        add_nodes(cluster, kind, join(root, names, end), names, None)


def _partitioned(cluster: Cluster, namespace: np.ndarray, name: np.ndarray) -> None:
    """Adds partitioned topics with twelve partitions, of which ten have been used."""
    topic = join("persistent://", namespace, "/", name)
    cluster.add("topics", topic=topic, namespace=namespace, partitions=np.full(len(topic), 12))
    path = join("/admin/partitioned-topics/", namespace, "/persistent/", name)
    add_nodes(cluster, "partitioned-topic", path, namespace, topic)
    schema = join("/schemas/", namespace, "/", name)
    add_nodes(cluster, "schema", schema, namespace, topic)


def _schemas(cluster: Cluster, namespace: np.ndarray, name: np.ndarray) -> None:
    topic = join("persistent://", namespace, "/", name)
    path = join("/schemas/", namespace, "/", name)
    add_nodes(cluster, "schema", path, namespace, topic)
    cluster.add("schemas", topic=topic, versions=np.ones(len(topic), int))
    refer(cluster, "schema", topic, path, "schema")


def _logs(
    cluster: Cluster,
    topic: np.ndarray,
    namespace: np.ndarray,
    log: np.ndarray,
    space: np.ndarray,
    random: np.random.Generator,
) -> None:
    """Adds ledger lists, ledgers and subscriptions.

    Topics whose namespace has no TTL get a backlog of a year; the ledgers of all others are half an hour old.
    """
    count = len(topic)
    sizes = random.integers(1, LEDGERS_MAX + 1, count)
    total = int(sizes.sum())
    owner = np.repeat(np.arange(count), sizes)
    first = np.repeat(np.cumsum(sizes) - sizes, sizes)
    ordinal = np.arange(total) - first
    ids = cluster.ledger_ids(total)
    last = ordinal == np.repeat(sizes, sizes) - 1
    patient = np.isin(space % 4, (2, 3))
    old = np.where(patient, 365 * DAY_MS, HOUR_MS // 2)[owner]
    closed = cluster.taken_ms - old - (LEDGERS_MAX - ordinal) * 1000
    cluster.add(
        "references",
        ledger_id=ids,
        kind=np.full(total, "managed-ledger"),
        topic=topic[owner],
        owner=log[owner],
        ordinal=ordinal,
        entries=np.where(last, 0, LEDGER_ENTRIES),
        bytes=np.where(last, 0, LEDGER_BYTES),
        closed_ms=pa.array(closed, mask=last),
    )
    add_ledgers(cluster, ids, "managed-ledger")
    cluster.add(
        "managed_ledgers",
        topic=topic,
        namespace=namespace,
        ledgers=sizes,
        entries=(sizes - 1) * LEDGER_ENTRIES,
        bytes=(sizes - 1) * LEDGER_BYTES,
        deleted=np.zeros(count, bool),
    )
    for subscription in ("a", "b"):
        behind = patient if subscription == "a" else np.zeros(count, bool)
        begin = ids[np.cumsum(sizes) - sizes]
        mark_ledger = np.where(behind, begin, begin + sizes - 1)
        add_cursors(cluster, topic, log, namespace, subscription, mark_ledger, ranges=10 * (space % 2))
