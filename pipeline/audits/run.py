"""One audit from a snapshot's folder to a plan in Parquet and a short text. Nothing is ever deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pipeline.audits.acks import audit_acks
from pipeline.audits.ledgers import audit_ledgers
from pipeline.audits.lifecycle import audit_lifecycle
from pipeline.audits.limits import Limits
from pipeline.audits.metadata import audit_metadata
from pipeline.audits.snapshot import Snapshot, SnapshotError, open_snapshot

AUDITS = MappingProxyType(
    {
        "metadata": audit_metadata,
        "ledgers": audit_ledgers,
        "acks": audit_acks,
        "lifecycle": audit_lifecycle,
    }
)
EXAMPLES = 3
MIB = 1 << 20
DAY_S = 86_400


class ClassSummary(NamedTuple):
    name: str
    findings: int
    bytes: int | None
    oldest_s: int | None
    examples: tuple[str, ...]


def run_audit(
    spark: SparkSession, name: str, folder: Path, out: Path, limits: Limits, progress: Callable[[str], None]
) -> str:
    """The text; the plan is in `out`. SnapshotError says what is wrong with the folders."""
    if out.exists():
        raise SnapshotError(f"{out} exists; a plan needs a folder of its own")
    snapshot = open_snapshot(spark, folder)
    progress(f"audit {name}: reading {folder}")
    plan = AUDITS[name](snapshot, limits)
    plan.write.parquet(str(out))
    progress(f"audit {name}: summing up")
    written = spark.read.parquet(str(out))
    return describe(name, summarise(written), snapshot, out)


def summarise(plan: DataFrame) -> list[ClassSummary]:
    """By class, most bytes first."""
    rows = (
        plan.groupBy("class")
        .agg(
            F.count("*").alias("findings"),
            F.sum("bytes").alias("bytes"),
            F.max("age_s").alias("oldest_s"),
            F.slice(F.sort_array(F.collect_list("subject")), 1, EXAMPLES).alias("examples"),
        )
        .collect()
    )
    found = [
        ClassSummary(row["class"], row.findings, row.bytes, row.oldest_s, tuple(row.examples)) for row in rows
    ]
    return sorted(found, key=lambda one: (-(one.bytes or 0), one.name))


def describe(name: str, found: list[ClassSummary], snapshot: Snapshot, out: Path) -> str:
    lines = [
        f"audit {name}: {sum(one.findings for one in found):,} findings, nothing was changed; plan in {out}"
    ]
    for one in found:
        size = "size not known" if one.bytes is None else f"{one.bytes / MIB:,.1f} MiB"
        age = "age not known" if one.oldest_s is None else f"oldest {one.oldest_s / DAY_S:,.1f} days"
        lines.append(f"  {one.name:<22}{one.findings:>10,}   {size}, {age}")
        lines += [f"    {example}" for example in one.examples]
    if unreadable := snapshot.unreadable:
        lines.append(
            f"  {unreadable:,} nodes could not be read and were not judged; see the table `unreadable`"
        )
    return "\n".join(lines)
