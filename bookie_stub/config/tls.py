"""TLS of the bookie's data port, which a connection goes over to when its client asks (v3, START_TLS): keys and context.

As BookKeeper's TLSContextFactory with PEM files, which Python reads; a connection that never asks stays plain, as there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from settings.errors import SettingsError
from settings.keys import Key, Section
from settings.settings import Settings

if TYPE_CHECKING:
    from ssl import SSLContext

FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"
_PEM = "PEM"

TLS: Section = (
    "TLS",
    [
        Key(
            "tlsProviderFactoryClass",
            "string",
            "",
            f"`{FACTORY}` offers TLS on the data port to clients that ask for it; empty: no TLS.",
            choices=("", FACTORY),
        ),
        Key(
            "tlsKeyStoreType",
            "string",
            "JKS",
            "Form of tlsKeyStore. Only PEM is read here.",
            choices=("JKS", "PKCS12", _PEM),
        ),
        Key("tlsKeyStore", "string", "", "File with the private key."),
        Key("tlsKeyStorePasswordPath", "string", "", "File whose text is the password of the private key."),
        Key("tlsCertificatePath", "string", "", "File with the certificate, and those that vouch for it."),
        Key(
            "tlsClientAuthentication",
            "bool",
            False,
            "Ask clients for a certificate, and close the connections of those without one that tlsTrustStore vouches"
            " for.",
        ),
        Key(
            "tlsTrustStoreType",
            "string",
            "JKS",
            "Form of tlsTrustStore. Only PEM is read here.",
            choices=("JKS", "PKCS12", _PEM),
        ),
        Key("tlsTrustStore", "string", "", "File with the certificates that vouch for clients."),
    ],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    key: Path
    certificate: Path
    password: Path | None = None
    trusted: Path | None = None
    """Clients must show a certificate that one of these vouches for; None: they are not asked."""


def tls_files(settings: Settings) -> TlsFiles | None:
    """None when TLS is off. SettingsError for a form that is not read, and for a file that is not named."""
    if not settings.str("tlsProviderFactoryClass"):
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


def _check_form(settings: Settings, key: str) -> None:
    form = settings.str(key)
    if form != _PEM:
        raise SettingsError(
            f"{settings.origin(key)}: {key}={form}: with TLS allowed is {_PEM}"
            " (`openssl pkcs12` takes a PKCS12 store apart, `keytool -importkeystore` makes one of a JKS)"
        )


def _file(settings: Settings, key: str) -> Path:
    if not settings.str(key):
        raise SettingsError(
            f"{settings.origin(key)}: {key} names no file: needed with tlsProviderFactoryClass"
        )
    return Path(settings.str(key))


def tls_context(files: TlsFiles | None) -> SSLContext | None:
    """SettingsError where a file cannot be read or the key is not that of the certificate."""
    if files is None:
        return None
    import ssl  # only a bookie with TLS pays for it

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        password = None if files.password is None else files.password.read_text().strip()
        # Never asked for on the terminal, which is what happens without a password.
        context.load_cert_chain(files.certificate, files.key, password=password or "")
        if files.trusted is not None:
            context.load_verify_locations(files.trusted)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, UnicodeDecodeError) as error:  # ssl.SSLError is an OSError
        named = [files.certificate, files.key, files.password, files.trusted]
        raise SettingsError(f"TLS with {', '.join(str(path) for path in named if path)}: {error}") from None
    return context
