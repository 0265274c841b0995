"""Writes a report: Parquet files and one self-contained page of HTML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.jobs.report import Cell, Plot, Report, Table, heading, numeric_columns, shown

_STYLE: Final = """
:root { color-scheme: light dark; --ground: #fff; --text: #1c2430; --quiet: #5a6474; --line: #dde2ea; --box: #f3f5f8; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14181f; --text: #e3e7ee; --quiet: #9aa5b5; --line: #323a47; --box: #1d232d; }
}
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.2rem auto; max-width: 60rem; padding: 0 .8rem;
  color: var(--text); background: var(--ground); }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
pre { background: var(--box); padding: .8rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .84rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; }
th, td { padding: .22rem .6rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
th { color: var(--quiet); font-weight: 600; white-space: normal; vertical-align: bottom; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--ground); }
td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 6rem; max-width: 24rem; }
td.long { white-space: normal; overflow-wrap: anywhere; min-width: 12rem; }
svg { width: 100%; max-width: 38rem; height: auto; display: block; }
svg text { fill: currentColor; font-family: inherit !important; }
p.note { color: var(--quiet); font-size: .86rem; }
@media (max-width: 36rem) {
  th, td { padding: .2rem .35rem; font-size: .8rem; } td:first-child { max-width: 9rem; }
  .many thead { position: absolute; clip-path: inset(50%); }
  .many table, .many tbody { display: block; }
  .many tr { display: flex; flex-wrap: wrap; gap: .1rem .9rem; padding: .4rem 0; border-bottom: 1px solid var(--line); }
  .many td, .many td.n { border: 0; padding: 0; text-align: left; white-space: normal; }
  .many td:first-child { flex: 1 0 100%; max-width: none; position: static; font-weight: 600; }
  .many td:not(:first-child)::before { content: attr(data-name) " "; color: var(--quiet); }
}
"""
_MANY: Final = 3
"""Columns of which a table shows more than these as lines of names and values on a phone: nothing is out of sight there."""
_LONG: Final = 40
"""Letters from which a text of a cell is broken into lines."""
_LONG_WORD: Final = re.compile(r"\S{14,}")
_BREAK: Final = re.compile(r"(?<=[/_])(?=\w)|(?<=[a-z])(?=[A-Z])")
_ALWAYS: Final = ("ratio", "reads")
"""Columns with such a name are shown also where all rows have one value."""
_SETTINGS: Final = ("size_bytes", "ttl_ms", "extensions")
"""Numbers that describe all rows where they have one value. Counts that happen to be equal are results, as long as they
are above 0."""


def write(report: Report, folder: Path) -> Path:
    """Writes page and tables into a folder; returns the path of the page. OSError for an unwritable folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in report.tables.items():
        file = folder / f"{name}.parquet"
        # A file without rows would have no columns either, and Spark could not read it. The file of an earlier run goes
        # all the same: its rows are no longer true.
        if table.rows:
            pq.write_table(pa.Table.from_pylist([dict(row) for row in table.rows]), file)
        else:
            file.unlink(missing_ok=True)
    path = folder / f"{report.name}.html"
    path.write_text(html_of(report), encoding="utf-8")
    return path


def html_of(report: Report) -> str:
    """Returns the page; equal reports give equal text."""
    parts = [
        f"<h1>{escape(report.title)}</h1>",
        f"<pre>{escape(chr(10).join([*report.text, *report.failed]))}</pre>",
    ]
    parts += [_plot(plot) for plot in report.plots]
    parts += [_table(table) for table in report.tables.values() if table.shown]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(report.title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _plot(plot: Plot) -> str:
    return f'<section><h2>{escape(plot.title)}</h2><div class="wide">{plot.svg}</div>{_note(plot.note)}</section>'


def _table(table: Table) -> str:
    if not table.rows:
        return f"<section><h2>{escape(table.title)}</h2><p>no rows</p></section>"
    names, same = columns_of(table)
    right = set(numeric_columns(table.rows))
    head = "".join(
        f'<th role="columnheader" class="{"n" if name in right else "t"}">{_breakable(_words(name))}</th>'
        for name in names
    )
    rows = rows_of(table)
    lines = [
        '<tr role="row">' + "".join(_cell(row, name, name in right) for name in names) + "</tr>"
        for row in rows[: table.shown]
    ]
    left = len(rows) - table.shown
    notes = [table.note, f"In all rows: {same}." if same else ""]
    notes.append(f"{left:,} more rows are in the Parquet file." if left > 0 else "")
    # On a phone the rows of a wide table become blocks, which would take its roles from screen readers.
    body = (
        f'<div class="wide{" many" if len(names) > _MANY else ""}" tabindex="0"><table role="table"><thead role="rowgroup">'
        f'<tr role="row">{head}</tr></thead><tbody role="rowgroup">{"".join(lines)}</tbody></table></div>'
    )
    note = " ".join(one for one in notes if one)
    return f"<section><h2>{escape(table.title)}</h2>{body}{_note(note)}</section>"


def _cell(row: Mapping[str, str], name: str, is_number: bool) -> str:
    kind = "n" if is_number else "t" if len(row[name]) < _LONG else "t long"
    return f'<td role="cell" data-name="{escape(_words(name))}" class="{kind}">{_breakable(row[name])}</td>'


def _breakable(text: str) -> str:
    """Returns HTML of the text, whose long words a narrow column breaks at slashes and before capitals first."""
    return _LONG_WORD.sub(lambda word: _BREAK.sub("<wbr>", word[0]), escape(text))


def rows_of(table: Table) -> list[dict[str, str]]:
    """Returns the rows as text. Neighbours that differ in `range_of` alone are one row, with both ends of its values."""
    found: list[dict[str, str]] = []
    ends: list[tuple[Cell, Cell]] = []
    column = table.range_of
    for row in table.rows:
        texts = {name: shown(cell, name) for name, cell in row.items()}
        value = row.get(column)
        if column and found and {**texts, column: ""} == {**found[-1], column: ""}:
            first = ends[-1][0]
            ends[-1] = first, value
            found[-1][column] = f"{shown(first, column)} to {texts[column]}"
        else:
            found.append(texts)
            ends.append((value, value))
    return found


def columns_of(table: Table) -> tuple[Sequence[str], str]:
    """Returns the columns to show, and the others, which have one value in all rows, as text."""
    names = list(table.rows[0])
    if len(table.rows) < 2:
        return names, ""
    same = [
        name
        for name in names[1:]
        if len({row[name] for row in table.rows}) == 1 and _describes_all(name, table.rows[0][name])
    ]
    text = ", ".join(f"{_words(name)} {shown(table.rows[0][name], name)}" for name in same)
    return [name for name in names if name not in same], text


def _describes_all(column: str, value: Cell) -> bool:
    """Returns True for a value that is said once where all rows have it."""
    if any(word in column for word in _ALWAYS):
        return False
    return column in _SETTINGS or not isinstance(value, int | float) or isinstance(value, bool) or not value


def _words(column: str) -> str:
    # A key keeps its spelling: dbStorage_readAheadCacheBatchSize.
    if not column.islower():
        return column
    # Spaces let a narrow page break the heading; keys of broker.conf have none anyway.
    return heading(column).replace("_", " ").replace("mib", "MiB")


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>' if text else ""
