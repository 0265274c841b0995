"""Writes a report: Parquet files and one self-contained page of HTML."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.jobs.report import Plot, Report, Table, shown

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 66rem; padding: 0 1rem; color: #1c2430; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
pre { background: #f3f5f8; padding: .8rem 1rem; overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; display: block; overflow-x: auto; }
th, td { padding: .22rem .7rem; border-bottom: 1px solid #dde2ea; text-align: left; white-space: nowrap; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { max-width: 100%; height: auto; } p.note { color: #5a6474; font-size: .86rem; }
"""


def write(report: Report, folder: Path) -> Path:
    """Write page and tables into a folder.

    Return the path of the page. OSError for an unwritable folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in report.tables.items():
        # A file without rows would have no columns either, and Spark could not read it.
        if table.rows:
            pq.write_table(
                pa.Table.from_pylist([dict(row) for row in table.rows]), folder / f"{name}.parquet"
            )
    path = folder / f"{report.name}.html"
    path.write_text(html_of(report), encoding="utf-8")
    return path


def html_of(report: Report) -> str:
    """Return the page; equal reports give equal text."""
    parts = [f"<h1>{escape(report.title)}</h1>", f"<pre>{escape(chr(10).join(report.text))}</pre>"]
    parts += [_plot(plot) for plot in report.plots]
    parts += [_table(table) for table in report.tables.values()]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(report.title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _plot(plot: Plot) -> str:
    return f"<section><h2>{escape(plot.title)}</h2>{plot.svg}{_note(plot.note)}</section>"


def _table(table: Table) -> str:
    if not table.rows:
        return f"<section><h2>{escape(table.title)}</h2><p>no rows</p></section>"
    names = list(table.rows[0])
    # By the first row: a column has values of one type.
    right = {name for name in names if isinstance(table.rows[0][name], int | float)}
    head = "".join(f'<th class="{"n" if name in right else "t"}">{escape(name)}</th>' for name in names)
    lines = [
        "<tr>"
        + "".join(
            f'<td class="{"n" if name in right else "t"}">{escape(shown(row[name]))}</td>' for name in names
        )
        + "</tr>"
        for row in table.rows[: table.shown]
    ]
    left = len(table.rows) - table.shown
    note = f"{table.note} {left:,} more rows are in the Parquet file." if left > 0 else table.note
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f"<section><h2>{escape(table.title)}</h2>{body}{_note(note.strip())}</section>"


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>' if text else ""
