"""Requests keep the topics of their path awake until they are answered, and reach each partition although one fails."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from broker.service.subscriptions.backlog.message_expiry import MessageExpiry
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.shadows import Shadows
from broker.service.topics.topic import Topic
from broker.service.topics.topic_registry import TopicRegistry
from broker.service.topics.topic_subscriptions import TopicSubscriptions
from foundation.model.errors import PersistenceError
from foundation.model.topic_name import TopicName, parse_topic_name
from tests.broker.admin.publishing import publish_plain

ROOT = "/admin/v2/persistent/public/default"
NAME = parse_topic_name("persistent://public/default/p")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", "subscription/new", 204),
        ("POST", "subscription/s/skip_all", 204),
        ("GET", "subscriptions", 200),
        ("GET", "partitioned-stats", 200),
    ],
)
async def test_request_holds_the_first_partition_while_it_opens_the_last(
    broker: BrokerService,
    admin: ClientSession,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    status: int,
) -> None:
    registry, first, last = broker.registry, NAME.with_partition(0), NAME.with_partition(1)
    async with admin.put(f"{ROOT}/p/partitions", data="2") as answer:
        assert answer.status == 204
    async with admin.put(f"{ROOT}/p/subscription/s") as answer:
        assert answer.status == 204
    await registry.unload(last)
    opening, may_go_on = asyncio.Event(), asyncio.Event()
    opened = TopicRegistry.get

    async def slow(self: TopicRegistry, name: TopicName, *, create: bool, by_admin: bool = False) -> Topic:
        if name == last:
            opening.set()
            await may_go_on.wait()
        return await opened(self, name, create=create, by_admin=by_admin)

    monkeypatch.setattr(TopicRegistry, "get", slow)
    request = asyncio.ensure_future(admin.request(method, f"{ROOT}/p/{path}"))
    await opening.wait()
    assert registry.topics[str(first)].requests == 1
    may_go_on.set()
    async with await request as answer:
        assert answer.status == status
    while registry.topics[str(first)].requests:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("request_line", "owner", "function"),
    [
        ("POST subscription/s/expireMessages/-10", MessageExpiry, "expire"),
        ("POST all_subscription/expireMessages/-10", MessageExpiry, "expire"),
        ("POST subscription/s/resetcursor/0", Subscription, "seek"),
        ("DELETE subscription/s", TopicSubscriptions, "delete"),
        ("DELETE truncate", Shadows, "trim"),
        ("POST trim", Shadows, "trim"),
    ],
)
async def test_request_goes_on_after_a_partition_that_fails(
    broker: BrokerService,
    admin: ClientSession,
    monkeypatch: pytest.MonkeyPatch,
    request_line: str,
    owner: type,
    function: str,
) -> None:
    async with admin.put(f"{ROOT}/p/partitions", data="3") as answer:
        assert answer.status == 204
    async with admin.put(f"{ROOT}/p/subscription/s", json="earliest") as answer:
        assert answer.status == 204
    for index in range(3):
        await publish_plain(broker, str(NAME.with_partition(index)), 1)
    reached: list[object] = []

    async def failing(*arguments: object, **_: object) -> int:
        reached.append(arguments)
        if len(reached) == 1:
            raise PersistenceError("its ledger is damaged")
        return 0

    monkeypatch.setattr(owner, function, failing)
    method, path = request_line.split()
    async with admin.request(method, f"{ROOT}/p/{path}") as answer:
        assert (answer.status, await answer.json()) == (500, {"reason": "its ledger is damaged"})
    assert len(reached) == 3
