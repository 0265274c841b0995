"""No secret leaves the process: marked ones are planted wherever one can be given, and all output is searched."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pulsar
import pytest

from broker.config.security_keys import BASIC_PROVIDER, TLS_PROVIDER, TOKEN_PROVIDER
from magnetar.clients.token_keys import token_by_secret
from protocol.pulsar_api_pb2 import BaseCommand
from tests.support.certificates import Certificates
from tests.support.raw_client import simple_frame
from tests.vectors.broker_process import BrokerProcess

MARK: Final = "PLANTEDsecret"
"""Stands in every secret, so that one search finds all of them."""
KEY: Final = f"{MARK}-signs-the-tokens-of-this-test".encode()
KEY_TEXT: Final = base64.b64encode(KEY).decode()
PASSWORD: Final = f"{MARK}password"
LINE: Final = "ann:{SHA}" + base64.b64encode(hashlib.sha1(PASSWORD.encode()).digest()).decode()
TOKEN: Final = token_by_secret(KEY, {"sub": "me", "note": MARK}, {})
EXPIRED: Final = token_by_secret(KEY, {"sub": "me", "exp": 1, "note": MARK}, {})
FORGED: Final = f"{MARK}.{MARK}.{MARK}"

SECRETS: Final = (
    MARK,
    KEY_TEXT,
    LINE.partition(":")[2],
    *TOKEN.split(".")[1:],
    *EXPIRED.split(".")[1:],
    base64.b64encode(f"ann:{PASSWORD}".encode()).decode(),
    base64.b64encode(f"ann:{PASSWORD}x".encode()).decode(),
)
"""Texts that may stand nowhere: the mark, and the forms of secrets in which base64 hides the mark."""

SETTINGS: Final = {
    "authenticationEnabled": "true",
    "authenticationProviders": f"{TOKEN_PROVIDER},{BASIC_PROVIDER},{TLS_PROVIDER}",
    "tokenSecretKey": f"data:;base64,{KEY_TEXT}",
    "basicAuthConf": f"data:,{LINE}",
    "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
    "brokerClientAuthenticationParameters": f"token:{TOKEN}",
    "brokerClientTlsKeyStorePassword": "",
    "entryCacheRecordDirectory": "record",
    "authenticationRefreshCheckSeconds": "1",
    "authorizationEnabled": "true",
    "superUserRoles": "me",
}


def assert_silent(where: str, data: bytes) -> None:
    for secret in SECRETS:
        assert secret.encode() not in data, f"{where} shows {secret[:24]}…"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    settings = {
        **SETTINGS,
        "entryCacheRecordDirectory": str(folder / "record"),
        "brokerServicePortTls": "0",
        "webServicePortTls": "0",
        "tlsCertificateFilePath": str(certificates.server),
        "tlsKeyFilePath": str(certificates.key(certificates.server)),
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PULSAR_LOG_LEVEL", "debug")
        with BrokerProcess(folder, settings, memory=True) as running:
            yield running


def ask(url: str, method: str, path: str, headers: Mapping[str, str]) -> bytes:
    """The whole answer: status, headers and body."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    connection.request(method, path, headers=dict(headers))
    response = connection.getresponse()
    text = f"{response.status} {response.getheaders()}\n".encode() + response.read()
    connection.close()
    return text


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


GOOD: Final = {"Authorization": f"Bearer {TOKEN}"}
HEADERS: Final = (
    GOOD,
    {"Authorization": f"Bearer {EXPIRED}"},
    {"Authorization": f"Bearer {FORGED}"},
    {"Authorization": f"{MARK} {MARK}"},
    {"Authorization": basic(f"ann:{PASSWORD}")},
    {"Authorization": basic(f"ann:{PASSWORD}x")},
    {"X-Pulsar-Auth-Method-Name": MARK},
    {**GOOD, "X-Original-Principal": "proxied"},
)
PATHS: Final = (
    "/admin/v2/clusters",
    "/admin/v2/brokers/configuration/runtime",
    "/admin/v2/brokers/configuration/values",
    "/admin/v2/brokers/configuration",
    "/admin/v2/persistent/public/default/nosuch/stats",
    "/admin/v2/nosuchroute",
    "/metrics",
    "/admin/v2/magnetar/console/session",
    "/admin/v2/magnetar/console/settings",
    "/admin/v2/magnetar/console/rights",
)


