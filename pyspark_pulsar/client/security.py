"""Proofs of a connection's identity, and checks of the broker's. Pickled to the tasks with the options.

Tokens of a file and of an OAuth 2.0 account are asked for at each connection and at each AUTH_CHALLENGE, so a stream
outlives the tokens that it began with.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from foundation.tls.contexts import ClientFiles, client_context
from pyspark_pulsar.client.oauth2 import ClientCredentials


class ConnectCredentials(NamedTuple):
    """Authentication data that CONNECT carries."""

    method: str
    """Pulsar's name of the method: `token`, `basic` or `tls`."""
    data: bytes
    """The token itself, or `name:password`; empty for the method `tls`, whose certificate the connection shows."""

    def __repr__(self) -> str:
        """Hides the secret, which a stack trace of Spark would show otherwise."""
        return f"Credentials({self.method!r})"


class TokenFile(NamedTuple):
    """A file whose token another program replaces before it expires."""

    path: str
    """Path without `file://`."""
    last: bytes
    """The token as the driver read it; used on machines without the file."""

    def __repr__(self) -> str:
        """Hides the secret, as `ConnectCredentials` does."""
        return f"TokenFile({self.path!r})"

    def token(self) -> bytes:
        """Returns the file's token now; `last` where the file is missing or is just being written."""
        try:
            return Path(self.path).read_bytes().strip() or self.last
        except OSError:
            return self.last


class Security(NamedTuple):
    """Settings by which connections are encrypted and authenticated."""

    credentials: ConnectCredentials | None = None
    """None connects without authentication, or with the tokens of `token_file` or `account`."""
    trust_file: str | None = None
    """PEM file of certificate authorities; None trusts the system's."""
    verify_host: bool = True
    """False accepts a certificate for another host name."""
    accept_any_broker: bool = False
    """True accepts a certificate that no authority vouches for."""
    certificate_file: str | None = None
    """PEM file with the client's certificate; None shows none."""
    key_file: str | None = None
    """PEM file with the private key of that certificate."""
    account: ClientCredentials | None = None
    """The account whose tokens prove the identity."""
    token_file: TokenFile | None = None
    """The file whose token proves the identity."""

    def proof(self) -> ConnectCredentials | None:
        """Returns the credentials to show now. IssuerRefused where the account's issuer gives no token."""
        if self.account is not None:
            return ConnectCredentials("token", self.account.token())
        if self.token_file is not None:
            return ConnectCredentials("token", self.token_file.token())
        return self.credentials

    def newest_token(self) -> bytes | None:
        """Returns the token of the file for `with_token`; None without a file."""
        return None if self.token_file is None else self.token_file.token()

    def with_token(self, token: bytes | None) -> Security:
        """Returns a copy in which `token` stands in where the file is missing; unchanged for None."""
        if token is None or self.token_file is None:
            return self
        return self._replace(token_file=self.token_file._replace(last=token))

    def context(self) -> ssl.SSLContext:
        """Makes the TLS context. Raises TlsError for files that cannot be used."""
        trusted, certificate, key = (
            None if name is None else Path(name)
            for name in (self.trust_file, self.certificate_file, self.key_file)
        )
        return client_context(
            ClientFiles(
                trusted=trusted,
                certificate=certificate,
                key=key,
                accepts_any_server=self.accept_any_broker,
                checks_host_name=self.verify_host,
            )
        )
