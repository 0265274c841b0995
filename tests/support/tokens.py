"""Tokens for tests, signed by hand, so that the broker's library is not its own judge; wrong ones too."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping
from typing import Final

from tests.support.command_json import Json

SECRET: Final = bytes(range(32))
"""A secret key for HS256."""
SECRET_URL: Final = "data:;base64," + base64.b64encode(SECRET).decode()
"""The key as a setting names it."""


def base64_url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(
    claims: Mapping[str, Json], *, key: bytes = SECRET, header: Mapping[str, Json] | None = None
) -> str:
    """A token with these claims, signed with HS256 whatever the header says."""
    parts = [json.dumps(part).encode() for part in (header or {"alg": "HS256"}, claims)]
    text = ".".join(map(base64_url, parts))
    return f"{text}.{base64_url(hmac.digest(key, text.encode(), 'sha256'))}"


def unsigned_token(claims: Mapping[str, Json]) -> str:
    """A token that says `"alg":"none"` and has an empty signature."""
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(map(base64_url, parts)) + "."


def peer_settings(text: str) -> dict[str, str]:
    """The settings of a broker that shows this token to the others of its cluster; alone it shows it to nobody."""
    return {
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{text}",
    }
