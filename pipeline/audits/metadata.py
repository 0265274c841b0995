"""`audit metadata`: finds nodes whose topic, namespace or tenant does not exist.

A topic exists if it has a managed ledger that is not being deleted, or if it is partitioned; its partitions then exist
too, used or not. A namespace exists if it has policies, a tenant likewise. Policies of non-persistent topics are left out,
because such topics leave no node of their own that would show whether they exist. The path of a schema does not tell the
domain of its topic, so a schema of a non-persistent topic is found, unless that topic is partitioned.

Apache's brokers use namespaces without policies for themselves: `pulsar/HOST:PORT` and `pulsar/CLUSTER/HOST:PORT` for
health checks, `sla-monitor/CLUSTER/HOST:PORT`, and `pulsar/system`. They are in use as long as that broker is
registered in `/loadbalance/brokers`; after its end its nodes are leaks like any other.
"""

from __future__ import annotations

import itertools

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from bookkeeper.leaks.rules import (
    BROKER_TENANTS,
    BROKERS,
    CLUSTERS,
    JUDGED,
    OF_BROKER,
    PARTITION,
    ROOTS,
    SCHEMAS,
    SYSTEM_NAMESPACE,
    NodeFacts,
    judge_node,
)
from pipeline.audits.limits import Limits
from pipeline.audits.plan import age_s, findings, old_enough
from pipeline.audits.snapshot import Snapshot

_FLAGS = NodeFacts._fields[1:]
"""Names of the facts that are flags: all but the kind."""


def audit_metadata(snapshot: Snapshot, limits: Limits) -> DataFrame:
    """Returns a plan with one row per superfluous node. Its classes are the kinds of nodes."""
    # An inner join: combinations without a finding are not in the table of verdicts.
    judged = _with_facts(_with_owners(snapshot)).join(F.broadcast(_verdicts(snapshot)), ["kind", *_FLAGS])
    return findings(
        judged,
        kind=F.col("kind"),
        reason=F.col("reason"),
        subject="path",
        age=age_s(snapshot.taken_ms, "modified_ms"),
        young=~old_enough(snapshot.taken_ms, "modified_ms", limits.grace_s),
    )


def _with_owners(snapshot: Snapshot) -> DataFrame:
    """Adds to each node the existence of its tenant, namespace and topic.

    One row per node; columns own, partitions, twin, has_namespace, has_tenant, has_broker, has_cluster (null = absent),
    base, index, broker (empty = of no broker), any_broker.
    """
    nodes = snapshot.table("nodes")
    topics = snapshot.table("topics").groupBy("topic").agg(F.max("partitions").alias("own"))
    parents = topics.where("own > 0").select(F.col("topic").alias("base"), F.col("own").alias("partitions"))
    namespaces = nodes.where("kind = 'namespace'").select("namespace", F.lit(True).alias("has_namespace"))
    tenants = nodes.where("kind = 'tenant'").select(
        F.element_at(F.split("path", "/"), -1).alias("tenant"), F.lit(True).alias("has_tenant")
    )
    brokers = _names_below(nodes, BROKERS, "broker", "has_broker")
    # Without any broker the cluster is stopped, and its brokers' own nodes say nothing about leaks.
    running = brokers.agg((F.count("*") > 0).alias("any_broker"))
    clusters = _names_below(nodes, CLUSTERS, "second", "has_cluster")
    # Cheap, so that few rows need the regular expression.
    is_partition = F.col("topic").contains("-partition-")
    owned = (
        nodes.where(F.col("kind").isin(*JUDGED))
        .withColumn("base", F.when(is_partition, F.regexp_extract("topic", PARTITION, 1)))
        .withColumn(
            "index",
            F.when(is_partition, F.expr(f"try_cast(regexp_extract(topic, r'{PARTITION}', 2) as long)")),
        )
        .withColumn("tenant", F.element_at(F.split("namespace", "/"), 1))
        .withColumn("second", F.element_at(F.split("namespace", "/"), 2))
        .withColumn("broker", F.regexp_extract("path", OF_BROKER, 1))
        .join(topics, "topic", "left")
        # These are small beside the nodes. Sent to each task they move none of them; the topics above are too
        # many.
        .join(F.broadcast(parents), "base", "left")
        .join(F.broadcast(_twins(topics)), "topic", "left")
        .join(F.broadcast(namespaces), "namespace", "left")
        .join(F.broadcast(tenants), "tenant", "left")
        .join(F.broadcast(brokers), "broker", "left")
        .join(F.broadcast(clusters), "second", "left")
        .crossJoin(F.broadcast(running))
    )
    return _with_deletions(owned, nodes)


