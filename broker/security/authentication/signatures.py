"""Checks signatures of tokens, each with the one family of algorithms that fits its key.

The library `joserfc` does the cryptography. Two rules keep one key from being used as another: the caller's key decides
which algorithms are accepted, never the token's header; and a key has the type of its family, so no text of a public key
can become the secret of an HMAC. `alg: none` is in no family.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, OctKey, RSAKey
from joserfc.jws import JWSRegistry, deserialize_compact

from broker.security.authentication.counts import EXPIRED
from broker.security.authentication.credentials import AuthenticationFailed

TOKEN_BYTES_MAX: Final = 64 * 1024
"""Longest token that is looked at."""
HEADER_CHARACTERS_MAX: Final = 4096
"""Longest header of a token, in base64."""
SECRET_BYTES_MIN: Final = 32
"""Shortest secret key: HS256 needs as many bytes as its hash has (RFC 7518, 3.2)."""
RSA_BITS_MIN: Final = 2048
"""Shortest RSA key (RFC 7518, 3.3)."""

Claims = Mapping[str, object]
"""The claims of a token."""

_HMAC_BYTES: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}


class _Registry(JWSRegistry):
    """The limits of a token's parts; the library's own are for short headers."""

    max_header_length = HEADER_CHARACTERS_MAX
    max_payload_length = TOKEN_BYTES_MAX
    max_signature_length = 4096


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key, and the algorithms that fit it."""

    key: OctKey | RSAKey | ECKey
    """The key, in the type of its family."""
    algorithms: tuple[str, ...]
    """Algorithms that the header of a token may name."""
    registry: JWSRegistry
    """The library's list of these algorithms."""
    kid: str | None = None
    """Name of the key in a set of keys; None for a single key."""


class KeyRing:
    """One key, or the keys of a JWKS."""

    def __init__(self, keys: Sequence[VerificationKey]) -> None:
        self.keys = tuple(keys)
        """At least one key."""

    def find(self, header: Claims) -> VerificationKey | None:
        """Returns the key for a token with this header; None without one."""
        algorithm, kid = header.get("alg"), header.get("kid")
        for key in self.keys:
            # A single key has no name, so the name in the token has nothing to be compared with.
            if algorithm in key.algorithms and (key.kid is None or kid is None or key.kid == kid):
                return key
        return None


def secret_key(data: bytes) -> VerificationKey:
    """Returns the key for HMAC. Raises ValueError for one that is too short, or is a public key."""
    if len(data) < SECRET_BYTES_MIN:
        raise ValueError(f"a secret key needs at least {SECRET_BYTES_MIN} bytes, this one has {len(data)}")
    if data.lstrip().startswith(b"-----BEGIN") or _is_public(data):
        raise ValueError("this is a key of a key pair; set tokenPublicKey instead")
    algorithms = tuple(name for name, length in _HMAC_BYTES.items() if len(data) >= length)
    return VerificationKey(OctKey.import_key(data), algorithms, _registry(algorithms))


def _is_public(data: bytes) -> bool:
    try:
        public_key(data)
    except ValueError:
        return False
    return True


def public_keys(data: bytes, algorithm: str) -> KeyRing:
    """Returns the public key in DER or PEM, or the keys of a JWKS. Raises ValueError.

    `algorithm` names the family that a single key must have.
    """
    if data.lstrip().startswith(b"{"):
        return key_set(data)
    key = public_key(data)
    if algorithm not in key.algorithms:
        raise ValueError(f"the key fits {', '.join(key.algorithms)}, and tokenPublicAlg says {algorithm}")
    return KeyRing([key])


def public_key(data: bytes) -> VerificationKey:
    """Returns a public key of RSA or of an elliptic curve, in DER or PEM. Raises ValueError."""
    # Imported here: `cryptography` is loaded by joserfc anyway, and only these lines need it by name.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    try:
        if data.lstrip().startswith(b"-----BEGIN"):
            found = serialization.load_pem_public_key(data)
        else:
            found = serialization.load_der_public_key(data)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("this is no public key in DER or PEM (X.509 SubjectPublicKeyInfo)") from None
    # Before joserfc sees it, which takes a short key with a warning.
    if isinstance(found, rsa.RSAPublicKey):
        _refuse_short(found.key_size)
    pem = found.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    if isinstance(found, rsa.RSAPublicKey):
        return _rsa(RSAKey.import_key(pem))
    if isinstance(found, ec.EllipticCurvePublicKey):
        return _curve(ECKey.import_key(pem))
    raise ValueError("the key is of another kind than RSA and elliptic curves")


