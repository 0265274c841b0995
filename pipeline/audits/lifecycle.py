"""`audit lifecycle`: finds closed ledgers that brokers should have removed.

A broker removes a ledger when every subscription has passed it and its retention is over; the TTL moves subscriptions on.
So a closed ledger is due at the latest
    with a TTL: the longer of TTL and retention after it was closed,
    passed by all subscriptions: when its retention is over and the last subscription has passed it.
Without a TTL a subscription may keep it for ever, and an endless retention does. The last ledger of a list is never
due. Retention by size may remove earlier, which is no error. Policies of a topic override those of its namespace; a
partition has those of its partitioned topic.

A snapshot has neither the events with policies of topics nor the positions in cursor ledgers. The position of a node may
be too far: a subscription may have been moved back since. A topic with such a gap whose ledgers are due by the rest is one
row, which names no ledger.

classes    expired     its TTL is over, and a subscription is still before its end
           consumed    every subscription has passed it
           unjudged    a topic with ledgers that would be due; the snapshot lacks policies or positions
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from bookkeeper.leaks.rules import PARTITION
from pipeline.audits.limits import Limits
from pipeline.audits.plan import age_s, findings
from pipeline.audits.snapshot import Snapshot

_EVENTS_UNREAD = "its own policies may be events in __change_events, which a snapshot does not read"
_POSITIONS_UNREAD = "a subscription's position is in a cursor ledger, which a snapshot does not read"


def audit_lifecycle(snapshot: Snapshot, limits: Limits) -> DataFrame:
    """Returns a plan with one row per ledger that is due, and one per topic that cannot be judged."""
    judged = _with_slowest(snapshot, _with_policies(snapshot, _closed(snapshot), limits))
    # The broker checks TTL and retention at intervals, so a ledger may be late by as much.
    taken = snapshot.taken_ms - limits.slack_s * 1000
    due = _due(judged, taken)
    # Few rows are due, so this grouping moves little. A subject that is a ledger is a group of one.
    rows = due.groupBy(
        *("class", "topic", "gap", "ttl_s", "retention_minutes"),
        F.when(F.col("gap").isNull(), F.col("ledger_id").cast("string"))
        .otherwise(F.col("topic"))
        .alias("subject"),
    ).agg(F.count("*").alias("ledgers"), F.min("closed_ms").alias("closed_ms"), F.sum("bytes").alias("bytes"))
    age = age_s(snapshot.taken_ms, "closed_ms")
    policies = F.format_string("TTL %d s, retention %d min", F.col("ttl_s"), F.col("retention_minutes"))
    return findings(
        rows,
        kind=F.col("class"),
        reason=F.when(F.col("gap").isNull(), F.format_string("%s, closed %d s ago", policies, age)).otherwise(
            F.format_string("%d ledgers are due by %s, but %s", F.col("ledgers"), policies, F.col("gap"))
        ),
        subject="subject",
        age=age,
    )


def _due(judged: DataFrame, taken: int) -> DataFrame:
    """Returns the ledgers that were due before `taken`, a time in ms, with `class` and `gap`.

    `gap` says what the snapshot lacks for a judgement; else null.
    """
    return (
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
        .withColumn(
            "gap",
            F.when(F.col("in_events"), F.lit(_EVENTS_UNREAD))
            # A ledger that is due by its TTL is due wherever the subscriptions are.
            .when(
                ~F.col("positions_known") & F.expr(f"coalesce(by_ttl > {taken}, true)"),
                F.lit(_POSITIONS_UNREAD),
            ),
        )
        .withColumn(
            "class",
            F.when(F.col("gap").isNotNull(), F.lit("unjudged"))
            .when(F.col("passed"), F.lit("consumed"))
            .otherwise(F.lit("expired")),
        )
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
    """Adds `ttl_s`, `retention_minutes` and `in_events` to each row.

    They are those of the topic, else its global ones, else those of its namespace, else of the limits. `in_events` is
    true where the topic may have others, and else null.
    """
    policies = snapshot.table("policies")
    of_topics = (
        policies.where("level in ('topic', 'topic-global')")
        .groupBy(_base("name").alias("base"))
        .agg(
            *(
                F.max(F.when(F.col("level") == level, F.col(column))).alias(f"{scope}_{name}")
                for level, scope in (("topic", "local"), ("topic-global", "global"))
                for column, name in (("ttl_s", "ttl_s"), ("retention_minutes", "retention"))
            )
        )
    )
    of_namespaces = policies.where("level = 'namespace'").selectExpr(
        "name as namespace", "ttl_s as namespace_ttl_s", "retention_minutes as namespace_retention"
    )
    # Several rows per namespace where the events have partitions.
    with_events = policies.where("level = 'topic-events'").selectExpr("name as namespace").distinct()
    return (
        ledgers.withColumn("base", _base("topic"))
        .join(of_topics, "base", "left")
        # A cluster has far fewer namespaces than ledgers: sent to each task, they move no ledger.
        .join(F.broadcast(of_namespaces), "namespace", "left")
        .join(F.broadcast(with_events.withColumn("in_events", F.lit(True))), "namespace", "left")
        .withColumn(
            "ttl_s", F.coalesce("local_ttl_s", "global_ttl_s", "namespace_ttl_s", F.lit(limits.ttl_s))
        )
        .withColumn(
            "retention_minutes",
            F.coalesce(
                "local_retention", "global_retention", "namespace_retention", F.lit(limits.retention_minutes)
            ),
        )
    )


def _base(topic: str) -> Column:
    """Returns the topic of the column's partition, or the topic itself."""
    return F.regexp_replace(topic, PARTITION, "$1")


def _with_slowest(snapshot: Snapshot, ledgers: DataFrame) -> DataFrame:
    """Adds `slowest`, `moved_ms` and `positions_known` to each row; null without subscriptions.

    `slowest` is the lowest mark-delete position of the topic, `moved_ms` the latest change of one. `positions_known` is
    false where a position is older than one in a cursor ledger.
    """
    slowest = (
        snapshot.table("cursors")
        .groupBy("topic")
        .agg(
            F.min(F.struct("mark_ledger", "mark_entry")).alias("slowest"),
            F.max("modified_ms").alias("moved_ms"),
            F.min("acks_known").alias("positions_known"),
        )
    )
    return ledgers.join(slowest, "topic", "left")
