"""Turns the words of a command line into the values of a request. Pure, but for the schema file that `file` reads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from magnetar.clients.admin_client import Json
from magnetar.clients.client import CommandError

TOPIC_DOMAINS: Final = ("persistent", "non-persistent")
"""The two kinds of topics; their order is that of pulsar-admin's lists."""
_TIME: Final = re.compile(r"(-?\d+)([smhdwy]?)", re.IGNORECASE)
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_SIZE: Final = re.compile(r"(-?\d+)([kmgt]?)", re.IGNORECASE)
_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


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


def seconds(text: str) -> int:
    """Returns a time in seconds: a number, with a unit s, m, h, d, w or y. Raises CommandError."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise CommandError(f"{text!r} is no time; allowed is a number with s, m, h, d, w or y, such as 10m")
    value = int(found[1])
    # -1 means "no limit" and has no unit.
    return value if value < 0 else value * _SECONDS[found[2].lower()]


def millis(text: str) -> int:
    """Returns a time in milliseconds; the text is that of `seconds`."""
    return seconds(text) * 1000


def minutes(text: str) -> int:
    """Returns a time in whole minutes, rounded down; negative values stay."""
    value = seconds(text)
    return value if value < 0 else value // 60


def size(text: str) -> int:
    """Returns a size in bytes: a number, with a unit K, M, G or T of 1,024. Raises CommandError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise CommandError(f"{text!r} is no size; allowed is a number with K, M, G or T, such as 10M")
    value = int(found[1])
    return value if value < 0 else value << _SHIFTS[found[2].lower()]


def megabytes(text: str) -> int:
    """Returns a size in MiB, rounded down; negative values stay."""
    value = size(text)
    return value if value < 0 else value >> 20


def names(text: str) -> list[Json]:
    """Returns the parts between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


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
    "file": schema_file,
}
"""By kind of an option: reads its text. The kinds `flag`, `on` and `off` take no text."""


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
