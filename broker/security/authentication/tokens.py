"""TokenProvider: tokens whose key stands in the broker's settings (`AuthenticationProviderToken`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker.security.authentication.credentials import (
    AuthenticationFailed,
    Credentials,
    Identity,
    checked_role,
)
from broker.security.authentication.key_files import read_key
from broker.security.authentication.settings import AuthenticationSettings
from broker.security.authentication.signatures import (
    Claims,
    KeyRing,
    check_times,
    public_keys,
    secret_key,
    verified_claims,
)
from foundation.settings.settings import Settings
from foundation.tls.reloaded import Reloaded

TOKEN: Final = "token"
"""The method's word in CONNECT."""


class TokenProvider:
    """Proves the role in a token's claim by the token's signature."""

    name = "AuthenticationProviderToken"
    """Apache's name of the class."""
    method = TOKEN
    """The word in CONNECT."""

    def __init__(
        self, keys: Reloaded[KeyRing], settings: AuthenticationSettings, now_s: Callable[[], float]
    ) -> None:
        """`keys` of the settings' files; `now_s` returns seconds since 1970."""
        self._keys = keys
        self._settings = settings
        self._now_s = now_s

    async def authenticate(self, credentials: Credentials) -> Identity:
        """Returns the role of a token that is signed, in time and for this broker."""
        settings = self._settings
        keys = await self._keys.fetch()
        claims = verified_claims(credentials.data, keys.find)
        expires_at_s = check_times(claims, self._now_s(), settings.token_skew_s)
        if settings.token_audience_claim:
            check_audience(claims, settings.token_audience_claim, (settings.token_audience,))
        return Identity(role_in(claims, settings.token_role_claim), expires_at_s)


def token_keys(settings: Settings) -> KeyRing:
    """Reads the keys that the settings name.

    Raises SettingsError for a key that cannot be used, for none, and for two.
    """
    secret, public = settings.str("tokenSecretKey"), settings.str("tokenPublicKey")
    if secret and public:
        # Pulsar takes the secret one and ignores the other without a word.
        raise settings.error(
            "tokenPublicKey", "tokenSecretKey is set too; keep the one that signs your tokens"
        )
    name = "tokenSecretKey" if secret else "tokenPublicKey"
    if not secret and not public:
        raise settings.error(name, "the provider of tokens needs this key or tokenSecretKey")
    try:
        data = read_key(secret or public)
        if secret:
            return KeyRing([secret_key(data)])
        return public_keys(data, settings.str("tokenPublicAlg"))
    except ValueError as error:
        raise settings.error(name, str(error)) from None


def check_audience(claims: Claims, claim: str, accepted: Sequence[str]) -> None:
    """Raises AuthenticationFailed unless the claim, a text or a list of texts, names one of `accepted`."""
    named = claims.get(claim)
    audiences = named if isinstance(named, list) else [named]
    if not any(isinstance(one, str) and one in accepted for one in audiences):
        raise AuthenticationFailed("the token is for another audience")


def role_in(claims: Claims, claim: str) -> str | None:
    """Returns the role in a claim: a text, or the first one of a list; None where the claim is missing."""
    value = claims.get(claim)
    if isinstance(value, list):
        value = value[0] if value else None
    if value is None:
        return None
    if not isinstance(value, str):
        raise AuthenticationFailed("the role in the token is no text")
    return checked_role(value)
