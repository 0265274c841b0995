"""TLS of the bookie's data port: its files and its context.

A connection switches to TLS when its client asks (v3, START_TLS) and stays plain otherwise, as with BookKeeper's
TLSContextFactory. Only PEM files are read, because Python's library reads no Java key stores.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bookie_stub.config.keys import PEM, TLS_FACTORY
from foundation.settings.errors import SettingsError
from foundation.settings.settings import Settings
from foundation.value import Value

if TYPE_CHECKING:
    from ssl import SSLContext


class TlsFiles(Value, kw_only=True):
    """Files of the server's side of TLS."""

    key: Path
    """The bookie's private key, PEM."""
    certificate: Path
    """The bookie's certificate and its chain, PEM."""
    password: Path | None = None
    """Its text is the password of the private key; None = the key is not encrypted."""
    trusted: Path | None = None
    """Certificates that must vouch for each client's certificate; None = clients need none."""


def tls_files(settings: Settings) -> TlsFiles | None:
    """Returns the files, None when TLS is off.

    Raises SettingsError for other forms than PEM, for missing names, and for keys that ask for TLS while it is off.
    """
    if not settings.str("tlsProviderFactoryClass"):
        _check_off(settings)
        return None
    _check_form(settings, "tlsKeyStoreType")
    trusted = None
    if settings.bool("tlsClientAuthentication"):
        _check_form(settings, "tlsTrustStoreType")
        trusted = _file(settings, "tlsTrustStore")
    password = settings.str("tlsKeyStorePasswordPath")
    return TlsFiles(
        key=_file(settings, "tlsKeyStore"),
        certificate=_file(settings, "tlsCertificatePath"),
        password=Path(password) if password else None,
        trusted=trusted,
    )


def _check_off(settings: Settings) -> None:
    """Refuses files and duties of TLS without TLS: the port would be open although its owner believes otherwise."""
    for name, key in settings.table.keys.items():
        if key.section == "TLS" and key.asks_for and settings.value(name) not in (key.default, None):
            raise settings.error(
                name, f"asks for TLS, which is off: set tlsProviderFactoryClass={TLS_FACTORY} or remove it"
            )


def _check_form(settings: Settings, key: str) -> None:
    form = settings.str(key)
    if form != PEM:
        raise settings.error(
            key,
            f"with TLS allowed is {PEM} (`openssl pkcs12` takes a PKCS12 store apart,"
            " `keytool -importkeystore` makes one of a JKS)",
        )


def _file(settings: Settings, key: str) -> Path:
    if not settings.str(key):
        raise SettingsError(
            f"{settings.origin(key)}: {key} names no file: needed with tlsProviderFactoryClass"
        )
    return Path(settings.str(key))


def tls_context(files: TlsFiles | None) -> SSLContext | None:
    """Makes the context, None without files.

    Raises SettingsError for an unreadable file, and for a key that does not fit the certificate.
    """
    if files is None:
        return None
    import ssl  # Imported here because only a bookie with TLS pays for it.

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        password = None if files.password is None else files.password.read_text().strip()
        # Without a password OpenSSL would ask for one on the terminal and stop the start there.
        context.load_cert_chain(files.certificate, files.key, password=password or "")
        if files.trusted is not None:
            context.load_verify_locations(files.trusted)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, UnicodeDecodeError) as error:  # ssl.SSLError is an OSError.
        named = [files.certificate, files.key, files.password, files.trusted]
        raise SettingsError(f"TLS with {', '.join(str(path) for path in named if path)}: {error}") from None
    return context
