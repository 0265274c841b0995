"""The view of the settings: those that differ from the default first, each with its value and origin. Pure functions.

The typed dictionaries name the shown fields of the console's answer; `broker/console/settings_page.py` writes it.
"""

from __future__ import annotations

from typing import Final, TypedDict

from magnetar.clients.client import visible

TITLES: Final = ("setting", "value", "from", "at run time")
"""Titles of the columns of `settings_rows`."""


class Setting(TypedDict):
    """One key of `broker.conf`."""

    name: str
    """The key."""
    value: str
    """Its value as text; that of a secret is masked."""
    default: str
    """The default as text, or the way in which it is computed."""
    origin: str
    """The file, variable or option that set it; `default` for none."""
    dynamic: bool
    """True if it may change while the broker runs."""


class SettingsAnswer(TypedDict):
    """`GET /admin/v2/magnetar/console/settings`."""

    settings: list[Setting]
    """By name."""


def settings_rows(found: SettingsAnswer, text: str, value_max: int) -> list[tuple[str, ...]]:
    """Returns the cells of each setting with `text` in its name, value or origin.

    A value longer than `value_max` characters loses its end. Values that differ from the default come first.
    """
    wanted = text.lower()
    rows = [
        one
        for one in found["settings"]
        if any(wanted in part.lower() for part in (one["name"], one["value"], one["origin"]))
    ]
    rows.sort(key=_is_default)
    return [
        (
            one["name"],
            _cut(visible(one["value"]), value_max),
            visible(one["origin"]),
            "may change" if one["dynamic"] else "",
        )
        for one in rows
    ]


def _is_default(one: Setting) -> bool:
    return one["value"] == one["default"] or one["origin"].startswith(("default", "computed", "profile"))


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
