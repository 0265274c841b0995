"""Rules about ports and TLS: values that exclude each other, or that leave a port more open than its owner believes."""

from __future__ import annotations

from typing import Final

from settings.errors import SettingsError
from settings.settings import Settings

PORTS: Final = ("brokerServicePort", "brokerServicePortTls", "webServicePort", "webServicePortTls")
"""The keys of all ports."""
_TLS_PORTS: Final = ("brokerServicePortTls", "webServicePortTls")
_ASK_FOR_TLS: Final = (
    "tlsCertificateFilePath",
    "tlsKeyFilePath",
    "tlsTrustCertsFilePath",
    "tlsRequireTrustedClientCertOnConnect",
    "tlsProtocols",
    "tlsCiphers",
    "webServiceTlsProtocols",
    "webServiceTlsCiphers",
    "tlsEnabled",
)
"""Keys whose owner believes that connections are protected."""


def open_ports(settings: Settings) -> str:
    """Returns the keys of the ports that are opened, for a sentence."""
    *names, last = (name for name in PORTS if settings.optional_int(name) is not None)
    return f"{', '.join(names)} and {last}" if names else last


def check_tls(settings: Settings) -> None:
    """Raises SettingsError for ports that no client can use, and for TLS that is asked for and missing."""
    for kind in ("brokerServicePort", "webServicePort"):
        if all(settings.optional_int(name) is None for name in (kind, f"{kind}Tls")):
            raise SettingsError(
                f"{settings.origin(kind)}: {kind} and {kind}Tls are both empty: set one of them"
            )
    if all(settings.optional_int(name) is None for name in _TLS_PORTS):
        _check_off(settings)
        return
    for name in ("tlsCertificateFilePath", "tlsKeyFilePath"):
        if not settings.str(name):
            port = next(port for port in _TLS_PORTS if settings.optional_int(port) is not None)
            raise settings.error(port, f"needs a PEM file in {name}")
    required = "tlsRequireTrustedClientCertOnConnect"
    if not settings.bool(required):
        return
    if settings.bool("tlsAllowInsecureConnection"):
        raise settings.error(required, "excludes tlsAllowInsecureConnection=true: set one of both to false")
    if not settings.str("tlsTrustCertsFilePath"):
        raise settings.error(
            required, "needs the certificates that vouch for clients in tlsTrustCertsFilePath"
        )


def _check_off(settings: Settings) -> None:
    for name in _ASK_FOR_TLS:
        if settings.value(name):
            raise settings.error(
                name,
                "asks for TLS, and no port has it: set brokerServicePortTls or webServicePortTls, or remove it",
            )