def key_set(data: bytes) -> KeyRing:
    """Returns the keys of a JWKS that can check signatures. Raises ValueError when none can."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("the JWKS is no JSON") from None
    members = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(members, list):
        raise ValueError('a JWKS is {"keys": [...]}')
    found = [key for member in members[:1000] if (key := _member(member)) is not None]
    if not found:
        raise ValueError("the JWKS has no key of RSA or of an elliptic curve for signatures")
    return KeyRing(found)


def _member(member: object) -> VerificationKey | None:
    """Returns a member of a JWKS; None for one of another use, and for a secret, which no set may publish."""
    if not isinstance(member, dict) or member.get("kty") not in ("RSA", "EC"):
        return None
    if member.get("use", "sig") != "sig":
        return None
    public = {name: value for name, value in member.items() if name in _PUBLIC_MEMBERS}
    try:
        key = JWKRegistry.import_key(public)
        kid = member.get("kid")
        named = _rsa(key) if isinstance(key, RSAKey) else _curve(key) if isinstance(key, ECKey) else None
    except (JoseError, ValueError, TypeError, AttributeError):
        return None
    if named is None:
        return None
    only = member.get("alg")
    algorithms = named.algorithms if only is None else tuple(a for a in named.algorithms if a == only)
    if not algorithms:
        return None
    return VerificationKey(
        named.key, algorithms, _registry(algorithms), kid if isinstance(kid, str) else None
    )


_PUBLIC_MEMBERS: Final = frozenset(("kty", "n", "e", "crv", "x", "y"))


def _refuse_short(bits: int) -> None:
    if bits < RSA_BITS_MIN:
        raise ValueError(f"an RSA key needs at least {RSA_BITS_MIN} bits, this one has {bits}")


def _rsa(key: RSAKey) -> VerificationKey:
    _refuse_short(key.public_key.key_size)
    return VerificationKey(key, _RSA, _registry(_RSA))


def _curve(key: ECKey) -> VerificationKey:
    algorithm = _CURVES.get(key.curve_name)
    if algorithm is None:
        raise ValueError(f"the curve must be one of {', '.join(_CURVES)}")
    return VerificationKey(key, (algorithm,), _registry((algorithm,)))


def _registry(algorithms: Sequence[str]) -> JWSRegistry:
    # Not strict: tokens may carry header fields of their own, which Pulsar ignores too.
    return _Registry(algorithms=algorithms, strict_check_header=False)


FindKey = Callable[[Claims], VerificationKey | None]
"""Returns the key for a token's header; None without one."""


def verified_claims(token: bytes, find_key: FindKey) -> Claims:
    """Returns the claims of a token whose signature is right. Raises AuthenticationFailed."""
    header = unverified_part(token, 0)
    key = find_key(header)
    if key is None:
        raise AuthenticationFailed("the token has no accepted algorithm or key")
    try:
        found = deserialize_compact(token, key.key, registry=key.registry)
    except (JoseError, ValueError, TypeError):
        raise AuthenticationFailed("the signature of the token is wrong") from None
    return _object(found.payload)


def unverified_part(token: bytes, index: int) -> Claims:
    """Returns the header (0) or the claims (1) without a look at the signature. Raises AuthenticationFailed."""
    parts = token.split(b".", 3)
    if len(token) > TOKEN_BYTES_MAX or len(parts) != 3 or len(parts[0]) > HEADER_CHARACTERS_MAX:
        raise AuthenticationFailed("the token is malformed")
    try:
        data = base64.b64decode(parts[index] + b"=" * (-len(parts[index]) % 4), b"-_", validate=True)
    except ValueError:
        raise AuthenticationFailed("the token is malformed") from None
    return _object(data)


def _object(data: bytes) -> Claims:
    try:
        found = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise AuthenticationFailed("the token is malformed") from None
    if not isinstance(found, dict):
        raise AuthenticationFailed("the token is malformed")
    return found


def _no_constant(name: str) -> object:
    """Refuses NaN and infinities, which no comparison of times would find in the past."""
    raise ValueError(name)


def check_times(claims: Claims, now_s: float, leeway_s: float) -> float | None:
    """Returns the second since 1970 at which the token ends, None for one without an end.

    Raises AuthenticationFailed for a token that has ended, or has not begun.
    """
    expires, begins = _time(claims, "exp"), _time(claims, "nbf")
    if expires is not None and now_s >= expires + leeway_s:
        raise AuthenticationFailed(EXPIRED)
    if begins is not None and now_s + leeway_s < begins:
        raise AuthenticationFailed("the token is not valid yet")
    return None if expires is None else expires + leeway_s


def _time(claims: Claims, name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    # bool is an int in Python; a whole number may be too large for a float.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AuthenticationFailed("a time in the token is no number")
    try:
        number = float(value)
    except OverflowError:
        raise AuthenticationFailed("a time in the token is no number") from None
    if not math.isfinite(number):
        raise AuthenticationFailed("a time in the token is no number")
    return number
