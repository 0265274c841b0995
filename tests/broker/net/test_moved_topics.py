"""Clients of a topic that moves to another broker: told where once that has it, so that they need no lookup (PIP-307)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from aiohttp import ClientSession

from bookkeeper.ensembles.own_ledger import OwnLedger
from bookkeeper.ensembles.settings import Copies
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.compose.broker_service import BrokerService
from broker.managed_ledger.ledger_list_store import LedgerListStore
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.topic_name import parse_topic_name
from protocol.pulsar_api_pb2 import MessageMetadata
from tests.support.memory_broker import memory_broker
from tests.support.raw_client import NO_REQUEST, RawConnection, build_command, payload_frame

TOPIC = parse_topic_name("persistent://public/default/t")


@pytest.fixture
async def two() -> AsyncIterator[tuple[BrokerService, BrokerService]]:
    """The owner of the topic, and another broker."""
    first = MemoryMetadataStore()
    async with AsyncExitStack() as stack:
        owner, other = [
            await stack.enter_async_context(memory_broker(metadata=store))
            for store in (first, first.another())
        ]
        await owner.registry.ownership.owner_of(TOPIC, authoritative=True)
        yield owner, other


async def attached(service: BrokerService) -> RawConnection:
    """A connection with a producer and a consumer of the topic."""
    client = await RawConnection.open(service.addresses.service_url)
    await client.connect()
    client.send("PRODUCER", topic=str(TOPIC), producer_id=1, request_id=1)
    await client.receive("PRODUCER_SUCCESS")
    client.send(
        "SUBSCRIBE", topic=str(TOPIC), subscription="s", subType="Shared", consumer_id=2, request_id=2
    )
    await client.receive("SUCCESS")
    return client


async def send(client: RawConnection) -> None:
    """Sends a message of the producer, and waits until the broker has read it and has answered nothing."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    command = build_command("SEND", {"producer_id": 1, "sequence_id": 0, "num_messages": 1})
    client.send_bytes(payload_frame(command, metadata, b"body"))
    client.send("PING")
    await client.receive("PONG")


async def unload(service: BrokerService, destination: str) -> int:
    bundle = service.registry.ownership.bundle_of(TOPIC).rpartition("/")[2]
    url = f"{service.addresses.admin_url}/admin/v2/namespaces/public/default/{bundle}/unload"
    query = {"destinationBroker": destination} if destination else {}
    async with ClientSession() as session, session.put(url, params=query, allow_redirects=False) as answer:
        return answer.status


async def test_clients_connect_to_the_destination_without_a_lookup(
    two: tuple[BrokerService, BrokerService],
) -> None:
    owner, other = two
    client = await attached(owner)
    assert await unload(owner, other.addresses.broker_id) == 204
    closed_producer = (await client.receive("CLOSE_PRODUCER")).command.close_producer
    closed_consumer = (await client.receive("CLOSE_CONSUMER")).command.close_consumer
    for closed in (closed_producer, closed_consumer):
        assert closed.assignedBrokerServiceUrl == other.addresses.service_url
        assert not closed.HasField("assignedBrokerServiceUrlTls")
        assert closed.request_id == NO_REQUEST
    again = await attached(other)
    await again.close()
    await client.close()


async def test_clients_are_told_where_a_topic_is_next_without_a_destination(
    two: tuple[BrokerService, BrokerService],
) -> None:
    owner, other = two
    client = await attached(owner)
    assert await unload(owner, "") == 204
    told = (await client.receive("CLOSE_PRODUCER")).command.close_producer.assignedBrokerServiceUrl
    assert told in (owner.addresses.service_url, other.addresses.service_url)
    assert (await other.registry.ownership.owner_of(TOPIC)).addresses.service_url == told
    await client.close()


async def test_clients_look_a_moved_topic_up_where_a_listener_has_a_url_of_its_own() -> None:
    first = MemoryMetadataStore()
    async with AsyncExitStack() as stack:
        owner, other = [
            await stack.enter_async_context(
                memory_broker(f"advertisedListeners=outside:pulsar://{name}.example.org:6650", metadata=store)
            )
            for name, store in (("a", first), ("b", first.another()))
        ]
        await owner.registry.ownership.owner_of(TOPIC, authoritative=True)
        client = await attached(owner)
        assert await unload(owner, other.addresses.broker_id) == 204
        closed_producer = (await client.receive("CLOSE_PRODUCER")).command.close_producer
        closed_consumer = (await client.receive("CLOSE_CONSUMER")).command.close_consumer
        for closed in (closed_producer, closed_consumer):
            assert not closed.HasField("assignedBrokerServiceUrl")
            assert not closed.HasField("assignedBrokerServiceUrlTls")
        client.send("LOOKUP", topic=str(TOPIC), request_id=3, advertised_listener_name="outside")
        found = (await client.receive("LOOKUP_RESPONSE")).command.lookupTopicResponse
        assert found.brokerServiceUrl == "pulsar://b.example.org:6650"
        await client.close()


async def test_unload_to_a_broker_that_is_not_there_is_refused(
    two: tuple[BrokerService, BrokerService],
) -> None:
    owner, _ = two
    client = await attached(owner)
    assert await unload(owner, "elsewhere:8080") == 409
    client.send("PRODUCER", topic=str(TOPIC), producer_id=3, request_id=3)
    await client.receive("PRODUCER_SUCCESS")
    await client.close()


async def test_unload_of_one_topic_names_no_broker(two: tuple[BrokerService, BrokerService]) -> None:
    owner, _ = two
    client = await attached(owner)
    await owner.registry.unload(TOPIC)
    closed = (await client.receive("CLOSE_PRODUCER")).command.close_producer
    assert not closed.HasField("assignedBrokerServiceUrl")
    await client.close()


async def test_message_to_a_topic_that_is_being_closed_gets_no_error(
    two: tuple[BrokerService, BrokerService], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, _ = two
    client = await attached(owner)
    may_disconnect, close = asyncio.Event(), PersistentTopic.close

    async def close_late(topic: PersistentTopic) -> None:
        await may_disconnect.wait()
        await close(topic)

    monkeypatch.setattr(PersistentTopic, "close", close_late)
    closing = asyncio.create_task(owner.registry.unload(TOPIC))
    await asyncio.sleep(0)
    assert owner.registry.topics[str(TOPIC)].closed
    await send(client)
    may_disconnect.set()
    await client.receive("CLOSE_PRODUCER")
    await closing
    await client.close()


async def test_message_that_waits_for_a_ledger_gets_no_error_when_its_topic_is_closed(
    two: tuple[BrokerService, BrokerService], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, _ = two
    client = await attached(owner)
    may_begin, start = asyncio.Event(), LedgerListStore.start_current

    async def start_late(store: LedgerListStore, copies: Copies | None) -> OwnLedger:
        await may_begin.wait()
        return await start(store, copies)

    monkeypatch.setattr(LedgerListStore, "start_current", start_late)
    await send(client)
    closing = asyncio.create_task(owner.registry.unload(TOPIC))
    await client.receive("CLOSE_PRODUCER")
    await client.receive("CLOSE_CONSUMER")
    may_begin.set()
    await closing
    client.send("PING")
    await client.receive("PONG")
    await client.close()
