"""Certificates of the ports with TLS, made of the settings."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from broker.loop import clock
from settings.errors import SettingsError
from settings.settings import Settings
from tls.certificates import Certificates
from tls.contexts import ServerFiles, server_context
from tls.errors import TlsError

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
    try:
        return Certificates(
            lambda: server_context(files),
            files.paths(),
            check_s=settings.int("tlsCertRefreshCheckDurationSec"),
            now_ns=clock.monotonic_ns,
            warn=log.warning,
        )
    except TlsError as error:
        raise SettingsError(f"{settings.origin('tlsCertificateFilePath')}: {error}") from None
