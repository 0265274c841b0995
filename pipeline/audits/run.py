"""One audit from a snapshot's folder to a plan in Parquet, a short text and a page. Nothing is ever deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from pipeline.audits.acks import audit_acks
from pipeline.audits.ledgers import audit_ledgers
from pipeline.audits.lifecycle import audit_lifecycle
from pipeline.audits.limits import Limits
from pipeline.audits.metadata import audit_metadata
from pipeline.audits.snapshot import SnapshotError, open_snapshot
from pipeline.jobs.answer import Answer, Table, TableRow, as_text, mib
from pipeline.jobs.page import write

AUDITS = MappingProxyType(
    {
        "metadata": audit_metadata,
        "ledgers": audit_ledgers,
        "acks": audit_acks,
        "lifecycle": audit_lifecycle,
    }
)
PLAN = "plan"
"""The folder of the findings; what else the page shows are files beside it."""
LARGEST = 20
"""Findings of each class that the page shows."""
DAY_S = 86_400


class ClassSummary(NamedTuple):
    name: str
    findings: int
    bytes: int | None
    oldest_s: int | None


def run_audit(
    spark: SparkSession, name: str, folder: Path, out: Path, limits: Limits, progress: Callable[[str], None]
) -> str:
    """The text; plan and page are in `out`. SnapshotError says what is wrong with the folders."""
    if out.exists():
        raise SnapshotError(f"{out} exists; a plan needs a folder of its own")
    snapshot = open_snapshot(spark, folder)
    progress(f"audit {name}: reading {folder}")
    AUDITS[name](snapshot, limits).write.parquet(str(out / PLAN))
    progress(f"audit {name}: summing up")
    plan = spark.read.parquet(str(out / PLAN))
    found = summarise(plan)
    answer = Answer(f"audit-{name}", f"Audit: {name}", describe(name, found, snapshot.unreadable, out))
    answer.tables["classes"] = Table("By class", [_row(one) for one in found])
    answer.tables["largest"] = Table(
        f"The {LARGEST} largest of each class", largest(plan), shown=LARGEST * max(len(found), 1)
    )
    write(answer, out)
    return "\n".join(answer.text)


def summarise(plan: DataFrame) -> list[ClassSummary]:
    """By class, most bytes first."""
    rows = (
        plan.groupBy("class")
        .agg(F.count("*").alias("findings"), F.sum("bytes").alias("bytes"), F.max("age_s").alias("oldest_s"))
        .collect()
    )
    found = [ClassSummary(row["class"], row.findings, row.bytes, row.oldest_s) for row in rows]
    return sorted(found, key=lambda one: (-(one.bytes or 0), one.name))


def largest(plan: DataFrame) -> list[TableRow]:
    order = Window.partitionBy("class").orderBy(F.desc_nulls_last("bytes"), "subject")
    first = plan.withColumn("place", F.row_number().over(order)).where(F.col("place") <= LARGEST)
    return [row.asDict() for row in first.orderBy("class", "place").drop("place").collect()]


def describe(name: str, found: list[ClassSummary], unreadable: int, out: Path) -> list[str]:
    total = sum(one.findings for one in found)
    lines = [f"audit {name}: {total:,} findings, nothing was changed; plan and page in {out}"]
    if found:
        lines += as_text([_row(one) for one in found])
    if unreadable:
        lines.append(
            f"{unreadable:,} nodes could not be read and were not judged; see the table `unreadable`"
        )
    return lines


def _row(one: ClassSummary) -> TableRow:
    return {
        "class": one.name,
        "findings": one.findings,
        "size": "not known" if one.bytes is None else mib(one.bytes),
        "oldest": "not known" if one.oldest_s is None else f"{one.oldest_s / DAY_S:,.1f} days",
    }
