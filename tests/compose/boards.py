"""Reads Grafana's boards: their panels, and the queries of those with variables replaced by values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

INTERVALS: Final = {
    "__interval": "1m",
    "__rate_interval": "1m",
    "__range": "1m",
    "interval": "1m",
    "__interval_ms": "60000",
    "__range_s": "60",
}
"""Variables that Grafana itself sets, or that boards use as ranges."""
DATA_SOURCE: Final = "Prometheus"
"""Name of the data source, for boards that show it."""
_VARIABLE: Final = re.compile(r"\[\[(\w+)\]\]|\$+\{(\w+)(?::\w+)?\}|\$+(\w+)")
_REGEX_LABEL: Final = re.compile(r"(\w+)=\\*\"\(")
_LABEL_VALUES: Final = re.compile(r"label_values\((?:(?P<series>.*),)?\s*(?P<label>\w+)\s*\)\s*$", re.S)


class Query(NamedTuple):
    """One query of a panel."""

    board: str
    """Path of the board's file below the folder that was read."""
    panel: str
    """The panel's title."""
    expression: str
    """In PromQL, without variables."""


def queries(folder: Path, values: Callable[[str, str], list[str]]) -> Iterator[Query]:
    """Yields each query of the boards below `folder`.

    `values` returns the values of a label over the series that a selector finds; an empty selector finds all.
    """
    for path in sorted(folder.rglob("*.json")):
        board = json.loads(path.read_text(encoding="utf-8"))
        board = board.get("dashboard", board)
        variables = _variables(board, values)
        for panel in _panels(board):
            for target in panel.get("targets") or ():
                if target.get("expr"):
                    expression = _substituted(target["expr"], variables)
                    yield Query(str(path.relative_to(folder)), panel.get("title", ""), expression)


def _panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the panels, those in rows too: of older boards `rows`, of newer ones panels in panels."""
    for panel in [
        *board.get("panels", ()),
        *(panel for row in board.get("rows", ()) for panel in row["panels"]),
    ]:
        yield panel
        yield from panel.get("panels", ())


def _variables(board: dict[str, Any], values: Callable[[str, str], list[str]]) -> dict[str, tuple[str, str]]:
    """Returns for each variable its values as a regular expression, and the first value."""
    found: dict[str, tuple[str, str]] = {name: (value, value) for name, value in INTERVALS.items()}
    for variable in board.get("templating", {}).get("list", ()):
        query = variable.get("query") or ""
        text = query.get("query", "") if isinstance(query, dict) else query
        text = _substituted(text, found).strip()
        match = _LABEL_VALUES.match(text)
        # Others query series, and take the label out of their text by an expression.
        label = _REGEX_LABEL.search(variable.get("regex") or "")
        name = variable["name"]
        if match is not None or label is not None:
            selector = (match["series"] or "").strip() if match is not None else text
            several = values(selector, match["label"] if match is not None else label[1] if label else "")
            every = variable.get("allValue") or "|".join(map(re.escape, several)) or ".+"
            found[name] = (every.replace("\\", "\\\\"), several[0] if several else "")
        elif variable["type"] == "datasource":
            found[name] = (DATA_SOURCE, DATA_SOURCE)
        elif variable["type"] in ("interval", "custom", "constant", "textbox"):
            current = (variable.get("current") or {}).get("value") or text.split(",")[0]
            first = current[0] if isinstance(current, list) else current
            first = "1m" if str(first).startswith("$__auto") else str(first).strip()
            found[name] = (".*", first) if first == "$__all" else (first, first)
    return found


def _substituted(text: str, variables: dict[str, tuple[str, str]]) -> str:
    """Replaces variables, behind `=~` and `!~` by the expression for all values; unknown ones by `.*`."""

    def value(match: re.Match[str]) -> str:
        every, first = variables.get(match[1] or match[2] or match[3], (".*", ".*"))
        quoted = re.search(r"(=~|!~|!?=)\s*[\"'][^\"']*$", text[: match.start()])
        return every if quoted is not None and quoted[1] in ("=~", "!~") else first

    return _VARIABLE.sub(value, text)
