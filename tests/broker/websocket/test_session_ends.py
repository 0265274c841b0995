"""Opening and ending sessions: statuses as recorded, foreign pages, idle times, pings, the stop of the broker."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientSession, WSMsgType, WSServerHandshakeError
from yarl import URL

from broker.compose.broker_service import BrokerService
from broker.service.topics.persistent_topic import PersistentTopic
from broker.websocket.consuming import ConsumerSession
from foundation.model.topic_name import parse_topic_name
from tests.broker.websocket.conftest import WAIT_S, Connect, Socket, a_broker, until
from tests.support.malformed_http import whole_answer

UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}
T = "persistent/public/default/t"


async def refusal(http: ClientSession, path: str, **headers: str) -> tuple[int, str]:
    async with http.get(path, headers={**UPGRADE, **headers}) as answer:
        assert answer.content_type == "application/json"
        return answer.status, (await answer.json())["reason"]


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        (
            f"producer/{T}?sendTimeoutMillis=x",
            400,
            'Invalid query params: sendTimeoutMillis: For input string: "x"',
        ),
        (f"producer/{T}?sendTimeoutMillis={'9' * 5000}", 400, "For input string"),
        (f"producer/{T}?compressionType=FOO", 400, "Invalid query params: Invalid compressionType FOO"),
        (f"producer/{T}?hashingScheme=FOO", 400, "FOO"),
        (f"producer/{T}?messageRoutingMode=FOO", 400, "Invalid query params: Invalid messageRoutingMode FOO"),
        (f"producer/{T}?encryptionKeys=a", 400, "encryptionKeys"),
        (f"producer/{T}?batchingEnabled=true&batchingMaxMessages=0", 400, "batchingMaxMessages=0"),
        (f"consumer/{T}/s?subscriptionType=FOO", 400, "Invalid query params: Invalid subscriptionType FOO"),
        (f"consumer/{T}/s?subscriptionMode=FOO", 400, "Invalid query params: Invalid subscriptionMode FOO"),
        (f"consumer/{T}/s?subscriptionInitialPosition=FOO", 400, "Invalid subscriptionInitialPosition FOO"),
        (
            f"consumer/{T}/s?receiverQueueSize=-1",
            400,
            "Invalid query params: receiverQueueSize needs to be >= 0",
        ),
        (
            f"consumer/{T}/s?ackTimeoutMillis=1",
            400,
            "Invalid query params: Ack timeout should be greater than 1000 ms",
        ),
        (f"consumer/{T}/s?maxRedeliverCount=0", 400, "Invalid query params: MaxRedeliverCount must be > 0."),
        (f"consumer/{T}/s?negativeAckRedeliveryDelay=x", 400, 'For input string: "x"'),
        (f"consumer/{T}", 400, "Invalid query params: Invalid topic name format"),
        (f"consumer/{T}/s/x", 400, "Invalid query params: Invalid topic name format"),
        (f"producer/{T}/x", 400, "Invalid query params: Invalid topic name format"),
        (f"reader/{T}?messageId=foo", 400, "Invalid query params: Invalid messageId value"),
        (f"reader/{T}?messageId=Zm9v", 400, "Invalid query params: Invalid messageId value"),
        ("producer/foo/public/default/t", 400, "Invalid topic domain 'foo'"),
        ("producer/persistent/public/nowhere/t", 404, "Namespace not found"),
        ("producer/persistent/public/default/a%2Fb", 400, "cluster part"),
        (f"producer/persistent/public/default/{'x' * 4097}", 400, "characters"),
    ],
)
async def test_refused_handshake_leaves_nothing(
    http: ClientSession, broker: BrokerService, path: str, status: int, reason: str
) -> None:
    told = await refusal(http, f"/ws/v2/{path}")
    assert told[0] == status
    assert reason in told[1]
    assert not broker.registry.topics


async def test_key_that_is_no_text_opens_nothing(broker: BrokerService) -> None:
    headers = {**UPGRADE, "Connection": "Upgrade, close", "Sec-WebSocket-Key": "ÿ"}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    answer = await whole_answer(
        URL(broker.addresses.admin_url).port or 0,
        f"GET /ws/v2/producer/{T} HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n".encode("latin-1"),
    )
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"open a WebSocket" in answer


async def test_topics_or_a_pattern_are_needed(http: ClientSession) -> None:
    for query in ("", "?topicsPattern=x.*", "?topicsPattern=persistent://public/default/("):
        assert (await refusal(http, f"/ws/v3/consumer/s{query}"))[0] in (400, 500)


async def test_busy_exclusive_subscription_and_producer_name_are_409(
    http: ClientSession, connect: Connect
) -> None:
    await connect(f"/ws/v2/consumer/{T}/s")
    assert await refusal(http, f"/ws/v2/consumer/{T}/s") == (409, "Exclusive consumer is already connected")
    await connect(f"/ws/v2/producer/{T}?producerName=p")
    status, reason = await refusal(http, f"/ws/v2/producer/{T}?producerName=p")
    assert status == 409
    assert reason == "Producer with name 'p' is already connected to topic 'persistent://public/default/t'"


async def test_refusal_on_the_last_topic_leaves_the_others(
    http: ClientSession, connect: Connect, broker: BrokerService
) -> None:
    await connect("/ws/v2/consumer/persistent/public/default/u/s")
    topics = "persistent://public/default/t,persistent://public/default/u"
    assert (await refusal(http, f"/ws/v3/consumer/s?topics={topics}"))[0] == 409
    assert not broker.registry.topics["persistent://public/default/t"].consumers_of("s")


async def test_plain_request_is_405_as_recorded(http: ClientSession) -> None:
    async with http.get(f"/ws/v2/producer/{T}") as answer:
        assert answer.status == 405
        assert (await answer.json())["reason"].startswith("HTTP method GET is not supported by this URL")


async def test_foreign_page_may_not_open_a_socket(http: ClientSession, broker: BrokerService) -> None:
    path = f"/ws/v2/producer/{T}"
    assert (await refusal(http, path, Origin="http://evil.example"))[0] == 403
    assert (await refusal(http, path, **{"Sec-Fetch-Site": "cross-site"}))[0] == 403
    assert (await refusal(http, path, Host="evil.example"))[0] == 421
    socket = await http.ws_connect(path, origin=broker.addresses.admin_url)
    await socket.close()
    assert "persistent://public/default/t" in broker.registry.topics


async def test_api_is_absent_unless_enabled() -> None:
    async with (
        a_broker("webSocketServiceEnabled=false") as broker,
        ClientSession(base_url=broker.addresses.admin_url) as http,
    ):
        with pytest.raises(WSServerHandshakeError, match="404"):
            await http.ws_connect(f"/ws/v2/producer/{T}")


async def test_silent_session_is_closed() -> None:
    async with (
        a_broker("webSocketSessionIdleTimeoutMillis=100") as broker,
        ClientSession(base_url=broker.addresses.admin_url) as http,
    ):
        socket = Socket(await http.ws_connect(f"/ws/v2/consumer/{T}/s"))
        assert await socket.closed() == (1001, "Connection Idle Timeout")
        topic = broker.registry.topics["persistent://public/default/t"]
        await until(lambda: not topic.consumers_of("s"))


async def test_session_that_gets_messages_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's clock only says when a session looks; a busy machine may be late between two messages."""
    now_s = 0.0
    monkeypatch.setattr("broker.websocket.session.time", SimpleNamespace(monotonic=lambda: now_s))
    async with (
        a_broker("webSocketSessionIdleTimeoutMillis=100") as broker,
        ClientSession(base_url=broker.addresses.admin_url) as http,
    ):
        reader = Socket(await http.ws_connect(f"/ws/v2/reader/{T}"))
        producer = Socket(await http.ws_connect(f"/ws/v2/producer/{T}"))
        for _ in range(30):
            now_s += 0.04
            await producer.publish("x")
            assert await reader.payloads(1, ack=False) == ["x"]
            await asyncio.sleep(0.01)


