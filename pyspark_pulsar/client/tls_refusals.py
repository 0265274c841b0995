"""Tells TLS errors that the same files would meet again from connections that were only lost. Pure functions.

The first become `TlsRefused`, which fails a query at once. The others stay `BrokerLost`, which is tried again.
"""

from __future__ import annotations

import ssl
from typing import Final

from pyspark_pulsar.client.security import Security

_OWN_CERTIFICATE: Final = (
    "the broker does not accept the client's certificate, or asks for one: check "
    "pulsar.client.tlsCertificateFilePath and tlsKeyFilePath"
)
_REMEDIES: Final = {
    "CERTIFICATE_VERIFY_FAILED": "check pulsar.client.tlsTrustCertsFilePath, and the host in service.url",
    "WRONG_VERSION_NUMBER": "the port has no TLS: write pulsar:// in service.url, or the port with TLS",
    "ALERT_UNKNOWN_CA": _OWN_CERTIFICATE,
    "ALERT_BAD_CERTIFICATE": _OWN_CERTIFICATE,
    "ALERT_UNSUPPORTED_CERTIFICATE": _OWN_CERTIFICATE,
    "ALERT_CERTIFICATE_REVOKED": _OWN_CERTIFICATE,
    "ALERT_CERTIFICATE_EXPIRED": _OWN_CERTIFICATE,
    "ALERT_CERTIFICATE_UNKNOWN": _OWN_CERTIFICATE,
    "ALERT_CERTIFICATE_REQUIRED": _OWN_CERTIFICATE,
    "ALERT_ACCESS_DENIED": _OWN_CERTIFICATE,
    "ALERT_HANDSHAKE_FAILURE": (
        "client and broker have no cipher in common, or the broker asks for a client's certificate"
    ),
    "ALERT_PROTOCOL_VERSION": "client and broker have no version of TLS in common",
}
"""Remedies by the end of OpenSSL's reason."""


def refusal(error: Exception, address: str) -> str | None:
    """Returns the sentence for an error that would come again; None for any other."""
    if not isinstance(error, ssl.SSLError):
        return None
    reason = str(error.reason or "")
    remedy = next((text for end, text in _REMEDIES.items() if reason.endswith(end)), None)
    if remedy is None:
        return None
    found = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else reason.lower()
    return f"no TLS connection to {address}: {found.replace('_', ' ')}; {remedy}"


def closed_early(security: Security, *, tls: bool) -> str:
    """Returns a guess at the reason for which a broker closes a connection before it answers CONNECT.

    A refusal of TLS 1.3 can look so, where the broker ends the connection without an alert.
    """
    if not tls:
        return "does the port want TLS? Then write pulsar+ssl:// in service.url"
    if security.certificate_file is not None:
        return f"does the broker accept the certificate {security.certificate_file}?"
    return "does the broker ask for a client's certificate? Then give pulsar.client.tlsCertificateFilePath"
