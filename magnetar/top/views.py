"""The views of a broker besides its topics: each one's answer as lines of text, or as rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, cast

from magnetar.top.bookie_view import BookiesAnswer, bookies_lines
from magnetar.top.cache_view import CacheAnswer, cache_lines
from magnetar.top.cluster_view import ClusterAnswer, cluster_lines
from magnetar.top.console import Answer
from magnetar.top.hour_view import hour_lines
from magnetar.top.settings_view import TITLES, SettingsAnswer, settings_rows

Lines: TypeAlias = Callable[[Answer, int], list[str]]
"""Returns the lines of a view for a width in characters."""

TEXTS: Final[Mapping[str, Lines]] = {
    "hour": hour_lines,
    "cache": lambda answer, width: cache_lines(cast(CacheAnswer, answer), width),
    "bookies": lambda answer, width: bookies_lines(cast(BookiesAnswer, answer), width),
    "cluster": lambda answer, width: cluster_lines(cast(ClusterAnswer, answer), width),
}
"""The views that are text."""
VALUE_MAX: Final = 60
"""Characters of a setting's value where there is room."""


def rows_of_settings(answer: Answer, text: str, value_max: int) -> list[tuple[str, ...]]:
    """Returns the rows of the settings with `text` in them; `value_max`: characters of a value."""
    return settings_rows(cast(SettingsAnswer, answer), text, value_max)


def text_of(view: str, answer: Answer, width: int, text: str) -> list[str]:
    """Returns the lines of any view; `text` is the filter of the settings."""
    if view in TEXTS:
        return TEXTS[view](answer, width)
    rows = [TITLES, *rows_of_settings(answer, text, VALUE_MAX)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