def connect_command(method: str, data: str, **original: str) -> bytes:
    command = BaseCommand(type=BaseCommand.CONNECT)
    connect = command.connect
    connect.client_version, connect.protocol_version = "raw", 19
    connect.auth_method_name, connect.auth_data = method, data.encode()
    for name, value in original.items():
        setattr(connect, name, value)
    return simple_frame(command)


def answer_to(url: str, frames: bytes, *, tls: bool = False) -> bytes:
    """All bytes that come until the broker closes."""
    parts = urlsplit(url)
    data = b""
    with contextlib.ExitStack() as opened:
        connection = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60)
        opened.enter_context(connection)
        if tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = opened.enter_context(context.wrap_socket(connection))
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            connection.sendall(frames)
            while part := connection.recv(65536):
                data += part
    return data


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("token", TOKEN),
        ("token", EXPIRED),
        ("token", FORGED),
        ("basic", f"ann:{PASSWORD}"),
        ("basic", f"ann:{PASSWORD}x"),
        ("basic", PASSWORD),
        (MARK, FORGED),
    ],
)
def test_data_port_shows_no_secret(broker: BrokerProcess, method: str, data: str) -> None:
    url = broker.addresses.pulsar
    frame = connect_command(method, data, original_principal="x", original_auth_data=MARK)
    # A second CONNECT ends the connection with an error of the protocol, which is logged.
    answer = answer_to(url, frame + frame)
    assert answer
    assert_silent(f"CONNECT by {method}", answer)


def test_admin_port_shows_no_secret(broker: BrokerProcess) -> None:
    url = broker.addresses.admin
    asked = [(f"GET {path}", "GET", path, headers) for path in PATHS for headers in HEADERS]
    asked += [
        (f"GET {path} with a query", "GET", f"{path}?token={token}", {})
        for path in PATHS
        for token in (TOKEN, EXPIRED, FORGED)
    ]
    for key in ("tokenSecretKey", "basicAuthConf", "brokerClientAuthenticationParameters"):
        path = f"/admin/v2/brokers/configuration/{key}/{MARK}"
        # Each but the first writes a line to the ordinary log too: a foreign page, a name that is not ours, a lacking right.
        for headers in (
            GOOD,
            {**GOOD, "Origin": "http://foreign.example"},
            {**GOOD, "Host": "foreign.example"},
            {"Authorization": basic(f"ann:{PASSWORD}")},
        ):
            asked.append((f"POST {path} with {headers}", "POST", path, headers))
    # All at once: the broker delays the answer to each further refusal of an address, up to five seconds.
    with ThreadPoolExecutor(len(asked)) as threads:
        answers = threads.map(lambda one: ask(url, *one[1:]), asked)
        for (where, *_), answer in zip(asked, answers, strict=True):
            assert_silent(where, answer)
    assert_silent("the changed settings", ask(url, "GET", PATHS[2], GOOD))
    assert_silent("all settings", ask(url, "GET", PATHS[1], GOOD))


WEB_PATHS: Final = (
    "/console/",
    "/admin/v2/magnetar/console/session",
    "/admin/v2/clusters",
    "/metrics",
    "/ws/v2/producer/persistent/public/default/t",
    "/ws/v2/consumer/persistent/public/default/t/s",
    "/ws/v2/reader/persistent/public/default/t",
    "/ws/v3/consumer/s",
    "/ws/v2/nosuchkind",
)
LONG: Final = MARK + "x" * 10_000
"""Longer than a header may be."""
UPGRADE: Final = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join([line, "Host: 127.0.0.1", *headers, "", ""]).encode()