async def test_client_that_answers_no_ping_is_closed() -> None:
    async with (
        a_broker("webSocketPingDurationSeconds=1") as broker,
        ClientSession(base_url=broker.addresses.admin_url) as http,
    ):
        deaf = await http.ws_connect(f"/ws/v2/consumer/{T}/s", autoping=False)
        message = await deaf.receive(60)
        assert message.type is WSMsgType.PING
        topic = broker.registry.topics["persistent://public/default/t"]
        await until(lambda: not topic.consumers_of("s"))


async def test_client_that_sends_and_never_reads_is_dropped() -> None:
    async with (
        a_broker("webSocketSessionIdleTimeoutMillis=1000") as broker,
        ClientSession(base_url=broker.addresses.admin_url) as http,
    ):
        consumer = await http.ws_connect(f"/ws/v2/consumer/{T}/s")
        topic = broker.registry.topics["persistent://public/default/t"]
        producer = Socket(await http.ws_connect(f"/ws/v2/producer/{T}"))
        # More than the operating system takes for a client.
        for _ in range(30):
            await producer.publish("x" * 700_000)
        async with asyncio.timeout(WAIT_S):
            while topic.consumers_of("s"):
                # Not idle, and its texts are read, but nothing of what it is sent is taken.
                with contextlib.suppress(ConnectionError):
                    await consumer.send_json({"type": "isEndOfTopic"})
                await asyncio.sleep(0.05)


