"""Makes keys and tokens in the formats of Apache Pulsar: raw bytes for secrets, DER for key pairs, compact JWTs."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OctKey, RSAKey
from joserfc.jws import JWSRegistry

from broker.security.authentication.signatures import Claims, public_key, secret_key, verified_claims

SECRETS: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Bytes of a new secret key by algorithm."""
_RSA_BITS: Final = {"256": 2048, "384": 3072, "512": 4096}
_CURVES: Final[dict[str, type[ec.EllipticCurve]]] = {
    "ES256": ec.SECP256R1,
    "ES384": ec.SECP384R1,
    "ES512": ec.SECP521R1,
}


class KeyPair(NamedTuple):
    """Both halves of a key pair in DER, as Java's KeyFactory reads them."""

    private: bytes
    """PKCS#8, not encrypted."""
    public: bytes
    """X.509 SubjectPublicKeyInfo."""


def new_secret(algorithm: str) -> bytes:
    """Returns a random key of the algorithm's length."""
    return secrets.token_bytes(SECRETS[algorithm])


def new_pair(algorithm: str) -> KeyPair:
    """Returns a new key pair; RSA keys are as long as Apache's."""
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    if algorithm in _CURVES:
        key = ec.generate_private_key(_CURVES[algorithm]())
    else:
        key = rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS[algorithm[2:]])
    return KeyPair(
        key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
    )


def token_by_secret(key: bytes, claims: Claims, headers: Mapping[str, str]) -> str:
    """Signs with the longest hash that the secret allows, as Apache does. Raises ValueError for a short secret."""
    algorithm = secret_key(key).algorithms[-1]
    return _signed(algorithm, OctKey.import_key(key), claims, headers)


def token_by_private_key(key: bytes, algorithm: str, claims: Claims, headers: Mapping[str, str]) -> str:
    """Signs with a private key in DER or PEM. Raises ValueError for one that does not fit the algorithm."""
    try:
        load = (
            serialization.load_pem_private_key
            if key.lstrip().startswith(b"-----BEGIN")
            else serialization.load_der_private_key
        )
        found = load(key, password=None)
        pem = found.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("this is no private key in DER or PEM (PKCS#8, not encrypted)") from None
    kind = ECKey if algorithm in _CURVES else RSAKey
    try:
        return _signed(algorithm, kind.import_key(pem), claims, headers)
    except (JoseError, ValueError, TypeError):
        raise ValueError(f"the private key does not fit {algorithm}; choose another one with -a") from None


def _signed(algorithm: str, key: OctKey | RSAKey | ECKey, claims: Claims, headers: Mapping[str, str]) -> str:
    registry = JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    return jwt.encode({"alg": algorithm, **headers}, dict(claims), key, registry=registry)


def claims_by_key(token: bytes, key: bytes, *, is_secret: bool) -> Claims:
    """Returns the claims of a token that the key has signed.

    Raises ValueError for a key that cannot be used, AuthenticationFailed for any other token.
    """
    found = secret_key(key) if is_secret else public_key(key)
    return verified_claims(token, lambda header: found if header.get("alg") in found.algorithms else None)


_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}


def expiry_after(text: str) -> int:
    """Returns the second since 1970 that lies `text` from now: a number, and one of s, m, h, d, w, y.

    Raises ValueError for any other text.
    """
    unit = text[-1:].lower()
    number, factor = (text[:-1], _UNITS_S[unit]) if unit in _UNITS_S else (text, 1)
    if not number.isascii() or not number.isdigit():
        raise ValueError(
            f"{text!r} is no time: a number with one of s, m, h, d, w, y is allowed, such as 30d"
        )
    return int(time.time()) + int(number) * factor
