"""Tokens of OpenID providers: a real HTTP server publishes the keys; the cache of keys is turned by hand."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from joserfc import jwt
from joserfc.jwk import ECKey

from broker.config import load_broker_settings
from broker.config.security_keys import OPENID_PROVIDER, TOKEN_PROVIDER
from broker.security.authentication.credentials import AuthenticationFailed, Credentials
from broker.security.authentication.discovery import ANSWER_BYTES_MAX, Discovery
from broker.security.authentication.issuer_keys import RETRY_NS, IssuerKeys
from broker.security.authentication.make import make_authenticator
from broker.security.authentication.settings import AuthenticationSettings
from broker.security.authentication.signatures import KeyRing, key_set
from foundation.loop.rare_lines import RareLines
from foundation.units import NS_PER_SECOND
from tests.support.tokens import SECRET_URL, token

HEADER: Final = {"alg": "ES256", "kid": "one"}


def make_key() -> ECKey:
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return ECKey.import_key(pem)


KEY: Final = make_key()


def document(key: ECKey = KEY, kid: str = "one") -> bytes:
    return json.dumps({"keys": [{**key.as_dict(private=False), "kid": kid}]}).encode()


@dataclass
class Issuer:
    """A provider's HTTP server."""

    url: str = ""
    named: str | None = None
    keys: bytes = field(default_factory=document)
    key_requests: int = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self.describe)
        app.router.add_get("/keys", self.publish)
        return app

    async def describe(self, _: web.Request) -> web.Response:
        return web.json_response({"issuer": self.named or self.url, "jwks_uri": f"{self.url}/keys"})

    async def publish(self, _: web.Request) -> web.Response:
        self.key_requests += 1
        return web.Response(body=self.keys)

    def token(
        self, claims: Mapping[str, object] | None = None, *, key: ECKey = KEY, kid: str = "one"
    ) -> bytes:
        whole = {"iss": self.url, "aud": "us", "sub": "me", "exp": int(time.time()) + 60, **(claims or {})}
        text = jwt.encode(
            {"alg": "ES256", "kid": kid}, {k: v for k, v in whole.items() if v is not None}, key
        )
        return text.encode()


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    made = Issuer()
    server = TestServer(made.app())
    await server.start_server()
    made.url = str(server.make_url("")).rstrip("/")
    yield made
    await server.close()


Identify = Callable[[bytes], "asyncio.Future[str | None]"]


@pytest.fixture
async def role_of(issuer: Issuer) -> AsyncIterator[Identify]:
    overrides = [
        "authenticationEnabled=true",
        f"authenticationProviders={TOKEN_PROVIDER},{OPENID_PROVIDER}",
        f"tokenSecretKey={SECRET_URL}",
        f"openIDAllowedTokenIssuers={issuer.url}",
        "openIDAllowedAudiences=us,them",
        "openIDRequireIssuersUseHttps=false",
        "openIDKeyIdCacheMissRefreshSeconds=300",
    ]
    made = make_authenticator(load_broker_settings(None, environ={}, overrides=overrides, profile=None))
    assert made is not None

    async def role(text: bytes) -> str | None:
        return (await made.identify(Credentials("token", text))).role

    yield lambda text: asyncio.ensure_future(role(text))
    made.close()


async def test_token_of_an_allowed_issuer_proves_its_role(issuer: Issuer, role_of: Identify) -> None:
    assert await role_of(issuer.token()) == "me"
    assert await role_of(issuer.token({"aud": ["else", "them"], "sub": "you"})) == "you"
    assert issuer.key_requests == 1, "the keys are kept"


async def test_both_providers_of_tokens_are_asked_in_turn(issuer: Issuer, role_of: Identify) -> None:
    assert await role_of(token({"sub": "own"}).encode()) == "own"
    assert await role_of(issuer.token()) == "me"


async def test_concurrent_tokens_cause_one_fetch(issuer: Issuer, role_of: Identify) -> None:
    assert set(await asyncio.gather(*(role_of(issuer.token()) for _ in range(20)))) == {"me"}
    assert issuer.key_requests == 1


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"aud": "else"}, "audience"),
        ({"aud": None}, "audience"),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "no time of expiry"),
        ({"nbf": 4_000_000_000}, "not valid yet"),
        ({"iss": "http://127.0.0.1:1"}, "issuer of the token is not allowed"),
        ({"iss": None}, "issuer of the token is not allowed"),
        ({"sub": 7}, "no text"),
    ],
)
async def test_token_is_refused_by_its_claims(
    issuer: Issuer, role_of: Identify, claims: dict[str, object], reason: str
) -> None:
    with pytest.raises(AuthenticationFailed, match=reason):
        await role_of(issuer.token(claims))


