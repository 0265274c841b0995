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

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pipeline.audits.limits import Limits
from pipeline.audits.plan import age_s, findings, old_enough, together
from pipeline.audits.snapshot import Snapshot

_KNOWN_COMPONENTS = ("managed-ledger", "schema", "compacted-ledger", "delayed-index-bucket")


def audit_ledgers(snapshot: Snapshot, limits: Limits) -> DataFrame:
    """Return a plan: one row per unreferenced ledger and per broken reference."""
    references, ledgers = snapshot.table("references"), snapshot.table("ledgers")
    return together(
        [_unreferenced(snapshot, ledgers, references, limits), _missing(snapshot, ledgers, references)]
    )


def _unreferenced(snapshot: Snapshot, ledgers: DataFrame, references: DataFrame, limits: Limits) -> DataFrame:
    needed = references.where("kind <> 'deleting'").select("ledger_id")
    decided = references.where("kind = 'deleting'").select("ledger_id", "topic").dropDuplicates(["ledger_id"])
    left = (
        # An anti join first: nearly all ledgers are needed, and the next join sees the few that are left.
        ledgers.join(needed, "ledger_id", "left_anti")
        .join(decided, "ledger_id", "left")
        .where(old_enough(snapshot.taken_ms, "created_ms", limits.grace_s) | F.col("topic").isNotNull())
    )
    unfinished = F.col("topic").isNotNull()
    known = (F.col("application") == "pulsar") & F.col("component").isin(*_KNOWN_COMPONENTS)
    # Ledgers of other applications have null here.
    known = F.coalesce(known, F.lit(False))
    return findings(
        left,
        kind=_choose(unfinished, "deletion-unfinished", known, "orphan", "unknown-owner"),
        reason=_choose(
            unfinished,
            "its topic has marked it as deleting",
            known,
            "no topic, cursor, schema, compaction or delayed delivery refers to it",
            "nothing refers to it, and its metadata does not name Pulsar: ask its owner",
        ),
        subject="ledger_id",
        age=age_s(snapshot.taken_ms, "created_ms"),
    )


def _missing(snapshot: Snapshot, ledgers: DataFrame, references: DataFrame) -> DataFrame:
    """Return references to absent ledgers.

    The last ledger of a list is left out while it is empty: a broker may write the list before the ledger. So is a
    ledger beside a list, whose name stays until it is certain that the ledger is gone.
    """
    expected = references.where("kind not in ('deleting', 'beside')").where(
        "kind <> 'managed-ledger' or (closed_ms is not null and entries > 0)"
    )
    return findings(
        expected.join(ledgers.select("ledger_id"), "ledger_id", "left_anti"),
        kind=F.concat(F.lit("missing-"), F.col("kind")),
        reason=F.concat(F.lit("its metadata is missing, and this refers to it: "), F.col("owner")),
        subject="ledger_id",
        age=age_s(snapshot.taken_ms, "closed_ms"),
    )


def _choose(first: Column, first_text: str, second: Column, second_text: str, last_text: str) -> Column:
    return F.when(first, F.lit(first_text)).when(second, F.lit(second_text)).otherwise(F.lit(last_text))
