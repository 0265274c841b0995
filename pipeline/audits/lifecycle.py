"""`audit lifecycle`: finds closed ledgers that brokers should have removed.

A broker removes a ledger when every subscription has passed it and its retention is over; the TTL moves subscriptions on.
So a closed ledger is due at the latest
    with a TTL: the longer of TTL and retention after it was closed,
    passed by all subscriptions: when its retention is over and the last subscription has passed it.
Without a TTL a subscription may keep it for ever, and an endless retention does. The last ledger of a list is never
due. Retention by size may remove earlier, which is no error. Policies of a topic override those of its namespace.

classes    expired     its TTL is over, and a subscription is still before its end
           consumed    every subscription has passed it
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pipeline.audits.limits import Limits
from pipeline.audits.plan import age_s, findings
from pipeline.audits.snapshot import Snapshot


def audit_lifecycle(snapshot: Snapshot, limits: Limits) -> DataFrame:
    """Returns a plan with one row per ledger that is due."""
    judged = _with_slowest(snapshot, _with_policies(snapshot, _closed(snapshot), limits))
    # The broker checks TTL and retention at intervals, so a ledger may be late by as much.
    taken = snapshot.taken_ms - limits.slack_s * 1000
    due = (
        judged.withColumn(
            "passed",
            F.expr(
                "slowest is null or slowest.mark_ledger > ledger_id"
                " or (slowest.mark_ledger = ledger_id and slowest.mark_entry >= entries - 1)"
            ),
        )
        .withColumn(
            "by_ttl",
            F.expr("if(ttl_s > 0, closed_ms + greatest(ttl_s, retention_minutes * 60) * 1000, null)"),
        )
        .withColumn(
            "by_acks",
            F.expr(
                "if(passed, greatest(closed_ms + retention_minutes * 60000, coalesce(moved_ms, 0)), null)"
            ),
        )
        # -1 = for ever.
        .where(F.col("retention_minutes") >= 0)
        .where((F.col("by_ttl") <= taken) | (F.col("by_acks") <= taken))
    )
    return findings(
        due,
        kind=F.when(F.col("passed"), F.lit("consumed")).otherwise(F.lit("expired")),
        reason=F.format_string(
            "TTL %d s, retention %d min, closed %d s ago",
            F.col("ttl_s"),
            F.col("retention_minutes"),
            age_s(snapshot.taken_ms, "closed_ms"),
        ),
        subject="ledger_id",
        age=age_s(snapshot.taken_ms, "closed_ms"),
    )


def _closed(snapshot: Snapshot) -> DataFrame:
    """Returns references to closed ledgers, except the last of each list. One row per reference, with `namespace`."""
    lists = snapshot.table("references").where("kind = 'managed-ledger'")
    of_topic = Window.partitionBy("topic")
    return (
        lists.withColumn("last", F.max("ordinal").over(of_topic))
        .where("ordinal < last and closed_ms is not null")
        .withColumn("namespace", F.regexp_extract("topic", "^[a-z-]+://([^/]+/[^/]+)/", 1))
    )


def _with_policies(snapshot: Snapshot, ledgers: DataFrame, limits: Limits) -> DataFrame:
    """Adds `ttl_s` and `retention_minutes` to each row.

    They are those of the topic, else of its namespace, else of the limits.
    """
    policies = snapshot.table("policies")
    of_topics = policies.where("level = 'topic'").selectExpr(
        "name as topic", "ttl_s as topic_ttl_s", "retention_minutes as topic_retention"
    )
    of_namespaces = policies.where("level = 'namespace'").selectExpr(
        "name as namespace", "ttl_s as namespace_ttl_s", "retention_minutes as namespace_retention"
    )
    return (
        ledgers.join(of_topics, "topic", "left")
        # A cluster has far fewer namespaces than ledgers: sent to each task, they move no ledger.
        .join(F.broadcast(of_namespaces), "namespace", "left")
        .withColumn("ttl_s", F.coalesce("topic_ttl_s", "namespace_ttl_s", F.lit(limits.ttl_s)))
        .withColumn(
            "retention_minutes",
            F.coalesce("topic_retention", "namespace_retention", F.lit(limits.retention_minutes)),
        )
    )


def _with_slowest(snapshot: Snapshot, ledgers: DataFrame) -> DataFrame:
    """Adds `slowest` and `moved_ms` to each row; null without subscriptions.

    `slowest` is the lowest mark-delete position of the topic, `moved_ms` the latest change of one.
    """
    slowest = (
        snapshot.table("cursors")
        .groupBy("topic")
        .agg(
            F.min(F.struct("mark_ledger", "mark_entry")).alias("slowest"),
            F.max("modified_ms").alias("moved_ms"),
        )
    )
    return ledgers.join(slowest, "topic", "left")
