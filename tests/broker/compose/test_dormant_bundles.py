"""Topics that nobody has opened since the start of all brokers, or since a move, are dormant at their bundle's owner."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack

import pytest

from bookkeeper.client.memory import MemoryLedgerClient
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import MetadataStore
from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore
from broker.cluster import unowned_bundles
from broker.compose.broker_service import BrokerService
from broker.service.lifecycle import dormant_filling
from broker.service.topics.dormant_topic import NEVER
from foundation.loop import clock
from foundation.loop.turn import Turn
from foundation.zookeeper.url import ZookeeperUrl
from tests.support.java import ZooKeeper
from tests.support.memory_broker import broker_with
from tests.support.mover import Mover
from tests.support.raw_client import RawConnection

NAMESPACE = "public/default"
TOPICS = [f"persistent://{NAMESPACE}/t-{number}" for number in range(24)]
MESSAGES = 3
EVICTING: Mapping[str, object] = {
    "backlog_quota_map": {"destination_storage": {"limitSize": 1, "policy": "consumer_backlog_eviction"}}
}


class Store:
    """One store of metadata and one of entries, for brokers that come and go."""

    def __init__(self, stack: AsyncExitStack, open_session: Callable[[], MetadataStore]) -> None:
        loop = asyncio.get_running_loop()
        self._stack, self._open_session = stack, open_session
        self._turn = Turn(loop.call_soon, clock.monotonic_ns)
        self._bookie = MemoryLedgerClient(loop.call_soon)

    async def start(self) -> tuple[BrokerService, AsyncExitStack]:
        """A broker, and the way to stop it."""
        stopped = await self._stack.enter_async_context(AsyncExitStack())
        settings = "dormantTopicsAfterSeconds=600", "backlogQuotaCheckIntervalInSeconds=1"
        broker = broker_with(self._open_session(), self._bookie, self._turn, *settings)
        return await stopped.enter_async_context(broker), stopped


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=[pytest.mark.peer, pytest.mark.slow])])
async def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    monkeypatch.setattr(unowned_bundles, "LOOK_INTERVAL_S", 0.1)
    monkeypatch.setattr(dormant_filling, "QUIET_S", 0)
    async with AsyncExitStack() as stack:
        sessions: list[MetadataStore] = []
        if request.param == "memory":
            first = MemoryMetadataStore()
            sessions = [first, first.another(), first.another()]
        else:
            server: ZooKeeper = request.getfixturevalue("zookeeper")
            url = ZookeeperUrl(server.address, f"/{uuid.uuid4().hex[:8]}")
            for _ in range(3):
                sessions.append(await ZookeeperMetadataStore.open(url, session_timeout_s=30, timeout_s=60))
        yield Store(stack, sessions.pop)


async def until(holds: Callable[[], bool]) -> None:
    """Waits for what rounds bring; the test's own limit ends a wait for ever."""
    while not holds():  # noqa: ASYNC110 - rounds have no event
        await asyncio.sleep(0.01)


async def fill_topics(broker: BrokerService) -> None:
    """Publishes to each topic, all of which have a subscription."""
    client = Mover(await RawConnection.open(broker.addresses.service_url), TOPICS[0], TOPICS[0])
    await client.cnx.connect()
    for number, topic in enumerate(TOPICS):
        await client.ask("LOOKUP", "LOOKUP_RESPONSE", topic=topic, authoritative=True)
        await client.ask("PRODUCER", "PRODUCER_SUCCESS", topic=topic, producer_id=number)
        await client.subscribe(topic, number)
        for _ in range(MESSAGES):
            await client.publish(number, b"payload")
    await client.cnx.close()


def names_at(*brokers: BrokerService) -> list[str]:
    return sorted(name for broker in brokers for name, _ in broker.registry.dormant)


async def test_topics_are_dormant_at_the_owners_of_their_bundles_after_a_start_and_a_move(
    store: Store,
) -> None:
    former, stopped = await store.start()
    await fill_topics(former)
    await stopped.aclose()

    first, _ = await store.start()
    dormant = first.registry.dormant
    await until(lambda: not dormant.filling and names_at(first) == sorted(TOPICS))
    assert (dormant.backlog, dormant.subscriptions) == (MESSAGES * len(TOPICS), len(TOPICS))
    assert first.registry.loads == 0

    second, _ = await store.start()
    ownership = first.registry.ownership
    await until(lambda: len(ownership.brokers) == 2)
    moved = next(iter(ownership.parts()))
    await ownership.unload(moved, second.addresses.broker_id)
    await until(lambda: names_at(first, second) == sorted(TOPICS))
    assert second.registry.ownership.parts() == [moved]
    assert 0 < second.registry.dormant.count < len(TOPICS)

    # Due work acts at both brokers.
    policies = json.dumps(EVICTING).encode()
    await first.environment.metadata.put(f"/admin/policies/{NAMESPACE}", policies)
    await until(lambda: not (dormant.backlog or second.registry.dormant.backlog))
    await until(lambda: names_at(first, second) == sorted(TOPICS))


async def test_policies_of_topics_act_at_the_owners_of_their_bundles_after_a_start_and_a_move(
    store: Store,
) -> None:
    former, stopped = await store.start()
    await fill_topics(former)
    *with_policy, without = TOPICS
    for topic in with_policy:
        await former.namespaces.set_topic_policy(topic, "messageTTLInSeconds", 3600)
    await stopped.aclose()

    first, _ = await store.start()
    await until(lambda: not first.registry.dormant.filling and names_at(first) == sorted(TOPICS))
    expiring = {topic: topic != without for topic in TOPICS}
    assert {name: record.due_ns != NEVER for name, record in first.registry.dormant} == expiring

    second, _ = await store.start()
    ownership = first.registry.ownership
    await until(lambda: len(ownership.brokers) == 2)
    await ownership.unload(next(iter(ownership.parts())), second.addresses.broker_id)
    await until(lambda: names_at(first, second) == sorted(TOPICS))
    moved = {name: record.due_ns != NEVER for name, record in second.registry.dormant}
    assert moved == {name: expiring[name] for name in moved}
