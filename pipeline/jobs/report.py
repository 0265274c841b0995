"""A report: the result of a job as text, tables and plots."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

FAILED: Final = 3
"""Exit code of a job whose report names a threshold that was not kept; 1 is an error, 2 a wrong option."""
JSON_ROWS: Final = 1000
"""Rows of a table in `as_json`; the Parquet file has all."""
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
    """Rows on the page, 0 to leave the table out; the Parquet file has all."""
    range_of: str = ""
    """A column of numbers. The page makes one row of neighbours that differ in it alone, with the range of its values."""


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
    listed: dict[str, int] = field(default_factory=dict)
    """Tables that the terminal shows too, by name, with the most rows of each; the page has all tables anyway."""
    failed: list[str] = field(default_factory=list)
    """Thresholds of the user that were not kept, a sentence each; the command then ends with FAILED."""

    def as_json(self) -> str:
        """Returns the report as one JSON object: name, title, text, failed, and tables of JSON_ROWS rows at most."""
        tables = {name: [dict(row) for row in table.rows[:JSON_ROWS]] for name, table in self.tables.items()}
        found = {
            "name": self.name,
            "title": self.title,
            "text": self.text,
            "failed": self.failed,
            "tables": tables,
        }
        return json.dumps(found, indent=1)

    def lines(self) -> list[str]:
        """Returns the lines for a terminal."""
        found = [*self.text, *[f"failed: {one}" for one in self.failed]]
        for name, limit in self.listed.items():
            if name in self.tables:
                found += ["", *as_text(self.tables[name].rows, limit)]
        return found


_SHARES: Final = ("share", "part_so_far", "error_bar")
"""Columns of ratios whose names do not say so."""


def percent(ratio: float) -> str:
    """Formats a ratio of 0 to 1 with two digits after the point."""
    return f"{100 * ratio:.2f} %"


def share(ratio: float) -> str:
    """Formats a share of 0 to 1 with three digits: "0.0123 %" for a sample of one in 8,000."""
    return f"{100 * ratio:.3g} %"


def bytes_text(size_bytes: float) -> str:
    """Formats bytes with three digits in the largest unit that fits: "8 MiB", "10.7 MiB", "97.3 KiB"."""
    for unit, exponent in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        # 1,023.9 KiB would be shown as "1.02e+03 KiB" by three digits.
        if abs(size_bytes) >= 0.9995 * (1 << exponent):
            value = size_bytes / (1 << exponent)
            return f"{value:,.0f} {unit}" if abs(value) >= 99.95 else f"{value:.3g} {unit}"
    return f"{size_bytes:,.0f} B"


def time_text(ms: float) -> str:
    """Formats milliseconds in the largest unit that fits: "1 min", "1.5 s", "250 ms"."""
    for unit, unit_ms in (("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= unit_ms:
            return f"{ms / unit_ms:,.4g} {unit}"
    return f"{ms:g} ms"


def shown(cell: Cell, column: str = "") -> str:
    """Formats a cell for people. The name of its column tells bytes, times and ratios from other numbers."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, str):
        return cell
    if column.endswith("bytes"):
        return bytes_text(cell)
    if "ttl_ms" in column:
        return time_text(cell)
    if column == "age_s":
        return f"{cell / 86_400:,.1f} days"
    if isinstance(cell, int):
        return f"{cell:,}"
    if "ratio" in column or column in _SHARES:
        return percent(cell)
    return f"{cell:,.1f}" if abs(cell) >= 100 else f"{cell:.4g}"


def numeric_columns(rows: Sequence[TableRow]) -> list[str]:
    """Returns the columns with a number in any row; a truth value is none."""
    return [
        name
        for name in rows[0]
        if any(isinstance(row[name], int | float) and not isinstance(row[name], bool) for row in rows)
    ]


def heading(column: str) -> str:
    """Returns the name of a column as it is shown: its values name their unit."""
    return column.removesuffix("_bytes").replace("ttl_ms", "ttl").replace("age_s", "age")


def as_text(rows: Sequence[TableRow], limit: int = 20) -> list[str]:
    """Returns the lines of a table for a terminal, at most `limit` rows."""
    if not rows:
        return ["(no rows)"]
    names = list(rows[0])
    lines = [
        [heading(name) for name in names],
        *[[shown(row[name], name) for name in names] for row in rows[:limit]],
    ]
    widths = [max(len(line[at]) for line in lines) for at in range(len(names))]
    right = set(numeric_columns(rows))
    numeric = [name in right for name in names]
    text = [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    ]
    return text + ([f"… and {len(rows) - limit:,} more"] if len(rows) > limit else [])
