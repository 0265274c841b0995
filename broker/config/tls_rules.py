"""Rules about ports and TLS: values that exclude each other, or that leave a port more open than its owner believes."""

from __future__ import annotations

from typing import Final

from foundation.settings.errors import SettingsError
from foundation.settings.settings import Settings

PORTS: Final = ("brokerServicePort", "brokerServicePortTls", "webServicePort", "webServicePortTls")
"""The keys of all ports."""
_TLS_PORTS: Final = ("brokerServicePortTls", "webServicePortTls")
_TO_BOOKIES: Final = (
    "bookkeeperTLSClientAuthentication",
    "bookkeeperTLSCertificateFilePath",
    "bookkeeperTLSKeyFilePath",
    "bookkeeperTLSTrustCertsFilePath",
    "bookkeeper_tlsHostnameVerificationEnabled",
)
"""Keys each of which switches TLS towards bookies on. In Pulsar only the first does, and the others then have no effect."""
ASK_FOR_TLS: Final[tuple[str, ...]] = (
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


def talks_tls_to_bookies(settings: Settings) -> bool:
    """Tells whether connections to bookies begin with TLS."""
    return any(settings.value(name) for name in _TO_BOOKIES)


def check_tls(settings: Settings) -> None:
    """Raises SettingsError for ports that no client can use, and for TLS that is asked for and missing."""
    _check_bookies(settings)
    path = "metadataStoreConfigPath"
    if settings.str(path) and not settings.str("metadataStoreUrl").startswith("zk:"):
        raise settings.error(
            path, "only ZooKeeper has such a file: set metadataStoreUrl=zk:host:port or remove it"
        )
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


def _check_bookies(settings: Settings) -> None:
    shown = ("bookkeeperTLSCertificateFilePath", "bookkeeperTLSKeyFilePath")
    named = [name for name in shown if settings.str(name)]
    if settings.bool("bookkeeperTLSClientAuthentication") and len(named) < len(shown):
        raise settings.error("bookkeeperTLSClientAuthentication", f"needs PEM files in {' and '.join(shown)}")
    if len(named) == 1:
        raise settings.error(named[0], f"needs its other half: {' and '.join(shown)} belong together")


def _check_off(settings: Settings) -> None:
    for name in ASK_FOR_TLS:
        if settings.value(name):
            raise settings.error(
                name,
                "asks for TLS, and no port has it: set brokerServicePortTls or webServicePortTls, or remove it",
            )
