"""`/admin/v2/magnetar/subscriptions/why` and `/admin/v2/magnetar/evictions`, and the policy of the redelivery."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from broker.service.consumer import Consumer, SubscribeOptions, SubscriptionType
from broker.service.lifecycle.hole_rounds import HoleRounds
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.topic_name import parse_topic_name
from tests.broker.admin.publishing import publish_plain
from tests.fakes.ports import FakeConsumerPort

TOPIC = "persistent://public/default/holes"
WHY = "/admin/v2/magnetar/subscriptions/why/persistent/public/default/holes/s"
POLICY = "/admin/v2/persistent/public/default/holes/unackedHoleRedelivery"


async def consumed(
    broker: BrokerService, kind: SubscriptionType = SubscriptionType.SHARED, count: int = 10
) -> tuple[Subscription, Consumer, FakeConsumerPort]:
    """A consumer that has received the topic's messages."""
    topic = cast("PersistentTopic", await broker.registry.get(parse_topic_name(TOPIC), create=True))
    port = FakeConsumerPort()
    options = SubscribeOptions(
        subscription="s", kind=kind, consumer_id=1, consumer_name="billing-1", earliest=True
    )
    subscription, consumer = await topic.subscribe(port, options)
    subscription.flow(consumer, 1000)
    await publish_plain(broker, TOPIC, count)
    async with asyncio.timeout(60):
        while len(port.got) < count:  # noqa: ASYNC110 - the port has no event for a number
            await asyncio.sleep(0.001)
    assert len(port.got) == count
    return subscription, consumer, port


async def why(admin: ClientSession, query: str = "", status: int = 200) -> dict[str, Any]:
    async with admin.get(WHY + query) as response:
        assert response.status == status, await response.text()
        return cast("dict[str, Any]", await response.json())


async def test_why_names_the_holes_their_consumer_and_the_time(
    broker: BrokerService, admin: ClientSession
) -> None:
    subscription, consumer, port = await consumed(broker)
    rounds = HoleRounds(broker.registry, broker.environment.now_ns)
    await rounds.run()
    ledger_id = port.keys[0][0]
    subscription.acknowledge(consumer, [key for key in port.keys if key[1] not in (2, 3, 7)])
    told = await why(admin)
    assert (told["type"], told["backlog"], told["acknowledgedRanges"]) == ("Shared", 3, 2)
    assert told["markDeletePosition"] == f"{ledger_id}:1"
    assert [(one["first"], one["last"], one["entries"]) for one in told["holes"]] == [
        (f"{ledger_id}:2", f"{ledger_id}:3", 2),
        (f"{ledger_id}:7", f"{ledger_id}:7", 1),
    ]
    assert {one["place"] for one in told["holes"]} == {"consumer"}
    assert {one["consumer"] for one in told["holes"]} == {"billing-1"}
    assert all(one["readBefore"] for one in told["holes"])
    assert told["consumers"] == {"billing-1": 3}
    assert told["conclusion"] == (
        "3 entries pending at billing-1 (3): these consumers must acknowledge them, or leave."
    )


async def test_why_cuts_a_long_list_and_counts_the_rest(broker: BrokerService, admin: ClientSession) -> None:
    subscription, consumer, port = await consumed(broker)
    subscription.acknowledge(consumer, [key for key in port.keys if key[1] % 2])
    told = await why(admin, "?limit=2")
    assert (len(told["holes"]), told["holesLeftOut"], told["places"]["consumer"]) == (2, 3, 5)
    assert "allowed is 0 to 10000" in (await why(admin, "?limit=10001", 400))["reason"]
    assert "allowed is 0 to 10000" in (await why(admin, "?limit=-1", 400))["reason"]


async def test_why_of_a_subscription_that_has_acknowledged_everything(
    broker: BrokerService, admin: ClientSession
) -> None:
    subscription, consumer, port = await consumed(broker)
    subscription.acknowledge(consumer, port.keys)
    assert (await why(admin))["conclusion"] == "Everything that was read is acknowledged."


async def test_why_names_the_active_consumer_of_an_exclusive_subscription(
    broker: BrokerService, admin: ClientSession
) -> None:
    subscription, consumer, port = await consumed(broker, SubscriptionType.EXCLUSIVE)
    subscription.acknowledge(consumer, [port.keys[4]])
    told = await why(admin)
    assert told["consumers"] == {"billing-1": 9}
    assert [one["entries"] for one in told["holes"]] == [4, 5]
    subscription.remove_consumer(consumer)
    told = await why(admin)
    assert told["places"]["ahead"] == 4, "before the last acknowledged entry; a consumer gets them anew"
    assert "to be read when a consumer asks" in told["conclusion"]
    assert told["conclusion"].endswith("5 entries were not read: no consumer is connected.")


