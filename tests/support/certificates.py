"""Certificates for one test run: an authority, a server for localhost and 127.0.0.1, a client, and more on request."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
_PEM = serialization.Encoding.PEM


class Certificates:
    """Each name has a `.pem` (certificate) and a `.key`, below `folder`; keys are on the curve P-256."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._keys: dict[str, ec.EllipticCurvePrivateKey] = {}
        self.authority = self.new_authority("authority")
        self.server = self.issue("server")
        self.client = self.issue("client")

    def key(self, certificate: Path) -> Path:
        return certificate.with_suffix(".key")

    def new_authority(self, name: str) -> Path:
        """Returns the certificate of a new authority, signed by itself."""
        return self._write(name, _named(name), name, authority=True)

    def issue(
        self,
        name: str,
        *,
        subject: x509.Name | None = None,
        authority: str = "authority",
        expired: bool = False,
    ) -> Path:
        """A certificate for localhost and 127.0.0.1; its CN is `name` without another `subject`."""
        return self._write(name, subject or _named(name), authority, expired=expired)

    def locked_key(self, password: str) -> Path:
        """Returns the server's key in a file with a password."""
        path = self._folder / "locked.key"
        locked = serialization.BestAvailableEncryption(password.encode())
        path.write_bytes(self._keys["server"].private_bytes(_PEM, serialization.PrivateFormat.PKCS8, locked))
        return path

    def _write(
        self, name: str, subject: x509.Name, issuer: str, *, authority: bool = False, expired: bool = False
    ) -> Path:
        key = self._keys[name] = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(_named(issuer))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 3 * _DAY)
            .not_valid_after(now - _DAY if expired else now + _DAY)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._keys[issuer].public_key()),
                critical=False,
            )
        )
        if not authority:
            names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        path = self._folder / f"{name}.pem"
        path.write_bytes(made.sign(self._keys[issuer], hashes.SHA256()).public_bytes(_PEM))
        plain = serialization.NoEncryption()
        self.key(path).write_bytes(key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, plain))
        return path


def put_over(source: Path, target: Path) -> None:
    """Puts a copy of a file in the place of another.

    The copy is a new file, as programs that renew certificates make it: written within the same tick of the clock, and as
    long as the former one, a file with its number would look unchanged.
    """
    fresh = target.with_suffix(".fresh")
    fresh.write_bytes(source.read_bytes())
    fresh.replace(target)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
