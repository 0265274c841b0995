"""A shadow topic on one broker, its source on another: it follows the list and the open ledger, and caches for itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bookkeeper.client.memory import MemoryLedgerClient
from bookkeeper.ensembles.lost_entries import ATTEMPTS_BEFORE_SKIP, NONE_LOST
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.compose.broker_service import BrokerService
from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE, ManagedLedgerInfo
from broker.managed_ledger.offload.ledger_offloads import OffloadStatus
from broker.managed_ledger.shadows.followed_ledger import FollowedLedger
from broker.service.consumer import KeySharedMeta, SubscribeOptions, SubscriptionType
from broker.service.internal_cursors import TRANSACTIONS_CURSOR
from broker.service.producer import AccessMode, Producer
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.new_topic import create_shadow
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.loop import clock
from foundation.loop.turn import Turn
from foundation.model.errors import MetadataError
from foundation.model.position import EARLIEST, Position
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.model.txn_id import TxnId
from protocol.ledger_metadata import ledger_key
from protocol.message_metadata import in_transaction
from tests.fakes.messages import message
from tests.fakes.ports import FakeConsumerPort, FakeProducerPort
from tests.fakes.sends import send
from tests.support.memory_broker import broker_with

SOURCE = parse_topic_name("persistent://public/default/source")
SETTINGS = ("managedLedgerMaxEntriesPerLedger=5", "managedLedgerMinLedgerRolloverTimeMinutes=0")


@asynccontextmanager
async def two_brokers(*more: str) -> AsyncIterator[tuple[BrokerService, BrokerService]]:
    """Two brokers on the same store and bookie."""
    loop = asyncio.get_running_loop()
    store, client = MemoryMetadataStore(), MemoryLedgerClient(loop.call_soon)
    async with AsyncExitStack() as stack:
        brokers = [
            await stack.enter_async_context(
                broker_with(one, client, Turn(loop.call_soon, clock.monotonic_ns), *SETTINGS, *more)
            )
            for one in (store, store.another())
        ]
        yield brokers[0], brokers[1]


@pytest.fixture
async def two() -> AsyncIterator[tuple[BrokerService, BrokerService]]:
    async with two_brokers() as brokers:
        yield brokers


@pytest.fixture
async def two_with_files(tmp_path: Path) -> AsyncIterator[tuple[BrokerService, BrokerService]]:
    """With copies of ledgers in the same files, to which bookies lose them at once; lost entries are skipped."""
    async with two_brokers(
        "autoSkipNonRecoverableData=true",
        "managedLedgerOffloadDriver=filesystem",
        f"fileSystemURI={tmp_path.as_uri()}",
        "managedLedgerOffloadDeletionLagMs=0",
    ) as brokers:
        yield brokers


async def until(holds: Callable[[], bool]) -> None:
    """Waits for what the other broker does; the test's own limit ends a wait for ever."""
    while not holds():  # noqa: ASYNC110  # The brokers alone show it, and have no event for it.
        await asyncio.sleep(0.01)


async def opened(broker: BrokerService, name: TopicName) -> PersistentTopic:
    """The topic, after a lookup that makes this broker its owner."""
    await broker.registry.ownership.owner_of(name, authoritative=True)
    topic = await broker.registry.get(name, create=True)
    assert isinstance(topic, PersistentTopic)
    return topic


async def source_and_shadow(
    two: tuple[BrokerService, BrokerService],
) -> tuple[PersistentTopic, PersistentTopic]:
    """Each on a broker of its own."""
    one, other = two
    source = await opened(one, SOURCE)
    bundle_of = one.registry.ownership.bundle_of
    names = (parse_topic_name(f"persistent://public/default/shadow{number}") for number in range(100))
    name = next(one for one in names if bundle_of(one) != bundle_of(SOURCE))
    await other.registry.ownership.owner_of(name, authoritative=True)
    await create_shadow(other.registry, name, {SHADOW_SOURCE: str(SOURCE)})
    shadow = await opened(other, name)
    assert shadow.ledger.source is not None
    return source, shadow


async def publish(topic: PersistentTopic, count: int, txn: TxnId | None = None) -> None:
    producer = Producer(
        topic, FakeProducerPort(), producer_id=0, name="p", access_mode=AccessMode.SHARED, topic_epoch=None
    )
    await topic.add_producer(producer)
    before = topic.ledger.stats.entries_added
    for number in range(count):
        body = message(b"%d" % number)
        send(producer, number, body if txn is None else in_transaction(body, *txn), 1)
    await until(lambda: topic.ledger.stats.entries_added == before + count)
    await topic.remove_producer(producer)


async def consume(topic: PersistentTopic) -> tuple[Subscription, FakeConsumerPort]:
    port = FakeConsumerPort()
    options = SubscribeOptions(
        subscription="s",
        kind=SubscriptionType.EXCLUSIVE,
        consumer_id=1,
        consumer_name="c",
        key_shared=KeySharedMeta(),
        earliest=True,
    )
    subscription, consumer = await topic.subscribe(port, options)
    subscription.flow(consumer, 1000)
    return subscription, port


