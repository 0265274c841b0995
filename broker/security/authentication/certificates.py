"""CertificateProvider: client certificates (`AuthenticationProviderTls`); the role is the CN."""

from __future__ import annotations

from typing import Final

from broker.security.authentication.credentials import (
    AuthenticationFailed,
    Credentials,
    Identity,
    checked_role,
)

TLS: Final = "tls"
"""The method's word in CONNECT."""


class CertificateProvider:
    """Takes the role from the certificate that the TLS handshake has checked."""

    name = "AuthenticationProviderTls"
    """Apache's name of the class."""
    method = TLS
    """The word in CONNECT."""

    async def authenticate(self, credentials: Credentials) -> Identity:
        """Returns the CN as the role."""
        role = checked_role(credentials.common_name or "")
        if role is None:
            raise AuthenticationFailed("the client has shown no certificate with a name")
        return Identity(role)
