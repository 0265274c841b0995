"""The admin API for our commands: one request, one answer, one clear error when there is none.

Law of the place: nothing here is specific to our broker, so every command works against any Pulsar; imports what
is heavy when it is called.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from magnetar.clients.client import CommandError, read_client_conf

DEFAULT_ADMIN_URL = "http://localhost:8080"
TIMEOUT_S = 30.0

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None


class Answer(NamedTuple):
    body: Json
    """None where there is none."""
    warnings: list[str]


def admin_url(flag: str | None) -> str:
    """The flag, else `webServiceUrl` of client.conf, else Pulsar's default. Raises CommandError."""
    return (flag or read_client_conf().get("webServiceUrl") or DEFAULT_ADMIN_URL).rstrip("/")


def ask(url: str, method: str, path: str) -> Answer:
    """`path` begins with a slash and is encoded. CommandError says who refused what, or who does not answer."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https"):
        raise CommandError(f"{url} is no admin URL: allowed is http://host:port or https://host:port")
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(host, port, timeout=TIMEOUT_S)
    try:
        connection.request(method, parts.path + path, headers={"Accept": "application/json"})
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
    except (OSError, HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise CommandError(
            f"no broker answers at {url} ({why}); start one or name it with --admin-url"
        ) from None
    finally:
        connection.close()
    if not 200 <= response.status < 300:
        raise CommandError(f"{url} refused: {_reason(text) or response.reason} ({response.status})")
    return Answer(_json(url, text), re.findall(r'"([^"]*)"', response.headers.get("Warning", "")))


def _reason(text: str) -> str:
    """What stands in an error's body, where it is one of Pulsar's."""
    try:
        found = json.loads(text)
    except ValueError:
        return ""
    return str(found.get("reason") or "").strip() if isinstance(found, dict) else ""


def _json(url: str, text: str) -> Json:
    try:
        body: Json = json.loads(text) if text else None
    except ValueError:
        raise CommandError(f"{url} answers, but not as a Pulsar broker does: {text[:60]!r}") from None
    return body
