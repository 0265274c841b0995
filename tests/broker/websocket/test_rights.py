"""Rights of WebSocket sessions: refused handshakes, and the end of sessions whose right is withdrawn."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import pytest
from aiohttp import ClientSession, web

from broker.admin.http.principal import EXPIRES_AT_S, PRINCIPAL
from broker.compose.broker_service import BrokerService
from broker.security.authorization.settings import AuthorizationSettings
from broker.security.principal import Principal
from broker.service.subscriptions.subscription import Subscription
from broker.websocket.context import WebSocketContext
from broker.websocket.routes import WebSocketRoutes
from tests.broker.websocket.conftest import Socket, a_broker, until
from tests.broker.websocket.test_session_ends import refusal

T = "persistent/public/default/t"
ROLE = "X-Test-Role"
EXPIRY = "X-Test-Expiry"
ADMIN = {ROLE: "admin"}
PERMISSIONS = "/admin/v2/namespaces/public/default/permissions"
DEAD = "persistent://public/default/dead"


@web.middleware
async def role_by_header(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """A header names the role, another one the end of its proof, in the place of an authentication."""
    request[PRINCIPAL] = Principal(request.headers.get(ROLE))
    if EXPIRY in request.headers:
        request[EXPIRES_AT_S] = float(request.headers[EXPIRY])
    return await handler(request)


@pytest.fixture
async def guarded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BrokerService]:
    """A broker on which `p` may publish and `c` may consume."""
    monkeypatch.setattr("broker.admin.server.find_principal", lambda _: role_by_header)
    async with a_broker() as broker, ClientSession(base_url=broker.addresses.admin_url) as http:
        broker.authorizer.reconfigure(AuthorizationSettings(enabled=True, superusers=("admin",)))
        for role, actions in (("p", ["produce"]), ("c", ["consume"])):
            async with http.post(f"{PERMISSIONS}/{role}", json=actions, headers={ROLE: "admin"}) as answer:
                assert answer.status == 204
        yield broker


@pytest.fixture
async def http(guarded: BrokerService) -> AsyncIterator[ClientSession]:
    async with ClientSession(base_url=guarded.addresses.admin_url) as session:
        yield session


@pytest.mark.parametrize(
    ("path", "role"),
    [
        (f"/ws/v2/producer/{T}", "c"),
        (f"/ws/v2/consumer/{T}/s", "p"),
        (f"/ws/v2/reader/{T}", "p"),
        ("/ws/v3/consumer/s?topics=persistent://public/default/t", "p"),
        ("/ws/v3/consumer/s?topicsPattern=persistent://public/default/.*", "p"),
        (f"/ws/v2/consumer/{T}/s?maxRedeliverCount=1", "c"),
        (f"/ws/v2/consumer/{T}/s?maxRedeliverCount=1&deadLetterTopic={DEAD}", "c"),
    ],
)
async def test_session_without_the_right_is_403_and_opens_nothing(
    http: ClientSession, guarded: BrokerService, path: str, role: str
) -> None:
    if "Pattern" in path:
        async with http.put(f"/admin/v2/{T}", headers={ROLE: "admin"}) as answer:
            assert answer.status == 204
    before = set(guarded.registry.topics)
    status, _ = await refusal(http, path, **{ROLE: role})
    assert status == 403
    assert set(guarded.registry.topics) == before


async def test_pattern_tells_no_names_to_a_role_without_rights(http: ClientSession) -> None:
    async with http.put("/admin/v2/persistent/public/default/secret-plan", headers={ROLE: "admin"}) as answer:
        assert answer.status == 204
    path = "/ws/v3/consumer/s?topicsPattern=persistent://"
    reasons = set()
    for pattern in ("public/default/s.*", "public/default/z.*"):
        status, reason = await refusal(http, path + pattern, **{ROLE: "mallory"})
        assert status == 403
        reasons.add(reason)
    (told,) = reasons
    assert "secret-plan" not in told
    # A namespace that does not exist looks like one that does.
    status, reason = await refusal(http, path + "public/none/.*", **{ROLE: "mallory"})
    assert (status, reason) == (403, told.replace("public/default", "public/none"))
    assert (await refusal(http, path + "public/none/.*", **{ROLE: "admin"}))[0] == 404


async def test_client_without_a_role_is_refused(http: ClientSession) -> None:
    for path in (f"/ws/v2/producer/{T}", f"/ws/v2/reader/{T}"):
        assert (await refusal(http, path))[0] in (401, 403)


async def test_session_ends_when_its_right_is_withdrawn(http: ClientSession) -> None:
    producer = Socket(await http.ws_connect(f"/ws/v2/producer/{T}", headers={ROLE: "p"}))
    consumer = Socket(await http.ws_connect(f"/ws/v2/consumer/{T}/s", headers={ROLE: "c"}))
    reader = Socket(await http.ws_connect(f"/ws/v2/reader/{T}", headers={ROLE: "c"}))
    several = await http.ws_connect(
        "/ws/v3/consumer/s2?topics=persistent://public/default/t", headers={ROLE: "c"}
    )
    assert (await producer.publish("a"))[0]["result"] == "ok"
    assert await consumer.payloads(1) == ["a"]
    for role in "pc":
        async with http.delete(f"{PERMISSIONS}/{role}", headers={ROLE: "admin"}) as answer:
            assert answer.status == 204
    assert await producer.closed() == (1008, "the right was withdrawn")
    assert (await consumer.closed())[0] == 1008
    while not reader.inner.closed:
        await reader.inner.receive(60)
    assert reader.inner.close_code == 1008
    while not several.closed:
        await several.receive(60)


OTHER = "/admin/v2/namespaces/public/other"
DEAD_LETTERS = (
    f"/ws/v2/consumer/{T}/s?subscriptionType=Shared&maxRedeliverCount=1&negativeAckRedeliveryDelay=50"
    "&deadLetterTopic=persistent://public/other/dead"
)


async def test_session_ends_when_the_right_to_its_dead_letter_topic_is_withdrawn(
    http: ClientSession,
) -> None:
    async with http.put(OTHER, headers=ADMIN) as answer:
        assert answer.status == 204
    async with http.post(f"{OTHER}/permissions/c", json=["produce"], headers=ADMIN) as answer:
        assert answer.status == 204
    consumer = Socket(await http.ws_connect(DEAD_LETTERS, headers={ROLE: "c"}))
    async with http.delete(f"{OTHER}/permissions/c", headers=ADMIN) as answer:
        assert answer.status == 204
    assert await consumer.closed() == (1008, "the right was withdrawn")


@pytest.mark.parametrize("letters_before", [0, 1])
async def test_dead_letter_is_not_published_without_the_right(
    http: ClientSession, guarded: BrokerService, letters_before: int
) -> None:
    """The right may be gone before the sweep over all sessions arrives at this one."""
    async with http.put(OTHER, headers=ADMIN) as answer:
        assert answer.status == 204
    guarded.authorizer.reconfigure(AuthorizationSettings(enabled=True, superusers=("admin", "c")))
    consumer = Socket(await http.ws_connect(DEAD_LETTERS, headers={ROLE: "c"}))
    producer = Socket(await http.ws_connect(f"/ws/v2/producer/{T}", headers={ROLE: "p"}))

    async def reject_one() -> None:
        await producer.publish("a")
        for _ in range(2):
            message = await consumer.next()
            await consumer.send({"type": "negativeAcknowledge", "messageId": message["messageId"]})

    def letters() -> int:
        topic = guarded.registry.topics.get("persistent://public/other/dead")
        return 0 if topic is None else topic.messages_in

    for _ in range(letters_before):
        await reject_one()
    await until(lambda: letters() == letters_before)
    refused = guarded.audit.refused_count
    guarded.authorizer.reconfigure(AuthorizationSettings(enabled=True, superusers=("admin",)))
    await reject_one()
    await until(lambda: guarded.audit.refused_count > refused)
    assert letters() == letters_before
    assert len(guarded.registry.topics) == 1 + letters_before


@pytest.mark.parametrize("left_s", [-1.0, 0.1])
async def test_session_ends_when_its_credentials_expire(http: ClientSession, left_s: float) -> None:
    headers = {ROLE: "c", EXPIRY: str(time.time() + left_s)}
    consumer = Socket(await http.ws_connect(f"/ws/v2/consumer/{T}/s", headers=headers))
    assert await consumer.closed() == (1008, "the credentials have expired")


async def test_session_does_not_end_before_its_credentials_expire(http: ClientSession) -> None:
    headers = {ROLE: "p", EXPIRY: str(time.time() + 1_000_000)}
    producer = Socket(await http.ws_connect(f"/ws/v2/producer/{T}", headers=headers))
    assert (await producer.publish("a"))[0]["result"] == "ok"
    await producer.inner.close()


async def test_client_that_does_not_read_its_close_cannot_go_on(
    http: ClientSession, guarded: BrokerService
) -> None:
    consumer = await http.ws_connect(f"/ws/v2/consumer/{T}/s", headers={ROLE: "c"})
    producer = Socket(await http.ws_connect(f"/ws/v2/producer/{T}", headers={ROLE: "p"}))
    # More than the operating system takes for a client, so that the close waits behind messages.
    answers = await producer.publish(*["x" * 500_000] * 60)
    reader = Socket(await http.ws_connect(f"/ws/v2/reader/{T}", headers={ROLE: "c"}))
    async with http.delete(f"{PERMISSIONS}/c", headers=ADMIN) as answer:
        assert answer.status == 204
    # One sweep ends both sessions, and only this one is told so now.
    assert (await reader.closed())[0] == 1008
    await consumer.send_json({"messageId": answers[0]["messageId"]})
    while not consumer.closed:
        await consumer.receive(60)
    assert consumer.close_code == 1008
    subscription = guarded.registry.topics["persistent://public/default/t"].subscriptions["s"]
    assert isinstance(subscription, Subscription)
    assert subscription.cursor.backlog == len(answers)


async def test_client_that_never_reads_its_close_is_dropped(
    http: ClientSession, guarded: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.websocket.session.LAST_TEXTS_S", 0.05)
    deaf = await http.ws_connect(f"/ws/v2/consumer/{T}/s", headers={ROLE: "c"})
    producer = Socket(await http.ws_connect(f"/ws/v2/producer/{T}", headers={ROLE: "p"}))
    await producer.publish(*["x" * 500_000] * 60)
    topic = guarded.registry.topics["persistent://public/default/t"]
    assert len(topic.consumers_of("s")) == 1
    async with http.delete(f"{PERMISSIONS}/c", headers=ADMIN) as answer:
        assert answer.status == 204
    await until(lambda: not topic.consumers_of("s"))
    assert not deaf.closed


async def test_dead_letters_without_the_right_wait_and_come_again(
    http: ClientSession, guarded: BrokerService, caplog: pytest.LogCaptureFixture
) -> None:
    """A refused letter is not tried again in a loop, keeps no permit, and is published once the right is back."""
    async with http.put(OTHER, headers=ADMIN) as answer:
        assert answer.status == 204
    superusers = AuthorizationSettings(enabled=True, superusers=("admin", "c"))
    guarded.authorizer.reconfigure(superusers)
    path = f"{DEAD_LETTERS}&receiverQueueSize=1"
    consumer = Socket(await http.ws_connect(path, headers={ROLE: "c"}))
    producer = Socket(await http.ws_connect(f"/ws/v2/producer/{T}", headers={ROLE: "p"}))
    guarded.authorizer.reconfigure(AuthorizationSettings(enabled=True, superusers=("admin",)))
    await producer.publish("a")
    for _ in range(2):
        message = await consumer.next()
        await consumer.send({"type": "negativeAcknowledge", "messageId": message["messageId"]})
    subscription = guarded.registry.topics["persistent://public/default/t"].subscriptions["s"]
    (sender,) = subscription.consumers
    # Three deliveries wait 100, 200 and 400 ms. Without the delays there would be thousands of them.
    await until(lambda: caplog.text.count("cannot go to") >= 3)
    assert sender.messages_out <= 6
    guarded.authorizer.reconfigure(superusers)
    assert isinstance(subscription, Subscription)
    await until(lambda: subscription.cursor.backlog == 0)


PATHS = {
    "/ws/v2/producer/{domain}/{tenant}/{namespace}/{topic}": f"/ws/v2/producer/{T}",
    "/ws/v2/consumer/{domain}/{tenant}/{namespace}/{topic}/{subscription}": f"/ws/v2/consumer/{T}/s",
    "/ws/v2/reader/{domain}/{tenant}/{namespace}/{topic}": f"/ws/v2/reader/{T}",
    "/ws/v3/consumer/{subscription}": "/ws/v3/consumer/s?topics=persistent://public/default/t",
}
"""A request of each route; a new route fails the test below until it stands here."""
WITHOUT_A_RIGHT = {"/ws/v2/{kind:producer|consumer|reader}/{rest:.*}": "refuses every request with 400"}


async def test_every_route_refuses_a_role_without_rights(http: ClientSession, guarded: BrokerService) -> None:
    # Their paths alone are read, so no session needs the context.
    routes = {
        route.path
        for route in WebSocketRoutes(cast("WebSocketContext", None), PRINCIPAL, EXPIRES_AT_S).routes()
    }
    assert routes == PATHS.keys() | WITHOUT_A_RIGHT.keys()
    for path in PATHS.values():
        assert (await refusal(http, path, **{ROLE: "mallory"}))[0] == 403
    assert not guarded.registry.topics
