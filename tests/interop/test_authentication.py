"""Authentication with the official client, Apache's plugins and our commands: token, password, certificate."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Final

import pulsar
import pytest
import websocket
from passlib.hash import apr_md5_crypt, bcrypt

from broker.config.security_keys import BASIC_PROVIDER, TLS_PROVIDER, TOKEN_PROVIDER
from magnetar.clients.token_keys import new_pair, token_by_private_key
from pyspark_pulsar.client.cluster import Cluster
from pyspark_pulsar.errors import BrokerRefused
from pyspark_pulsar.options import source_options
from tests.interop.support import Clocks, connect, numbered, open_url, publish, receive
from tests.support.certificates import Certificates
from tests.support.tokens import peer_settings
from tests.vectors.broker_process import REPOSITORY, BrokerProcess

PAIR: Final = new_pair("ES256")
JAVA: Final = "org.apache.pulsar.client.impl.auth."


def token(role: str = "me", **claims: object) -> str:
    return token_by_private_key(PAIR.private, "ES256", {"sub": role, **claims}, {})


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    (folder / "public.key").write_bytes(PAIR.public)
    passwords = f"ann:{bcrypt.using(rounds=8).hash('a')}\nbob:{apr_md5_crypt.hash('b')}\n"
    (folder / ".htpasswd").write_text(passwords)
    settings = {
        "authenticationEnabled": "true",
        "authenticationProviders": f"{TOKEN_PROVIDER},{BASIC_PROVIDER},{TLS_PROVIDER}",
        "tokenPublicKey": f"file://{folder / 'public.key'}",
        "tokenPublicAlg": "ES256",
        "basicAuthConf": str(folder / ".htpasswd"),
        # Time for a client to answer a challenge: a busy machine must not end its connection.
        "authenticationRefreshCheckSeconds": "60",
        "webSocketServiceEnabled": "true",
        "brokerServicePortTls": "0",
        "webServicePortTls": "0",
        "tlsCertificateFilePath": str(certificates.server),
        "tlsKeyFilePath": str(certificates.key(certificates.server)),
        "tlsTrustCertsFilePath": str(certificates.authority),
        **peer_settings(token()),
    }
    with BrokerProcess(folder, settings, memory=True, test_faults=True) as running:
        yield running


@pytest.fixture
def clock(broker: BrokerProcess) -> Clocks:
    """The broker's clock, so that no test waits for an expiry and no token expires before a slow client shows it."""
    return Clocks(broker, token())


Open = Callable[..., pulsar.Client]


@pytest.fixture
def opened() -> Iterator[Open]:
    clients: list[pulsar.Client] = []

    def open_one(url: str, authentication: pulsar.Authentication | None, **options: object) -> pulsar.Client:
        clients.append(connect(url, authentication=authentication, **options))
        return clients[-1]

    yield open_one
    for one in clients:
        one.close()


def round_trip(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client.create_producer(topic), numbered(3))
    assert receive(consumer, 3) == numbered(3)


def know_owner(broker: BrokerProcess, topic: str) -> None:
    """Gives the topic an owner, so that any broker answers a lookup.

    The official client drops its proof where an HTTP answer sends it to another broker.
    """
    url = f"{broker.addresses.admin}/lookup/v2/topic/persistent/public/default/{topic}"
    open_url(urllib.request.Request(url, headers={"Authorization": f"Bearer {token()}"})).close()


@pytest.mark.parametrize("port", ["pulsar", "admin"])
@pytest.mark.parametrize(
    "authentication",
    [
        pulsar.AuthenticationToken(token()),
        pulsar.Authentication(f"{JAVA}AuthenticationToken", f"token:{token()}"),
        pulsar.AuthenticationBasic("ann", "a"),
        pulsar.Authentication(f"{JAVA}AuthenticationBasic", json.dumps({"username": "bob", "password": "b"})),
    ],
    ids=["token", "token by class", "basic", "basic by class"],
)
def test_client_with_proof_is_served(
    broker: BrokerProcess, opened: Open, topic: str, port: str, authentication: pulsar.Authentication
) -> None:
    know_owner(broker, topic)
    round_trip(opened(getattr(broker.addresses, port), authentication), topic)


