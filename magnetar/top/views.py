"""The views of a broker besides its topics: each one's answer as lines of text, or as rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from magnetar.clients.answer_object import AnswerObject
from magnetar.top.bookie_view import bookies_lines
from magnetar.top.cache_view import cache_lines
from magnetar.top.cluster_view import cluster_lines
from magnetar.top.hour_view import hour_lines
from magnetar.top.settings_view import TITLES, settings_rows

Lines: TypeAlias = Callable[[AnswerObject, int], list[str]]
"""Returns the lines of a view for a width in characters."""

TEXTS: Final[Mapping[str, Lines]] = {
    "hour": hour_lines,
    "cache": cache_lines,
    "bookies": bookies_lines,
    "cluster": lambda answer, _: cluster_lines(answer),
}
"""The views that are text."""
VALUE_MAX: Final = 60
"""Characters of a setting's value where there is room."""


def text_of(view: str, answer: AnswerObject, width: int, text: str) -> list[str]:
    """Returns the lines of any view; `text` is the filter of the settings."""
    if view in TEXTS:
        return TEXTS[view](answer, width)
    rows = [TITLES, *settings_rows(answer, text, VALUE_MAX)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
