"""An answer: what a job found, as text, as tables for Parquet and as parts of one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Cell: TypeAlias = "str | int | float | bool | None"
TableRow: TypeAlias = Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    rows: Sequence[TableRow]
    """All of one shape: the columns are those of the first."""
    note: str = ""
    shown: int = 50
    """Rows on the page; the Parquet file has all."""


@dataclass(frozen=True, slots=True)
class Plot:
    title: str
    svg: str
    note: str = ""


@dataclass(slots=True)
class Answer:
    name: str
    title: str
    text: list[str] = field(default_factory=list)
    """A few lines: for the terminal, and at the head of the page."""
    tables: dict[str, Table] = field(default_factory=dict)
    """By the name of the Parquet file."""
    plots: list[Plot] = field(default_factory=list)


def percent(ratio: float) -> str:
    return f"{100 * ratio:.2f} %"


def mib(size_bytes: float) -> str:
    """With a digit more where there is little."""
    return f"{size_bytes / (1 << 20):,.{1 if size_bytes >= 1 << 20 else 3}f} MiB"


def shown(cell: Cell) -> str:
    """As people read it."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.4f}" if isinstance(cell, float) else cell


def as_text(rows: Sequence[TableRow], limit: int = 20) -> list[str]:
    """A table for a terminal."""
    if not rows:
        return ["(nothing)"]
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