def test_client_with_a_certificate_is_served(
    broker: BrokerProcess, opened: Open, topic: str, certificates: Certificates
) -> None:
    shown = pulsar.AuthenticationTLS(str(certificates.client), str(certificates.key(certificates.client)))
    trusted = {"tls_trust_certs_file_path": str(certificates.authority)}
    round_trip(opened(broker.addresses.pulsar_tls, shown, **trusted), topic)
    know_owner(broker, f"{topic}-https")
    round_trip(opened(broker.addresses.admin_tls, shown, **trusted), f"{topic}-https")


def test_client_renews_its_token_while_connected(
    broker: BrokerProcess, clock: Clocks, opened: Open, topic: str
) -> None:
    end = clock.now() + timedelta(hours=1)
    asked = threading.Event()

    def fresh() -> str:
        asked.set()
        return token(exp=end.timestamp())

    client = opened(broker.addresses.pulsar, pulsar.AuthenticationToken(fresh))
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    before = address_of_publisher(broker, topic)
    for number in range(2):
        end += timedelta(hours=1)
        asked.clear()
        clock.advance(hours=1)
        assert asked.wait(60)
        producer.send(b"%d" % number)
        assert receive(consumer, 1) == [b"%d" % number]
    # A connection that the broker had closed would have another port after it.
    assert address_of_publisher(broker, topic) == before


def address_of_publisher(broker: BrokerProcess, topic: str) -> str:
    """Returns the client's end of the connection of the topic's only producer."""
    url = f"{broker.addresses.admin}/admin/v2/persistent/public/default/{topic}/stats"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token()}"})
    with open_url(request) as answer:
        (publisher,) = json.load(answer)["publishers"]
    return str(publisher["address"])


# WebSockets


def websocket_of(broker: BrokerProcess, path: str, *headers: str) -> websocket.WebSocket:
    url = broker.addresses.admin.replace("http://", "ws://") + f"/ws/v2/{path}"
    return websocket.create_connection(url, timeout=60, header=list(headers))


def is_published(socket: websocket.WebSocket) -> bool:
    socket.send(json.dumps({"payload": "aGVsbG8="}))
    return bool(json.loads(socket.recv())["result"] == "ok")


def test_websocket_proves_its_role_in_the_query_or_a_header(broker: BrokerProcess, topic: str) -> None:
    path = f"producer/persistent/public/default/{topic}"
    with contextlib.closing(websocket_of(broker, f"{path}?token={token()}")) as by_query:
        assert is_published(by_query)
    with contextlib.closing(websocket_of(broker, path, f"Authorization: Bearer {token()}")) as by_header:
        assert is_published(by_header)


def test_websocket_ends_when_its_token_expires(broker: BrokerProcess, clock: Clocks, topic: str) -> None:
    end = clock.now() + timedelta(hours=1)
    short = token(exp=end.timestamp())
    socket = websocket_of(broker, f"consumer/persistent/public/default/{topic}/s?token={short}")
    clock.advance(hours=1)
    opcode, data = socket.recv_data()
    assert opcode == websocket.ABNF.OPCODE_CLOSE
    assert (int.from_bytes(data[:2], "big"), data[2:]) == (1008, b"the credentials have expired")


# Commands and Spark's client


