"""AuthenticationOAuth2 against an issuer on the loopback and a broker that checks the issuer's tokens."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")

from protocol import requests
from pyspark_pulsar.client import oauth2
from pyspark_pulsar.client.cluster import open_cluster
from pyspark_pulsar.client.connection import Request
from pyspark_pulsar.client.oauth2 import ClientCredentials
from pyspark_pulsar.errors import BrokerRefused, IssuerRefused, OptionError
from pyspark_pulsar.options import source_options
from tests.interop.support import Clocks
from tests.support.certificates import Certificates
from tests.support.token_issuer import Issuer
from tests.support.tokens import SECRET_URL, peer_settings, token
from tests.vectors.broker_process import BrokerProcess

WAIT_S = 60.0
PLUGIN = "org.apache.pulsar.client.impl.auth.oauth2.AuthenticationOAuth2"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    opened = Issuer(lives_s=1000 * 3600)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "authenticationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": SECRET_URL,
        # Time for a client to answer a challenge: a busy machine must not end its connection.
        "authenticationRefreshCheckSeconds": "60",
        **peer_settings(token({"sub": "me"})),
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings, memory=True, test_faults=True) as running:
        yield running


@pytest.fixture
def broker_url(broker: BrokerProcess) -> str:
    return broker.addresses.pulsar


def options(url: str, params: dict[str, Any], plugin: str = PLUGIN) -> Any:
    return source_options(
        {
            "service.url": url,
            "topic": "t",
            "pulsar.client.authPluginClassName": plugin,
            "pulsar.client.authParams": json.dumps(params),
        },
        streaming=False,
    )


def account_file(folder: Path, secret: str = "right") -> Path:
    path = folder / "account.json"
    path.write_text(json.dumps({"client_id": "me", "client_secret": secret}))
    return path


def test_account_opens_a_connection_with_the_issuers_token(
    issuer: Issuer, broker_url: str, tmp_path: Path
) -> None:
    # A token that holds for longer than the test takes: it is asked for once.
    issuer.expires_in_s = 3600
    given = {
        "type": "client_credentials",
        "issuerUrl": issuer.url,
        "privateKey": f"file://{account_file(tmp_path)}",
        "audience": "urn:pulsar",
        "scope": "read",
    }
    with open_cluster(options(broker_url, given).cluster) as cluster:
        assert cluster.topics_of("public/default") == []
    assert issuer.forms == [
        {
            "grant_type": ["client_credentials"],
            "client_id": ["me"],
            "client_secret": ["right"],
            "audience": ["urn:pulsar"],
            "scope": ["read"],
        }
    ]


def test_connection_outlives_its_first_token(issuer: Issuer, broker: BrokerProcess, broker_url: str) -> None:
    """The broker asks for new credentials when the first have expired, and closes a client that has none."""
    issuer.lives_s = 3600
    issuer.expires_in_s = 0  # So that the client asks for another one each time.
    given = {"issuer_url": issuer.url, "client_id": "me", "client_secret": "right"}
    settings = options(broker_url, given, "oauth2").cluster
    with open_cluster(settings) as cluster:
        connection = cluster.new_connection(cluster.owners(["persistent://public/default/t"])[0])
        deadline = time.monotonic() + WAIT_S
        tokens = len(issuer.forms)
        issuer.lives_s = 1000 * 3600
        Clocks(broker, token({"sub": "me"})).advance(hours=1)
        while len(issuer.forms) == tokens:
            assert time.monotonic() < deadline, "no token but the first was fetched"
            connection.poll(0.2)
        request_id = connection.next_id()
        asked = Request(request_id, requests.topics_of_namespace(request_id, "public/default"), "listing")
        assert connection.ask(asked).HasField("getTopicsOfNamespaceResponse")
        connection.close()


def test_issuers_refusal_is_passed_on_without_the_secret(
    issuer: Issuer, broker_url: str, tmp_path: Path
) -> None:
    given = {"issuerUrl": issuer.url, "privateKey": str(account_file(tmp_path, "wrong-secret"))}
    found = options(broker_url, given)
    assert "wrong-secret" not in repr(found)
    with (
        open_cluster(found.cluster) as cluster,
        pytest.raises(BrokerRefused, match="invalid_client") as caught,
    ):
        cluster.topics_of("public/default")
    assert "wrong-secret" not in str(caught.value)


def test_token_is_used_to_its_end_while_the_issuer_gives_no_other(issuer: Issuer) -> None:
    account = ClientCredentials(issuer.url, "me", "right", None, None)
    issuer.expires_in_s = 30  # Less than a minute, so that each call asks for another one.
    first = account.token()
    issuer.is_down = True
    assert account.token() == first
    issuer.is_down, issuer.expires_in_s = False, 0
    account.token()
    issuer.is_down = True
    with pytest.raises(IssuerRefused, match="the issuer says 503"):
        account.token()
    assert len(issuer.forms) == 4


def test_accounts_are_read_from_text_and_mistakes_are_named(tmp_path: Path) -> None:
    text = base64.b64encode(account_file(tmp_path).read_bytes()).decode()
    as_data = f"data:application/json;base64,{text}"
    found = options("pulsar://host", {"issuerUrl": "https://issuer", "privateKey": as_data})
    assert found.cluster.security.account.client_id == "me"
    for given, sentence in (
        ({"privateKey": as_data}, "issuerUrl missing"),
        ({"issuerUrl": "https://a", "privateKey": str(tmp_path / "none")}, "cannot be read: No such file"),
        ({"issuerUrl": "https://a", "client_id": "me"}, "client_secret missing"),
        ({"issuerUrl": "https://a", "type": "password"}, "built in is client_credentials"),
        ({"issuerUrl": "https://a", "privateKey": "data:x;base64,%"}, "no base64"),
        ({"issuerUrl": "https://a", "privateKey": '{"client_secret": "PASSWORD"}'}, "the account itself"),
        ({"issuerUrl": "https://a", "privateKey": as_data, "audience": ["b"]}, "a text is expected"),
    ):
        with pytest.raises(OptionError, match=sentence) as caught:
            options("pulsar://host", given)
        assert "PASSWORD" not in str(caught.value)


def test_secret_of_an_https_issuer_goes_to_https_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bytes | None]] = []

    def ask(account: object, url: str, form: bytes | None) -> dict[str, str]:
        asked.append((url, form))
        return {"token_endpoint": "http://issuer/token"}

    monkeypatch.setattr(oauth2, "_ask", ask)
    with pytest.raises(BrokerRefused, match="its token_endpoint is 'http://issuer/token'"):
        ClientCredentials("https://issuer", "me", "right", None, None).token()
    assert [form for _, form in asked] == [None]


@pytest.mark.parametrize("redirected", ["/.well-known/openid-configuration", "/token"])
def test_https_issuer_that_redirects_to_http_is_refused(
    redirected: str, issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == redirected:
                self._redirect()
                return
            body = json.dumps({"token_endpoint": f"{account.issuer_url}/token"}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._redirect()

        def _redirect(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"{issuer.url}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Says nothing."""

    certificates = Certificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.key(certificates.server))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"https://127.0.0.1:{server.server_address[1]}"
        account = ClientCredentials(url, "me", "right", None, None)
        with pytest.raises(BrokerRefused, match=rf"{redirected} redirects to 'http://.* over https alone"):
            account.token()
        server.shutdown()
        thread.join()
    assert issuer.forms == []


def test_issuer_that_does_not_speak_http_is_a_refusal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(b"220 mail.example ready\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        account = ClientCredentials(f"http://127.0.0.1:{server.getsockname()[1]}", "me", "right", None, None)
        with pytest.raises(BrokerRefused, match="220 mail"):
            account.token()
        thread.join()
