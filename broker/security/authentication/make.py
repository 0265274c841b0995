"""Makes the Authenticator that the settings describe. Imports each provider's libraries only when it is listed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from broker.config.security_keys import BASIC_PROVIDER, OPENID_PROVIDER, TLS_PROVIDER, TOKEN_PROVIDER
from broker.security.authentication.authenticator import Authenticator
from broker.security.authentication.credentials import Provider
from broker.security.authentication.key_files import key_paths
from broker.security.authentication.settings import AuthenticationSettings
from foundation.loop import clock
from foundation.loop.rare_lines import RareLines
from foundation.settings.errors import SettingsError
from foundation.settings.settings import Settings
from foundation.tls.reloaded import Reloaded

T = TypeVar("T")

log = logging.getLogger("magnetar.security")


def make_authenticator(
    settings: Settings, wall_ms: Callable[[], int] = clock.wall_ms
) -> Authenticator | None:
    """Returns the authenticator, None without authentication.

    `wall_ms`: the clock by which credentials expire, milliseconds since 1970. Reads the files of keys and passwords.
    Raises SettingsError for one that cannot be used.
    """
    if not settings.bool("authenticationEnabled"):
        return None
    names = settings.list("authenticationProviders")
    if not names:
        raise settings.error(
            "authenticationEnabled", "authenticationProviders names no class; nobody could prove anything"
        )
    own = AuthenticationSettings.of(settings)
    closes: list[Callable[[], None]] = []

    def wall_s() -> float:
        return wall_ms() / 1000

    providers = [_provider(name, settings, own, wall_s, closes) for name in dict.fromkeys(names)]

    def close() -> None:
        for one in closes:
            one()

    return Authenticator(
        providers,
        own,
        now_ns=clock.monotonic_ns,
        wall_s=wall_s,
        lines=RareLines(log, clock.monotonic_ns),
        close=close,
    )


def _reloaded(make: Callable[[], T], subject: str, own: AuthenticationSettings, named: str) -> Reloaded[T]:
    """Makes a value of the file that `named` names. Raises the SettingsError of `make`."""
    return Reloaded(
        make,
        key_paths(named),
        subject=subject,
        error=SettingsError,
        check_s=own.files_check_s,
        now_ns=clock.monotonic_ns,
        warn=log.warning,
    )


def _provider(
    name: str,
    settings: Settings,
    own: AuthenticationSettings,
    wall_s: Callable[[], float],
    closes: list[Callable[[], None]],
) -> Provider:
    """Makes the provider of a class name; adds to `closes` what ends its threads."""
    if name == TLS_PROVIDER:
        from broker.security.authentication.certificates import CertificateProvider

        return CertificateProvider()
    if name == BASIC_PROVIDER:
        from broker.security.authentication.passwords import PasswordProvider, stored_passwords

        stored = _reloaded(
            lambda: stored_passwords(settings), "passwords", own, settings.str("basicAuthConf")
        )
        passwords = PasswordProvider(stored, clock.monotonic_ns)
        closes.append(passwords.close)
        return passwords
    if name == TOKEN_PROVIDER:
        from broker.security.authentication.tokens import TokenProvider, token_keys

        named = settings.str("tokenSecretKey") or settings.str("tokenPublicKey")
        token_ring = _reloaded(lambda: token_keys(settings), "keys of tokens", own, named)
        return TokenProvider(token_ring, own, wall_s)
    assert name == OPENID_PROVIDER, name
    from broker.security.authentication.discovery import Discovery
    from broker.security.authentication.issuer_keys import IssuerKeys
    from broker.security.authentication.openid import OpenIdProvider, check_openid

    check_openid(settings)
    try:
        discovery = Discovery(own)
    except ValueError as error:
        raise settings.error("openIDTokenIssuerTrustCertsFilePath", str(error)) from None
    keys = IssuerKeys(discovery.keys_of, own, clock.monotonic_ns, RareLines(log, clock.monotonic_ns))
    closes.append(keys.close)
    return OpenIdProvider(keys, own, wall_s)
