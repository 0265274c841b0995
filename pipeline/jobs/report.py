"""A report: the result of a job as text, tables and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Cell: TypeAlias = "str | int | float | bool | None"
"""A value of a table; None = unknown."""
TableRow: TypeAlias = Mapping[str, Cell]
"""Cells by column, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a page, which is a Parquet file too."""

    title: str
    """Shown above the table."""
    rows: Sequence[TableRow]
    """The first row names the columns of all."""
    note: str = ""
    """Shown below the table."""
    shown: int = 50
    """Rows on the page; the Parquet file has all."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot of a page."""

    title: str
    """Shown above the plot."""
    svg: str
    """The element `<svg>` as text."""
    note: str = ""
    """Shown below the plot."""


@dataclass(slots=True)
class Report:
    """The result of one job."""

    name: str
    """Of the page's file, without its ending."""
    title: str
    """Of the page."""
    text: list[str] = field(default_factory=list)
    """A few lines, for the terminal and the head of the page."""
    tables: dict[str, Table] = field(default_factory=dict)
    """By the name of the Parquet file."""
    plots: list[Plot] = field(default_factory=list)
    """In the order of the page, before the tables."""


def percent(ratio: float) -> str:
    """Format a ratio of 0 to 1 with two digits after the point."""
    return f"{100 * ratio:.2f} %"


def mib(size_bytes: float) -> str:
    """Format bytes in MiB, with three digits below 1 MiB and one above."""
    return f"{size_bytes / (1 << 20):,.{1 if size_bytes >= 1 << 20 else 3}f} MiB"


def shown(cell: Cell) -> str:
    """Format a cell for people."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.4f}" if isinstance(cell, float) else cell


def as_text(rows: Sequence[TableRow], limit: int = 20) -> list[str]:
    """Return the lines of a table for a terminal, at most `limit` rows."""
    if not rows:
        return ["(no rows)"]
    names = list(rows[0])
    lines = [names, *[[shown(row[name]) for name in names] for row in rows[:limit]]]
    widths = [max(len(line[at]) for line in lines) for at in range(len(names))]
    numeric = [isinstance(rows[0][name], int | float) for name in names]
    text = [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    ]
    return text + ([f"… and {len(rows) - limit:,} more"] if len(rows) > limit else [])
