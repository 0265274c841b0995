"""Makes TLS contexts of the standard library from PEM files and Pulsar's lists of protocols and ciphers."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from foundation.tls.errors import TlsError
from foundation.tls.names import PROTOCOLS, check_ciphers, openssl_name
from foundation.value import Value

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_REASONS: Final = {"KEY_VALUES_MISMATCH": "the key does not belong to the certificate"}
"""Words for reasons of OpenSSL."""


class ServerFiles(Value, kw_only=True):
    """The files and choices of a port with TLS."""

    certificate: Path
    """The certificate of the server and those that vouch for it, PEM."""
    key: Path
    """Its private key, PEM, without a password."""
    trusted: Path | None = None
    """Certificates that vouch for clients; None = no client is asked for a certificate."""
    requires_client_certificate: bool = False
    """End the handshake of a client without a certificate that `trusted` vouches for."""
    protocols: Sequence[str] = ()
    """Names of PROTOCOLS; empty = all of them."""
    ciphers: Sequence[str] = ()
    """Cipher suites in Java's spelling or OpenSSL's; empty = those of the library."""

    def paths(self) -> tuple[Path, ...]:
        """Returns all files, for a look at their changes."""
        return tuple(path for path in (self.certificate, self.key, self.trusted) if path is not None)


class ClientFiles(Value, kw_only=True):
    """The files and choices of a client of TLS servers."""

    trusted: Path | None = None
    """Certificates that vouch for servers, PEM; None = those of the operating system."""
    certificate: Path | None = None
    """The client's own certificate, PEM; None = it shows none."""
    key: Path | None = None
    """Its private key, PEM."""
    password: str = ""
    """Password of the key; empty = the key is not encrypted."""
    accepts_any_server: bool = False
    """Talk to a server whose certificate nothing vouches for."""
    checks_host_name: bool = False
    """Compare the name in the server's certificate with the host."""
    protocols: Sequence[str] = ()
    """Names of PROTOCOLS; empty = all of them."""
    ciphers: Sequence[str] = ()
    """Cipher suites in Java's spelling or OpenSSL's; empty = those of the library."""

    def paths(self) -> tuple[Path, ...]:
        """Returns all files, for a look at their changes."""
        return tuple(path for path in (self.trusted, self.certificate, self.key) if path is not None)


def server_context(files: ServerFiles) -> ssl.SSLContext:
    """Makes the context of a port. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, files.protocols, files.ciphers)
    _load(context, files.certificate, files.key, files.trusted)
    if files.trusted is not None:
        required = files.requires_client_certificate
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def client_context(files: ClientFiles) -> ssl.SSLContext:
    """Makes the context of a client. Raises TlsError."""
    if (files.certificate is None) != (files.key is None):
        raise TlsError("a client's certificate and its key belong together: name both files or none")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = files.checks_host_name and not files.accepts_any_server
    if files.accepts_any_server:
        context.verify_mode = ssl.CERT_NONE
    elif files.trusted is None:
        context.load_default_certs()
    _restrict(context, files.protocols, files.ciphers)
    _load(context, files.certificate, files.key, files.trusted, files.password)
    return context


def password_in(path: Path) -> str:
    """Returns the text of a file with a password, without spaces around it. Raises TlsError."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TlsError(f"TLS with {path}: {error}") from None


def _load(
    context: ssl.SSLContext,
    certificate: Path | None,
    key: Path | None,
    trusted: Path | None,
    password: str = "",
) -> None:
    # OpenSSL's own errors name neither the file nor what is wrong in it.
    for path, form in (
        (certificate, b"CERTIFICATE-----"),
        (key, b"PRIVATE KEY-----"),
        (trusted, b"CERTIFICATE-----"),
    ):
        if path is not None:
            _check_form(path, form, password)
    try:
        if certificate is not None:
            # Without a password OpenSSL would ask for one on the terminal and stop there.
            context.load_cert_chain(certificate, key, password=password)
        if trusted is not None:
            context.load_verify_locations(trusted)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError.
        named = ", ".join(str(path) for path in (certificate, key, trusted) if path is not None)
        raise TlsError(f"TLS with {named}: {reason_of(error)}") from None


def _check_form(path: Path, form: bytes, password: str) -> None:
    """Raises TlsError for a file that cannot be read, or whose PEM text is of another kind."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise TlsError(f"TLS with {path}: {error.strerror}") from None
    if form not in text:
        kind = form.decode().strip("-").lower()
        raise TlsError(f"TLS with {path}: the file has no {kind} as PEM, which begins with -----BEGIN")
    if b"ENCRYPTED" in text and not password:
        raise TlsError(f"TLS with {path}: the key is encrypted; store it without a password")


def _restrict(context: ssl.SSLContext, protocols: Sequence[str], ciphers: Sequence[str]) -> None:
    """Limits protocols and ciphers. Raises TlsError for a name that the library does not have."""
    for name in protocols:
        if name not in _VERSIONS:
            raise TlsError(f"{name} is no protocol that may be used: allowed are {' and '.join(PROTOCOLS)}")
    versions = {_VERSIONS[name] for name in protocols} or set(_VERSIONS.values())
    if ciphers:
        check_ciphers(ciphers)
        newer = [name for name in ciphers if name.startswith("TLS_") and "_WITH_" not in name]
        older = [openssl_name(name) for name in ciphers if name not in newer]
        # A list of ciphers is complete: a protocol without one in it is not offered.
        versions -= set() if newer else {ssl.TLSVersion.TLSv1_3}
        versions -= set() if older else {ssl.TLSVersion.TLSv1_2}
        if not versions:
            raise TlsError(f"no cipher of {', '.join(ciphers)} belongs to {', '.join(protocols)}")
        if older:
            _set_ciphers(context, older)
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)


def _set_ciphers(context: ssl.SSLContext, names: Sequence[str]) -> None:
    for name in names:
        try:
            # One by one, because OpenSSL leaves an unknown name in a list out without a word.
            context.set_ciphers(name)
        except ssl.SSLError:
            raise TlsError(f"{name} is no cipher that {ssl.OPENSSL_VERSION} has") from None
    context.set_ciphers(":".join(names))


def reason_of(error: BaseException) -> str:
    """Returns the reason of an error in one line, in words where OpenSSL has a code."""
    code = getattr(error, "reason", None)
    if isinstance(code, str):
        return _REASONS.get(code, code.lower().replace("_", " "))
    return str(error) or type(error).__name__
