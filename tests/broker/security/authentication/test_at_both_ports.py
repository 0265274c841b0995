"""Authentication as clients meet it: CONNECT, AUTH_CHALLENGE, and requests of the admin port."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from aiohttp import ClientSession
from passlib.hash import ldap_sha1

from broker.compose.broker_service import BrokerService
from broker.config import load_broker_settings
from broker.config.security_keys import BASIC_PROVIDER, OPENID_PROVIDER, TLS_PROVIDER, TOKEN_PROVIDER
from broker.net.server_cnx import ServerCnx
from broker.security.authentication import failed_logins
from broker.security.authentication.make import make_authenticator
from broker.security.principal import Principal
from foundation.settings.errors import SettingsError
from tests.support.command_json import Json
from tests.support.memory_broker import memory_broker
from tests.support.raw_client import Frame, RawConnection
from tests.support.tokens import SECRET_URL, token

PASSWORDS: Final = f"data:,ann:{ldap_sha1.hash('a')}"
SETTINGS: Final = (
    "authenticationEnabled=true",
    f"authenticationProviders={TOKEN_PROVIDER},{BASIC_PROVIDER},{TLS_PROVIDER}",
    f"tokenSecretKey={SECRET_URL}",
    f"basicAuthConf={PASSWORDS}",
)
ME: Final = token({"sub": "me"})


@pytest.fixture
async def broker() -> AsyncIterator[BrokerService]:
    async with memory_broker(*SETTINGS) as service:
        yield service


opened: list[RawConnection] = []


@pytest.fixture(autouse=True)
async def close_connections() -> AsyncIterator[None]:
    """Ends what a test opened while its loop still runs, also connections that the broker has closed."""
    yield
    while opened:
        await opened.pop().close()


async def opened_raw(broker: BrokerService) -> RawConnection:
    opened.append(await RawConnection.open(broker.addresses.service_url))
    return opened[-1]


async def open_connection(broker: BrokerService, **fields: Json) -> tuple[RawConnection, Frame]:
    """A connection, and the answer to its CONNECT."""
    raw = await opened_raw(broker)
    raw.send("CONNECT", client_version="raw", protocol_version=19, **fields)
    return raw, await raw.receive()


def only_connection(broker: BrokerService) -> ServerCnx:
    (found,) = broker.net.connections
    assert isinstance(found, ServerCnx)
    return found


def data(text: str) -> Json:
    """A field of bytes, as `command_json` writes them."""
    return text.encode().hex()


# The data port


@pytest.mark.parametrize(
    ("method", "text", "role"),
    [("token", ME, "me"), ("basic", "ann:a", "ann"), ("token", token({"iss": "x"}), None)],
)
async def test_connection_gets_the_role_of_its_credentials(
    broker: BrokerService, method: str, text: str, role: str | None
) -> None:
    raw, answer = await open_connection(broker, auth_method_name=method, auth_data=data(text))
    assert answer.type_name == "CONNECTED"
    assert only_connection(broker).principal == Principal(role)
    await raw.close()


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("none", ""),
        ("token", ""),
        ("token", token({"sub": "me"}, key=bytes(32))),
        ("token", token({"sub": "me", "exp": 1_000_000_000})),
        ("token", token({"sub": "me", "nbf": 4_000_000_000})),
        ("token", token({"sub": "me"}, header={"alg": "none"})),
        ("token", ME[:-1]),
        ("token", token({"sub": "me\n2026 INFO all is well"})),
        ("token", token({"sub": 7})),
        ("token", "x" * 100_000),
        ("basic", "ann:b"),
        ("tls", ""),
        ("basic", ME),
        ("athenz", ME),
    ],
)
async def test_connection_without_proof_is_refused_and_closed(
    broker: BrokerService, method: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    raw, answer = await open_connection(broker, auth_method_name=method, auth_data=data(text))
    assert answer.type_name == "ERROR"
    assert (answer.command.error.error, answer.command.error.message) == (3, "Failed to authenticate")
    assert await raw.until_closed() == []
    lines = [record.getMessage() for record in caplog.records if "not authenticated" in record.getMessage()]
    assert len(lines) == 1
    assert "\n" not in lines[0]


async def test_command_behind_connect_waits_for_the_role(broker: BrokerService) -> None:
    raw = await opened_raw(broker)
    raw.send(
        "CONNECT",
        client_version="raw",
        protocol_version=19,
        auth_method_name="basic",
        auth_data=data("ann:a"),
    )
    raw.send("PARTITIONED_METADATA", topic="persistent://public/default/t", request_id=1)
    assert (await raw.receive()).type_name == "CONNECTED"
    assert (await raw.receive()).type_name == "PARTITIONED_METADATA_RESPONSE"
    await raw.close()


async def test_command_behind_a_refused_connect_is_not_handled(broker: BrokerService) -> None:
    raw = await opened_raw(broker)
    raw.send("CONNECT", client_version="raw", protocol_version=19, auth_method_name="token")
    raw.send("PRODUCER", topic="persistent://public/default/t", producer_id=1, request_id=1)
    assert [frame.type_name for frame in await raw.until_closed()] == ["ERROR"]
    assert not broker.registry.topics


async def test_proxy_brings_the_role_of_its_client(broker: BrokerService) -> None:
    raw, _ = await open_connection(
        broker, auth_method_name="token", auth_data=data(ME), original_principal="ann"
    )
    assert only_connection(broker).principal == Principal("me", "ann")
    await raw.close()


@pytest.mark.parametrize(("text", "original"), [("ann:a", "ann"), ("ann:b", None)])
async def test_credentials_behind_a_proxy_are_checked_when_asked_for(text: str, original: str | None) -> None:
    async with memory_broker(*SETTINGS, "authenticateOriginalAuthData=true") as broker:
        raw, answer = await open_connection(
            broker,
            auth_method_name="token",
            auth_data=data(ME),
            original_principal="admin",
            original_auth_method="basic",
            original_auth_data=text,
        )
        if original is None:
            assert answer.type_name == "ERROR"
        else:
            assert only_connection(broker).principal == Principal("me", original), "the proven role counts"
        await raw.close()


async def test_anonymous_role_is_for_clients_without_a_known_method() -> None:
    async with memory_broker(*SETTINGS, "anonymousUserRole=guest") as broker:
        for method in ("none", "unknown"):
            raw, _ = await open_connection(broker, auth_method_name=method)
            assert only_connection(broker).principal == Principal("guest")
            await raw.close()
            await asyncio.wait_for(gone(broker), 60)
        _, answer = await open_connection(broker, auth_method_name="token", auth_data=data("forged"))
        assert answer.type_name == "ERROR", "a forged token is no wish to be anonymous"
        async with ClientSession(broker.addresses.admin_url) as session:
            assert (await session.get("/admin/v2/clusters")).status == 200
            wrong = {"Authorization": "Bearer forged"}
            assert (await session.get("/admin/v2/clusters", headers=wrong)).status == 401


async def gone(broker: BrokerService) -> None:
    """Returns when the broker has noticed that every connection is closed."""
    for cnx in list(broker.net.connections):
        assert isinstance(cnx, ServerCnx)
        assert not await cnx.still_there()


# Expiry


def expiring(role: str = "me", seconds: float = 1) -> str:
    return token({"sub": role, "exp": time.time() + seconds})


REFRESH: Final[dict[str, Json]] = {"supports_auth_refresh": True}


def response(text: str) -> dict[str, Json]:
    return {"auth_method_name": "token", "auth_data": data(text)}


async def test_expired_token_is_asked_for_again_and_the_connection_goes_on(broker: BrokerService) -> None:
    raw, _ = await open_connection(
        broker, auth_method_name="token", auth_data=data(expiring()), feature_flags=REFRESH
    )
    question = (await raw.receive("AUTH_CHALLENGE")).command.authChallenge
    assert question.challenge.auth_method_name == "token"
    assert question.challenge.auth_data == b"PulsarAuthRefresh"
    assert question.protocol_version == 19
    raw.send("AUTH_RESPONSE", client_version="raw", protocol_version=19, response=response(expiring()))
    await raw.receive("AUTH_CHALLENGE")
    raw.send("PING")
    assert (await raw.receive()).type_name == "PONG", "other commands are served meanwhile"
    await raw.close()


@pytest.mark.parametrize("answer", [token({"sub": "other"}), expiring(seconds=-5), "forged"])
async def test_answer_with_other_or_broken_credentials_ends_the_connection(
    broker: BrokerService, answer: str
) -> None:
    raw, _ = await open_connection(
        broker, auth_method_name="token", auth_data=data(expiring()), feature_flags=REFRESH
    )
    await raw.receive("AUTH_CHALLENGE")
    raw.send("AUTH_RESPONSE", client_version="raw", protocol_version=19, response=response(answer))
    assert [frame.type_name for frame in await raw.until_closed()] == ["ERROR"]


async def test_client_that_does_not_answer_is_closed() -> None:
    async with memory_broker(*SETTINGS, "authenticationRefreshCheckSeconds=1") as broker:
        raw, _ = await open_connection(
            broker, auth_method_name="token", auth_data=data(expiring()), feature_flags=REFRESH
        )
        assert [frame.type_name for frame in await raw.until_closed()] == ["AUTH_CHALLENGE"]


@pytest.mark.parametrize(("chance_s", "flags"), [(60, {}), (0, REFRESH)])
async def test_connection_ends_at_the_expiry_without_a_chance(chance_s: int, flags: dict[str, Json]) -> None:
    async with memory_broker(*SETTINGS, f"authenticationRefreshCheckSeconds={chance_s}") as broker:
        raw, _ = await open_connection(
            broker, auth_method_name="token", auth_data=data(expiring()), feature_flags=flags
        )
        assert await raw.until_closed() == []


async def open_behind_proxy(broker: BrokerService, own: str, original: str, **fields: Json) -> RawConnection:
    raw, answer = await open_connection(
        broker,
        auth_method_name="token",
        auth_data=data(own),
        original_principal="ann",
        original_auth_method="token",
        original_auth_data=original,
        **fields,
    )
    assert answer.type_name == "CONNECTED"
    return raw


async def test_connection_ends_when_the_token_of_the_original_client_expires() -> None:
    async with memory_broker(*SETTINGS, "authenticateOriginalAuthData=true") as broker:
        raw = await open_behind_proxy(broker, ME, expiring("ann"))
        assert await raw.until_closed() == []
        await raw.close()


@pytest.mark.parametrize(("first", "other"), [("me", "ann"), ("ann", "me")])
async def test_credentials_that_expire_first_are_renewed_and_no_others(first: str, other: str) -> None:
    tokens = {first: expiring(first), other: expiring(other, 3600)}
    async with memory_broker(*SETTINGS, "authenticateOriginalAuthData=true") as broker:
        raw = await open_behind_proxy(broker, tokens["me"], tokens["ann"], feature_flags=REFRESH)
        await raw.receive("AUTH_CHALLENGE")
        newer = response(expiring(first))
        raw.send("AUTH_RESPONSE", client_version="raw", protocol_version=19, response=newer)
        await raw.receive("AUTH_CHALLENGE")
        wrong = response(tokens[other])
        raw.send("AUTH_RESPONSE", client_version="raw", protocol_version=19, response=wrong)
        assert [frame.type_name for frame in await raw.until_closed()] == ["ERROR"]
        await raw.close()


async def test_answer_without_a_question_is_an_error(broker: BrokerService) -> None:
    raw, _ = await open_connection(broker, auth_method_name="token", auth_data=data(ME))
    raw.send("AUTH_RESPONSE", client_version="raw", protocol_version=19, response=response(ME))
    assert (await raw.receive("ERROR")).command.error.error == 3
    await raw.close()


# The admin port


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({"Authorization": f"Bearer {ME}"}, "", 200),
        ({"Authorization": basic("ann:a")}, "", 200),
        ({}, f"?token={ME}", 200),
        ({"Authorization": f"Bearer {ME}", "X-Pulsar-Auth-Method-Name": "token"}, "", 200),
        ({"Authorization": f"Bearer {ME}", "X-Pulsar-Auth-Method-Name": "basic"}, "", 401),
        ({"Authorization": f"Bearer {ME}", "X-Pulsar-Auth-Method-Name": "athenz"}, "", 401),
        ({}, "", 401),
        ({"Authorization": ""}, "", 401),
        ({"Authorization": ME}, "", 401),
        ({"Authorization": f"bearer {ME}"}, "", 401),
        ({"Authorization": f"Basic {ME}"}, "", 401),
        ({"Authorization": "Basic !"}, "", 401),
        ({"Authorization": basic("ann:b")}, "", 401),
        ({"Authorization": "Bearer not-a-token"}, "", 401),
        ({"Authorization": "Bearer " + token({"sub": "a", "exp": 1})}, "", 401),
        ({"Authorization": f"Bearer {ME}", "X-Original-Principal": "a" * 2000}, "", 401),
    ],
)
async def test_request_is_answered_by_its_credentials(
    broker: BrokerService, headers: dict[str, str], query: str, status: int
) -> None:
    async with ClientSession(broker.addresses.admin_url) as session:
        answer = await session.get(f"/admin/v2/clusters{query}", headers=headers)
        assert answer.status == status
        if status == 401:
            assert answer.content_type == "text/html"
            assert answer.headers["WWW-Authenticate"] == 'Bearer, Basic realm="Pulsar", charset="UTF-8"'


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/admin/v2/brokers/health", 401),
        ("/admin/v2/brokers/ready", 401),
        ("/admin/v2/nosuchroute", 401),
        ("/nosuchroute", 401),
        ("/lookup/v2/topic/persistent/public/default/t", 401),
        ("/metrics", 200),
        ("/metrics/", 200),
    ],
)
async def test_paths_without_credentials(broker: BrokerService, path: str, status: int) -> None:
    async with ClientSession(broker.addresses.admin_url) as session:
        assert (await session.get(path)).status == status


async def test_metrics_ask_when_the_setting_says_so() -> None:
    async with (
        memory_broker(*SETTINGS, "authenticateMetricsEndpoint=true") as broker,
        ClientSession(broker.addresses.admin_url) as session,
    ):
        assert (await session.get("/metrics")).status == 401
        assert (await session.get("/metrics", headers={"Authorization": f"Bearer {ME}"})).status == 200


async def test_ten_thousand_failed_logins_are_counted_and_rarely_logged(
    broker: BrokerService, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the delay, which another test measures by counting: here it would take hours.
    monkeypatch.setattr(failed_logins, "DELAY_NS_MAX", 0)
    caplog.set_level(logging.INFO)
    async with ClientSession(broker.addresses.admin_url) as session:

        async def fail(times: int) -> None:
            for _ in range(times):
                answer = await session.get("/admin/v2/clusters", headers={"Authorization": "Bearer x"})
                assert answer.status == 401

        started = time.monotonic()
        await asyncio.gather(*(fail(500) for _ in range(20)))
        took_s = time.monotonic() - started
        lines = [record for record in caplog.records if record.name == "magnetar.security"]
        assert len(lines) <= took_s + 2
        text = await (await session.get("/metrics")).text()
    (line,) = (line for line in text.splitlines() if line.startswith("pulsar_authentication_failures_total{"))
    assert line.endswith(" 10000.0")
    assert 'provider_name="AuthenticationProviderToken"' in line
    assert 'auth_method="token"' in line
    assert 'reason="the token is malformed"' in line


async def test_answers_to_failures_of_one_address_wait(
    broker: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    async with ClientSession(broker.addresses.admin_url) as session:
        monkeypatch.setattr("broker.admin.http.principal.asyncio.sleep", noted)
        for _ in range(failed_logins.FREE + 2):
            await session.get("/admin/v2/clusters")
    # The first request adds the routes of the admin port in slices, which sleep for no time.
    assert [seconds for seconds in waits if seconds] == pytest.approx([0.1, 0.2])


# Settings


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (("authenticationProviders=",), "authenticationProviders names no class"),
        (("tokenSecretKey=",), "needs this key or tokenSecretKey"),
        (("tokenSecretKey=data:;base64,aHVudGVyMg==",), "at least 32 bytes, this one has 7"),
        (("tokenSecretKey=/no/such/file",), "No such file"),
        (("tokenSecretKey=/etc/pulsar/keys/secrets/of/the/tokens",), "No such file"),
        (("basicAuthConf=",), "needs an .htpasswd file"),
        (("basicAuthConf=data:,ann:hunter2",), "line 1: the password is in no form"),
        ((f"tokenPublicKey={SECRET_URL}",), "tokenSecretKey is set too"),
        (("tokenSecretKey=", f"tokenPublicKey={SECRET_URL}"), "this is no public key"),
        ((f"authenticationProviders={OPENID_PROVIDER}",), "needs at least one"),
        (
            (
                f"authenticationProviders={OPENID_PROVIDER}",
                "openIDAllowedTokenIssuers=http://a",
                "openIDAllowedAudiences=b",
            ),
            "each must be a URL with https",
        ),
    ],
)
def test_wrong_settings_stop_the_start_with_one_line(settings: tuple[str, ...], line: str) -> None:
    given = load_broker_settings(None, environ={}, overrides=[*SETTINGS, *settings], profile=None)
    with pytest.raises(SettingsError) as caught:
        make_authenticator(given)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "aHVudGVyMg" not in str(caught.value)


def test_other_classes_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"any of org\.apache"):
        load_broker_settings(
            None, environ={}, overrides=["authenticationProviders=org.example.Mine"], profile=None
        )


async def test_changed_files_of_keys_and_passwords_hold_for_new_logins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys, passwords = tmp_path / "secret.key", tmp_path / ".htpasswd"
    former, later = b"f" * 32, b"l" * 32
    keys.write_bytes(former)
    passwords.write_text(f"ann:{ldap_sha1.hash('a')}\n")
    files = (
        f"tokenSecretKey=file://{keys}",
        f"basicAuthConf={passwords}",
        "tlsCertRefreshCheckDurationSec=0",
    )

    async with memory_broker(*SETTINGS, *files) as broker:

        async def proves(method: str, text: str) -> bool:
            raw, answer = await open_connection(broker, auth_method_name=method, auth_data=data(text))
            await raw.close()
            return answer.type_name == "CONNECTED"

        async def accepted() -> list[bool]:
            return [
                await proves("token", token({"sub": "me"}, key=former)),
                await proves("token", token({"sub": "me"}, key=later)),
                await proves("basic", "ann:a"),
                await proves("basic", "bob:b"),
            ]

        assert await accepted() == [True, False, True, False]
        keys.write_bytes(later)
        passwords.write_text(f"bob:{ldap_sha1.hash('b')}\n# another length\n")
        assert await accepted() == [False, True, False, True]
        keys.write_bytes(b"short")
        passwords.unlink()
        assert await accepted() == [False, True, False, True]
        lines = [line for line in caplog.text.splitlines() if "are not used" in line]
        assert len(lines) == 2


async def test_broker_refuses_to_be_composed_without_its_authenticator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.support.memory_broker.make_authenticator", lambda _: None)
    with pytest.raises(ValueError, match="do not go together"):
        async with memory_broker(*SETTINGS):
            pass
