"""Settings of storage, cache, receiving and metrics: each read back from what the broker reports or from the order
of its answers.

Law of the place: as in test_settings_matter. managedLedgerMaxLedgerRolloverTimeMinutes is left to the managed
ledger's own tests, which have a clock to turn: a minute is its smallest value.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Final

import pulsar
import pytest

from protocol.pulsar_api_pb2 import MessageMetadata
from tests.interop.support import Admin, publish, wait_until
from tests.support.raw_client import RawConnection, build_command, payload_frame, simple_frame
from tests.vectors.broker_process import BrokerProcess

BrokerWith = Callable[[Mapping[str, str]], BrokerProcess]
ClientOf = Callable[[Mapping[str, str]], pulsar.Client]

MIB: Final = 1 << 20
USED, PINNED = "pulsar_ml_cache_x_used_bytes", "pulsar_ml_cache_x_pinned_bytes"
ENTRIES, INSERTED = "pulsar_ml_cache_x_entries", "pulsar_ml_cache_x_insertions_total"

OWN_METADATA_BYTES_MAX: Final = 64
"""Bytes that the broker puts in front of an entry are not in the buffer."""

CARRIED_BYTES_MAX: Final = 700
"""A frame with a message of 500 bytes."""

DEFAULTS: Final[dict[str, str]] = {}
KEPT: Final = {"managedLedgerCacheEvictionTimeThresholdMillis": "3600000"}
"""Nothing leaves the cache for its age while a test looks."""
ROLLING: Final = {
    **KEPT,
    "managedLedgerCacheSizeMB": "1",
    "managedLedgerMaxEntriesPerLedger": "10",
    "managedLedgerMaxSizePerLedgerMbytes": "1",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}
NOT_YET_ROLLING: Final = {"managedLedgerMaxEntriesPerLedger": "10", "managedLedgerCacheSizeMB": "0"}
COPYING: Final = {**KEPT, "managedLedgerCacheCopyEntries": "true"}
LIFE_MS: Final = 1000
LIFE_S: Final = LIFE_MS / 1000
LIVES_MAX: Final = 30
FLOODS: Final = 3
FLOODS_MAX: Final = 10
_TTL: Final = "managedLedgerCacheEvictionTimeThresholdMillis"
_AWAITED_AGAIN: Final = "managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes"
AS_APACHE: Final = {"entryCachePolicy": "pip430"}
BRIEF: Final = {**AS_APACHE, _TTL: "20", _AWAITED_AGAIN: "0"}
ONE_LIFE: Final = {
    **AS_APACHE,
    _TTL: str(LIFE_MS),
    _AWAITED_AGAIN: "0",
    "managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed": "false",
}
TWO_LIVES: Final = {**AS_APACHE, _TTL: str(LIFE_MS), _AWAITED_AGAIN: "1"}
LEFT_IN_BUFFERS: Final = {**KEPT, "entryCachePinnedRatioMax": "0"}
"""Small entries stay in large buffers, which shows how large these are."""
BUFFERS: Final = {
    **LEFT_IN_BUFFERS,
    "brokerAdaptiveRecvByteBufAllocatorMinimumSize": "32768",
    "brokerAdaptiveRecvByteBufAllocatorInitialSize": "131072",
    "brokerAdaptiveRecvByteBufAllocatorMaximumSize": "131072",
}
"""Above the 16 KiB that all connections share for small reads, and out of which each entry is copied."""
OWN_BOOKIE: Final = {"bookieAddress": "embedded"}
"""For what shows only where entries are stored sooner than the next bytes come."""
SMALL_READS: Final = {
    "brokerAdaptiveRecvByteBufAllocatorInitialSize": "1024",
    "brokerAdaptiveRecvByteBufAllocatorMaximumSize": "1024",
}
ONE_PUBLISH: Final = {**SMALL_READS, "maxPendingPublishRequestsPerConnection": "1"}
ONE_MEGABYTE: Final = {"maxMessagePublishBufferSizeInMB": "1"}
QUIET: Final = {
    "exposeTopicLevelMetricsInPrometheus": "false",
    "exposeManagedLedgerMetricsInPrometheus": "false",
}
DETAILED: Final = {
    "exposeConsumerLevelMetricsInPrometheus": "true",
    "exposeProducerLevelMetricsInPrometheus": "true",
    "splitTopicAndPartitionLabelInPrometheus": "true",
}


@pytest.fixture
def client_of(broker_with: BrokerWith, connected: Callable[[str], pulsar.Client]) -> ClientOf:
    return lambda settings: connected(broker_with(settings).addresses.pulsar)


def _admin(broker: BrokerProcess) -> Admin:
    return Admin.of(broker)


def _waiting_consumer(client: pulsar.Client, topic: str) -> pulsar.Consumer:
    """Makes what is published worth keeping, and asks for none of it."""
    return client.subscribe(topic, "s", receiver_queue_size=0)


def _send(client: pulsar.Client, topic: str, count: int, size: int) -> None:
    """One at a time, each in an entry of its own."""
    producer = client.create_producer(topic, batching_enabled=False)
    for _ in range(count):
        producer.send(b"x" * size)
    producer.close()


# Ledgers


def _ledgers(admin: Admin, topic: str) -> int:
    stats = admin.get(f"persistent/public/default/{topic}/internalStats")
    assert isinstance(stats, dict)
    ledgers = stats["ledgers"]
    assert isinstance(ledgers, list)
    return len(ledgers)


@pytest.mark.parametrize(
    ("settings", "count", "size", "ledgers"),
    [
        pytest.param(ROLLING, 35, 10, 4, id="by entries"),
        pytest.param(ROLLING, 7, 400_000, 3, id="by bytes"),
        pytest.param(NOT_YET_ROLLING, 35, 10, 1, id="too young"),
    ],
)
def test_when_a_topic_goes_on_to_a_new_ledger(
    broker_with: BrokerWith,
    client_of: ClientOf,
    topic: str,
    settings: dict[str, str],
    count: int,
    size: int,
    ledgers: int,
) -> None:
    client = client_of(settings)
    client.subscribe(topic, "s").close()
    _send(client, topic, count, size)
    assert _ledgers(_admin(broker_with(settings)), topic) == ledgers


# The cache


def test_the_caches_size(broker_with: BrokerWith, client_of: ClientOf, topic: str) -> None:
    """Four megabytes into a large cache, one of a megabyte, and none."""
    found = []
    for settings in (KEPT, ROLLING, NOT_YET_ROLLING):
        client, broker = client_of(settings), broker_with(settings)
        admin = _admin(broker)
        consumer = _waiting_consumer(client, topic)
        used, inserted = admin.metric(USED), admin.metric(INSERTED)
        _send(client, topic, 40, 100_000)
        # Each broker has a cache of this size.
        largest = max(Admin(url).metric(USED) for url in broker.admin_urls)
        found.append((admin.metric(USED) - used, largest, admin.metric(INSERTED) - inserted))
        consumer.close()
    (grown, _, _), (_, limited, offered), none = found
    assert grown > 4_000_000
    assert 100_000 < limited <= MIB
    assert offered == 40
    assert none == (0, 0, 0)


@pytest.mark.parametrize(
    ("settings", "shared"), [(BUFFERS, True), (LEFT_IN_BUFFERS, False), (COPYING, False)]
)
def test_entries_are_slices_or_copies(
    broker_with: BrokerWith, client_of: ClientOf, topic: str, settings: dict[str, str], shared: bool
) -> None:
    client, admin = client_of(settings), _admin(broker_with(settings))
    consumer = _waiting_consumer(client, topic)
    used, pinned = admin.metric(USED), admin.metric(PINNED)
    _send(client, topic, 1, 1000)
    assert admin.metric(USED) - used > 1000
    assert (admin.metric(PINNED) - pinned > 0) == shared
    consumer.close()


def _life_s(broker: BrokerProcess, client: pulsar.Client, topic: str, *, read: bool) -> float:
    """Seconds from before an entry was sent until it has left the cache."""
    # The owner alone: a scrape of every broker of a cluster takes longer than the life that is measured.
    admin = Admin(_admin(broker).owner_url(topic))
    consumer = client.subscribe(topic, "s") if read else _waiting_consumer(client, topic)
    producer = client.create_producer(topic)
    inserted = admin.metric(INSERTED)
    begun = time.monotonic()
    producer.send(b"x")
    assert admin.metric(INSERTED) == inserted + 1
    wait_until(lambda: admin.metric(ENTRIES) == 0, "the entry has left the cache")
    ended = time.monotonic()
    consumer.close()
    return ended - begun


def _shortest_life_s(
    broker: BrokerProcess, client: pulsar.Client, topic: str, *, read: bool, below_s: float
) -> float:
    """Returns the first life shorter than `below_s`, or the shortest of several.

    A busy machine ends single lives late. None ends early, and a wrong setting makes all of them long.
    """
    lives: list[float] = []
    while len(lives) < LIVES_MAX:
        lives.append(_life_s(broker, client, f"{topic}-{len(lives)}", read=read))
        if lives[-1] < below_s:
            break
    return min(lives)


def test_how_long_an_awaited_entry_stays(broker_with: BrokerWith, client_of: ClientOf, topic: str) -> None:
    brief, one, two = (
        _shortest_life_s(broker_with(settings), client_of(settings), topic, read=False, below_s=below_s)
        for settings, below_s in ((BRIEF, LIFE_S), (ONE_LIFE, 2 * LIFE_S), (TWO_LIVES, math.inf))
    )
    assert brief < LIFE_S <= one < 2 * LIFE_S <= two


def test_an_entry_that_was_read_gets_a_second_life(
    broker_with: BrokerWith, client_of: ClientOf, topic: str
) -> None:
    one, two = (
        _shortest_life_s(broker_with(settings), client_of(settings), topic, read=True, below_s=below_s)
        for settings, below_s in ((ONE_LIFE, 2 * LIFE_S), (TWO_LIVES, math.inf))
    )
    assert LIFE_S <= one < 2 * LIFE_S <= two


# Receive buffers: what one small entry keeps alive is the buffer that it was received in.


def _held(admin: Admin) -> float:
    return admin.metric(USED) + admin.metric(PINNED)


def _buffer_of_a_small_message(
    broker: BrokerProcess, connected: Callable[[str], pulsar.Client], topic: str, *, before: int
) -> int:
    """Bytes of the buffer that it comes in, behind `before` others of 500 bytes on the same connection."""
    receiver, sender = connected(broker.addresses.pulsar), connected(broker.addresses.pulsar)
    admin = _admin(broker)
    _send(sender, admin.with_owner_of(topic), before, 500)
    consumer = _waiting_consumer(receiver, topic)
    held = _held(admin)
    _send(sender, topic, 1, 10)
    size = _held(admin) - held
    consumer.close()
    return int(size)


@pytest.mark.parametrize(("settings", "size"), [(BUFFERS, 131072), (LEFT_IN_BUFFERS, 0)])
def test_the_first_receive_buffer(
    broker_with: BrokerWith,
    connected: Callable[[str], pulsar.Client],
    topic: str,
    settings: dict[str, str],
    size: int,
) -> None:
    found = _buffer_of_a_small_message(broker_with(settings), connected, topic, before=0)
    assert size <= found < size + OWN_METADATA_BYTES_MAX


@pytest.mark.parametrize(("settings", "size"), [(BUFFERS, 32768), (LEFT_IN_BUFFERS, 0)])
def test_the_smallest_receive_buffer(
    broker_with: BrokerWith,
    connected: Callable[[str], pulsar.Client],
    topic: str,
    settings: dict[str, str],
    size: int,
) -> None:
    """Small messages, one at a time, make the next buffers small."""
    found = _buffer_of_a_small_message(broker_with(settings), connected, topic, before=250)
    # A frame that the former buffer ended in is carried over into the next one.
    assert size <= found < size + OWN_METADATA_BYTES_MAX + CARRIED_BYTES_MAX


async def test_the_largest_receive_buffer(broker_with: BrokerWith, client_of: ClientOf, topic: str) -> None:
    """Reads that fill their buffer make the next ones large; an unfinished frame is carried over into them."""
    sizes = []
    for settings in (BUFFERS, LEFT_IN_BUFFERS):
        broker, admin = broker_with(settings), _admin(broker_with(settings))
        consumer = _waiting_consumer(client_of(settings), topic)
        sender = await _Flooder.on(broker, admin.with_owner_of(topic))
        await sender.flood(8000, 1000)
        held = _held(admin)
        await sender.also_to(topic)
        await sender.flood(1, 10)
        sizes.append(_held(admin) - held)
        await sender.close()
        consumer.close()
    limited, by_default = sizes
    assert 65536 < limited < 131072 + 2000 < by_default


# A flood: a PING behind it is answered before the receipts, unless the broker stops reading.


class _Flooder:
    """Publishes faster than any client would: everything in one write, and a PING behind it."""

    def __init__(self, connection: RawConnection) -> None:
        self._connection = connection
        self._producer_id = 0

    @classmethod
    async def on(cls, broker: BrokerProcess, topic: str) -> _Flooder:
        connection = await RawConnection.open(_admin(broker).owner(topic))
        await connection.connect()
        flooder = cls(connection)
        await flooder.also_to(topic)
        return flooder

    async def also_to(self, topic: str) -> None:
        """From now on to this topic, over the same connection."""
        self._producer_id += 1
        name = topic if "://" in topic else f"persistent://public/default/{topic}"
        self._connection.send("PRODUCER", topic=name, producer_id=self._producer_id, request_id=1)
        await self._connection.receive("PRODUCER_SUCCESS")

    async def flood(self, count: int, size: int) -> int:
        """How many receipts came before the PONG. AssertionError unless all come, each once and in order."""
        frames = [self._message(number, size) for number in range(count)]
        self._connection.send_bytes(b"".join([*frames, simple_frame(build_command("PING", {}))]))
        receipts: list[int] = []
        answered_at = None
        while len(receipts) < count or answered_at is None:
            frame = await self._connection.receive("SEND_RECEIPT", "PONG")
            if frame.type_name == "PONG":
                answered_at = len(receipts)
            else:
                receipts.append(frame.command.send_receipt.sequence_id)
        assert receipts == list(range(count))
        return answered_at

    async def close(self) -> None:
        await self._connection.close()

    def _message(self, sequence_id: int, size: int) -> bytes:
        fields = {"producer_id": self._producer_id, "sequence_id": sequence_id, "num_messages": 1}
        metadata = MessageMetadata(producer_name="raw", sequence_id=sequence_id, publish_time=1)
        return payload_frame(build_command("SEND", fields), metadata, b"x" * size)


async def _flood(broker: BrokerProcess, topic: str, count: int, size: int) -> int:
    """Receipts before the PONG; every message is stored."""
    flooder = await _Flooder.on(broker, topic)
    before_pong = await flooder.flood(count, size)
    await flooder.close()
    stats = _admin(broker).get(f"persistent/public/default/{topic}/internalStats")
    assert isinstance(stats, dict)
    assert stats["numberOfEntries"] == count
    return before_pong


async def _fewest_receipts(broker: BrokerProcess, topic: str, count: int, size: int) -> int:
    """Receipts before the PONG: the fewest of several floods, up to one with fewer than nine tenths of them.

    A flood that this process sends in pieces, because the machine is busy, has receipts before its last piece.
    """
    fewest = count
    for number in range(FLOODS_MAX):
        fewest = min(fewest, await _flood(broker, f"{topic}-{number}", count, size))
        if fewest < 0.9 * count:
            break
    return fewest


async def test_small_reads_take_a_flood_piece_by_piece(broker_with: BrokerWith, topic: str) -> None:
    """With buffers of the default size one read brings so much that the PING overtakes the receipts."""
    large, small = broker_with(OWN_BOOKIE), broker_with(SMALL_READS | OWN_BOOKIE)
    floods = [
        (
            await _flood(large, f"{topic}-{number}", 200, 2000),
            await _flood(small, f"{topic}-{number}", 200, 2000),
        )
        for number in range(FLOODS)
    ]
    # On a slow disk the PING overtakes all receipts on both, so single floods may be equal.
    assert sum(in_large for in_large, _ in floods) < sum(in_small for _, in_small in floods)


async def test_publishes_that_a_connection_may_have_under_way(broker_with: BrokerWith, topic: str) -> None:
    assert await _flood(broker_with(ONE_PUBLISH), topic, 200, 2000) == 200
    assert await _fewest_receipts(broker_with(SMALL_READS), topic, 200, 2000) < 200


async def test_bytes_that_all_connections_may_have_under_way(broker_with: BrokerWith, topic: str) -> None:
    """A megabyte holds one of the bodies; the second goes over it and is the last until both are stored."""
    assert await _flood(broker_with(ONE_MEGABYTE), topic, 20, 600_000) >= 18
    assert await _fewest_receipts(broker_with(DEFAULTS), topic, 20, 600_000) < 18
    name, megabytes = next(iter(ONE_MEGABYTE.items()))
    admin = _admin(broker_with(DEFAULTS))
    admin.configure(name, megabytes)
    assert await _flood(broker_with(DEFAULTS), f"{topic}-limited", 20, 600_000) >= 18
    admin.unconfigure(name)
    assert await _fewest_receipts(broker_with(DEFAULTS), f"{topic}-free", 20, 600_000) < 18


# Metrics


def _labels(admin: Admin, client: pulsar.Client, topic: str) -> tuple[set[str], set[str]]:
    """Names and labels of one scrape while the topic has a producer and a consumer."""
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "s")
    publish(producer, [b"x"])
    samples = admin.samples()
    producer.close()
    consumer.close()
    return {sample.name for sample in samples}, {label for sample in samples for label in sample.labels}


def test_metrics_have_the_families_and_labels_that_settings_choose(
    broker_with: BrokerWith, client_of: ClientOf, topic: str
) -> None:
    names, labels = {}, {}
    for title, settings in (("default", DEFAULTS), ("quiet", QUIET), ("detailed", DETAILED)):
        found = _labels(_admin(broker_with(settings)), client_of(settings), topic)
        names[title], labels[title] = found
    ledger = "pulsar_ml_AddEntryMessagesRate"
    assert [title for title, found in names.items() if ledger in found] == ["default", "detailed"]
    for label, where in (
        ("topic", ["default", "detailed"]),
        ("consumer_name", ["detailed"]),
        ("producer_name", ["detailed"]),
        ("partition", ["detailed"]),
    ):
        assert [title for title, found in labels.items() if label in found] == where, label
