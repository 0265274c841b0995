"""The view of the settings: those that differ from the default first, each with its value and origin. Pure functions.

`broker/console/settings_page.py` writes the answer.
"""

from __future__ import annotations

from typing import Final

from magnetar.clients.answer_object import AnswerObject
from magnetar.clients.client import visible

TITLES: Final = ("setting", "value", "from", "at run time")
"""Titles of the columns of `settings_rows`."""
_AS_SHIPPED: Final = ("default", "computed", "profile")
"""Beginnings of the origins of values that nobody has set."""


def settings_rows(found: AnswerObject, text: str, value_max: int) -> list[tuple[str, ...]]:
    """Returns the cells of each setting with `text` in its name, value or origin.

    A value longer than `value_max` characters loses its end. Values that differ from the default come first.
    """
    rows = [
        (one.value["default"], one.text("name"), one.text("value"), one.text("origin"), one.value["dynamic"])
        for one in found.each("settings")
    ]
    rows = [row for row in rows if any(text.lower() in part.lower() for part in row[1:4])]
    rows.sort(key=lambda row: row[2] == row[0] or row[3].startswith(_AS_SHIPPED))
    return [
        (name, _cut(visible(value), value_max), visible(origin), "may change" if dynamic else "")
        for _, name, value, origin, dynamic in rows
    ]


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
