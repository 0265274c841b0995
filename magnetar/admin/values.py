"""Turns the words of a command line into the values of a request. Pure, but for the files that `file` and `config` read."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from foundation.value import Json
from magnetar.clients.client import CommandError

TOPIC_DOMAINS: Final = ("persistent", "non-persistent")
"""The two kinds of topics; their order is that of pulsar-admin's lists."""
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_PACKAGE: Final = re.compile(r"(function|source|sink)://([^/@]+)/([^/@]+)/([^/@]+)(?:@([^/@]+))?")
_LONG_MAX: Final = 2**63 - 1
_BYTES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def integer(text: str) -> int:
    """Returns a whole number. Raises CommandError."""
    if re.fullmatch(r"-?\d{1,19}", text) is None:
        raise CommandError(f"{text!r} is no whole number")
    return int(text)


def number(text: str) -> float:
    """Returns a number with a fraction. Raises CommandError."""
    try:
        return float(text)
    except ValueError:
        raise CommandError(f"{text!r} is no number") from None


def _with_unit(text: str, units: Mapping[str, int], words: str) -> int:
    found = re.fullmatch(r"(-?\d+)(\w?)", text)
    unit = None if found is None else units.get(found[2].lower())
    if found is None or unit is None:
        raise CommandError(f"{text!r} is no {words}")
    value = int(found[1])
    # -1 means "no limit" and has no unit.
    return value if value < 0 else value * unit


def seconds(text: str) -> int:
    """Returns a time in seconds: a number, with a unit s, m, h, d, w or y. Raises CommandError."""
    return _with_unit(text, _SECONDS, "time; allowed is a number with s, m, h, d, w or y, such as 10m")


def millis(text: str) -> int:
    """Returns a time in milliseconds; the text is that of `seconds`."""
    return seconds(text) * 1000


def minutes(text: str) -> int:
    """Returns a time in whole minutes, rounded down; negative values stay."""
    value = seconds(text)
    return value if value < 0 else value // 60


def size(text: str) -> int:
    """Returns a size in bytes: a number, with a unit K, M, G or T of 1,024. Raises CommandError."""
    return _with_unit(text, _BYTES, "size; allowed is a number with K, M, G or T, such as 10M")


def megabytes(text: str) -> int:
    """Returns a size in MiB, rounded down; negative values stay."""
    value = size(text)
    return value if value < 0 else value >> 20


def names(text: str) -> list[Json]:
    """Returns the parts between commas; `[]` is a list without parts."""
    return [] if text == "[]" else [part.strip() for part in text.split(",") if part.strip()]


def pairs(text: str) -> dict[str, Json]:
    """Returns `a=b,c=d` as an object. Raises CommandError."""
    found: dict[str, Json] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise CommandError(f"{part!r} is not of the form key=value")
        found[key.strip()] = value
    return found


def position(text: str) -> Json:
    """Returns `latest`, `earliest`, or a message id from `ledger:entry`. Raises CommandError."""
    if text in ("latest", "earliest"):
        return text
    ledger, colon, entry = text.partition(":")
    if not colon:
        raise CommandError(f"{text!r} is no position; allowed are latest, earliest and LEDGER:ENTRY")
    return {"ledgerId": integer(ledger), "entryId": integer(entry), "partitionIndex": -1}


def cursor(text: str) -> Json:
    """Returns a message id as an object, also for `latest` and `earliest`. Raises CommandError."""
    place = position(text)
    if not isinstance(place, str):
        return place
    number = -1 if place == "earliest" else _LONG_MAX
    return {"ledgerId": number, "entryId": number, "partitionIndex": -1}