@pytest.mark.parametrize("enabled", [True, False])
async def test_why_tells_of_lost_entries(broker: BrokerService, admin: ClientSession, enabled: bool) -> None:
    _, consumer, port = await consumed(broker)
    async with admin.post(POLICY, json={"enabled": enabled, "periodSeconds": 30}) as response:
        assert response.status == 204
    # As an error in the middle of a dispatch leaves it.
    del consumer.pending[port.keys[5]]
    told = await why(admin)
    assert told["places"]["lost"] == 1
    assert ("delivers them again within 90 s" if enabled else "unackedHoleRedeliveryEnabled=true") in told[
        "conclusion"
    ]


async def test_why_tells_when_a_pending_entry_comes_again(
    broker: BrokerService, admin: ClientSession
) -> None:
    subscription, consumer, port = await consumed(broker)
    subscription.acknowledge(consumer, port.keys[3:])
    assert "delivers one again" not in (told := await why(admin))["conclusion"]
    assert told["redelivery"]["pendingSeconds"] == 0
    async with admin.post(
        POLICY, json={"enabled": True, "periodSeconds": 30, "pendingSeconds": 45}
    ) as response:
        assert response.status == 204
    told = await why(admin)
    assert told["redelivery"]["pendingSeconds"] == 45
    assert "delivers one again that is pending before an acknowledged entry for 45 s" in told["conclusion"]
    assert told["redeliveredFromConsumers"] == 0


async def test_why_of_an_unknown_subscription_is_not_found(admin: ClientSession) -> None:
    await why(admin, status=404)


async def test_policy_is_set_read_and_removed(broker: BrokerService, admin: ClientSession) -> None:
    await consumed(broker)
    async with admin.get(POLICY + "?applied=true") as response:
        assert await response.json() == {"enabled": True, "periodSeconds": 180, "pendingSeconds": 0}
    async with admin.post(POLICY, json={"enabled": True, "periodSeconds": 30}) as response:
        assert response.status == 204
    async with admin.get(POLICY) as response:
        assert await response.json() == {"enabled": True, "periodSeconds": 30, "pendingSeconds": 0}
    refused: tuple[Any, ...] = (
        {"periodSeconds": 0},
        {"pendingSeconds": -1},
        {"periodSeconds": "x"},
        {"enabled": 7},
        [],
    )
    for wrong in refused:
        async with admin.post(POLICY, json=wrong) as response:
            assert response.status in (400, 412), wrong
    async with admin.get(POLICY) as response:
        assert await response.json() == {"enabled": True, "periodSeconds": 30, "pendingSeconds": 0}, (
            "nothing of it was stored"
        )
    async with admin.delete(POLICY) as response:
        assert response.status == 204
    async with admin.get(POLICY) as response:
        assert await response.text() == ""


async def test_evictions_are_listed(broker: BrokerService, admin: ClientSession) -> None:
    await consumed(broker, count=20)
    async with admin.post(
        "/admin/v2/persistent/public/default/holes/backlogQuota?backlogQuotaType=destination_storage",
        json={"limitSize": 300, "policy": "consumer_backlog_eviction"},
    ) as response:
        assert response.status == 204
    topic = cast("PersistentTopic", broker.registry.topics[TOPIC])
    await topic.quotas.look()
    async with admin.get("/admin/v2/magnetar/evictions/persistent/public/default/holes") as response:
        told = await response.json()
    (one,) = told["evictions"]
    assert (one["subscription"], one["quota"], one["limit"]) == ("s", "destination_storage", 300)
    assert one["entries"] == told["entriesEvicted"]["destination_storage"] > 0
    assert one["after"].endswith(":-1")
    async with admin.get("/metrics/") as response:
        text = await response.text()
    labels = 'cluster="standalone",namespace="public/default",topic="' + TOPIC + '"'
    name = "pulsar_storage_backlog_quota_exceeded_evictions_total"
    assert f'{name}{{{labels},quota_type="size"}} 1\n' in text
    assert f'{name}{{{labels},quota_type="time"}} 0\n' in text
    assert (
        f'magnetar_backlog_quota_evicted_entries_total{{{labels},quota_type="size"}} {one["entries"]}\n'
        in text
    )
    assert (
        'pulsar_broker_storage_backlog_quota_exceeded_evictions_total{cluster="standalone",quota_type="size"} 1\n'
        in text
    )
    for family in ("holes_redelivered_total", "acks_in_memory", "awaits_acks"):
        assert f'magnetar_subscription_{family}{{{labels},subscription="s"}} 0\n' in text
