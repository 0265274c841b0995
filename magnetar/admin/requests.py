"""Makes the request of a command from its row and its values. Pure, but for files that a body contains."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from foundation.value import Json
from magnetar.admin.values import function_path, namespace_path, package_path, topic_path
from magnetar.clients.client import CommandError

JSON_TYPE: Final = "application/json"
"""Content type of most bodies."""
_NAME: Final = re.compile(r"\{([\w|-]+)\}")
_NAMES_OF: Final = {"namespace": ("namespaceName", "namespace"), "topic": ("topicName", "topic")}
"""Parts of a path that are several words: the arguments that have them."""
_MULTIPART: Final = "multipart "
_AS: Final = "as "
_SPREAD: Final = "..."
"""A member with this name stands for all members of its value."""
_URL: Final = re.compile(r"(https?|file|function|source|sink|builtin)://")


class Body(NamedTuple):
    """The body of a request."""

    content: bytes
    """Its bytes."""
    type: str = JSON_TYPE
    """Its content type."""


def chosen(template: str, values: Mapping[str, Json]) -> str:
    """Returns the first alternative of `name? TEXT || TEXT` whose name has a value; empty without one."""
    for one in template.split(" || "):
        name, conditional, text = one.partition("? ")
        if not conditional:
            return one
        if values.get(name) not in (None, False):
            return text
    return ""


def path_of(template: str, values: Mapping[str, Json]) -> str:
    """Returns path and query of a request; parts and parameters without a value are left out."""
    path, _, query = chosen(template, values).partition("?")
    parts = [part for part in (_part(one, values) for one in path.strip("/").split("/")) if part is not None]
    asked = [one for one in (_parameter(one, values) for one in query.split("&") if one) if one]
    return "/" + "/".join(parts) + ("?" + "&".join(asked) if asked else "")


def _part(part: str, values: Mapping[str, Json]) -> str | None:
    found = _NAME.fullmatch(part)
    if found is None:
        return part
    name = found[1]
    match name:
        case "schema":
            # Schemas belong to a name alone, without its domain.
            return topic_path(str(_first(_NAMES_OF["topic"], values))).partition("/")[2]
        case "function" | "functions":
            return function_path(values, named=name == "function")
        case "package" | "package-name":
            return package_path(str(values["packageName"]), versioned=name == "package")
    if name in _NAMES_OF:
        given = _first(_NAMES_OF[name], values)
        return None if given is None else (topic_path if name == "topic" else namespace_path)(str(given))
    value = _first(name.split("|"), values)
    return None if value is None else _segment(name, _text(value))


def _first(names: tuple[str, ...] | list[str], values: Mapping[str, Json]) -> Json:
    return next((values[one] for one in names if values.get(one) is not None), None)


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
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "true" if value is True else "false" if value is False else str(value)


def body_of(template: str, values: Mapping[str, Json]) -> Body | None:
    """Returns the body; None without one. Members without a value are left out."""
    template = chosen(template, values)
    if not template:
        return None
    if template.startswith(_MULTIPART):
        return _multipart(json.loads(template.removeprefix(_MULTIPART)), values)
    content_type = JSON_TYPE
    if template.startswith(_AS):
        content_type, _, template = template.removeprefix(_AS).partition(" ")
    filled = _filled(json.loads(template), values)
    return None if filled is None else Body(json.dumps(filled).encode(), content_type)


def _filled(template: Json, values: Mapping[str, Json]) -> Json:
    """Replaces each `$name` by its value. A nested object without members becomes None."""
    if isinstance(template, str) and template.startswith("$"):
        return _first(template[1:].split("|"), values)
    if not isinstance(template, dict):
        return template
    members: dict[str, Json] = {}
    for name, one in template.items():
        value = _filled(one, values)
        if name == _SPREAD:
            members |= value if isinstance(value, dict) else {}
        elif value is not None and not (value == {} and isinstance(one, dict)):
            members[name] = value
    return members


def _multipart(parts: Mapping[str, Json], values: Mapping[str, Json]) -> Body:
    """Returns a form. `@name` is a file, or a part `url` when the value is a URL; other parts are JSON or text."""
    boundary = uuid.uuid4().hex
    found = b""
    for name, template in parts.items():
        if isinstance(template, str) and template.startswith("@"):
            place = _first(template[1:].split("|"), values)
            if place is not None:
                found += _file_part(boundary, name, str(place))
            continue
        value = _filled(template, values)
        if isinstance(value, str):
            found += _form_part(boundary, f'name="{name}"', "text/plain", value.encode())
        elif value is not None:
            found += _form_part(boundary, f'name="{name}"', JSON_TYPE, json.dumps(value).encode())
    return Body(found + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}")


def _file_part(boundary: str, name: str, place: str) -> bytes:
    if _URL.match(place):
        return _form_part(boundary, 'name="url"', "text/plain", place.encode())
    path = Path(place)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CommandError(f"the file {place} cannot be read: {error.strerror}") from None
    file_name = quote(path.name)
    return _form_part(boundary, f'name="{name}"; filename="{file_name}"', "application/octet-stream", content)


def _form_part(boundary: str, head: str, content_type: str, content: bytes) -> bytes:
    lines = (f"--{boundary}", f"Content-Disposition: form-data; {head}", f"Content-Type: {content_type}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content + b"\r\n"
