"""A plan: a DataFrame with one row per finding of an audit. It is for people to read and act on."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

YOUNG = "young"
"""The column of findings within their grace; a written plan has neither them nor the column."""


def findings(
    frame: DataFrame,
    *,
    kind: Column | str,
    reason: Column | str,
    subject: str,
    topic: str | None = "topic",
    age: Column | None = None,
    bytes_: str | Column = "bytes",
    young: Column | None = None,
    more: tuple[str, ...] = (),
) -> DataFrame:
    """Returns one row per row of `frame`, with the columns of a plan.

    `class` (kind of finding), `reason`, `subject` (path, ledger id, or topic and subscription), `topic`, `age_s` and
    `bytes` (null = unknown), YOUNG, then the columns named in `more`. `kind` and `reason` are texts or columns, the
    others names of columns. `young`: true for rows within their grace, which the audit counts and leaves out.
    """
    return frame.select(
        (F.lit(kind) if isinstance(kind, str) else kind).alias("class"),
        (F.lit(reason) if isinstance(reason, str) else reason).alias("reason"),
        F.col(subject).cast("string").alias("subject"),
        (F.lit(None).cast("string") if topic is None else F.col(topic)).alias("topic"),
        (F.lit(None).cast("long") if age is None else age.cast("long")).alias("age_s"),
        (F.col(bytes_) if isinstance(bytes_, str) else bytes_).cast("long").alias("bytes"),
        (F.lit(False) if young is None else young).alias(YOUNG),
        *more,
    )


def together(frames: list[DataFrame]) -> DataFrame:
    """Returns the rows of plans with equal columns as one plan."""
    found = frames[0]
    for frame in frames[1:]:
        found = found.unionByName(frame)
    return found


def age_s(taken_ms: int, at_ms: str) -> Column:
    """Returns the seconds from a column of milliseconds to the snapshot."""
    return F.floor((F.lit(taken_ms) - F.col(at_ms)) / 1000)


def old_enough(taken_ms: int, at_ms: str, grace_s: int) -> Column:
    """Returns true for rows at least `grace_s` old, and for rows of unknown age."""
    return F.col(at_ms).isNull() | (F.col(at_ms) <= F.lit(taken_ms - grace_s * 1000))
