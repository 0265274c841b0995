"""Prints the answer of a command: as pulsar-admin does, as JSON, or as a table. Pure.

Clients of a broker choose names, so a name may hold line breaks and sequences that drive a terminal. They are escaped;
only an answer that is one text keeps its line breaks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from foundation.value import Json
from magnetar.clients.client import visible


def shown(value: Json, output: str) -> str:
    """Returns the text for a value; `output` is `json`, `table`, or empty for pulsar-admin's form."""
    return visible(_text(value, output), "\n\t")


def _text(value: Json, output: str) -> str:
    if output == "json":
        return json.dumps(value, indent=2, ensure_ascii=False)
    if output == "table":
        return _table(value)
    if isinstance(value, list) and not any(isinstance(one, dict | list) for one in value):
        return "\n".join(map(_cell, value))
    return value if isinstance(value, str) else _jackson(value, "")


def _jackson(value: Json, indent: str) -> str:
    """Returns JSON in the form of Jackson's printer, which pulsar-admin uses: lists stay on one line."""
    if isinstance(value, dict):
        inner = indent + "  "
        members = ",".join(
            f"\n{inner}{_quoted(name)} : {_jackson(one, inner)}" for name, one in value.items()
        )
        return f"{{{members}\n{indent}}}" if members else "{ }"
    if isinstance(value, list):
        return f"[ {', '.join(_jackson(one, indent) for one in value)} ]" if value else "[ ]"
    return _quoted(value)


def _quoted(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _table(value: Json) -> str:
    """Returns a row for each member of an object, or for each object of a list."""
    if isinstance(value, dict):
        return "\n".join(aligned([name, _cell(one)] for name, one in value.items()))
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        rows = [one for one in value if isinstance(one, dict)]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        return "\n".join(aligned([columns, *([_cell(row.get(name)) for name in columns] for row in rows)]))
    return "\n".join(map(_cell, value)) if isinstance(value, list) else _cell(value)


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns a line for each row of cells, with columns of equal width."""
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table)
    return [line.rstrip() for line in lines]


def _cell(value: Json) -> str:
    return visible(value) if isinstance(value, str) else _quoted(value)