async def offload(source: PersistentTopic) -> None:
    """Copies the closed ledgers of a source, and takes them out of the bookie."""
    offloads = source.ledger.own_offloads()
    offloads.start(source.ledger.last_confirmed)
    await until(lambda: offloads.status is OffloadStatus.SUCCESS)
    context = source.ledger.context
    source.ledger.check_offloads(context.environment.wall_ms())
    await context.background.drain()
    for one in source.ledger.ledgers.infos()[:-1]:
        assert await context.environment.metadata.get(ledger_key(one.ledger_id)) is None


def positions(topic: PersistentTopic) -> list[tuple[int, int]]:
    """Of all entries that are stored."""
    infos = topic.ledger.ledgers.infos()
    return [(info.ledger_id, entry_id) for info in infos for entry_id in range(info.entries)]


async def test_shadow_gets_each_message_of_a_source_on_another_broker_through_rolls(
    two: tuple[BrokerService, BrokerService],
) -> None:
    source, shadow = await source_and_shadow(two)
    _, port = await consume(shadow)
    await publish(source, 1)
    await until(lambda: len(port.keys) == 1)
    await publish(source, 16)
    await until(lambda: len(port.keys) == 17)
    assert port.keys == positions(source)
    assert shadow.ledger.cache is not source.ledger.cache


async def test_source_keeps_what_a_shadow_on_another_broker_needs(
    two: tuple[BrokerService, BrokerService],
) -> None:
    source, shadow = await source_and_shadow(two)
    await source.subscribing.create("s", EARLIEST)
    subscription, port = await consume(shadow)
    await publish(source, 12)
    source.subscriptions["s"].acknowledge_through(source.ledger.last_confirmed)
    shadows = two[0].registry.shadows
    await shadows.trim(source)
    assert source.ledger.ledgers.entries == 12
    await until(lambda: len(port.keys) == 12)
    # The first one begins the cursor's ledger with its node; the later ones are in that ledger alone.
    for place in (0, 5, 11):
        subscription.acknowledge_through(Position(*port.keys[place]))
        await subscription.cursor.store.flush()

    async def trimmed() -> bool:
        await shadows.trim(source)
        return source.ledger.ledgers.entries <= 5

    while not await trimmed():  # noqa: ASYNC110  # Nothing tells when the acknowledgement is stored.
        await asyncio.sleep(0.05)
    await until(lambda: shadow.ledger.ledgers.entries == source.ledger.ledgers.entries)


async def test_source_keeps_what_a_subscription_needs_that_was_made_elsewhere_since_the_last_reading(
    two: tuple[BrokerService, BrokerService],
) -> None:
    source, shadow = await source_and_shadow(two)
    await source.subscribing.create("s", EARLIEST)
    # A reading of a shadow without subscriptions.
    await two[0].registry.shadows.trim(source)
    subscription = await shadow.subscribing.create("s", EARLIEST)
    await publish(source, 12)
    source.subscriptions["s"].acknowledge_through(source.ledger.last_confirmed)
    assert source.ledger.ledgers.entries == 12
    await two[0].registry.shadows.trim(source)
    assert source.ledger.ledgers.entries == 12, "the check reads the new subscription"
    await until(lambda: shadow.ledger.ledgers.entries == 12)
    subscription.acknowledge_through(shadow.ledger.last_confirmed)
    await subscription.cursor.store.flush()
    await publish(source, 1)
    source.subscriptions["s"].acknowledge_through(source.ledger.last_confirmed)
    assert source.ledger.ledgers.entries == 13, "the former reading is forgotten"
    await two[0].registry.shadows.trim(source)
    assert source.ledger.ledgers.entries <= 5


async def test_source_keeps_what_a_shadow_needs_that_is_made_anew_on_another_broker(
    two: tuple[BrokerService, BrokerService],
) -> None:
    source, shadow = await source_and_shadow(two)
    await source.subscribing.create("s", EARLIEST)
    await publish(source, 12)
    source.subscriptions["s"].acknowledge_through(source.ledger.last_confirmed)
    await two[1].deletions.topic(shadow.name, force=True)
    await two[0].registry.shadows.trim(source)
    assert source.ledger.ledgers.entries <= 5
    assert not source.ledger.trimming.has_shadows
    # Its name is in the list still, so the list does not change.
    await create_shadow(two[1].registry, shadow.name, {SHADOW_SOURCE: str(SOURCE)})
    again = await opened(two[1], shadow.name)
    await again.subscribing.create("s", EARLIEST)
    await publish(source, 12)
    before = source.ledger.ledgers.entries
    source.subscriptions["s"].acknowledge_through(source.ledger.last_confirmed)
    await two[0].registry.shadows.trim(source)
    assert source.ledger.ledgers.entries == before > 12
    assert source.ledger.trimming.has_shadows


