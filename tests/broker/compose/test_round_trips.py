"""Round trips to a real ZooKeeper that the opening of a topic waits for."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from typing import Final

import pytest

from bookkeeper.ensembles.ledger_id_stock import LedgerIdStock
from bookkeeper.ensembles.zookeeper_ledger_ids import ZookeeperLedgerIds
from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore
from bookkeeper.metadata.zookeeper_requests import Pending, ZookeeperAnswer
from broker.compose.broker_service import BrokerService
from broker.service.topics.dormant_topic import NOT_KNOWN
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.position import EARLIEST
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.zookeeper.url import ZookeeperUrl
from tests.support.java import ZooKeeper
from tests.support.memory_broker import memory_broker

pytestmark = [pytest.mark.peer, pytest.mark.slow]

ROUND_TRIPS_MAX: Final = 4
"""For a new topic."""
OF_STORED_MAX: Final = 2
OF_DORMANT_MAX: Final = 1


class Counted:
    """Counts requests, and the longest row of them in which each began after the one before it was answered."""

    def __init__(self, store: ZookeeperMetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests = self.round_trips = self._begun = 0
        self._ask = store.requests.ask
        monkeypatch.setattr(store.requests, "ask", self.ask)

    def begin(self) -> None:
        """Counts from 0; what is under way belongs to the past."""
        self.requests = self.round_trips = 0
        self._begun += 1

    async def ask(self, request: Callable[[], Pending], *, session_id: int | None = None) -> ZookeeperAnswer:
        self.requests += 1
        begun, place = self._begun, self.round_trips + 1
        try:
            return await self._ask(request, session_id=session_id)
        finally:
            if begun == self._begun:
                self.round_trips = max(self.round_trips, place)


@pytest.fixture
async def store(zookeeper: ZooKeeper) -> ZookeeperMetadataStore:
    url = ZookeeperUrl(zookeeper.address, f"/{uuid.uuid4().hex[:8]}")
    return await ZookeeperMetadataStore.open(url, session_timeout_s=30, timeout_s=60)


@pytest.fixture
async def broker(store: ZookeeperMetadataStore) -> AsyncIterator[BrokerService]:
    async with memory_broker(metadata=store, ids=LedgerIdStock(ZookeeperLedgerIds(store.requests))) as broker:
        yield broker


async def opened(broker: BrokerService, name: TopicName) -> PersistentTopic:
    topic = await broker.registry.get(name, create=True)
    assert isinstance(topic, PersistentTopic)
    return topic


async def test_opening_a_topic_takes_few_round_trips(
    broker: BrokerService, store: ZookeeperMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(store, monkeypatch)
    name, parts = (parse_topic_name(f"persistent://public/default/{local}") for local in ("t", "parts"))
    first = parse_topic_name("persistent://public/default/first")
    for one in (name, parts.with_partition(0), first):
        # A client looks a topic up first, and for the first of a bundle its lease is taken.
        await broker.registry.ownership.owner_of(one, authoritative=True)
    # Ids of ledgers are taken in growing numbers.
    for number in range(20):
        other = parse_topic_name(f"{first}-{number}")
        await broker.registry.ownership.owner_of(other, authoritative=True)
        await opened(broker, other)
    found: dict[str, tuple[int, int]] = {}
    counted.begin()
    topic = await opened(broker, name)
    found["new"] = counted.round_trips, counted.requests
    for number in range(10):
        await topic.subscribing.create(f"s{number}", EARLIEST, {})
    await broker.registry.unload(name)
    counted.begin()
    await opened(broker, name)
    found["closed before, with ten subscriptions"] = counted.round_trips, counted.requests
    await broker.registry.fall_asleep(await opened(broker, name), NOT_KNOWN)
    counted.begin()
    assert len((await opened(broker, name)).subscriptions) == 10
    assert counted.round_trips <= OF_DORMANT_MAX, counted.round_trips
    print(found)
    await broker.partitioned.create(parts, 2)
    await opened(broker, parts.with_partition(0))
    await broker.registry.unload(parts.with_partition(0))
    counted.begin()
    await opened(broker, parts.with_partition(0))
    found["a partition, closed before"] = counted.round_trips, counted.requests
    new, *stored = found.values()
    assert new[0] <= ROUND_TRIPS_MAX, found
    assert all(trips <= OF_STORED_MAX for trips, _ in stored), found
