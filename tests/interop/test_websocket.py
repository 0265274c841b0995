"""The WebSocket API of a broker process, through two public WebSocket libraries, beside the official client."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
import websocket
import websockets

from tests.support.certificates import Certificates
from tests.support.tokens import SECRET_URL, peer_settings, token
from tests.vectors.broker_process import BrokerProcess

SETTINGS = {"webSocketServiceEnabled": "true"}
WAIT_MS = 60_000

Open = Callable[[str], websocket.WebSocket]


@pytest.fixture
def open_socket(broker: BrokerProcess) -> Iterator[Open]:
    """Opens WebSockets by path; those that are still open at the end of the test are closed."""
    opened: list[websocket.WebSocket] = []

    def open_one(path: str) -> websocket.WebSocket:
        url = broker.addresses.admin.replace("http://", "ws://") + "/ws/v2/" + path
        opened.append(websocket.create_connection(url, timeout=WAIT_MS / 1000))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def received(socket: websocket.WebSocket) -> Any:
    return json.loads(socket.recv())


def published(socket: websocket.WebSocket, payload: bytes, **more: object) -> Any:
    socket.send(json.dumps({"payload": base64.b64encode(payload).decode(), **more}))
    return received(socket)


@pytest.mark.parametrize(
    "parameters", ["", "?batchingEnabled=true", "?compressionType=ZSTD", "?compressionType=LZ4"]
)
def test_official_consumer_gets_what_a_websocket_published(
    open_socket: Open, client: pulsar.Client, topic: str, parameters: str
) -> None:
    consumer = client.subscribe(topic, "s")
    producer = open_socket(f"producer/persistent/public/default/{topic}{parameters}")
    answer = published(
        producer, b"hello", key="k", properties={"a": "\u00fc"}, eventTime="2026-01-02T03:04:05.678Z"
    )
    assert answer["result"] == "ok"
    message = consumer.receive(WAIT_MS)
    assert (message.data(), message.partition_key()) == (b"hello", "k")
    assert message.properties() == {"a": "\u00fc"}
    assert message.event_timestamp() == 1767323045678


@pytest.mark.parametrize(
    "codec", [pulsar.CompressionType.NONE, pulsar.CompressionType.ZLib, pulsar.CompressionType.SNAPPY]
)
def test_websocket_gets_batches_of_the_official_producer(
    open_socket: Open, client: pulsar.Client, topic: str, codec: pulsar.CompressionType
) -> None:
    consumer = open_socket(f"consumer/persistent/public/default/{topic}/s?receiverQueueSize=3")
    producer = client.create_producer(topic, compression_type=codec, batching_enabled=True)
    for number in range(20):
        producer.send_async(b"m%d" % number, None, partition_key=str(number))
    producer.flush()
    for number in range(20):
        message = received(consumer)
        assert (base64.b64decode(message["payload"]), message["key"]) == (b"m%d" % number, str(number))
        consumer.send(json.dumps({"messageId": message["messageId"]}))
    consumer.send(json.dumps({"type": "isEndOfTopic"}))
    assert received(consumer) == {"endOfTopic": False}
    consumer.close()
    # Nothing is left for the next one.
    producer.send(b"next")
    again = open_socket(f"consumer/persistent/public/default/{topic}/s?subscriptionType=Exclusive")
    assert base64.b64decode(received(again)["payload"]) == b"next"


def test_websocket_gets_a_large_message_of_the_official_producer(
    open_socket: Open, client: pulsar.Client, topic: str
) -> None:
    consumer = open_socket(f"consumer/persistent/public/default/{topic}/s")
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    payload = bytes(range(256)) * 50_000
    producer.send(payload)
    message = received(consumer)
    assert base64.b64decode(message["payload"]) == payload
    consumer.send(json.dumps({"messageId": message["messageId"]}))


def test_consumers_of_both_kinds_share_a_subscription(
    open_socket: Open, client: pulsar.Client, topic: str
) -> None:
    mine = open_socket(f"consumer/persistent/public/default/{topic}/s?subscriptionType=Shared")
    other = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = open_socket(f"producer/persistent/public/default/{topic}")
    for number in range(10):
        published(producer, b"%d" % number)
    got = [int(base64.b64decode(received(mine)["payload"])) for _ in range(5)]
    got += [int(other.receive(WAIT_MS).data()) for _ in range(5)]
    assert sorted(got) == list(range(10))


def test_message_id_of_a_websocket_is_one_of_the_client(
    open_socket: Open, client: pulsar.Client, topic: str
) -> None:
    producer = open_socket(f"producer/persistent/public/default/{topic}")
    ids = [published(producer, b"%d" % number)["messageId"] for number in range(3)]
    start = pulsar.MessageId.deserialize(base64.b64decode(ids[0]))
    assert client.create_reader(topic, start).read_next(WAIT_MS).data() == b"1"


def test_answered_message_survives_a_kill(tmp_path_factory: pytest.TempPathFactory) -> None:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        url = broker.addresses.admin.replace("http://", "ws://") + "/ws/v2/"
        producer = websocket.create_connection(url + "producer/persistent/public/default/t", timeout=60)
        consumer = websocket.create_connection(url + "consumer/persistent/public/default/t/s", timeout=60)
        for number in range(3):
            assert published(producer, b"%d" % number)["result"] == "ok"
            received(consumer)
        broker.kill()
        broker.start()
        url = broker.addresses.admin.replace("http://", "ws://") + "/ws/v2/"
        again = websocket.create_connection(url + "consumer/persistent/public/default/t/s", timeout=60)
        assert [base64.b64decode(received(again)["payload"]) for _ in range(3)] == [b"0", b"1", b"2"]
        again.close()


async def test_library_websockets_is_served(broker: BrokerProcess, topic: str) -> None:
    url = broker.addresses.admin.replace("http://", "ws://") + "/ws/v2/"
    path = f"persistent/public/default/{topic}"
    async with (
        websockets.connect(f"{url}consumer/{path}/s") as consumer,
        websockets.connect(f"{url}producer/{path}") as producer,
    ):
        await producer.send(json.dumps({"payload": "aGVsbG8="}))
        assert json.loads(await producer.recv())["result"] == "ok"
        async with asyncio.timeout(60):
            message = json.loads(await consumer.recv())
        assert message["payload"] == "aGVsbG8="
        # The library answers pings by itself, and gets answers to its own.
        await (await consumer.ping())


def test_websocket_over_tls_proves_its_role_by_a_token(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    settings = {
        **SETTINGS,
        "webServicePort": "",
        "webServicePortTls": "0",
        "tlsCertificateFilePath": str(certificates.server),
        "tlsKeyFilePath": str(certificates.key(certificates.server)),
        "tlsTrustCertsFilePath": str(certificates.authority),
        "authenticationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": SECRET_URL,
        "authorizationEnabled": "true",
        "superUserRoles": "app",
        **peer_settings(token({"sub": "app"})),
        "brokerClientTlsEnabled": "true",
        "brokerClientTrustCertsFilePath": str(certificates.authority),
    }
    with BrokerProcess(tmp_path, settings, memory=True) as broker:
        url = broker.addresses.admin_tls.replace("https://", "wss://") + "/ws/v2/"
        topic = "persistent/public/default/t"

        def open_one(path: str, role: str) -> websocket.WebSocket:
            header = [f"Authorization: Bearer {token({'sub': role})}"]
            trust = {"ca_certs": str(certificates.authority)}
            return websocket.create_connection(
                url + path, timeout=WAIT_MS / 1000, header=header, sslopt=trust
            )

        consumer, producer = open_one(f"consumer/{topic}/s", "app"), open_one(f"producer/{topic}", "app")
        # The second one takes many records of TLS; a text may have 1 MiB.
        large = b"x" * 700_000
        for payload in (b"small", large):
            assert published(producer, payload)["result"] == "ok"
            message = received(consumer)
            assert base64.b64decode(message["payload"]) == payload
            consumer.send(json.dumps({"messageId": message["messageId"]}))
        with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
            open_one(f"producer/{topic}", "stranger")
        with pytest.raises(ssl.SSLCertVerificationError):
            websocket.create_connection(url + f"producer/{topic}", timeout=WAIT_MS / 1000)
        consumer.close()
        producer.close()