async def test_shadow_reads_ledgers_that_only_the_copies_of_its_source_have(
    two_with_files: tuple[BrokerService, BrokerService],
) -> None:
    source, shadow = await source_and_shadow(two_with_files)
    await source.subscribing.create("s", EARLIEST)
    await publish(source, 12)
    await until(lambda: shadow.ledger.ledgers.entries == 12)
    # The shadow knows the ledgers, and has read nothing of them.
    await offload(source)
    await until(lambda: [one.is_offloaded for one in shadow.ledger.ledgers.infos()] == [True, True, False])
    _, port = await consume(shadow)
    await until(lambda: len(port.keys) == 12)
    assert port.keys == positions(source)
    await two_with_files[1].registry.unload(shadow.name)
    await until(lambda: two_with_files[1].environment.caches.find(source.ledger.name) is None)
    again = await opened(two_with_files[1], shadow.name)
    _, port = await consume(again)
    await until(lambda: len(port.keys) == 12)


async def test_shadow_reads_the_list_again_after_a_failure(
    two: tuple[BrokerService, BrokerService], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, shadow = await source_and_shadow(two)
    read, failures = FollowedLedger._read_list, 0

    async def failing(self: FollowedLedger) -> tuple[ManagedLedgerInfo, int] | None:
        nonlocal failures
        failures += 1
        if failures == 1:
            raise MetadataError("the store is away")
        return await read(self)

    monkeypatch.setattr(FollowedLedger, "_read_list", failing)
    await publish(source, 1)
    await until(lambda: failures > 0 and shadow.ledger.ledgers.entries == 1)


@pytest.mark.parametrize("read_fails", [True, False], ids=["list away", "watch silent"])
async def test_shadow_skips_nothing_while_it_does_not_know_of_copies(
    two_with_files: tuple[BrokerService, BrokerService], monkeypatch: pytest.MonkeyPatch, read_fails: bool
) -> None:
    source, shadow = await source_and_shadow(two_with_files)
    await source.subscribing.create("s", EARLIEST)
    await publish(source, 12)
    await until(lambda: shadow.ledger.ledgers.entries == 12)
    assert shadow.ledger.source is not None
    followed = shadow.ledger.source.context

    async def failing(self: FollowedLedger) -> tuple[ManagedLedgerInfo, int] | None:
        raise MetadataError("the store is away")

    with monkeypatch.context() as patch:
        if read_fails:
            patch.setattr(FollowedLedger, "_read_list", failing)
        else:
            patch.setattr(FollowedLedger, "_take", lambda self, info: None)
        await offload(source)
        subscription, port = await consume(shadow)
        await until(lambda: followed.stats.read_errors > ATTEMPTS_BEFORE_SKIP)
        assert followed.lost is NONE_LOST
        assert subscription.cursor.backlog == 12
    await until(lambda: len(port.keys) == 12)
    assert port.keys == positions(source)


async def test_shadow_skips_what_its_source_has_lost(
    two_with_files: tuple[BrokerService, BrokerService],
) -> None:
    source, shadow = await source_and_shadow(two_with_files)
    await source.subscribing.create("s", EARLIEST)
    await publish(source, 12)
    await until(lambda: shadow.ledger.ledgers.entries == 12)
    lost = source.ledger.ledgers.infos()[0].ledger_id
    await source.ledger.environment.metadata.delete(ledger_key(lost))
    subscription, port = await consume(shadow)
    await until(lambda: len(port.keys) == 7)
    assert port.keys == positions(source)[5:]
    assert subscription.cursor.backlog == 7


async def test_shadow_goes_on_when_its_source_comes_to_its_broker(
    two: tuple[BrokerService, BrokerService],
) -> None:
    one, other = two
    source, shadow = await source_and_shadow(two)
    await publish(source, 3)
    _, port = await consume(shadow)
    await until(lambda: len(port.keys) == 3)
    bundle = one.registry.ownership.bundle_of(SOURCE)

    await one.registry.ownership.unload(bundle)
    moved = await opened(other, SOURCE)
    await until(lambda: shadow.closed)
    assert "closed" in port.events
    again = await opened(other, shadow.name)
    assert again.ledger.source is moved.ledger
    _, port = await consume(again)
    await until(lambda: len(port.keys) == 3)


async def test_source_is_followed_no_longer_when_its_last_shadow_is_closed(
    two: tuple[BrokerService, BrokerService],
) -> None:
    source, shadow = await source_and_shadow(two)
    assert shadow.ledger.source is not None
    caches = two[1].environment.caches
    assert caches.find(source.ledger.name) is not None
    await two[1].registry.unload(shadow.name)
    await until(lambda: caches.find(source.ledger.name) is None)


async def test_shadow_hides_the_transactions_that_an_earlier_broker_has_left_at_its_source(
    two: tuple[BrokerService, BrokerService],
) -> None:
    source = await opened(two[0], SOURCE)
    await publish(source, 1)
    await source.transactions.open_buffer()
    txn = TxnId(0, 1)
    await publish(source, 1, txn)
    await source.transactions.end(txn, 1, commit=False)
    source.transactions.take_snapshot()
    await source.ledger.cursors.by_name[TRANSACTIONS_CURSOR].store.flush()
    await publish(source, 1)
    _, shadow = await source_and_shadow(two)
    _, port = await consume(shadow)
    await until(lambda: len(port.keys) == 2)
    assert port.keys == [positions(source)[0], positions(source)[3]]
