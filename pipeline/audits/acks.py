"""`audit acks`: finds subscriptions with many holes or a large backlog.

A hole is an unacknowledged entry before an acknowledged one. A subscription costs acked ranges beyond the mark-delete
position, entries in holes, entries and bytes that are unacknowledged (the backlog), bytes of its own state, and the bytes
of ledgers kept for this subscription alone: those between its mark-delete position and the one of the next slowest
subscription. Entries come from the ledger lists, so the open ledger counts with the numbers of its list.

A subscription whose position is in a cursor ledger has an old one in its node, by hours, and too far after a seek. Its costs
are null, and so are the bytes that others of its topic hold alone.

classes    holes      acked ranges >= Limits.ranges_min; beyond the broker's limit a restart delivers messages again
           backlog    unacknowledged bytes >= Limits.backlog_bytes_min
           unjudged   one of both by the old position
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pipeline.audits.limits import Limits
from pipeline.audits.plan import age_s, findings, together
from pipeline.audits.snapshot import Snapshot

COSTS = ("ranges", "hole_entries", "backlog_entries", "backlog_bytes", "held_bytes", "state_bytes")
"""Columns of this audit's plan after those of every plan."""


def audit_acks(snapshot: Snapshot, limits: Limits) -> DataFrame:
    """Returns a plan with the columns of `COSTS` after its own. One row per class and subscription found."""
    costs = subscription_costs(snapshot).withColumn(
        "subject", F.concat_ws(" ", F.col("topic"), F.col("subscription"))
    )
    age = age_s(snapshot.taken_ms, "modified_ms")
    many_ranges = F.col("ranges") >= limits.ranges_min
    much_backlog = F.col("backlog_bytes") >= limits.backlog_bytes_min
    known = costs.where("acks_known")
    holes = findings(
        known.where(many_ranges),
        kind="holes",
        reason=F.format_string(
            "%d acked ranges with %d entries missing between them", F.col("ranges"), F.col("hole_entries")
        ),
        subject="subject",
        age=age,
        bytes_="held_bytes",
        more=COSTS,
    )
    backlog = findings(
        known.where(much_backlog),
        kind="backlog",
        reason=F.format_string("%d entries wait for it", F.col("backlog_entries")),
        subject="subject",
        age=age,
        bytes_="backlog_bytes",
        more=COSTS,
    )
    unknown = costs.where(~F.col("acks_known") & (many_ranges | much_backlog)).withColumn(
        "reason",
        F.format_string(
            "%d acked ranges, and %d entries wait for it, by an old position: a snapshot does not read the newer one in"
            " its cursor ledger",
            F.col("ranges"),
            F.col("backlog_entries"),
        ),
    )
    unjudged = findings(
        # A number here would be taken for a fact.
        unknown.withColumns({name: F.lit(None).cast("long") for name in COSTS}),
        kind="unjudged",
        reason=F.col("reason"),
        subject="subject",
        age=age,
        bytes_=F.lit(None),
        more=COSTS,
    )
    return together([holes, backlog, unjudged])


def subscription_costs(snapshot: Snapshot) -> DataFrame:
    """Returns one row per subscription with its costs.

    Columns: topic, subscription, ranges, acked_entries, state_bytes, acks_known, modified_ms, backlog_entries,
    backlog_bytes, held_bytes, hole_entries. Where the position is in a cursor ledger, they follow from the old one in the
    node, except `hole_entries`, which is null. `held_bytes` is null where any subscription of the topic has such a position.
    """
    cursors = _with_next(snapshot.table("cursors"))
    lists = snapshot.table("references").where("kind = 'managed-ledger'")
    lists = lists.select("topic", "ledger_id", "entries", F.col("bytes").alias("ledger_bytes"), "closed_ms")
    # Unacknowledged entries of a ledger: all after the mark-delete ledger, and the rest of that one.
    unread = F.expr(
        "case when ledger_id > mark_ledger then entries"
        " when ledger_id = mark_ledger then greatest(entries - mark_entry - 1, 0) else 0 end"
    )
    # Entries from the mark-delete position to the last acked one; without the acked ones they are the holes.
    to_last = F.expr(
        "case when last_acked_ledger is null or ledger_id > last_acked_ledger or ledger_id < mark_ledger then 0"
        " when ledger_id = last_acked_ledger then last_acked_entry + 1 else entries end"
        " - case when last_acked_ledger is not null and ledger_id = mark_ledger then mark_entry + 1 else 0 end"
    )
    return (
        # Window, join and grouping all have the topic among their keys, so Spark moves the rows of each table once.
        cursors.join(lists, "topic", "left")
        .groupBy(
            *("topic", "subscription", "ranges", "acked_entries", "state_bytes", "acks_known", "modified_ms"),
            "all_known",
        )
        .agg(
            F.coalesce(F.sum(unread), F.lit(0)).alias("backlog_entries"),
            F.coalesce(
                # A list has entries and bytes of whole ledgers, so a part of one counts with the mean size.
                F.sum(F.floor(unread * F.expr("ledger_bytes / greatest(entries, 1)"))),
                F.lit(0),
            ).alias("backlog_bytes"),
            F.coalesce(F.sum(to_last), F.lit(0)).alias("to_last"),
            F.coalesce(
                F.sum(
                    F.when(
                        F.expr("slowest and closed_ms is not null and ledger_id < next_ledger")
                        & (unread > 0),
                        F.col("ledger_bytes"),
                    )
                ),
                F.lit(0),
            ).alias("held_bytes"),
        )
        .withColumn("held_bytes", F.expr("if(all_known, held_bytes, null)"))
        .withColumn("hole_entries", F.expr("if(acks_known, greatest(to_last - acked_entries, 0), null)"))
    )


def _with_next(cursors: DataFrame) -> DataFrame:
    """Adds `slowest` (true for one row per topic), `next_ledger` and `all_known`.

    `next_ledger` is the mark-delete ledger of the next slowest subscription of the topic. For the fastest one it lies
    beyond all ledgers. `all_known` is true where the snapshot has all positions of the topic. One row per subscription.
    """
    order = Window.partitionBy("topic").orderBy("mark_ledger", "mark_entry", "subscription")
    return cursors.withColumns(
        {
            "slowest": F.row_number().over(order) == 1,
            "next_ledger": F.coalesce(F.lead("mark_ledger").over(order), F.lit(2**62)),
            "all_known": F.min("acks_known").over(Window.partitionBy("topic")),
        }
    )
