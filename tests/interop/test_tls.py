"""TLS on both ports: official clients, lookups that stay on TLS, client certificates, and peers without TLS."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pulsar
import pytest

from pyspark_pulsar.client.cluster import Cluster
from pyspark_pulsar.errors import TlsRefused
from pyspark_pulsar.options import source_options
from tests.interop.support import Json, connect, numbered, publish, receive
from tests.support.certificates import Certificates
from tests.support.raw_client import RawConnection, build_command, simple_frame
from tests.vectors.broker_process import REPOSITORY, BrokerProcess


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def tls_settings(certificates: Certificates, **more: object) -> dict[str, str]:
    settings = {
        "brokerServicePortTls": 0,
        "webServicePortTls": 0,
        "tlsCertificateFilePath": certificates.server,
        "tlsKeyFilePath": certificates.key(certificates.server),
        "tlsTrustCertsFilePath": certificates.authority,
        **more,
    }
    return {name: str(value) for name, value in settings.items()}


@pytest.fixture(scope="module")
def broker(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    with BrokerProcess(folder, tls_settings(certificates), memory=True) as running:
        yield running
    no_traceback(running)


@pytest.fixture(scope="module")
def closed_broker(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """Without ports without TLS, for clients with a certificate alone."""
    settings = tls_settings(
        certificates, brokerServicePort="", webServicePort="", tlsRequireTrustedClientCertOnConnect="true"
    )
    with BrokerProcess(tmp_path_factory.mktemp("closed"), settings, memory=True) as running:
        yield running
    no_traceback(running)


Open = Callable[..., pulsar.Client]


@pytest.fixture
def secured(certificates: Certificates) -> Iterator[Open]:
    opened = []

    def open_one(url: str, **options: object) -> pulsar.Client:
        given = {"tls_trust_certs_file_path": str(certificates.authority), "tls_validate_hostname": True}
        opened.append(connect(url, **{**given, **options}))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def shown(certificates: Certificates, certificate: Path) -> pulsar.Authentication:
    return pulsar.AuthenticationTLS(str(certificate), str(certificates.key(certificate)))


def test_client_produces_and_consumes_over_tls(broker: BrokerProcess, secured: Open, topic: str) -> None:
    client = secured(broker.addresses.pulsar_tls)
    consumer = client.subscribe(topic, "s")
    publish(client.create_producer(topic), [*numbered(100), b"x" * 1_000_000])
    assert receive(consumer, 101) == [*numbered(100), b"x" * 1_000_000]


def test_client_with_a_certificate_produces_over_tls(
    broker: BrokerProcess, secured: Open, certificates: Certificates, topic: str
) -> None:
    client = secured(broker.addresses.pulsar_tls, authentication=shown(certificates, certificates.client))
    publish(client.create_producer(topic), numbered(3))


def test_client_of_an_https_address_stays_on_tls(broker: BrokerProcess, secured: Open, topic: str) -> None:
    client = secured(broker.addresses.admin_tls)
    consumer = client.subscribe(topic, "s")
    publish(client.create_producer(topic), numbered(3))
    assert receive(consumer, 3) == numbered(3)


async def test_lookup_names_the_addresses_of_both_data_ports(broker: BrokerProcess) -> None:
    connection = await RawConnection.open(broker.addresses.pulsar)
    await connection.connect()
    connection.send("LOOKUP", topic="persistent://public/default/t", request_id=1)
    answer = (await connection.receive("LOOKUP_RESPONSE")).command.lookupTopicResponse
    await connection.close()
    assert answer.brokerServiceUrl == broker.addresses.pulsar
    assert answer.brokerServiceUrlTls == broker.addresses.pulsar_tls


def test_http_lookup_and_cluster_name_the_addresses_of_all_ports(
    broker: BrokerProcess, certificates: Certificates
) -> None:
    at = broker.addresses
    found = https(broker, certificates, "/lookup/v2/topic/persistent/public/default/t")
    assert (found["brokerUrl"], found["brokerUrlTls"]) == (at.pulsar, at.pulsar_tls)
    assert (found["httpUrl"], found["httpUrlTls"]) == (at.admin, at.admin_tls)
    cluster = https(broker, certificates, "/admin/v2/clusters/standalone")
    assert (cluster["serviceUrl"], cluster["serviceUrlTls"]) == (at.admin, at.admin_tls)
    assert (cluster["brokerServiceUrl"], cluster["brokerServiceUrlTls"]) == (at.pulsar, at.pulsar_tls)


def https(
    broker: BrokerProcess, certificates: Certificates, path: str, context: ssl.SSLContext | None = None
) -> dict[str, Json]:
    context = context or ssl.create_default_context(cafile=certificates.authority)
    with urllib.request.urlopen(broker.addresses.admin_tls + path, timeout=60, context=context) as answer:
        found = json.load(answer)
    assert isinstance(found, dict)
    return found


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_reads_over_https(broker: BrokerProcess, certificates: Certificates) -> None:
    url = f"{broker.addresses.admin_tls}/admin/v2/brokers/health"
    answer = subprocess.run(
        ["curl", "-sS", "--cacert", str(certificates.authority), url],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert answer.stdout == "ok"


# Commands, and the client in Spark's processes


def command(conf: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "magnetar", *words],
        cwd=REPOSITORY,
        env={**os.environ, "PULSAR_CLIENT_CONF": str(conf)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_commands_read_tls_from_client_conf(
    closed_broker: BrokerProcess, certificates: Certificates, tmp_path: Path, topic: str
) -> None:
    conf = tmp_path / "client.conf"
    at = closed_broker.addresses
    lines = {
        "brokerServiceUrl": at.pulsar_tls,
        "webServiceUrl": at.admin_tls,
        "tlsTrustCertsFilePath": certificates.authority,
        "tlsEnableHostnameVerification": "true",
    }
    shown = {
        "tlsCertificateFilePath": certificates.client,
        "tlsKeyFilePath": certificates.key(certificates.client),
    }

    def write(values: Mapping[str, object]) -> None:
        conf.write_text("".join(f"{name}={value}\n" for name, value in values.items()))

    write({**lines, **shown})
    sent = command(conf, "produce", topic, "-m", "hello")
    assert sent.returncode == 0, sent.stderr
    read = command(conf, "consume", topic, "-s", "s", "-n", "1", "-p", "Earliest")
    assert "hello" in read.stdout, read.stderr
    asked = command(conf, "cache", "top")
    assert asked.returncode == 0, asked.stderr
    # Without its certificate the client is refused, and the files are named where they do not fit.
    write(lines)
    assert command(conf, "cache", "top").returncode == 1
    write({**lines, **shown, "tlsKeyFilePath": certificates.key(certificates.server)})
    refused = command(conf, "cache", "top")
    assert "the key does not belong to the certificate" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize("form", ["files", "plugin"])
def test_client_of_spark_shows_its_certificate(
    closed_broker: BrokerProcess, secured: Open, certificates: Certificates, topic: str, form: str
) -> None:
    certificate, key = certificates.client, certificates.key(certificates.client)
    publish(
        secured(
            closed_broker.addresses.pulsar_tls, authentication=shown(certificates, certificates.client)
        ).create_producer(topic),
        numbered(3),
    )
    options = {
        "service.url": closed_broker.addresses.pulsar_tls,
        "topic": topic,
        "pulsar.client.tlsTrustCertsFilePath": str(certificates.authority),
        **{
            "files": {
                "pulsar.client.tlsCertificateFilePath": str(certificate),
                "pulsar.client.tlsKeyFilePath": str(key),
            },
            "plugin": {
                "pulsar.client.authPluginClassName": "org.apache.pulsar.client.impl.auth.AuthenticationTls",
                "pulsar.client.authParams": f"tlsCertFile:{certificate},tlsKeyFile:{key}",
            },
        }[form],
    }
    cluster = Cluster(source_options(options, streaming=False).cluster)
    (owner,) = cluster.owners([f"persistent://public/default/{topic}"])
    assert owner.tls
    assert cluster.connection(owner).message_bytes_max == 5 << 20
    cluster.close()
    del options["pulsar.client.tlsTrustCertsFilePath"]
    strange = Cluster(source_options(options, streaming=False).cluster)
    with pytest.raises(TlsRefused, match=r"check pulsar\.client\.tlsTrustCertsFilePath"):
        strange.owners([f"persistent://public/default/{topic}"])
    careless = {**options, "pulsar.client.tlsAllowInsecureConnection": "true"}
    trusting = Cluster(source_options(careless, streaming=False).cluster)
    assert trusting.owners([f"persistent://public/default/{topic}"]) == [owner]
    trusting.close()


# Ports without TLS switched off, and certificates of clients


@pytest.mark.parametrize("scheme", ["pulsar_tls", "admin_tls"])
def test_client_stays_on_tls_when_the_broker_has_no_other_port(
    closed_broker: BrokerProcess, secured: Open, certificates: Certificates, topic: str, scheme: str
) -> None:
    assert (closed_broker.addresses.pulsar, closed_broker.addresses.admin) == ("", "")
    url = getattr(closed_broker.addresses, scheme)
    client = secured(url, authentication=shown(certificates, certificates.client))
    consumer = client.subscribe(topic, "s")
    publish(client.create_producer(topic), numbered(5))
    assert receive(consumer, 5) == numbered(5)


def answer_over_tls(url: str, context: ssl.SSLContext, request: bytes) -> bytes:
    """Returns the first bytes of the answer; none from a broker that refuses the client.

    With TLS 1.3 a client learns that it was refused only when it reads.
    """
    at = urlsplit(url)
    try:
        with (
            socket.create_connection((at.hostname, at.port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            tls.sendall(request)
            return tls.recv(1000)
    except (ssl.SSLError, ConnectionError):
        return b""


def is_admitted(broker: BrokerProcess, context: ssl.SSLContext) -> bool:
    request = b"GET /admin/v2/brokers/ready HTTP/1.1\r\nHost: localhost\r\n\r\n"
    return b" 200 " in answer_over_tls(broker.addresses.admin_tls, context, request)


def context_of(certificates: Certificates, certificate: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificates.authority)
    if certificate is not None:
        context.load_cert_chain(certificate, certificates.key(certificate))
    return context


def test_client_without_a_trusted_certificate_is_refused_when_one_is_required(
    closed_broker: BrokerProcess, certificates: Certificates
) -> None:
    certificates.new_authority("stranger")
    foreign = certificates.issue("foreign", authority="stranger")
    expired = certificates.issue("expired", expired=True)
    assert is_admitted(closed_broker, context_of(certificates, certificates.client))
    assert not is_admitted(closed_broker, context_of(certificates))
    assert not is_admitted(closed_broker, context_of(certificates, foreign))
    assert not is_admitted(closed_broker, context_of(certificates, expired))


def test_data_port_refuses_a_client_without_a_trusted_certificate_when_one_is_required(
    closed_broker: BrokerProcess, secured: Open, certificates: Certificates, topic: str
) -> None:
    certificates.new_authority("stranger")
    foreign = certificates.issue("foreign", authority="stranger")
    url = closed_broker.addresses.pulsar_tls
    assert answer_over_tls(url, context_of(certificates, certificates.client), CONNECT)
    assert not answer_over_tls(url, context_of(certificates), CONNECT)
    assert not answer_over_tls(url, context_of(certificates, foreign), CONNECT)
    without = secured(url, operation_timeout_seconds=3)
    with pytest.raises(pulsar.PulsarException):
        without.create_producer(topic)
    client = secured(url, authentication=shown(certificates, certificates.client))
    publish(client.create_producer(topic), numbered(3))


def test_certificate_of_another_authority_is_refused_when_none_is_required(
    broker: BrokerProcess, certificates: Certificates
) -> None:
    certificates.new_authority("stranger")
    foreign = certificates.issue("foreign", authority="stranger")
    assert is_admitted(broker, context_of(certificates))
    assert is_admitted(broker, context_of(certificates, certificates.client))
    assert not is_admitted(broker, context_of(certificates, foreign))


def test_untrusted_certificate_is_not_asked_for_when_insecure_connections_are_allowed(
    certificates: Certificates, tmp_path: Path
) -> None:
    settings = tls_settings(certificates, tlsAllowInsecureConnection="true")
    certificates.new_authority("stranger")
    foreign = certificates.issue("foreign", authority="stranger")
    with BrokerProcess(tmp_path, settings, memory=True) as broker:
        assert is_admitted(broker, context_of(certificates, foreign))


# Peers that speak something else


def lines_with(stopped: BrokerProcess, text: str) -> list[str]:
    """Returns the lines of a stopped broker, whose log is complete."""
    assert not stopped.alive()
    return [line for line in stopped.log_lines() if text in line]


def no_traceback(stopped: BrokerProcess) -> None:
    assert lines_with(stopped, "Traceback") == []


def answer_to(url: str, data: bytes) -> bytes:
    at = urlsplit(url)
    with socket.create_connection((at.hostname, at.port), timeout=60) as plain:
        plain.sendall(data)
        try:
            return b"".join(iter(lambda: plain.recv(1000), b""))
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize("port", ["pulsar_tls", "admin_tls"])
def test_plain_bytes_on_a_tls_port_end_their_connection_with_one_line(
    certificates: Certificates, tmp_path: Path, port: str
) -> None:
    began = time.monotonic()
    with BrokerProcess(tmp_path, tls_settings(certificates), memory=True) as broker:
        for _ in range(20):
            data = b"GET / HTTP/1.1\r\n\r\n" if port == "admin_tls" else CONNECT
            assert len(answer_to(getattr(broker.addresses, port), data)) < 100
        assert is_admitted(broker, context_of(certificates))
    # One per second (`RareLines`), however long the machine takes.
    assert 1 <= len(lines_with(broker, "the client does not speak TLS")) <= 1 + time.monotonic() - began
    no_traceback(broker)


CONNECT = simple_frame(build_command("CONNECT", {"client_version": "test"}))


@pytest.mark.parametrize("port", ["pulsar", "admin"])
def test_tls_on_a_plain_port_ends_its_connection(
    certificates: Certificates, tmp_path: Path, port: str
) -> None:
    began = time.monotonic()
    with BrokerProcess(tmp_path, tls_settings(certificates), memory=True) as broker:
        at = urlsplit(getattr(broker.addresses, port))
        context = context_of(certificates)
        for _ in range(20):
            with (
                socket.create_connection((at.hostname, at.port), timeout=60) as plain,
                pytest.raises((ssl.SSLError, ConnectionError)),
            ):
                context.wrap_socket(plain, server_hostname="localhost")
    if port == "pulsar":
        # One per second (`RareLines`), however long the machine takes.
        lines = lines_with(broker, "a TLS handshake on a port without TLS")
        assert 1 <= len(lines) <= 1 + time.monotonic() - began
    no_traceback(broker)


# Files that change


def test_changed_certificate_holds_for_new_connections(tmp_path: Path) -> None:
    before, after = Certificates(tmp_path / "before"), Certificates(tmp_path / "after")
    used = tmp_path / "used.pem", tmp_path / "used.key"
    put(used, before)
    settings = tls_settings(before, tlsCertificateFilePath=used[0], tlsKeyFilePath=used[1])
    (tmp_path / "broker").mkdir()
    with BrokerProcess(
        tmp_path / "broker", {**settings, "tlsCertRefreshCheckDurationSec": "0"}, memory=True
    ) as broker:
        assert is_admitted(broker, context_of(before))
        used[0].write_text("this is no certificate")
        assert is_admitted(broker, context_of(before))
        assert is_admitted(broker, context_of(before))
        put(used, after)
        assert is_admitted(broker, context_of(after))
        assert not is_admitted(broker, context_of(before))
    assert len(lines_with(broker, "changed certificates are not used")) == 1


def put(used: tuple[Path, Path], certificates: Certificates) -> None:
    used[0].write_bytes(certificates.server.read_bytes())
    used[1].write_bytes(certificates.key(certificates.server).read_bytes())
