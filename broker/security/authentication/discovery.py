"""Fetches the keys of an OpenID provider: its description first, then the JWKS that the description names."""

from __future__ import annotations

import asyncio
import json
import ssl
from importlib import import_module
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from broker.security.authentication.settings import AuthenticationSettings
from broker.security.authentication.signatures import KeyRing, key_set

if TYPE_CHECKING:
    from aiohttp import ClientSession

DOCUMENT: Final = "/.well-known/openid-configuration"
"""Path below the issuer's URL (OpenID Connect Discovery 1.0, 4)."""
ANSWER_BYTES_MAX: Final = 1 << 20
"""Longest answer of a provider."""


class Discovery:
    """Fetches keys over HTTP, with the time-outs and certificates of the settings."""

    def __init__(self, settings: AuthenticationSettings) -> None:
        """Raises ValueError for a file of certificates that cannot be used."""
        self._settings = settings
        try:
            self._tls = ssl.create_default_context(cafile=settings.openid_certificates or None)
        except OSError as error:
            raise ValueError(f"the certificates cannot be read: {error}") from None

    async def keys_of(self, issuer: str) -> KeyRing:
        """Returns the keys of the issuer. Raises ValueError with the reason."""
        # In a thread: the import takes longer than a client's lookup may.
        aiohttp = await asyncio.to_thread(import_module, "aiohttp")
        timeout = aiohttp.ClientTimeout(
            sock_connect=self._settings.openid_connect_s, sock_read=self._settings.openid_read_s
        )
        limit_s = 2 * (self._settings.openid_connect_s + self._settings.openid_read_s)
        try:
            async with (
                asyncio.timeout(limit_s),
                aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            ):
                description = json.loads(await self._get(session, issuer.rstrip("/") + DOCUMENT))
                if not isinstance(description, dict) or description.get("issuer") != issuer:
                    raise ValueError("its description names another issuer")
                url = description.get("jwks_uri")
                scheme = urlsplit(issuer).scheme
                if not isinstance(url, str) or urlsplit(url).scheme not in ("https", scheme):
                    raise ValueError("its description has no usable jwks_uri")
                return key_set(await self._get(session, url))
        except (aiohttp.ClientError, OSError, TimeoutError, RecursionError) as error:
            raise ValueError(str(error) or type(error).__name__) from None

    async def _get(self, session: ClientSession, url: str) -> bytes:
        # No redirects: they could lead to a host that the settings do not name.
        async with session.get(url, ssl=self._tls, allow_redirects=False) as response:
            if response.status != 200:
                raise ValueError(f"{url} answers {response.status}")
            data = b""
            async for part in response.content.iter_chunked(64 * 1024):
                data += part
                if len(data) > ANSWER_BYTES_MAX:
                    raise ValueError(f"{url} answers more than {ANSWER_BYTES_MAX} bytes")
            return data
