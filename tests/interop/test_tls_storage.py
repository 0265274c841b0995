"""A broker that talks TLS to its bookies and to its ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookie_stub.config.keys import TLS_FACTORY
from tests.interop.support import connect, numbered, publish, receive
from tests.support.bookies import BookieProcesses, ensemble_settings
from tests.support.certificates import Certificates
from tests.support.java import ZooKeeper
from tests.vectors.broker_process import BrokerFailedError, BrokerProcess


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def of_bookie(certificates: Certificates) -> dict[str, str]:
    return {
        "tlsProviderFactoryClass": TLS_FACTORY,
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": str(certificates.key(certificates.server)),
        "tlsCertificatePath": str(certificates.server),
        "tlsClientAuthentication": "true",
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": str(certificates.authority),
    }


def of_broker(certificates: Certificates) -> dict[str, str]:
    settings = {
        "bookkeeperTLSClientAuthentication": "true",
        "bookkeeperTLSCertificateFilePath": certificates.client,
        "bookkeeperTLSKeyFilePath": certificates.key(certificates.client),
        "bookkeeperTLSTrustCertsFilePath": certificates.authority,
        "bookkeeper_tlsHostnameVerificationEnabled": "true",
    }
    return {name: str(value) for name, value in settings.items()}


def test_entries_are_stored_on_bookies_that_require_a_certificate(
    certificates: Certificates, tmp_path: Path, topic: str
) -> None:
    bookies = BookieProcesses(tmp_path / "bookies", 2, of_bookie(certificates))
    bookies.start()
    bodies = [*numbered(200), b"x" * 1_000_000]
    settings = {**ensemble_settings(bookies.addresses), **of_broker(certificates)}
    try:
        broker = BrokerProcess(tmp_path, settings)
        with broker:
            client = connect(broker.addresses.pulsar)
            client.subscribe(topic, "s").close()
            publish(client.create_producer(topic), bodies)
            client.close()
        # The second start reads all of it back from the bookies.
        with broker:
            client = connect(broker.addresses.pulsar)
            assert receive(client.subscribe(topic, "s"), len(bodies)) == bodies
            client.close()
    finally:
        bookies.kill()


# ZooKeeper


@pytest.fixture
def zookeeper(classes: str, certificates: Certificates, tmp_path: Path) -> Iterator[ZooKeeper]:
    """Its only port for sessions has TLS and requires a certificate."""
    store = in_one_file(certificates, certificates.server, tmp_path / "server-store.pem")
    folder = tmp_path / "zookeeper"
    folder.mkdir()
    running = ZooKeeper(classes, folder, tls=(store, certificates.authority))
    running.start()
    yield running
    running.stop()


def in_one_file(certificates: Certificates, certificate: Path, path: Path) -> Path:
    path.write_bytes(certificates.key(certificate).read_bytes() + certificate.read_bytes())
    return path


def config(folder: Path, lines: dict[str, object]) -> Path:
    path = folder / "zookeeper-client.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return path


@pytest.mark.peer
@pytest.mark.slow
def test_metadata_is_kept_in_a_zookeeper_that_requires_a_certificate(
    zookeeper: ZooKeeper, certificates: Certificates, tmp_path: Path, topic: str
) -> None:
    lines: dict[str, object] = {
        "zookeeper.client.secure": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.trustStore.location": certificates.authority,
        "zookeeper.ssl.keyStore.location": in_one_file(
            certificates, certificates.client, tmp_path / "client-store.pem"
        ),
    }
    settings = {
        "metadataStoreUrl": f"zk:{zookeeper.secure_address}/pulsar",
        "metadataStoreConfigPath": str(config(tmp_path, lines)),
    }
    broker = BrokerProcess(tmp_path, settings)
    with broker:
        client = connect(broker.addresses.pulsar)
        client.subscribe(topic, "s").close()
        publish(client.create_producer(topic), numbered(10))
        client.close()
    with broker:
        client = connect(broker.addresses.pulsar)
        assert receive(client.subscribe(topic, "s"), 10) == numbered(10)
        client.close()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ({"zookeeper.client.secure": "yes"}, "zookeeper.client.secure=yes: allowed is true or false"),
        ({"zookeeper.ssl.trustStore.location": "/a.pem"}, "asks for TLS, which is off"),
        ({"zookeeper.client.secure": "true", "zookeeper.ssl.keyStore.type": "JKS"}, "allowed is PEM"),
        ({"zookeeper.client.secure": "true", "zookeeper.ssl.crl": "true"}, "zookeeper.ssl.crl is not read"),
        (
            {"zookeeper.client.secure": "true", "zookeeper.ssl.trustStore.location": "/there/is/none"},
            "/there/is/none: No such file",
        ),
    ],
)
def test_start_stops_when_the_file_of_zookeepers_client_cannot_be_used(
    tmp_path: Path, lines: dict[str, object], said: str
) -> None:
    settings = {
        "metadataStoreUrl": "zk:127.0.0.1:1",
        "metadataStoreConfigPath": str(config(tmp_path, lines)),
    }
    with pytest.raises(BrokerFailedError, match="ended with status 2") as caught:
        BrokerProcess(tmp_path, settings).start()
    assert said in str(caught.value)