def unread_requests(path: str) -> list[bytes]:
    """Requests with a credential that is too long, or where the parser does not expect it."""
    return [
        head(f"GET {path} HTTP/1.1", f"Authorization: Bearer {LONG}"),
        head(f"GET {path} HTTP/1.1", *UPGRADE, f"Authorization: Bearer {LONG}"),
        head(f"GET {path} HTTP/1.1", f"Authorization {FORGED}"),
        head(f"GET {path} HTTP/1.1", f"Authorization: Bearer {FORGED}\0"),
        head(f"GET {path} HTTP/1.1", f"Cookie: token={LONG}"),
        head(f"GET {path} HTTP/1.1", "Connection: close", f"Expect: {FORGED}"),
        head(f"GET {path}?token={LONG} HTTP/1.1", *UPGRADE),
        head(f"GET {path}?token={FORGED} HTTP/9.9", *UPGRADE),
        head(f"GET {path}?token={FORGED} {FORGED} HTTP/1.1", *UPGRADE),
    ]


@pytest.mark.parametrize("tls", [False, True])
def test_web_ports_show_no_part_of_a_request_that_they_cannot_read(broker: BrokerProcess, tls: bool) -> None:
    url = broker.addresses.admin_tls if tls else broker.addresses.admin
    requests = [request for path in WEB_PATHS for request in unread_requests(path)]
    with ThreadPoolExecutor(8) as threads:
        answers = threads.map(lambda one: answer_to(url, one, tls=tls), requests)
        for request, answer in zip(requests, answers, strict=True):
            assert answer.startswith((b"HTTP/1.0 4", b"HTTP/1.1 4")), request
            assert_silent(f"the answer to {request[:100]!r}", answer)


@pytest.mark.parametrize("tls", [False, True])
def test_websocket_shows_no_token_of_its_query(broker: BrokerProcess, tls: bool) -> None:
    url = broker.addresses.admin_tls if tls else broker.addresses.admin
    # A close of the client without a mask, which breaks the protocol, ends those that are open.
    requests = [
        head(f"GET {path}?{query} HTTP/1.1", *UPGRADE) + b"\x88\x00"
        for path in WEB_PATHS
        if path.startswith("/ws/")
        for token in (TOKEN, EXPIRED, FORGED)
        for query in (f"topics=t,u&token={token}", f"%74oken={token}&receiverQueueSize=many")
    ]
    # Side by side: the broker delays the answer to each further refusal of an address, up to five seconds.
    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(lambda one: answer_to(url, one, tls=tls), requests))
    for request, answer in zip(requests, answers, strict=True):
        assert_silent(request.partition(b"?")[0].decode(), answer)
    for status in (b"101", b"400", b"401"):
        assert any(answer.startswith(b"HTTP/1.1 " + status) for answer in answers), status


@pytest.mark.parametrize("port", ["pulsar", "pulsar_tls", "admin_tls"])
def test_port_of_another_protocol_shows_no_part_of_a_request(broker: BrokerProcess, port: str) -> None:
    for request in unread_requests("/admin/v2/clusters"):
        assert_silent(port, answer_to(getattr(broker.addresses, port), request))


def test_record_and_log_show_no_secret(broker: BrokerProcess) -> None:
    """Last of those with the broker: it searches all that the others have caused."""
    client = pulsar.Client(
        broker.addresses.pulsar,
        authentication=pulsar.AuthenticationToken(TOKEN),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    producer = client.create_producer("public/default/t")
    producer.send(b"x")
    client.close()
    broker.stop()
    files = [path for path in broker.folder.rglob("*") if path.is_file()]
    written = [path for path in files if path.suffix != ".conf"]
    assert any("record" in path.parts for path in written)
    for path in written:
        assert_silent(str(path), path.read_bytes())


# Commands


def run(*words: str, environ: Mapping[str, str] | None = None) -> bytes:
    """Standard output and standard error of a command."""
    done = subprocess.run(
        [sys.executable, "-m", "magnetar", *words],
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, **(environ or {})},
    )
    return done.stdout + done.stderr


