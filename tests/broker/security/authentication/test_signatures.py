"""Signatures of tokens: each key with its own family of algorithms, and every broken token is refused."""

from __future__ import annotations

import base64
import json
from typing import Final

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey
from joserfc.jws import JWSRegistry

from broker.security.authentication.credentials import AuthenticationFailed
from broker.security.authentication.signatures import (
    Claims,
    KeyRing,
    check_times,
    key_set,
    public_keys,
    secret_key,
    verified_claims,
)
from tests.support.tokens import SECRET, base64_url, token

RSA: Final = rsa.generate_private_key(65537, 2048)
CURVES: Final = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "ES512": ec.generate_private_key(ec.SECP521R1()),
}
Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
ME: Final = {"sub": "me"}


APACHE_TOKEN: Final = (
    "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJqYXZhIn0.d8rnapY9ku_h0D_QHDa27SVhTgW9DuA2_PT2g3DDyPkbpzOfUHdm5_Z"
    "2NFh3WQ37AcZ9yl2zBdgXCUH4ilwybj6S6Rwibrz5MzUiGuOCN4VjEdYCfyvCfb3W1WhRLLFd4CjWOpKUvjdBma4B3FMumCb"
    "Gn7Je3iZ1uH2TQpVzzBXvAAGNOYiXBrFpO9RBNocsC4E9EyHs0_dARSbG3kLp4G9AD7QPtUTbs1I2-c0OATe_JTWDtE-yrYO"
    "HiQ5I7E11eGxNC-EE85pZrYztXxtjoGwCS8dekxbfWGUOYUMs_LZ7QCcP3bNBkAdoSH-QzMZYiCnzw1haWw56awRDjJgOkA"
)
"""Made by `pulsar tokens create -s java` of Apache Pulsar 4.2.4 with a key of `magnetar token create-key-pair`."""
APACHE_KEY: Final = (
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAtTCfgPa06Q+RwvQMZvSN3rQHS7g69ZFqENxsmhjeHBLpEB7LpXBG"
    "mg6j96INXrbkr41zLxp0hpflIBuUU6sdEcvHK5EfQkh2clMBRv+e0KVshOCqsnDiG8/IL+LWJ0KwQDHryZzxe1VLQibZnzEw"
    "eo/+BKNzWSpOkYxSWMFyt8upKYzIOHJabUk20+xNWBfzpPbxyGi3k9BzfyiyQhgXMyvgorieHbsM3y8UkC6q/h8YKenTuTkH"
    "DbhJMzjzKdCbY68mN9SZjp1JovxPJIcLVDb6cJNyl+7motdpMzg8aq8jlBpttGnAQb/i4RRN/QQZcCef0b0wSkVQ4Q+4u1Wr"
    "/wIDAQAB"
)
"""The public key to it, in base64."""


def public(key: Private, encoding: serialization.Encoding = serialization.Encoding.DER) -> bytes:
    return key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)


def private_pem(key: Private) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def signed(algorithm: str, key: RSAKey | ECKey | OctKey, **header: str) -> bytes:
    registry = JWSRegistry(algorithms=[algorithm])
    return jwt.encode({"alg": algorithm, **header}, dict(ME), key, registry=registry).encode()


def refusal(text: bytes, ring: KeyRing) -> str:
    with pytest.raises(AuthenticationFailed) as caught:
        verified_claims(text, ring.find)
    return caught.value.reason


def secret_ring() -> KeyRing:
    return KeyRing([secret_key(SECRET)])


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_public_key_of_rsa_proves_tokens_of_its_family(algorithm: str) -> None:
    text = signed(algorithm, RSAKey.import_key(private_pem(RSA)))
    for encoding in (serialization.Encoding.DER, serialization.Encoding.PEM):
        ring = public_keys(public(RSA, encoding), algorithm)
        assert verified_claims(text, ring.find) == ME


@pytest.mark.parametrize("algorithm", list(CURVES))
def test_public_key_of_a_curve_proves_tokens_of_its_algorithm(algorithm: str) -> None:
    key = CURVES[algorithm]
    text = signed(algorithm, ECKey.import_key(private_pem(key)))
    assert verified_claims(text, public_keys(public(key), algorithm).find) == ME


@pytest.mark.parametrize(("algorithm", "length"), [("HS256", 32), ("HS384", 48), ("HS512", 64)])
def test_secret_key_proves_tokens_of_hashes_no_longer_than_itself(algorithm: str, length: int) -> None:
    data = bytes(range(length))
    text = signed(algorithm, OctKey.import_key(data))
    assert verified_claims(text, KeyRing([secret_key(data)]).find) == ME
    if length > 32:
        assert "algorithm" in refusal(text, secret_ring())


def test_token_of_apaches_command_is_accepted() -> None:
    ring = public_keys(base64.b64decode(APACHE_KEY), "RS256")
    assert verified_claims(APACHE_TOKEN.encode(), ring.find) == {"sub": "java"}


def test_token_of_another_key_is_refused() -> None:
    assert "signature" in refusal(token(ME, key=bytes(32)).encode(), secret_ring())


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "HS1", "EdDSA"])
def test_token_without_a_known_algorithm_is_refused(algorithm: str) -> None:
    text = token(ME, header={"alg": algorithm})
    unsigned = text.rpartition(".")[0] + "."
    for ring in (secret_ring(), public_keys(public(RSA), "RS256")):
        assert "algorithm" in refusal(text.encode(), ring)
        assert "algorithm" in refusal(unsigned.encode(), ring)


