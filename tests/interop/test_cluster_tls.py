"""Two brokers that ask each other over TLS alone, with certificates as proofs: first requests, replaced certificates."""

from __future__ import annotations

import json
import signal
import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
import websocket

from tests.bookie_stub.bookie_process import Process
from tests.interop.support import Json
from tests.interop.test_served_metadata import Server
from tests.support.certificates import Certificates, put_over
from tests.support.ports import free_port
from tests.vectors.broker_process import BrokerProcess

NAMESPACE: Final = "public/over-tls"
PARTITIONS: Final = 6
_PLUGIN: Final = "org.apache.pulsar.client.impl.auth.AuthenticationTls"
_PROVIDER: Final = "org.apache.pulsar.broker.authentication.AuthenticationProviderTls"


class TlsBrokers:
    """Two brokers with the same `trusted.pem`, `broker.pem` and `broker.key`; the test has the certificate `admin`."""

    def __init__(self, folder: Path, server: Server, bookie_port: int) -> None:
        self._folder = folder
        self.use(Certificates(folder / "former"))
        certificate, key = folder / "broker.pem", folder / "broker.key"
        settings = {
            "metadataStoreUrl": server.url,
            # Longer than a restart takes: a broker that comes back has its own bundles again.
            "metadataStoreSessionTimeoutMillis": "600000",
            "bookieAddress": f"127.0.0.1:{bookie_port}",
            "brokerServicePort": "",
            "webServicePort": "",
            "tlsCertificateFilePath": str(certificate),
            "tlsKeyFilePath": str(key),
            "tlsTrustCertsFilePath": str(folder / "trusted.pem"),
            "tlsCertRefreshCheckDurationSec": "0",
            "authenticationEnabled": "true",
            "authenticationProviders": _PROVIDER,
            "authorizationEnabled": "true",
            "superUserRoles": "broker,admin",
            "brokerClientTlsEnabled": "true",
            "brokerClientTrustCertsFilePath": str(folder / "trusted.pem"),
            "brokerClientAuthenticationPlugin": _PLUGIN,
            "brokerClientAuthenticationParameters": f"tlsCertFile:{certificate},tlsKeyFile:{key}",
            "tlsHostnameVerificationEnabled": "true",
        }
        self.all = []
        for name in ("one", "two"):
            (folder / name).mkdir()
            ports = {"brokerServicePortTls": str(free_port()), "webServicePortTls": str(free_port())}
            self.all.append(BrokerProcess(folder / name, {**settings, **ports}))

    def use(self, made: Certificates) -> None:
        """Writes a certificate of another authority, and that authority, over the files of the brokers."""
        broker, self.admin = made.issue("broker"), made.issue("admin")
        put_over(broker, self._folder / "broker.pem")
        put_over(made.key(broker), self._folder / "broker.key")
        put_over(made.authority, self._folder / "trusted.pem")
        self.key, self.authority = made.key(self.admin), made.authority

    def ask(self, broker: BrokerProcess, method: str, path: str, body: Json = None) -> Json:
        """Sends a request to the admin port. urllib.error.HTTPError for a refusal."""
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.admin, self.key)
        request = urllib.request.Request(
            f"{broker.addresses.admin_tls}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, context=context) as answer:
            text = answer.read().decode()
        found: Json = json.loads(text) if text.startswith(("{", "[")) else text
        return found

    def owners(self) -> list[str]:
        """The admin address of each partition's owner."""
        found = []
        for number in range(PARTITIONS):
            shown = self.ask(
                self.all[0], "GET", f"lookup/v2/topic/persistent/{NAMESPACE}/t-partition-{number}"
            )
            assert isinstance(shown, dict)
            found.append(str(shown["httpUrlTls"]))
        return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    yield server
    server.end(signal.SIGKILL)


@pytest.fixture
def brokers(tmp_path: Path, server: Server) -> Iterator[TlsBrokers]:
    """With a topic whose partitions have both brokers as their owners, who have asked each other for nothing yet."""
    port = free_port()
    bookie = Process(tmp_path / "bookie")
    bookie.start(f"bookiePort={port}", "advertisedAddress=127.0.0.1")
    with ExitStack() as stack:
        stack.callback(bookie.end, signal.SIGKILL)
        found = TlsBrokers(tmp_path, server, port)
        for broker in found.all:
            stack.callback(broker.kill)
            broker.start()
        found.ask(
            found.all[0], "PUT", f"admin/v2/namespaces/{NAMESPACE}", {"bundles": {"numBundles": PARTITIONS}}
        )
        found.ask(found.all[0], "PUT", f"admin/v2/persistent/{NAMESPACE}/t/partitions", PARTITIONS)
        yield found


def test_first_request_about_partitions_of_both_brokers_is_answered(brokers: TlsBrokers) -> None:
    for number, broker in enumerate(brokers.all):
        brokers.ask(broker, "PUT", f"admin/v2/persistent/{NAMESPACE}/t/subscription/s{number}")
    assert set(brokers.owners()) == {broker.addresses.admin_tls for broker in brokers.all}
    for broker in brokers.all:
        found = brokers.ask(broker, "GET", f"admin/v2/persistent/{NAMESPACE}/t/subscriptions")
        assert found == ["s0", "s1"]
        assert not [line for line in broker.log_lines() if "Unclosed" in line]


def test_brokers_reach_each_other_after_authority_and_certificates_were_replaced(
    tmp_path: Path, brokers: TlsBrokers
) -> None:
    one, two = brokers.all
    path = f"admin/v2/persistent/{NAMESPACE}/t"
    for broker in brokers.all:
        brokers.ask(broker, "GET", f"{path}/partitioned-stats")
    brokers.use(Certificates(tmp_path / "new"))
    # It comes back with new connections alone. The other one has not been started again.
    two.kill()
    two.start()
    for broker in (one, two):
        brokers.ask(broker, "GET", f"{path}/partitioned-stats")
    owners = brokers.owners()
    assert set(owners) == {one.addresses.admin_tls, two.addresses.admin_tls}
    # The WebSocket of a client goes on to the owner over TLS too.
    url = one.addresses.admin_tls.replace("https://", "wss://")
    partition = owners.index(two.addresses.admin_tls)
    trust = {
        "ca_certs": str(brokers.authority),
        "certfile": str(brokers.admin),
        "keyfile": str(brokers.key),
    }
    socket = websocket.create_connection(
        f"{url}/ws/v2/producer/persistent/{NAMESPACE}/t-partition-{partition}", timeout=60, sslopt=trust
    )
    socket.send(json.dumps({"payload": "aGVsbG8="}))
    assert json.loads(socket.recv())["result"] == "ok"
    socket.close()
    # And a bundle is handed over: the broker that has not been started again asks the other one to take it.
    moved = owners.index(one.addresses.admin_tls)
    bundle = brokers.ask(one, "GET", f"lookup/v2/topic/persistent/{NAMESPACE}/t-partition-{moved}/bundle")
    destination = two.addresses.admin_tls.removeprefix("https://")
    unload = f"admin/v2/namespaces/{NAMESPACE}/{bundle}/unload?destinationBroker={destination}"
    brokers.ask(one, "PUT", unload)
    assert brokers.owners()[moved] == two.addresses.admin_tls
    assert not [line for line in one.log_lines() if "nobody has taken bundle" in line]
