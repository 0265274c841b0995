"""A lookup of a dormant topic: it wakes behind the answer, and what keeps it from that is told to the next request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker.compose.broker_service import BrokerService
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic_registry import TopicRegistry
from foundation.model.errors import ServiceNotReady
from foundation.model.topic_name import TopicName
from protocol.pulsar_api_pb2 import CommandLookupTopicResponse
from tests.support.memory_broker import memory_broker
from tests.support.raw_client import RawConnection

TOPIC = "persistent://public/default/t"


@pytest.fixture
async def dormant() -> AsyncIterator[tuple[BrokerService, RawConnection]]:
    """A broker with a topic that sleeps, and a client."""
    async with memory_broker("maxConcurrentLookupRequest=1") as broker:
        client = await RawConnection.open(broker.addresses.service_url)
        await client.connect()
        client.send("PRODUCER", topic=TOPIC, producer_id=1, request_id=1)
        await client.receive("PRODUCER_SUCCESS")
        client.send("CLOSE_PRODUCER", producer_id=1, request_id=2)
        await client.receive("SUCCESS")
        topic = broker.registry.topics[TOPIC]
        assert isinstance(topic, PersistentTopic)
        await broker.registry.fall_asleep(topic, -1)
        assert broker.registry.dormant.get(TOPIC) is not None
        yield broker, client
        await client.close()


async def test_dormant_topic_wakes_behind_the_answer(dormant: tuple[BrokerService, RawConnection]) -> None:
    broker, client = dormant
    client.send("LOOKUP", topic=TOPIC, request_id=3)
    await client.receive("LOOKUP_RESPONSE")
    while TOPIC not in broker.registry.topics:  # noqa: ASYNC110 - an opening has no event
        await asyncio.sleep(0)
    assert broker.registry.dormant.get(TOPIC) is None


async def test_topic_that_cannot_be_opened_answers_its_lookup_once(
    dormant: tuple[BrokerService, RawConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client = dormant
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def get(_registry: TopicRegistry, name: TopicName, *, create: bool) -> None:
        asked.set()
        await go_on.wait()
        raise ServiceNotReady(f"{name} cannot be opened, {create}")

    monkeypatch.setattr(TopicRegistry, "get", get)
    client.send("LOOKUP", topic=TOPIC, request_id=3)
    await client.receive("LOOKUP_RESPONSE")
    await asked.wait()
    # The lookup is over, so another one may be in progress.
    client.send("LOOKUP", topic=TOPIC, request_id=5)
    found = (await client.receive("LOOKUP_RESPONSE")).command.lookupTopicResponse
    assert found.response == CommandLookupTopicResponse.Connect
    go_on.set()
    client.send("PRODUCER", topic=TOPIC, producer_id=1, request_id=4)
    refused = (await client.receive("ERROR")).command.error
    assert (refused.request_id, refused.message) == (4, f"{TOPIC} cannot be opened, True")