def run(*words: str, conf: Path | None = None) -> subprocess.CompletedProcess[str]:
    environ = {} if conf is None else {"PULSAR_CLIENT_CONF": str(conf)}
    return subprocess.run(
        [sys.executable, "-m", "magnetar", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=REPOSITORY,
        env={**os.environ, **environ},
    )


@pytest.mark.parametrize(
    ("plugin", "params"),
    [
        ("token", f"token:{token()}"),
        (f"{JAVA}AuthenticationToken", "file"),
        ("basic", "ann:a"),
        (f"{JAVA}AuthenticationBasic", '{"userId": "bob", "password": "b"}'),
    ],
)
def test_admin_commands_prove_their_role(
    broker: BrokerProcess, tmp_path: Path, plugin: str, params: str
) -> None:
    if params == "file":
        (tmp_path / "token").write_text(token() + "\n")
        params = f"file://{tmp_path / 'token'}"
    words = ("config", "keys", "--admin-url", broker.addresses.admin)
    done = run(*words, "--auth-plugin", plugin, "--auth-params", params)
    assert "brokerShutdownTimeoutMs" in done.stdout, done.stderr
    conf = tmp_path / "client.conf"
    conf.write_text(f"webServiceUrl={broker.addresses.admin}\nauthPlugin={plugin}\nauthParams={params}\n")
    assert "brokerShutdownTimeoutMs" in run("config", "keys", conf=conf).stdout


def test_admin_command_says_how_to_prove_a_role(broker: BrokerProcess) -> None:
    done = run("config", "keys", "--admin-url", broker.addresses.admin)
    assert done.returncode == 1
    assert "credentials are missing or wrong (401)" in done.stderr


def test_produce_command_proves_its_role(broker: BrokerProcess, topic: str) -> None:
    words = ("--url", broker.addresses.pulsar, "--auth-plugin", "token", "--auth-params", f"token:{token()}")
    done = run("produce", *words, topic, "-m", "x")
    assert done.returncode == 0, done.stderr


def spark_cluster(broker: BrokerProcess, given: Mapping[str, str]) -> Cluster:
    options = {"service.url": broker.addresses.pulsar, "topic": "t", **given}
    return Cluster(source_options(options, streaming=False).cluster)


@pytest.mark.parametrize(
    ("plugin", "params"),
    [
        ("AuthenticationToken", f"token:{token()}"),
        ("AuthenticationBasic", "ann:a"),
        ("AuthenticationBasic", '{"userId": "bob", "password": "b"}'),
    ],
)
def test_spark_source_proves_its_role(broker: BrokerProcess, plugin: str, params: str) -> None:
    given = {"pulsar.client.authPluginClassName": f"{JAVA}{plugin}", "pulsar.client.authParams": params}
    with contextlib.closing(spark_cluster(broker, given)) as cluster:
        cluster.topics_of("public/default")
    wrong = spark_cluster(broker, {**given, "pulsar.client.authParams": "ann:b"})
    with contextlib.closing(wrong), pytest.raises(BrokerRefused, match="authenticate"):
        wrong.topics_of("public/default")


# Refusals, last: the broker delays the answer to each further refusal of an address, up to five seconds.


def test_client_without_proof_is_not_served(broker: BrokerProcess, opened: Open, topic: str) -> None:
    without: dict[str, pulsar.Authentication | None] = {
        "nothing": None,
        "expired": pulsar.AuthenticationToken(token(exp=1)),
        "cut off": pulsar.AuthenticationToken(token()[:-4]),
        "wrong password": pulsar.AuthenticationBasic("ann", "b"),
    }
    # This client tries again until its time is over, whatever the broker answers to CONNECT.
    refusals = (pulsar.Timeout, pulsar.ConnectError, pulsar.AuthenticationError)

    def is_refused(client: pulsar.Client) -> bool:
        try:
            client.create_producer(topic)
        except refusals:
            return True
        return False

    clients = [
        opened(broker.addresses.pulsar, shown, operation_timeout_seconds=2) for shown in without.values()
    ]
    with ThreadPoolExecutor(len(clients)) as threads:
        refused = dict(zip(without, threads.map(is_refused, clients), strict=True))
    assert refused == dict.fromkeys(without, True)


def test_websocket_without_proof_is_401(broker: BrokerProcess, topic: str) -> None:
    foreign = token_by_private_key(new_pair("ES256").private, "ES256", {"sub": "me"}, {})
    proofs = ("", "?token=", "?token=wrong", f"?token={foreign}", f"?token={token(exp=time.time() - 60)}")
    name = f"persistent/public/default/{topic}"
    paths = [
        f"{path}{proof}"
        for path in (f"producer/{name}", f"consumer/{name}/s", f"reader/{name}")
        for proof in proofs
    ]

    def status_of(path: str) -> int:
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            websocket_of(broker, path)
        return refused.value.status_code

    with ThreadPoolExecutor(len(paths)) as threads:
        statuses = dict(zip(paths, threads.map(status_of, paths), strict=True))
    assert statuses == dict.fromkeys(paths, 401)