def _with_deletions(owned: DataFrame, nodes: DataFrame) -> DataFrame:
    """Adds to each node whether a deletion of its topic, partitioned topic or namespace is under way.

    The columns topic_deleted, base_deleted and namespace_deleted are True or null.
    """
    deletions = nodes.where("kind = 'deletion'")
    topics = deletions.where("topic is not null").select("topic").distinct()
    namespaces = deletions.where("topic is null and namespace is not null").select("namespace").distinct()
    # Few of them are under way at a time, or none.
    of_topics = F.broadcast(topics.withColumn("topic_deleted", F.lit(True)))
    of_bases = F.broadcast(topics.select(F.col("topic").alias("base"), F.lit(True).alias("base_deleted")))
    of_namespaces = F.broadcast(namespaces.withColumn("namespace_deleted", F.lit(True)))
    return (
        owned.join(of_topics, "topic", "left")
        .join(of_bases, "base", "left")
        .join(of_namespaces, "namespace", "left")
    )


def _twins(topics: DataFrame) -> DataFrame:
    """Returns the name that a persistent topic would have, for each that is known and not persistent; True in `twin`."""
    others = topics.where("topic like 'non-persistent://%'")
    return others.selectExpr("substring(topic, 5) topic", "true twin")


def _names_below(nodes: DataFrame, path: str, column: str, flag: str) -> DataFrame:
    """Returns one row per child of `path`: its name in `column`, and True in `flag`."""
    rest = F.substring("path", len(path) + 1, 1 << 20)
    return nodes.where(F.col("path").startswith(path) & ~rest.contains("/")).select(
        rest.alias(column), F.lit(True).alias(flag)
    )


def _with_facts(nodes: DataFrame) -> DataFrame:
    """Adds a column for each flag of `NodeFacts`."""
    index, of_broker = F.col("index"), F.col("broker") != ""
    is_partition = index.isNotNull() & (index < F.coalesce(F.col("partitions"), F.lit(0)))
    # `/namespace/pulsar/CLUSTER` is a parent of brokers' own nodes; its path looks like that of a namespace.
    above_brokers = F.col("tenant").isin(*BROKER_TENANTS) & F.col("has_cluster").isNotNull()
    facts: dict[str, Column] = {
        "persistent": F.col("topic").startswith("persistent://"),
        "topic_exists": F.col("own").isNotNull()
        | is_partition
        | (F.col("kind").isin(*SCHEMAS) & F.col("twin").isNotNull()),
        "beyond_partitions": index.isNotNull() & ~is_partition,
        "has_namespace": F.col("has_namespace").isNotNull(),
        "has_tenant": F.col("has_tenant").isNotNull(),
        "broker_gone": of_broker & F.col("any_broker") & F.col("has_broker").isNull(),
        "of_brokers": of_broker | above_brokers | (F.col("namespace") == SYSTEM_NAMESPACE),
        "empty": (F.col("bytes") == 0) & (F.col("children") == 0) & ~F.col("path").rlike(ROOTS),
        "being_deleted": F.col("topic_deleted").isNotNull()
        | F.col("base_deleted").isNotNull()
        | F.col("namespace_deleted").isNotNull(),
    }
    # A flag about a part that the path does not have is null in Spark, and a null would match no verdict.
    return nodes.select(
        "path",
        "kind",
        "topic",
        "bytes",
        "modified_ms",
        *(F.coalesce(facts[name], F.lit(False)).alias(name) for name in _FLAGS),
    )


def _verdicts(snapshot: Snapshot) -> DataFrame:
    """Returns the rule's answer to each combination of facts that has one, as a small table."""
    rows = []
    for kind in JUDGED:
        for flags in itertools.product((False, True), repeat=len(_FLAGS)):
            reason = judge_node(NodeFacts(kind, *flags))
            if reason is not None:
                rows.append((kind, *flags, reason))
    columns = ", ".join(f"{name} boolean" for name in _FLAGS)
    return snapshot.spark.createDataFrame(rows, f"kind string, {columns}, reason string")
