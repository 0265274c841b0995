"""The certificate that the peer of a connection has shown."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """A certificate that one of the trusted ones vouches for; the handshake has checked it."""

    common_name: str
    """The CN of its subject, empty without one; Pulsar's TLS authentication takes it as the role."""
    subject: str
    """The whole subject as `CN=name,OU=unit`, the most specific part first."""


def peer_certificate(transport: asyncio.BaseTransport | None) -> PeerCertificate | None:
    """Returns the certificate of the peer; None for a connection without TLS, and for a peer that showed none."""
    tls = None if transport is None else transport.get_extra_info("ssl_object")
    # Empty for a peer without a certificate, and for one whose certificate was not checked.
    shown = None if tls is None else tls.getpeercert()
    if not shown:
        return None
    # From the end, as Java writes a subject: Pulsar takes the first CN of that text.
    parts = [pair for part in reversed(shown.get("subject", ())) for pair in part]
    names = [value for name, value in parts if name == "commonName" and value]
    text = ",".join(f"{_SHORT.get(name, name)}={value}" for name, value in parts)
    return PeerCertificate(names[0] if names else "", text)


_SHORT = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
}
"""Short names of the parts of a subject (RFC 2253)."""
