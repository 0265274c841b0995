"""Makes JSON web tokens by hand, so that a test can sign wrongly too."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Final

HS256_HEADER: Final = b'{"alg":"HS256"}'


def hs256_token(claims: Mapping[str, object], key: bytes) -> str:
    """A token signed with a shared secret."""
    signed = _unsigned(HS256_HEADER, claims)
    return f"{signed}.{_text(hmac.new(key, signed.encode(), hashlib.sha256).digest())}"


def unsigned_token(claims: Mapping[str, object]) -> str:
    """A token that says `"alg":"none"` and has an empty signature."""
    return _unsigned(b'{"alg":"none"}', claims) + "."


def _unsigned(header: bytes, claims: Mapping[str, object]) -> str:
    return f"{_text(header)}.{_text(json.dumps(claims, separators=(',', ':')).encode())}"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
