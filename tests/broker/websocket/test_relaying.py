"""WebSockets at a broker that does not own their topics: each text passes over the owner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import ClientSession, WSServerHandshakeError

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.compose.broker_service import BrokerService
from broker.service.subscriptions.subscription import Subscription
from foundation.model.topic_name import TopicName, parse_topic_name
from tests.broker.websocket.conftest import Socket, a_broker, until

TOPIC = "persistent/public/default/t"
NAME = parse_topic_name("persistent://public/default/t")
PARTITIONS = 4


class Two:
    """Two brokers on one store; clients connect to the first."""

    def __init__(self, brokers: list[BrokerService], http: ClientSession) -> None:
        self.brokers = brokers
        self._http = http

    async def connect(self, path: str, *, at: int = 0) -> Socket:
        url = f"{self.brokers[at].addresses.admin_url}/ws/v2/{path}"
        return Socket(await self._http.ws_connect(url, autoclose=False, max_msg_size=0))

    async def ask(self, method: str, path: str, body: object = None) -> int:
        url = f"{self.brokers[0].addresses.admin_url}/admin/v2/{path}"
        async with self._http.request(method, url, json=body) as answer:
            return answer.status

    async def owned_by(self, index: int, name: TopicName) -> None:
        await self.brokers[index].registry.ownership.owner_of(name, authoritative=True)

    async def partitions(self) -> None:
        """Makes the topic partitioned, with bundles at both brokers."""
        assert await self.ask("PUT", f"{TOPIC}/partitions", PARTITIONS) == 204
        ownership = self.brokers[0].registry.ownership
        parts = [NAME.with_partition(index) for index in range(PARTITIONS)]
        bundles = dict.fromkeys(map(ownership.bundle_of, parts))
        assert len(bundles) > 1
        for number, bundle in enumerate(bundles):
            part = next(one for one in parts if ownership.bundle_of(one) == bundle)
            await self.owned_by(number % 2, part)


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    store = MemoryMetadataStore()
    async with AsyncExitStack() as stack:
        brokers = [
            await stack.enter_async_context(a_broker(metadata=one)) for one in (store, store.another())
        ]
        yield Two(brokers, await stack.enter_async_context(ClientSession()))


async def test_messages_of_a_topic_of_another_broker_are_sent_and_acknowledged(two: Two) -> None:
    await two.owned_by(1, NAME)
    consumer = await two.connect(f"consumer/{TOPIC}/s")
    producer = await two.connect(f"producer/{TOPIC}")
    answers = await producer.publish("a", "b", "c", context="1")
    assert [(one["result"], one["context"]) for one in answers] == [("ok", "1")] * 3
    assert str(NAME) in two.brokers[1].registry.topics
    assert await consumer.payloads(3) == ["a", "b", "c"]
    await consumer.says_nothing()
    subscription = two.brokers[1].registry.topics[str(NAME)].subscriptions["s"]
    assert isinstance(subscription, Subscription)
    await until(lambda: subscription.cursor.backlog == 0)


async def test_message_that_is_longer_with_its_id_than_a_client_may_send_comes_from_its_owner(
    two: Two,
) -> None:
    await two.owned_by(1, NAME)
    consumer = await two.connect(f"consumer/{TOPIC}/s")
    # In base64 some fifty characters less than `webSocketMaxTextFrameSize`.
    large = "x" * 786_380
    assert [one["result"] for one in await (await two.connect(f"producer/{TOPIC}")).publish(large)] == ["ok"]
    assert await consumer.payloads(1) == [large]


async def test_session_over_partitions_of_both_brokers_is_one(two: Two) -> None:
    await two.partitions()
    consumer = await two.connect(f"consumer/{TOPIC}/s")
    producer = await two.connect(f"producer/{TOPIC}?messageRoutingMode=RoundRobinPartition")
    sent = [str(number) for number in range(4 * PARTITIONS)]
    assert all(one["result"] == "ok" for one in await producer.publish(*sent))
    assert sorted(await consumer.payloads(len(sent)), key=int) == sent
    await consumer.says_nothing()
    counts = [broker.registry.topics for broker in two.brokers]
    assert all(counts), "each broker has partitions open"


async def test_key_chooses_the_partition_wherever_it_is(two: Two) -> None:
    await two.partitions()
    relayed, direct = await two.connect(f"producer/{TOPIC}"), await two.connect(f"producer/{TOPIC}", at=1)
    consumer = await two.connect(f"consumer/{TOPIC}/s?subscriptionInitialPosition=Earliest")
    for key in ("a", "b", "c", "d"):
        await relayed.publish(f"{key}1", key=key)
        await direct.publish(f"{key}2", key=key)
    found = await consumer.payloads(8)
    assert sorted(found) == sorted(f"{key}{number}" for key in "abcd" for number in (1, 2))
    assert all(found.index(f"{key}1") < found.index(f"{key}2") for key in "abcd")


async def test_client_gets_as_many_messages_as_it_permits_from_all_owners_together(two: Two) -> None:
    await two.partitions()
    consumer = await two.connect(f"consumer/{TOPIC}/s?pullMode=true")
    producer = await two.connect(f"producer/{TOPIC}?messageRoutingMode=RoundRobinPartition")
    await producer.publish(*map(str, range(2 * PARTITIONS)))
    await consumer.says_nothing()
    await consumer.send({"type": "permit", "permitMessages": 3})
    found = await consumer.payloads(3)
    await consumer.says_nothing()
    await consumer.send({"type": "permit", "permitMessages": 5})
    found += await consumer.payloads(5)
    assert sorted(found, key=int) == [str(number) for number in range(2 * PARTITIONS)]


async def test_reader_reads_topics_of_another_broker(two: Two) -> None:
    await two.owned_by(1, NAME)
    await (await two.connect(f"producer/{TOPIC}")).publish("a", "b", "c")
    reader = await two.connect(f"reader/{TOPIC}?messageId=earliest&receiverQueueSize=1")
    assert await reader.payloads(3) == ["a", "b", "c"]


async def test_negatively_acknowledged_message_comes_again_from_its_owner(two: Two) -> None:
    await two.owned_by(1, NAME)
    path = f"consumer/{TOPIC}/s?subscriptionType=Shared&negativeAckRedeliveryDelay=1"
    consumer = await two.connect(path)
    await (await two.connect(f"producer/{TOPIC}")).publish("a")
    first = await consumer.next()
    await consumer.send({"type": "negativeAcknowledge", "messageId": first["messageId"]})
    assert (await consumer.next())["messageId"] == first["messageId"]


async def test_session_ends_with_its_topic_and_its_client_may_connect_again(two: Two) -> None:
    await two.owned_by(1, NAME)
    consumer = await two.connect(f"consumer/{TOPIC}/s")
    await two.brokers[1].registry.unload(NAME)
    code, reason = await consumer.closed()
    assert code == 1012, reason
    await two.connect(f"consumer/{TOPIC}/s")


async def test_refusal_of_the_owner_is_the_answer_to_the_client(two: Two) -> None:
    await two.owned_by(1, NAME)
    first = await two.connect(f"consumer/{TOPIC}/s", at=1)
    with pytest.raises(WSServerHandshakeError) as refused:
        await two.connect(f"consumer/{TOPIC}/s")
    assert refused.value.status == 409
    assert not first.inner.closed


async def test_owner_learns_that_the_client_has_left(two: Two) -> None:
    await two.owned_by(1, NAME)
    consumer = await two.connect(f"consumer/{TOPIC}/s")
    await consumer.inner.close()
    again: Any = await two.connect(f"consumer/{TOPIC}/s")
    assert not again.inner.closed
