"""TLS contexts made of the settings: those of the ports, and that of connections to bookies."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from broker.config.tls_rules import talks_tls_to_bookies
from foundation.loop import clock
from foundation.settings.errors import SettingsError
from foundation.settings.settings import Settings
from foundation.tls.certificates import Certificates
from foundation.tls.contexts import ClientFiles, ServerFiles, client_context, password_in, server_context
from foundation.tls.errors import TlsError

log = logging.getLogger("magnetar")


def data_certificates(settings: Settings) -> Certificates:
    """Reads the certificates for `brokerServicePortTls`. Raises SettingsError for files that cannot be used."""
    return _certificates(settings, settings.list("tlsProtocols"), settings.list("tlsCiphers"))


def web_certificates(settings: Settings) -> Certificates:
    """Reads the certificates for `webServicePortTls`. Raises SettingsError for files that cannot be used."""
    return _certificates(
        settings, settings.list("webServiceTlsProtocols"), settings.list("webServiceTlsCiphers")
    )


def _certificates(settings: Settings, protocols: Sequence[str], ciphers: Sequence[str]) -> Certificates:
    trusted = settings.str("tlsTrustCertsFilePath")
    files = ServerFiles(
        certificate=Path(settings.str("tlsCertificateFilePath")),
        key=Path(settings.str("tlsKeyFilePath")),
        # Python's library refuses an untrusted certificate that it has asked for, so it must not ask.
        trusted=Path(trusted) if trusted and not settings.bool("tlsAllowInsecureConnection") else None,
        requires_client_certificate=settings.bool("tlsRequireTrustedClientCertOnConnect"),
        protocols=protocols,
        ciphers=ciphers,
    )
    return _read(
        settings,
        "tlsCertificateFilePath",
        lambda: server_context(files),
        files.paths(),
        settings.int("tlsCertRefreshCheckDurationSec"),
    )


def bookie_certificates(settings: Settings) -> Certificates | None:
    """Reads the certificates for connections to bookies; None without TLS.

    Raises SettingsError for files that cannot be used.
    """
    if not talks_tls_to_bookies(settings):
        return None
    password = settings.str("bookkeeperTLSKeyStorePasswordPath")

    def make() -> ssl.SSLContext:
        return client_context(replace(files, password=password_in(Path(password))) if password else files)

    files = ClientFiles(
        trusted=_path(settings, "bookkeeperTLSTrustCertsFilePath"),
        certificate=_path(settings, "bookkeeperTLSCertificateFilePath"),
        key=_path(settings, "bookkeeperTLSKeyFilePath"),
        checks_host_name=settings.bool("bookkeeper_tlsHostnameVerificationEnabled"),
    )
    paths = (*files.paths(), Path(password)) if password else files.paths()
    named = next(name for name in _BOOKIE_FILES if settings.is_set(name))
    seconds = settings.int("bookkeeperTlsCertFilesRefreshDurationSeconds")
    return _read(settings, named, make, paths, seconds)


_BOOKIE_FILES: Final = (
    "bookkeeperTLSTrustCertsFilePath",
    "bookkeeperTLSCertificateFilePath",
    "bookkeeper_tlsHostnameVerificationEnabled",
)
"""One of these is set when the broker talks TLS to bookies; errors name its place."""


def _path(settings: Settings, name: str) -> Path | None:
    return Path(settings.str(name)) if settings.str(name) else None


def _read(
    settings: Settings,
    named: str,
    make: Callable[[], ssl.SSLContext],
    paths: Sequence[Path],
    check_s: float,
) -> Certificates:
    """Makes the first context; an error names the place of the key `named`."""
    try:
        return Certificates(make, paths, check_s=check_s, now_ns=clock.monotonic_ns, warn=log.warning)
    except TlsError as error:
        raise SettingsError(f"{settings.origin(named)}: {named}: {error}") from None
