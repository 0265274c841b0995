"""`audit metadata`: finds nodes whose topic, namespace or tenant does not exist.

A topic exists if it has a managed ledger that is not being deleted, or if it is partitioned; its partitions then exist
too, used or not. A namespace exists if it has policies, a tenant likewise. Nodes of non-persistent topics are left out,
because such topics leave no node of their own that would show whether they exist.

Apache's brokers use namespaces without policies for themselves: `pulsar/HOST:PORT` and `pulsar/CLUSTER/HOST:PORT` for
health checks, `sla-monitor/CLUSTER/HOST:PORT`, and `pulsar/system`. They are in use as long as that broker is
registered in `/loadbalance/brokers`; after its end its nodes are leaks like any other.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pipeline.audits.limits import Limits
from pipeline.audits.plan import age_s, findings, old_enough
from pipeline.audits.snapshot import Snapshot

_PARTITION = r"^(.*)-partition-(\d+)$"
_SCHEMAS = ("schema", "schema-index", "schema-version")
_OF_TOPICS = ("managed-ledger", "cursor", "topic-policies", "partitioned-topic", *_SCHEMAS)
_OF_NAMESPACES = ("local-policies", "bundle-owner", "bundle-data")
_ROOTS = r"^/(managed-ledgers|ledgers|schemas|schema-versions|namespace|admin/[^/]+|loadbalance/[^/]+)$"
"""Nodes that a cluster creates at its start and that may stay empty."""
_BROKERS = "/loadbalance/brokers/"
"""Below it, one node per running broker, named `HOST:PORT`; gone with the broker's session."""
_CLUSTERS = "/admin/clusters/"
_OF_BROKER = r"/(?:pulsar|sla-monitor)/(?:[^/]+/)?([^/:]+:\d+)(?:/|$)"
"""Paths of nodes in a broker's own namespaces; the group is the broker's name."""
_SYSTEM_NAMESPACE = "pulsar/system"

_REASONS: tuple[tuple[str, str], ...] = (
    ("no_tenant", "its tenant does not exist"),
    ("no_broker", "it is a broker's own, and no such broker is registered"),
    ("no_namespace", "its namespace does not exist"),
    ("no_partition", "it is a partition that its topic does not have"),
    ("no_topic", "its topic does not exist"),
    ("empty", "nothing is left below it"),
)


def audit_metadata(snapshot: Snapshot, limits: Limits) -> DataFrame:
    """Return a plan with one row per superfluous node.

    Its classes are the kinds of nodes.
    """
    judged = _judge(_with_owners(snapshot))
    leaked = judged.where(F.col("reason").isNotNull()).where(
        old_enough(snapshot.taken_ms, "modified_ms", limits.grace_s)
    )
    return findings(
        leaked,
        kind=F.col("kind"),
        reason=F.col("reason"),
        subject="path",
        age=age_s(snapshot.taken_ms, "modified_ms"),
    )


def _with_owners(snapshot: Snapshot) -> DataFrame:
    """Add to each node the existence of its tenant, namespace and topic.

    One row per node; columns own, partitions, has_namespace, has_tenant, has_broker, has_cluster (null = absent), base,
    index, broker (empty = of no broker), any_broker.
    """
    nodes = snapshot.table("nodes")
    topics = snapshot.table("topics").groupBy("topic").agg(F.max("partitions").alias("own"))
    parents = topics.where("own > 0").select(F.col("topic").alias("base"), F.col("own").alias("partitions"))
    namespaces = nodes.where("kind = 'namespace'").select("namespace", F.lit(True).alias("has_namespace"))
    tenants = nodes.where("kind = 'tenant'").select(
        F.element_at(F.split("path", "/"), -1).alias("tenant"), F.lit(True).alias("has_tenant")
    )
    brokers = _names_below(nodes, _BROKERS, "broker", "has_broker")
    # Without any broker the cluster is stopped, and its brokers' own nodes say nothing about leaks.
    running = brokers.agg((F.count("*") > 0).alias("any_broker"))
    clusters = _names_below(nodes, _CLUSTERS, "second", "has_cluster")
    is_partition = F.col("topic").contains(
        "-partition-"
    )  # Cheap, so that few rows need the regular expression.
    return (
        nodes.where(F.col("kind").isin(*_OF_TOPICS, *_OF_NAMESPACES, "namespace", "parent"))
        .withColumn("base", F.when(is_partition, F.regexp_extract("topic", _PARTITION, 1)))
        .withColumn(
            "index",
            F.when(is_partition, F.expr(f"try_cast(regexp_extract(topic, r'{_PARTITION}', 2) as long)")),
        )
        .withColumn("tenant", F.element_at(F.split("namespace", "/"), 1))
        .withColumn("second", F.element_at(F.split("namespace", "/"), 2))
        .withColumn("broker", F.regexp_extract("path", _OF_BROKER, 1))
        .join(topics, "topic", "left")
        # These are small beside the nodes. Sent to each task they move none of them; the topics above are too
        # many.
        .join(F.broadcast(parents), "base", "left")
        .join(F.broadcast(namespaces), "namespace", "left")
        .join(F.broadcast(tenants), "tenant", "left")
        .join(F.broadcast(brokers), "broker", "left")
        .join(F.broadcast(clusters), "second", "left")
        .crossJoin(F.broadcast(running))
    )


def _names_below(nodes: DataFrame, path: str, column: str, flag: str) -> DataFrame:
    """Return one row per child of `path`: its name in `column`, and True in `flag`."""
    rest = F.substring("path", len(path) + 1, 1 << 20)
    return nodes.where(F.col("path").startswith(path) & ~rest.contains("/")).select(
        rest.alias(column), F.lit(True).alias(flag)
    )


def _judge(nodes: DataFrame) -> DataFrame:
    kind, index = F.col("kind"), F.col("index")
    persistent = F.col("topic").startswith("persistent://")
    is_partition = index.isNotNull() & (index < F.coalesce(F.col("partitions"), F.lit(0)))
    exists = F.col("own").isNotNull() | is_partition
    of_owners = kind.isin(*_OF_TOPICS, *_OF_NAMESPACES)
    of_broker = F.col("broker") != ""
    # `/namespace/pulsar/CLUSTER` is a parent of brokers' own nodes; its path looks like that of a namespace.
    above_brokers = F.col("tenant").isin("pulsar", "sla-monitor") & F.col("has_cluster").isNotNull()
    brokers_own = of_broker | above_brokers | (F.col("namespace") == _SYSTEM_NAMESPACE)
    conditions: dict[str, Column] = {
        "no_broker": of_owners & of_broker & F.col("any_broker") & F.col("has_broker").isNull(),
        "no_tenant": (kind == "namespace") & F.col("has_tenant").isNull(),
        "no_namespace": of_owners & F.col("has_namespace").isNull() & ~brokers_own,
        "no_partition": kind.isin(*_OF_TOPICS) & index.isNotNull() & ~is_partition,
        "no_topic": kind.isin("cursor", "topic-policies", *_SCHEMAS) & persistent & ~exists,
        "empty": (kind == "parent")
        & (F.col("bytes") == 0)
        & (F.col("children") == 0)
        & ~F.col("path").rlike(_ROOTS),
    }
    reason = F.lit(None).cast("string")
    # The first reason of the list wins, so the columns are nested from the last one on.
    for name, text in reversed(_REASONS):
        reason = F.when(conditions[name], F.lit(text)).otherwise(reason)
    return nodes.withColumn("reason", reason)