async def test_token_of_another_key_is_refused_without_many_fetches(
    issuer: Issuer, role_of: Identify
) -> None:
    assert await role_of(issuer.token()) == "me"
    for number in range(10):
        with pytest.raises(AuthenticationFailed, match="key"):
            await role_of(issuer.token(key=make_key(), kid=f"invented {number}"))
    with pytest.raises(AuthenticationFailed, match="signature"):
        await role_of(issuer.token(key=make_key()))
    assert issuer.key_requests == 1


@pytest.mark.parametrize("fault", ["another issuer", "no keys", "too much", "no JSON"])
async def test_unusable_answer_of_a_provider_is_refused(
    issuer: Issuer, role_of: Identify, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    if fault == "another issuer":
        issuer.named = "http://another"
    else:
        answers = {
            "no keys": b'{"keys": []}',
            "too much": b" " * (ANSWER_BYTES_MAX + 1),
            "no JSON": b"<html>",
        }
        issuer.keys = answers[fault]
    with pytest.raises(AuthenticationFailed, match="gives no keys"):
        await role_of(issuer.token())
    assert any("cannot be fetched" in record.getMessage() for record in caplog.records)


async def test_provider_that_does_not_answer_ends_the_attempt() -> None:
    settings = AuthenticationSettings(openid_connect_s=0.05, openid_read_s=0.05)
    with pytest.raises(ValueError, match=r"(?i)connect|time"):
        await Discovery(settings).keys_of("http://127.0.0.1:1")


# The cache of keys, with a clock turned by hand


class Fetches:
    """Answers of issuers, given by the test."""

    def __init__(self) -> None:
        self.count = 0
        self.ring: KeyRing | None = key_set(document())

    async def __call__(self, issuer: str) -> KeyRing:
        self.count += 1
        if self.ring is None:
            raise ValueError("down")
        return self.ring


class Cache:
    def __init__(self) -> None:
        self.now_ns = 1
        self.fetches = Fetches()
        self.settings = AuthenticationSettings()
        self.keys = IssuerKeys(
            self.fetches,
            self.settings,
            lambda: self.now_ns,
            RareLines(logging.getLogger(), lambda: self.now_ns),
        )

    def turn(self, seconds: int) -> None:
        self.now_ns += seconds * NS_PER_SECOND


async def test_old_keys_serve_while_new_ones_are_fetched() -> None:
    cache = Cache()
    await cache.keys.of("a", HEADER)
    cache.turn(cache.settings.openid_refresh_s)
    old = cache.fetches.ring
    cache.fetches.ring = key_set(document(make_key()))
    assert await cache.keys.of("a", HEADER) is old
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await cache.keys.of("a", HEADER) is cache.fetches.ring
    assert cache.fetches.count == 2


async def test_keys_that_are_too_old_are_not_used() -> None:
    cache = Cache()
    await cache.keys.of("a", HEADER)
    cache.fetches.ring = None
    cache.turn(cache.settings.openid_expiry_s)
    with pytest.raises(AuthenticationFailed):
        await cache.keys.of("a", HEADER)


async def test_unknown_key_causes_a_fetch_when_the_keys_are_not_new() -> None:
    cache = Cache()
    await cache.keys.of("a", HEADER)
    cache.fetches.ring = key_set(document(kid="two"))
    header = {**HEADER, "kid": "two"}
    assert (await cache.keys.of("a", header)).find(header) is None
    cache.turn(cache.settings.openid_miss_s)
    assert (await cache.keys.of("a", header)).find(header) is not None


async def test_failed_fetch_is_not_repeated_at_once() -> None:
    cache = Cache()
    cache.fetches.ring = None
    for _ in range(10):
        with pytest.raises(AuthenticationFailed):
            await cache.keys.of("a", HEADER)
    assert cache.fetches.count == 1
    cache.now_ns += RETRY_NS
    cache.fetches.ring = key_set(document())
    await cache.keys.of("a", HEADER)


async def test_issuers_are_bounded() -> None:
    cache = Cache()
    for name in ("a", *map(str, range(cache.settings.openid_issuers_kept)), "a"):
        await cache.keys.of(name, HEADER)
    assert cache.fetches.count == cache.settings.openid_issuers_kept + 2
