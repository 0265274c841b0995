"""Sends requests of commands to a broker's admin API: one request, one answer, one clear error.

Nothing here is specific to our broker, so every command works against any Pulsar. `http.client` is imported with the
first request, so that `--help` does not pay for it.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from foundation.http.credentials import headers_of
from foundation.value import Json
from magnetar.clients.client import CommandError, read_client_conf

if TYPE_CHECKING:
    import ssl
    from http.client import HTTPResponse

DEFAULT_ADMIN_URL = "http://localhost:8080"
"""Address without `--admin-url` and without client.conf."""
TIMEOUT_S = 30.0
"""Limit on each wait for the broker: to connect, and to answer."""
REDIRECTS_MAX: Final = 5
"""Brokers that may send a request on; three are needed at most."""


class AdminAnswer(NamedTuple):
    """The answer to a request that succeeded."""

    body: Json
    """The decoded body; None for an empty one."""
    warnings: list[str]
    """Texts of the `Warning` header, such as a key without effect."""


class Response(NamedTuple):
    """The answer to a request that succeeded, as it came."""

    content: bytes
    """The body."""
    headers: Mapping[str, str]
    """The headers; names are in lower case."""

    @property
    def text(self) -> str:
        """The body as text; bytes that are no UTF-8 are replaced."""
        return self.content.decode(errors="replace")

    @property
    def warnings(self) -> list[str]:
        """Texts of the `Warning` header."""
        # Each warning is `299 - "text"` (RFC 7234); one header holds them all.
        return re.findall(r'"([^"]*)"', self.headers.get("warning", ""))


class AdminAddress(NamedTuple):
    """The address of the admin API, and the proof of the client's role."""

    url: str
    """`http://host:port`, without a slash at the end."""
    auth_plugin: str = ""
    """Name of the authentication plugin; empty for none."""
    auth_params: str = ""
    """Parameters of the plugin. They are a secret, which no error text repeats."""
    trust_certs: str = ""
    """File with the trusted certificates; empty for that of client.conf."""
    allow_insecure: bool = False
    """True for any certificate; else client.conf decides."""
    verify_hostname: bool = False
    """True to compare the certificate's name with the host; else client.conf decides."""
    timeout_s: float = TIMEOUT_S
    """Limit on each wait for the broker."""
    redirects: int = 0
    """How many brokers have sent the request on so far."""

    def __repr__(self) -> str:
        """Hides the parameters."""
        return f"AdminAddress({self.url!r})"


def admin_address(arguments: argparse.Namespace) -> AdminAddress:
    """Returns the address of the flags (`add_admin_url`), else that of client.conf, else Pulsar's default.

    Raises CommandError when client.conf cannot be read.
    """
    conf = read_client_conf()
    return AdminAddress(
        (arguments.admin_url or conf.get("webServiceUrl") or DEFAULT_ADMIN_URL).rstrip("/"),
        arguments.auth_plugin or conf.get("authPlugin", ""),
        arguments.auth_params or conf.get("authParams", ""),
        getattr(arguments, "tls_trust_cert_path", None) or "",
        bool(getattr(arguments, "tls_allow_insecure", None)),
        bool(getattr(arguments, "tls_enable_hostname_verification", None)),
        getattr(arguments, "request_timeout", None) or TIMEOUT_S,
    )


def ask(address: AdminAddress, method: str, path: str) -> AdminAnswer:
    """Sends a request without a body and returns the answer; as `send`, and CommandError for no JSON."""
    response = send(address, method, path)
    return AdminAnswer(_json(address.url, response.text), response.warnings)


def ask_for_object(address: AdminAddress, path: str, title: str) -> dict[str, Json]:
    """Returns the JSON object at a path of Magnetar's own; CommandError names `title` where another broker answers."""
    body = ask(address, "GET", path).body
    if not isinstance(body, dict):
        raise CommandError(f"{address.url} answers without {title}: name a Magnetar broker with --admin-url")
    return body


def as_text(body: Json) -> str:
    """Returns JSON for people: two spaces of indentation, letters of all scripts as they are."""
    return json.dumps(body, indent=2, ensure_ascii=False)


