"""Runs one audit on a snapshot and writes its plan.

The result is a plan in Parquet, a page of HTML and a short text. An audit never deletes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql import DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from foundation.units import SECONDS_PER_DAY
from pipeline.audits.acks import audit_acks
from pipeline.audits.ledgers import audit_ledgers
from pipeline.audits.lifecycle import audit_lifecycle
from pipeline.audits.limits import Limits
from pipeline.audits.metadata import audit_metadata
from pipeline.audits.plan import YOUNG
from pipeline.audits.snapshot import open_snapshot
from pipeline.jobs.page import write
from pipeline.jobs.report import Report, Table, TableRow, bytes_text

AUDITS = MappingProxyType(
    {
        "metadata": audit_metadata,
        "ledgers": audit_ledgers,
        "acks": audit_acks,
        "lifecycle": audit_lifecycle,
    }
)
"""By name: from snapshot and limits to a plan."""
_PLAN = "plan"
"""The folder of the findings, inside the folder of the report."""
_LARGEST = 20
"""Findings of each class that the page shows."""


class ClassSummary(NamedTuple):
    """The findings of one class together."""

    name: str
    """The class, as in the plan."""
    findings: int
    """Rows of the plan."""
    bytes: int | None
    """None where no finding has a size."""
    oldest_s: int | None
    """None where no finding has an age."""


def run_audit(
    spark: SparkSession, name: str, folder: Path, out: Path, limits: Limits, progress: Callable[[str], None]
) -> str:
    """Writes plan and page into `out`; returns the text.

    Files of the same names are replaced, as by the jobs on access records. SnapshotError for an unusable snapshot.
    """
    snapshot = open_snapshot(spark, folder)
    # Executors write the plan, and have working directories of their own.
    out = out.absolute()
    progress(f"audit {name}: reading {folder}")
    # Counted while the plan is written, so that the audit runs once.
    hidden = Observation("young")
    judged = AUDITS[name](snapshot, limits).observe(hidden, F.count_if(F.col(YOUNG)).alias("findings"))
    # "overwrite" removes the plan of an earlier run as a whole; "append" would mix the findings of two.
    judged.where(~F.col(YOUNG)).drop(YOUNG).write.mode("overwrite").parquet(str(out / _PLAN))
    progress(f"audit {name}: summing up")
    # Read back: summing the DataFrame itself would run the audit a second time.
    plan = spark.read.parquet(str(out / _PLAN))
    found = summarise(plan)
    text = describe(name, found, snapshot.unreadable, out)
    if young := int(hidden.get["findings"] or 0):
        text.append(
            f"{young:,} findings younger than {limits.grace_s:,} s are left out, as their owners may not be written "
            "yet: --grace-seconds 0 shows them"
        )
    report = Report(f"audit-{name}", f"Audit: {name}", text)
    report.tables["classes"] = Table("By class", [_row(one) for one in found])
    report.listed = {"classes": len(found)} if found else {}
    report.tables["largest"] = Table(
        f"The {_LARGEST} largest of each class",
        without_repeats(largest(plan)),
        shown=_LARGEST * max(len(found), 1),
    )
    write(report, out)
    return "\n".join(report.lines())


def summarise(plan: DataFrame) -> list[ClassSummary]:
    """Sums a plan by class, most bytes first."""
    rows = (
        plan.groupBy("class")
        .agg(F.count("*").alias("findings"), F.sum("bytes").alias("bytes"), F.max("age_s").alias("oldest_s"))
        .collect()
    )
    found = [ClassSummary(row["class"], row.findings, row.bytes, row.oldest_s) for row in rows]
    return sorted(found, key=lambda one: (-(one.bytes or 0), one.name))


def largest(plan: DataFrame) -> list[TableRow]:
    """Returns the largest findings of each class, largest first. One row per finding, columns of the plan."""
    # The subject as well, so that equal sizes always give the same page.
    order = Window.partitionBy("class").orderBy(F.desc_nulls_last("bytes"), "subject")
    first = plan.withColumn("place", F.row_number().over(order)).where(F.col("place") <= _LARGEST)
    return [row.asDict() for row in first.orderBy("class", "place").drop("place").collect()]


def without_repeats(rows: Sequence[TableRow]) -> list[TableRow]:
    """Returns findings without the columns that repeat others; the plan has all.

    A subject that begins with its topic says the topic, and `bytes` is the size that made a subscription a finding.
    """
    left_out = {"backlog_bytes", "state_bytes"}
    if rows and all(str(row["subject"]).startswith(str(row["topic"])) for row in rows):
        left_out.add("topic")
    return [{name: cell for name, cell in row.items() if name not in left_out} for row in rows]


def describe(name: str, found: list[ClassSummary], unreadable: int, out: Path) -> list[str]:
    """Returns the text for the terminal, line by line."""
    total = sum(one.findings for one in found)
    lines = [f"audit {name}: {total:,} findings, nothing was changed; plan and page in {out}"]
    if unreadable:
        lines.append(
            f"{unreadable:,} nodes could not be read and were not judged; see the table `unreadable`"
        )
    return lines


def _row(one: ClassSummary) -> TableRow:
    return {
        "class": one.name,
        "findings": one.findings,
        "size": "not known" if one.bytes is None else bytes_text(one.bytes),
        "oldest": "not known" if one.oldest_s is None else f"{one.oldest_s / SECONDS_PER_DAY:,.1f} days",
    }