@pytest.mark.parametrize("encoding", [serialization.Encoding.DER, serialization.Encoding.PEM])
def test_public_key_is_never_the_secret_of_a_token(encoding: serialization.Encoding) -> None:
    """The attack: a token signed with HMAC, whose secret is the text of the broker's public key."""
    text = token(ME, key=public(RSA, encoding))
    assert "algorithm" in refusal(text.encode(), public_keys(public(RSA), "RS256"))
    with pytest.raises(ValueError, match="set tokenPublicKey instead"):
        secret_key(public(RSA, encoding))


def test_key_of_another_family_than_the_setting_says_is_refused() -> None:
    with pytest.raises(ValueError, match="tokenPublicAlg says RS256"):
        public_keys(public(CURVES["ES256"]), "RS256")


def test_short_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 32 bytes, this one has 31"):
        secret_key(bytes(31))
    with pytest.raises(ValueError, match="at least 2048 bits"):
        public_keys(public(rsa.generate_private_key(65537, 1024)), "RS256")


def jwk(key: Private, **more: str) -> dict[str, object]:
    kind = RSAKey if isinstance(key, rsa.RSAPrivateKey) else ECKey
    return {**kind.import_key(public(key, serialization.Encoding.PEM)).as_dict(), **more}


def test_set_of_keys_finds_the_named_key() -> None:
    other = rsa.generate_private_key(65537, 2048)
    document = {"keys": [jwk(other, kid="old"), jwk(RSA, kid="new"), jwk(CURVES["ES256"], kid="curve")]}
    ring = key_set(json.dumps(document).encode())
    assert verified_claims(signed("PS384", RSAKey.import_key(private_pem(RSA)), kid="new"), ring.find) == ME
    curve = ECKey.import_key(private_pem(CURVES["ES256"]))
    assert verified_claims(signed("ES256", curve, kid="curve"), ring.find) == ME
    assert "signature" in refusal(signed("RS256", RSAKey.import_key(private_pem(RSA)), kid="old"), ring)
    assert "key" in refusal(signed("RS256", RSAKey.import_key(private_pem(RSA)), kid="gone"), ring)


def test_set_of_keys_leaves_out_secrets_and_keys_for_encryption() -> None:
    secret = {"kty": "oct", "k": base64_url(SECRET), "kid": "a"}
    with pytest.raises(ValueError, match="no key"):
        key_set(json.dumps({"keys": [secret, jwk(RSA, use="enc"), {"kty": "RSA", "n": "!"}, 7]}).encode())
    ring = key_set(json.dumps({"keys": [secret, jwk(RSA, alg="RS256")]}).encode())
    assert "algorithm" in refusal(token(ME, header={"alg": "HS256", "kid": "a"}).encode(), ring)
    assert "algorithm" in refusal(signed("RS512", RSAKey.import_key(private_pem(RSA))), ring)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"not-a-token",
        b"..",
        b"a.b.c.d",
        b"\xff.\xfe.\xfd",
        base64.b64encode(b"[" * 2500) + b".e30.",
        b"[]".hex().encode() + b".e30.x",
        b"a" * 70_000 + b".e30.x",
    ],
)
def test_malformed_token_is_refused(text: bytes) -> None:
    assert "malformed" in refusal(text, secret_ring())


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_change_of_a_token_is_accepted(data: st.DataObject) -> None:
    text = token(ME).encode()
    where = data.draw(st.integers(0, len(text) - 2))
    changed = text[:where] + data.draw(st.binary(max_size=3)) + text[where + 1 :]
    header, payload, signature = text.split(b".")
    if changed != text and changed.split(b".")[:2] != [header, payload]:
        refusal(changed, secret_ring())
    for cut in (text[:where], text[: -len(signature)]):
        refusal(cut, secret_ring())


@given(st.binary(max_size=200))
def test_no_bytes_raise_another_error(data: bytes) -> None:
    refusal(data, secret_ring())


@pytest.mark.parametrize("value", [True, "1", [], {}, 10**400])
def test_time_that_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(AuthenticationFailed, match="no number"):
        check_times({"exp": value}, 0, 0)


def test_token_with_a_constant_that_is_no_json_is_refused() -> None:
    text = ".".join(base64_url(part) for part in (b'{"alg":"HS256"}', b'{"sub":"me","exp":Infinity}'))
    import hmac

    whole = f"{text}.{base64_url(hmac.digest(SECRET, text.encode(), 'sha256'))}"
    assert "malformed" in refusal(whole.encode(), secret_ring())


def test_times_hold_within_the_leeway() -> None:
    claims: Claims = {"exp": 100, "nbf": 50}
    assert check_times(claims, 99, 0) == 100
    assert check_times(claims, 104, 5) == 105
    assert check_times(claims, 45, 5) == 105
    for now_s, leeway_s, reason in ((100, 0, "expired"), (105, 5, "expired"), (49, 0, "not valid yet")):
        with pytest.raises(AuthenticationFailed, match=reason):
            check_times(claims, now_s, leeway_s)
    assert check_times({}, 0, 0) is None