def instant(text: str) -> int:
    """Returns the milliseconds since 1970 of a time in the form of ISO 8601. Raises CommandError."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"{text!r} is no time; allowed is a form such as 2026-11-22T08:00:00Z") from None
    # As pulsar-admin, which takes a time without a zone for one of this machine.
    return round(found.timestamp() * 1000)


def numbers(text: str) -> list[Json]:
    """Returns the whole numbers between commas. Raises CommandError."""
    return [integer(part) for part in text.split(",")]


def truth(text: str) -> bool:
    """Returns True for `true`. Raises CommandError for another text than `true` and `false`."""
    if text.lower() not in ("true", "false"):
        raise CommandError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def json_text(text: str) -> Json:
    """Returns a JSON value. Raises CommandError."""
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        raise CommandError(f"{text[:60]!r} is no JSON") from None
    return value


def config_file(text: str) -> Json:
    """Returns the object of a YAML file, which may be JSON. Raises CommandError for a file that cannot be read."""
    try:
        content = Path(text).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CommandError(f"the file {text} cannot be read: {getattr(error, 'strerror', error)}") from None
    try:
        value: Json = json.loads(content)
    except (ValueError, RecursionError):
        value = _yaml(text, content)
    if not isinstance(value, dict):
        raise CommandError(f"the file {text} has no object of settings")
    return value


def _yaml(name: str, content: str) -> Json:
    try:
        import yaml
    except ImportError:
        raise CommandError(f"the file {name} is no JSON; YAML needs `pip install pyyaml`") from None
    try:
        value: Json = yaml.safe_load(content)
    except yaml.YAMLError:
        raise CommandError(f"the file {name} is neither JSON nor YAML") from None
    return value


def schema_file(text: str) -> Json:
    """Returns the JSON of a schema's file. Raises CommandError for a file that cannot be read."""
    try:
        value: Json = json.loads(Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or "it is no JSON"
        raise CommandError(f"the file {text} cannot be read: {reason}") from None
    return value


READERS: Final[Mapping[str, Callable[[str], Json]]] = {
    "text": str,
    "int": integer,
    "float": number,
    "seconds": seconds,
    "millis": millis,
    "minutes": minutes,
    # The command subtracts it from the present time.
    "ago": millis,
    "bytes": size,
    "megabytes": megabytes,
    "list": names,
    "clusters": names,
    "domains": str,
    "map": pairs,
    "position": position,
    "cursor": cursor,
    "time": instant,
    "numbers": numbers,
    "bool": truth,
    "json": json_text,
    "config": config_file,
    "file": schema_file,
}
"""By kind of an option: reads its text. The kinds `flag`, `given`, `on` and `off` take no text."""


def topic_path(name: str) -> str:
    """Returns `domain/tenant/namespace/topic` of a topic's name, encoded. Raises CommandError."""
    domain, found, rest = name.partition("://")
    if not found:
        domain, rest = TOPIC_DOMAINS[0], name
    parts = rest.split("/", 2)
    if len(parts) == 1 and not found:
        parts = ["public", "default", rest]
    if len(parts) != 3 or domain not in TOPIC_DOMAINS or not all(parts):
        raise CommandError(
            f"{name!r} is no topic; allowed are TOPIC, TENANT/NAMESPACE/TOPIC and persistent://TENANT/NAMESPACE/TOPIC"
        )
    return "/".join([domain, *(quote(part, safe="") for part in parts)])


def namespace_path(name: str) -> str:
    """Returns `tenant/namespace`, encoded. Raises CommandError."""
    parts = name.split("/")
    if len(parts) != 2 or not all(parts):
        raise CommandError(f"{name!r} is no namespace; allowed is TENANT/NAMESPACE")
    return "/".join(quote(part, safe="") for part in parts)


def function_path(values: Mapping[str, Json], *, named: bool) -> str:
    """Returns `tenant/namespace/name` of a function, source or sink, encoded; without the name unless `named`.

    The parts come from `fqfn` (`tenant/namespace/name`), else from `tenant`, `namespace` and `name`. Raises CommandError
    without a name.
    """
    whole = values.get("fqfn")
    if whole is not None:
        parts = str(whole).split("/")
        if len(parts) != 3 or not all(parts):
            raise CommandError(f"--fqfn: {whole!r} is not of the form TENANT/NAMESPACE/NAME")
    else:
        parts = [str(values.get("tenant") or "public"), str(values.get("namespace") or "default")]
        if named:
            if values.get("name") is None:
                raise CommandError("a name is missing; give --name")
            parts.append(str(values["name"]))
    return "/".join(quote(part, safe="") for part in parts)


def package_path(name: str, *, versioned: bool) -> str:
    """Returns `type/tenant/namespace/name`, with `/version` if `versioned`, encoded. Raises CommandError."""
    found = _PACKAGE.fullmatch(name)
    if found is None:
        raise CommandError(f"{name!r} is no package; allowed is TYPE://TENANT/NAMESPACE/NAME@VERSION")
    parts = list(found.groups("latest"))
    return "/".join(quote(part, safe="") for part in (parts if versioned else parts[:-1]))
