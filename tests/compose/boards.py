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
DATA_SOURCE: Final = "standalone"
"""Name of the data source, the cluster's: StreamNative's boards use it as the value of the label `cluster`."""
PREFERRED: Final = ("boards",)
"""Parts of the value to choose where a board shows one value of a variable, such as one topic."""
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
        # A user of this board would choose its job.
        preferred = (*PREFERRED, "zookeeper") if path.name.startswith("zookeeper") else PREFERRED
        variables = _variables(board, values, preferred)
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


def _variables(
    board: dict[str, Any], values: Callable[[str, str], list[str]], preferred: tuple[str, ...]
) -> dict[str, tuple[str, str]]:
    """Returns for each variable its values as a regular expression, and the one value that is chosen."""
    found: dict[str, tuple[str, str]] = {name: (value, value) for name, value in INTERVALS.items()}
    for variable in board.get("templating", {}).get("list", ()):
        query = variable.get("query") or ""
        text = query.get("query", "") if isinstance(query, dict) else query
        name, kind = variable["name"], variable["type"]
        if kind == "query":
            offered = _candidates(variable, _substituted(text, found).strip(), values)
            found[name] = _chosen(variable, offered, preferred)
        elif kind == "datasource":
            found[name] = (DATA_SOURCE, DATA_SOURCE)
        elif kind == "interval":
            found[name] = ("1m", "1m")
        elif kind in ("custom", "constant", "textbox"):
            current = (variable.get("current") or {}).get("value") or text.split(",")[0]
            first = current[0] if isinstance(current, list) else current
            found[name] = (".*", first) if first == "$__all" else (first, first)
    return found


def _candidates(variable: dict[str, Any], text: str, values: Callable[[str, str], list[str]]) -> list[str]:
    """Returns the values that Grafana would offer for a variable whose query is `text`."""
    regex = variable.get("regex") or ""
    match = _LABEL_VALUES.match(text)
    if match is not None:
        return _filtered(values((match["series"] or "").strip(), match["label"]), regex)
    # A query for series: the expression takes the value of a label out of the series' text.
    label = _REGEX_LABEL.search(regex)
    if label is None:
        return []
    return _filtered([f'series{{,{label[1]}="{value}"}}' for value in values(text, label[1])], regex)


def _filtered(texts: list[str], regex: str) -> list[str]:
    """Applies a variable's expression: a text that it does not match is left out, its group replaces the text."""
    if not regex:
        return texts
    # Without slashes the expression is for the whole text.
    pattern = re.compile(regex[1 : regex.rindex("/")] if regex.startswith("/") else f"^(?:{regex})$")
    matches = [match for match in map(pattern.search, texts) if match is not None]
    return list(dict.fromkeys(match[1] if pattern.groups else match.string for match in matches))


def _chosen(variable: dict[str, Any], candidates: list[str], preferred: tuple[str, ...]) -> tuple[str, str]:
    """Returns all values as an expression where the board offers several at a time, and the one that is chosen."""
    wanted = (value for value in candidates if any(part in value for part in preferred))
    first = next(wanted, candidates[0] if candidates else "")
    if not (variable.get("multi") or variable.get("includeAll")):
        return first, first
    every = variable.get("allValue") or (
        "(" + "|".join(map(re.escape, candidates)) + ")" if candidates else ".+"
    )
    return every.replace("\\", "\\\\"), first


def _substituted(text: str, variables: dict[str, tuple[str, str]]) -> str:
    """Replaces variables, behind `=~` and `!~` by the expression for all values; unknown ones by `.*`."""

    def value(match: re.Match[str]) -> str:
        every, first = variables.get(match[1] or match[2] or match[3], (".*", ".*"))
        quoted = re.search(r"(=~|!~|!?=)\s*[\"'][^\"']*$", text[: match.start()])
        return every if quoted is not None and quoted[1] in ("=~", "!~") else first

    return _VARIABLE.sub(value, text)
