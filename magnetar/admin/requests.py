"""Makes the request of a command from its row and its values. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from magnetar.admin.values import namespace_path, topic_path
from magnetar.clients.admin_client import Json
from magnetar.clients.client import CommandError

_NAME: Final = re.compile(r"\{([\w-]+)\}")
_NAMES_OF: Final = {"namespace": ("namespaceName", "namespace"), "topic": ("topicName", "topic")}
"""Parts of a path that are several words: the arguments that have them."""


def path_of(template: str, values: Mapping[str, Json]) -> str:
    """Returns path and query of a request; parts and parameters without a value are left out."""
    path, _, query = template.partition("?")
    parts = [part for part in (_part(one, values) for one in path.strip("/").split("/")) if part is not None]
    asked = [one for one in (_parameter(one, values) for one in query.split("&") if one) if one]
    return "/" + "/".join(parts) + ("?" + "&".join(asked) if asked else "")


def _part(part: str, values: Mapping[str, Json]) -> str | None:
    found = _NAME.fullmatch(part)
    if found is None:
        return part
    name = found[1]
    if name == "schema":
        # Schemas belong to a name alone, without its domain.
        return topic_path(str(values["topicName"])).partition("/")[2]
    if name in _NAMES_OF:
        given = next((values[one] for one in _NAMES_OF[name] if values.get(one) is not None), None)
        return None if given is None else (topic_path if name == "topic" else namespace_path)(str(given))
    value = values.get(name)
    return None if value is None else _segment(name, _text(value))


def _segment(name: str, text: str) -> str:
    # Some HTTP software removes such parts, and then the request would be for something else.
    if text in ("", ".", ".."):
        raise CommandError(f"{name}={text!r} cannot be a part of a path")
    return quote(text, safe="")


def _parameter(parameter: str, values: Mapping[str, Json]) -> str:
    """Returns `name=value`, or an empty text without a value."""
    name, _, place = parameter.partition("=")
    value = values.get(place.strip("{}"))
    return "" if value is None or value is False else f"{name}={quote(_text(value), safe='')}"


def _text(value: Json) -> str:
    return "true" if value is True else "false" if value is False else str(value)


def body_of(template: str, values: Mapping[str, Json]) -> bytes | None:
    """Returns the JSON of the body; None without one. Members without a value are left out."""
    if not template:
        return None
    filled = _filled(json.loads(template), values)
    return None if filled is None else json.dumps(filled).encode()


def _filled(template: Json, values: Mapping[str, Json]) -> Json:
    if isinstance(template, str) and template.startswith("$"):
        return values.get(template[1:])
    if isinstance(template, dict):
        members = {name: _filled(one, values) for name, one in template.items()}
        return {name: one for name, one in members.items() if one is not None}
    return template