def conf(path: Path, texts: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in texts.items()))
    return path


def test_settings_are_shown_without_secrets(tmp_path: Path) -> None:
    path = conf(tmp_path / "broker.conf", SETTINGS)
    for words in (("show",), ("show", "--origin"), ("show", "--output", "json")):
        assert_silent(" ".join(words), run("config", *words, "--config", str(path)))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokenSecretKey", f"data:;base64,{base64.b64encode(MARK.encode()).decode()}"),
        ("tokenSecretKey", MARK),
        ("tokenSecretKey", f"data:{MARK}"),
        ("tokenPublicKey", f"data:,{MARK}"),
        ("basicAuthConf", f"data:,ann:{MARK}"),
        ("basicAuthConf", MARK),
        ("tokenSecretKy", MARK),
        ("tlsKeyStorePassword", MARK),
        ("saslJaasServerRoleTokenSignerSecretPath", "/secret/path"),
    ],
)
def test_refused_start_shows_no_secret(tmp_path: Path, key: str, value: str) -> None:
    settings = {**SETTINGS, key: value}
    settings = {
        name: text for name, text in settings.items() if key != "tokenPublicKey" or name != "tokenSecretKey"
    }
    path = conf(tmp_path / "broker.conf", settings)
    ready = tmp_path / "ready"
    words = ("standalone", "--memory", "--config", str(path), "--ready-file", str(ready))
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "magnetar",
            *words,
            "--set",
            "brokerServicePort=0",
            "--set",
            "webServicePort=0",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
    )
    # A key that is not known starts with a warning, so this process is ended once it serves.
    deadline = time.monotonic() + 60
    while process.poll() is None and not ready.exists():
        assert time.monotonic() < deadline, "neither refused nor ready"
        time.sleep(0.01)
    process.terminate()
    output, _ = process.communicate(timeout=60)
    assert key.encode() in output
    assert_silent(f"a start with {key}", output)


def test_commands_show_no_secret_in_errors(tmp_path: Path) -> None:
    nowhere = "http://127.0.0.1:1"
    token_file = tmp_path / "token"
    token_file.write_text(f"{MARK}\nnot: a header")
    for plugin, params in (
        ("token", f"token:{TOKEN}"),
        ("token", f"token:{MARK}\r\nX: y"),
        ("token", f"file:{token_file}"),
        ("basic", f"ann:{PASSWORD}"),
        ("basic", PASSWORD),
        ("basic", json.dumps({"user": MARK})),
        ("athenz", MARK),
    ):
        words = (
            "config",
            "runtime",
            "--admin-url",
            nowhere,
            "--auth-plugin",
            plugin,
            "--auth-params",
            params,
        )
        output = run(*words)
        assert output
        assert_silent(f"{plugin} with wrong parameters", output)
    client_conf = conf(
        tmp_path / "client.conf", {"authPlugin": "token", "authParams": f"token:{MARK} {MARK}"}
    )
    assert_silent("client.conf", run("config", "runtime", environ={"PULSAR_CLIENT_CONF": str(client_conf)}))


def test_token_commands_show_no_key_in_errors(tmp_path: Path) -> None:
    short = base64.b64encode(MARK.encode()).decode()
    for words in (
        ("create", "-s", "me", "-sk", f"data:;base64,{short}"),
        ("create", "-s", "me", "-pk", f"data:;base64,{KEY_TEXT}"),
        ("create", "-s", "me", "-sk", f"data:{MARK}"),
        ("validate", "-pk", f"data:;base64,{KEY_TEXT}", "x.y.z"),
        ("validate", "-sk", f"data:;base64,{KEY_TEXT}", FORGED),
        ("validate", "-sk", f"data:;base64,{KEY_TEXT}", EXPIRED),
    ):
        output = run("token", *words)
        assert output.startswith(b"magnetar token: ")
        assert output.count(b"\n") == 1
        assert_silent(" ".join(words[:2]), output)