def send(
    address: AdminAddress,
    method: str,
    path: str,
    body: bytes | None = None,
    content_type: str = "application/json",
    read: Callable[[HTTPResponse], bytes] | None = None,
) -> Response:
    """Sends a request and returns the answer. `path` begins with a slash and is encoded.

    `read` takes the body of an answer whose end does not come, such as a stream; None for the whole body.

    For https, the address and client.conf say which certificates are trusted and shown.

    A broker that does not own the topic in the path sends the request on to the owner (307), which is asked then.

    Raises CommandError for a malformed URL, a broker that does not answer, and a refusal.
    """
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    url = address.url
    try:
        # Raises ValueError here for broken brackets, or at `port` for a number above 65535.
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https"):
        raise CommandError(f"{url} is no admin URL: allowed is http://host:port or https://host:port")
    headers = _headers(address, content_type)
    connection = (
        HTTPSConnection(host, port, timeout=address.timeout_s, context=_context(address))
        if parts.scheme == "https"
        else HTTPConnection(host, port, timeout=address.timeout_s)
    )
    try:
        connection.request(method, parts.path + path, body=body, headers=headers)
        response = connection.getresponse()
        content = response.read() if read is None or response.status >= 300 else read(response)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise CommandError(
            f"no broker answers at {url} ({reason}); start one or name it with --admin-url"
        ) from None
    finally:
        connection.close()
    if response.status == 307:
        next_address, path = _sent_on(address, response.headers.get("Location", ""))
        return send(next_address, method, path, body, content_type, read)
    text = "" if 200 <= response.status < 300 else content.decode(errors="replace")
    if response.status == 401 and not _reason(text):
        raise CommandError(
            f"{url} refused: credentials are missing or wrong (401); name them with --auth-plugin and --auth-params,"
            " or in client.conf"
        )
    if not 200 <= response.status < 300:
        raise CommandError(f"{url} refused: {_reason(text) or response.reason} ({response.status})")
    return Response(content, {name.lower(): value for name, value in response.headers.items()})


def _sent_on(address: AdminAddress, location: str) -> tuple[AdminAddress, str]:
    """Returns the address and the path of a redirect. Raises CommandError for one that is not followed."""
    parts = urlsplit(location)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise CommandError(f"{address.url} sends the request on to {location[:200]!r}, which is no URL")
    if address.url.startswith("https:") and parts.scheme != "https":
        raise CommandError(
            f"{address.url} sends the request on to {parts.netloc} without TLS, which is not followed"
        )
    if address.redirects >= REDIRECTS_MAX:
        raise CommandError(
            f"{address.url}: the brokers send the request on without end; ask again in a moment"
        )
    found = address._replace(url=f"{parts.scheme}://{parts.netloc}", redirects=address.redirects + 1)
    return found, parts.path + (f"?{parts.query}" if parts.query else "")


def text_or_json(text: str) -> Json:
    """Returns the JSON value of a body, or the body itself where it is plain text; None for an empty one."""
    try:
        value: Json = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text
    return value


def _headers(address: AdminAddress, content_type: str) -> dict[str, str]:
    try:
        proof = headers_of(address.auth_plugin, address.auth_params)
    except ValueError as error:
        raise CommandError(f"authPlugin, authParams: {error}") from None
    # Without a type the broker would take a write for one of a foreign web page.
    return {"Accept": "application/json", "Content-Type": content_type, **proof}


def _context(address: AdminAddress) -> ssl.SSLContext:
    """Makes the TLS context that the address and client.conf describe. Raises CommandError for files that cannot be used."""
    from pathlib import Path

    from foundation.tls.auth_params import PLUGINS, parse_auth_params
    from foundation.tls.contexts import ClientFiles, client_context
    from foundation.tls.errors import TlsError

    conf = read_client_conf()

    def path(name: str) -> Path | None:
        return Path(conf[name]) if conf.get(name) else None

    certificate, key = path("tlsCertificateFilePath"), path("tlsKeyFilePath")
    try:
        if address.auth_plugin in PLUGINS:
            certificate, key = parse_auth_params(address.auth_params)
        return client_context(
            ClientFiles(
                trusted=Path(address.trust_certs) if address.trust_certs else path("tlsTrustCertsFilePath"),
                certificate=certificate,
                key=key,
                accepts_any_server=address.allow_insecure
                or conf.get("tlsAllowInsecureConnection", "").lower() == "true",
                # Pulsar's default is false; a command that is told nothing checks, as any other program for https.
                checks_host_name=address.verify_hostname
                or conf.get("tlsEnableHostnameVerification", "true").lower() == "true",
            )
        )
    except ValueError as error:
        raise CommandError(f"authParams: {error}") from None
    except TlsError as error:
        raise CommandError(str(error)) from None


def _reason(text: str) -> str:
    """Returns the text of a refusal in Pulsar's form, `{"reason": text}`; an empty text for any other body."""
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