async def test_lost_connection_frees_the_subscription(connect: Connect, broker: BrokerService) -> None:
    socket = await connect(f"/ws/v2/consumer/{T}/s")
    topic = broker.registry.topics["persistent://public/default/t"]
    assert len(topic.consumers_of("s")) == 1
    transport = socket.inner._response.connection.transport  # type: ignore[union-attr]
    assert transport is not None
    transport.abort()
    await until(lambda: not topic.consumers_of("s"))


async def test_close_is_answered_after_the_session_has_left_its_topic(
    connect: Connect, broker: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = asyncio.Event()
    leave = ConsumerSession.leave

    async def leave_later(session: ConsumerSession) -> None:
        await left.wait()
        await leave(session)

    monkeypatch.setattr(ConsumerSession, "leave", leave_later)
    socket = await connect(f"/ws/v2/consumer/{T}/s")
    closing = asyncio.create_task(socket.inner.close())
    assert await broker_has_read_the_close(broker)
    assert not closing.done()
    left.set()
    await closing
    assert not broker.registry.topics["persistent://public/default/t"].consumers_of("s")


async def broker_has_read_the_close(broker: BrokerService) -> bool:
    """Waits for some later requests: the close came before them."""
    async with ClientSession(base_url=broker.addresses.admin_url) as http:
        for _ in range(10):
            async with http.get("/admin/v2/clusters") as answer:
                await answer.read()
    return True


async def test_stop_of_the_broker_closes_sessions_with_a_reason() -> None:
    async with a_broker() as broker, ClientSession(base_url=broker.addresses.admin_url) as http:
        socket = Socket(await http.ws_connect(f"/ws/v2/producer/{T}"))
        closed = asyncio.create_task(socket.closed())
        await broker.stop()
        code, _ = await closed
        assert code in (1001, 1012)
        broker.stop = _nothing  # type: ignore[method-assign]


async def _nothing() -> None:
    """The broker is stopped already."""


async def test_topic_stays_awake_while_a_session_opens_it(
    broker: BrokerService, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await broker.registry.get(
        parse_topic_name(T.replace("persistent/", "persistent://")), create=True
    )
    requests, subscribe = list[int](), PersistentTopic.subscribe

    async def schema(*_: object) -> bytes:
        requests.append(topic.requests)
        return b""

    async def subscribed(self: PersistentTopic, *given: Any) -> Any:
        requests.append(self.requests)
        return await subscribe(self, *given)

    monkeypatch.setattr(broker.registry.schemas, "for_producer", schema)
    monkeypatch.setattr(PersistentTopic, "subscribe", subscribed)
    await connect(f"/ws/v2/producer/{T}")
    await connect(f"/ws/v2/consumer/{T}/s")
    # The session of the producer is a request that still runs.
    assert requests == [1, 2]
