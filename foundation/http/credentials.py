"""Turns the authentication plugin of a client into what CONNECT carries, and into the header of requests to admin ports."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import unquote

_JAVA = "org.apache.pulsar.client.impl.auth."
TOKEN = ("token", f"{_JAVA}AuthenticationToken")
"""Names of the plugin for tokens: `token:TEXT`, `file:PATH`, or the token itself."""
BASIC = ("basic", f"{_JAVA}AuthenticationBasic")
"""Names of the plugin for passwords: `{"userId": NAME, "password": TEXT}`, or `NAME:TEXT`."""
TLS_PLUGINS = ("tls", f"{_JAVA}AuthenticationTls")
"""Names of the plugin for certificates, which belong to the connection: it adds no header."""
WITHOUT_CREDENTIALS = ("", f"{_JAVA}AuthenticationDisabled")
"""Plugins that prove nothing."""


def proof_of(plugin: str, params: str) -> tuple[str, str] | None:
    """Returns Pulsar's name of the method and what proves the client's role: a token, or `name:password`.

    Empty for a certificate, which the connection shows; None for a plugin that proves nothing. Raises ValueError, which
    never repeats the parameters, for another plugin and for broken parameters.
    """
    if plugin in WITHOUT_CREDENTIALS:
        return None
    if plugin in TLS_PLUGINS:
        return "tls", ""
    if plugin in TOKEN:
        return "token", _token(params)
    if plugin in BASIC:
        return "basic", _name_and_password(params)
    raise ValueError(
        f"{plugin} is no plugin that is built in: allowed are {TOKEN[1]} and {BASIC[1]}, or in short token and basic"
    )


def headers_of(plugin: str, params: str) -> dict[str, str]:
    """Returns the headers that prove the client's role. Raises as `proof_of`."""
    proof = proof_of(plugin, params)
    if proof is None or proof[0] == "tls":
        return {}
    method, secret = proof
    if method == "token":
        return {"Authorization": f"Bearer {secret}"}
    return {"Authorization": "Basic " + base64.b64encode(secret.encode()).decode()}


def _token(params: str) -> str:
    if params.startswith("file:"):
        path = params.removeprefix("file:")
        path = unquote(path.removeprefix("//")) if path.startswith("//") else unquote(path)
        try:
            token = Path(path).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise ValueError(f"the token's file {path} cannot be read: {reason}") from None
    else:
        token = params.removeprefix("token:").strip()
    # A line break would end the header, and what follows would be another one.
    if not token or not token.isascii() or not token.isprintable():
        raise ValueError("the token is empty or broken")
    return token


def _name_and_password(params: str) -> str:
    if params.lstrip().startswith("{"):
        try:
            found = json.loads(params)
            # The Java client says userId, the C++ client username.
            name, password = found.get("userId") or found["username"], found["password"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            name = password = None
        if not isinstance(name, str) or not isinstance(password, str):
            raise ValueError('the parameters of basic authentication are {"userId": "…", "password": "…"}')
        return f"{name}:{password}"
    if ":" not in params:
        raise ValueError("the parameters of basic authentication are name:password")
    return params
