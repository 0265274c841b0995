"""OpenIdProvider: tokens whose keys their issuer publishes (`AuthenticationProviderOpenID`).

The issuer is checked against the settings before anything is fetched, so a token cannot send the broker to a URL.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from broker.security.authentication.credentials import AuthenticationFailed, Credentials, Identity
from broker.security.authentication.issuer_keys import IssuerKeys
from broker.security.authentication.settings import AuthenticationSettings
from broker.security.authentication.signatures import check_times, unverified_part, verified_claims
from broker.security.authentication.tokens import TOKEN, check_audience, role_in
from foundation.settings.settings import Settings


class OpenIdProvider:
    """Proves the role in a token by the keys of the token's issuer."""

    name = "AuthenticationProviderOpenID"
    """Apache's name of the class."""
    method = TOKEN
    """The word in CONNECT: the same as for tokens with a key of the broker's settings."""

    def __init__(
        self, keys: IssuerKeys, settings: AuthenticationSettings, now_s: Callable[[], float]
    ) -> None:
        """`now_s` returns seconds since 1970."""
        self._keys = keys
        self._settings = settings
        self._now_s = now_s

    async def authenticate(self, credentials: Credentials) -> Identity:
        """Returns the role of a token from an allowed issuer, signed, in time and for an allowed audience."""
        settings, token = self._settings, credentials.data
        issuer = unverified_part(token, 1).get("iss")
        if not isinstance(issuer, str) or issuer not in settings.openid_issuers:
            raise AuthenticationFailed("the issuer of the token is not allowed")
        header = unverified_part(token, 0)
        ring = await self._keys.of(issuer, header)
        claims = verified_claims(token, ring.find)
        expires_at_s = check_times(claims, self._now_s(), settings.openid_skew_s)
        if expires_at_s is None:
            raise AuthenticationFailed("the token of an OpenID provider has no time of expiry")
        check_audience(claims, "aud", settings.openid_audiences)
        return Identity(role_in(claims, settings.openid_role_claim), expires_at_s)


def check_openid(settings: Settings) -> None:
    """Raises SettingsError for issuers or audiences that are missing, and for an issuer without TLS."""
    for name in ("openIDAllowedTokenIssuers", "openIDAllowedAudiences"):
        if not settings.list(name):
            raise settings.error(name, "the OpenID provider needs at least one")
    schemes = ("https",) if settings.bool("openIDRequireIssuersUseHttps") else ("https", "http")
    for issuer in settings.list("openIDAllowedTokenIssuers"):
        parts = urlsplit(issuer)
        if parts.scheme not in schemes or not parts.netloc:
            raise settings.error(
                "openIDAllowedTokenIssuers", f"each must be a URL with {' or '.join(schemes)}"
            )
