"""`audit ledgers`: finds ledgers without references, and references to absent ledgers.

Ledger lists of topics, cursors, schemas and compacted topics refer to ledgers; a list also names buckets of delayed
entries and ledgers beside it. A ledger that its list marks as `deleting` has no reference: its removal was decided and not
finished.

classes    orphan                a ledger of Pulsar's without a reference
           unknown-owner         without a reference, and of a kind whose references a snapshot does not have
           deletion-unfinished   its removal was decided; the next load of its topic finishes it
           missing-<kind>        referred to and absent: managed-ledger, cursor, schema, compacted, delayed
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from bookkeeper.leaks.rules import COMPONENTS, DECIDED, judge_unreferenced, missing, must_exist
from pipeline.audits.limits import Limits
from pipeline.audits.plan import age_s, findings, old_enough, together
from pipeline.audits.snapshot import Snapshot


def audit_ledgers(snapshot: Snapshot, limits: Limits) -> DataFrame:
    """Returns a plan: one row per unreferenced ledger and per broken reference."""
    references, ledgers = snapshot.table("references"), snapshot.table("ledgers")
    return together(
        [_unreferenced(snapshot, ledgers, references, limits), _missing(snapshot, ledgers, references)]
    )


def _unreferenced(snapshot: Snapshot, ledgers: DataFrame, references: DataFrame, limits: Limits) -> DataFrame:
    needed = references.where(F.col("kind") != DECIDED).select("ledger_id")
    decided = (
        references.where(F.col("kind") == DECIDED).select("ledger_id", "topic").dropDuplicates(["ledger_id"])
    )
    left = (
        # An anti join first: nearly all ledgers are needed, and the next join sees the few that are left.
        ledgers.join(needed, "ledger_id", "left_anti").join(decided, "ledger_id", "left")
    )
    judged = left.select(
        "*",
        F.col("topic").isNotNull().alias("decided"),
        # Ledgers of other applications have null here.
        F.coalesce(
            (F.col("application") == "pulsar") & F.col("component").isin(*COMPONENTS), F.lit(False)
        ).alias("of_pulsar"),
    ).join(F.broadcast(_verdicts(snapshot)), ["decided", "of_pulsar"])
    return findings(
        judged,
        kind=F.col("class"),
        reason=F.col("reason"),
        subject="ledger_id",
        age=age_s(snapshot.taken_ms, "created_ms"),
        # A decided deletion is one at any age: its owner was written before.
        young=~(old_enough(snapshot.taken_ms, "created_ms", limits.grace_s) | F.col("topic").isNotNull()),
    )


def _verdicts(snapshot: Snapshot) -> DataFrame:
    rows = [
        (decided, of_pulsar, *judge_unreferenced(decided=decided, of_pulsar=of_pulsar))
        for decided in (False, True)
        for of_pulsar in (False, True)
    ]
    return snapshot.spark.createDataFrame(
        rows, "decided boolean, of_pulsar boolean, class string, reason string"
    )


def _missing(snapshot: Snapshot, ledgers: DataFrame, references: DataFrame) -> DataFrame:
    """Returns references to absent ledgers."""
    kinds = [row.kind for row in references.select("kind").distinct().collect()]
    surely = [kind for kind in kinds if must_exist(reference=kind, closed_with_entries=False)]
    closed = [kind for kind in kinds if must_exist(reference=kind, closed_with_entries=True)]
    expected = references.where(
        F.col("kind").isin(*surely)
        | (F.col("kind").isin(*closed) & F.col("closed_ms").isNotNull() & (F.col("entries") > 0))
    )
    return findings(
        expected.join(ledgers.select("ledger_id"), "ledger_id", "left_anti"),
        # The rule's texts with Spark's place-holder for the column.
        kind=F.format_string(missing("%s", "").kind, F.col("kind")),
        reason=F.format_string(missing("", "%s").reason, F.col("owner")),
        subject="ledger_id",
        age=age_s(snapshot.taken_ms, "closed_ms"),
    )
