"""Topic compaction on a memory ledger: the compacted view, its passage to the log, and failures at each step."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.compaction.entry_content import read_entry
from broker.managed_ledger.managed_ledger_info import cursor_key
from broker.managed_ledger.records.pulsar_records import decode_cursor, decode_ledger_list
from broker.service.compaction.compaction_source import CompactionSource, segments_of
from broker.service.compaction.topic_compaction import LEDGER_PROPERTY, CompactionRunning, CompactionStatus
from broker.service.internal_cursors import COMPACTION_CURSOR
from broker.service.policies.table import COMPACTION
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.loop.uninterrupted import uninterrupted
from foundation.model.errors import NotAllowed, ReadTimedOut
from foundation.model.position import EARLIEST, LATEST, Position
from foundation.model.topic_name import parse_topic_name
from protocol.ledger_metadata import ledger_key
from tests.fakes.batches import Item, batch, items_of, single
from tests.fakes.metadata import WritesUntilCrash
from tests.fakes.ports import FakeConsumerPort, FakeProducerPort
from tests.fakes.sends import send
from tests.fakes.stage import EXCLUSIVE, FAILOVER, TOPIC, Stage, port_of


async def publish(stage: Stage, topic: PersistentTopic, *bodies: bytes) -> list[Position]:
    """Returns the positions of the entries."""
    producer = await stage.producer(topic, "publisher")
    for number, body in enumerate(bodies):
        send(producer, number, body)
    await stage.settle()
    await topic.remove_producer(producer)
    port = producer.port
    return [Position(ledger, entry) for _, ledger, entry in port.receipts]  # type: ignore[attr-defined]


async def compact(stage: Stage, topic: PersistentTopic) -> CompactionStatus:
    topic.compaction.start()
    await stage.run(topic.compaction.wait())
    await stage.settle()
    return topic.compaction.status


async def view(
    stage: Stage, topic: PersistentTopic, *, permits: int = 1000, **options: Any
) -> FakeConsumerPort:
    """A new reader of the compacted view."""
    chosen: dict[str, Any] = {"durable": False, "read_compacted": True, "start": EARLIEST} | options
    chosen.setdefault("subscription", f"reader-{len(topic.subscriptions)}")
    _, _, port = await stage.consume(topic, EXCLUSIVE, permits=permits, **chosen)
    await stage.settle()
    return port


def values(*pairs: Item) -> list[bytes]:
    return [single(key, payload) for key, payload in pairs]


async def three_keys(stage: Stage) -> tuple[PersistentTopic, list[Position]]:
    """Nine messages of three keys in ledgers of three, compacted: 6, 7 and 8 are left."""
    topic = await stage.open()
    places = await publish(stage, topic, *values(*((f"k{n % 3}", b"%d" % n) for n in range(9))))
    assert await compact(stage, topic) is CompactionStatus.SUCCESS
    return topic, places


async def test_reader_gets_latest_messages_and_then_the_log() -> None:
    stage = Stage()
    topic = await stage.open()
    places = await publish(
        stage,
        topic,
        *values(("a", b"1"), ("b", b"2"), (None, b"3"), ("a", b"4"), ("b", b"")),
        batch([("c", b"5"), ("d", b"6"), ("c", b"7")]),
    )
    assert await compact(stage, topic) is CompactionStatus.SUCCESS
    port = await view(stage, topic)
    assert port.keys == [places[3], places[5]]
    assert items_of(port.got[1].body) == [(1, "d", b"6"), (2, "c", b"7")]
    more = await publish(stage, topic, *values(("a", b""), (None, b"8")))
    assert port.keys == [places[3], places[5], *more]
    plain = await view(stage, topic, read_compacted=False)
    assert plain.keys == [*places, *more]
    assert topic.compaction.counts.last_removed == 5


async def test_compacted_messages_outlive_the_log() -> None:
    stage = Stage(entries_per_ledger=3)
    topic, places = await three_keys(stage)
    more = await publish(stage, topic, *values(("k0", b"9")))
    ledgers = topic.ledger.ledgers.infos()
    assert [one.ledger_id for one in ledgers if one.entries] == [more[0].ledger_id]
    assert (await view(stage, topic)).keys == [*places[6:], *more]
    assert await compact(stage, topic) is CompactionStatus.SUCCESS
    assert (await view(stage, topic)).keys == [*places[7:9], *more]


@pytest.mark.parametrize("trimmed", [False, True])
@pytest.mark.parametrize("start", range(9))
async def test_reader_starts_at_any_position(start: int, trimmed: bool) -> None:
    stage = Stage(entries_per_ledger=3 if trimmed else 50)
    topic, places = await three_keys(stage)
    more = await publish(stage, topic, *values(("k9", b"9")))
    assert (places[0].ledger_id in topic.ledger.ledgers) is not trimmed
    port = await view(stage, topic, start=places[start])
    assert port.keys == [*(one for one in places[6:] if one >= places[start]), *more]


async def test_latest_reader_gets_what_is_published_later() -> None:
    stage = Stage()
    topic, _ = await three_keys(stage)
    port = await view(stage, topic, start=LATEST, earliest=False)
    assert port.keys == []
    assert port.keys == await publish(stage, topic, *[])
    more = await publish(stage, topic, *values(("k0", b"9")))
    assert port.keys == more


@pytest.mark.parametrize("permits", range(1, 6))
async def test_passage_is_without_gap_or_double_when_a_compaction_ends_meanwhile(permits: int) -> None:
    stage = Stage(entries_per_ledger=4)
    topic = await stage.open()
    first = await publish(stage, topic, *values(*((f"k{n % 5}", b"%d" % n) for n in range(12))))
    await compact(stage, topic)
    port = await view(stage, topic, permits=permits, subscription="r")
    delivered = list(port.keys)
    assert delivered == first[7:12][:permits]
    second = await publish(stage, topic, *values(*((f"k{n % 3}", b"n%d" % n) for n in range(6))))
    await compact(stage, topic)
    subscription = topic.subscriptions["r"]
    subscription.flow(subscription.consumers[0], 100)
    await stage.settle()
    kept = [*first[8:10], *second[3:]]
    assert port.keys == [*delivered, *(one for one in kept if one > delivered[-1])]


async def test_seek_reaches_compacted_messages_that_the_log_has_lost() -> None:
    stage = Stage(entries_per_ledger=3)
    topic, places = await three_keys(stage)
    await publish(stage, topic, *values(("k9", b"9")))
    await view(stage, topic, subscription="r")
    await stage.run(topic.subscriptions["r"].seek(places[7]))
    port = await view(stage, topic, subscription="r")
    assert port.keys[:2] == places[7:9]


async def test_durable_subscription_skips_what_it_has_acknowledged() -> None:
    stage = Stage()
    topic, places = await three_keys(stage)
    options: dict[str, Any] = {"subscription": "d", "durable": True, "start": None}
    port = await view(stage, topic, **options)
    assert port.keys == places[6:]
    subscription = topic.subscriptions["d"]
    subscription.acknowledge(subscription.consumers[0], [places[7]])
    subscription.disconnect()
    assert (await view(stage, topic, **options)).keys == [places[6], places[8]]
    subscription.acknowledge_cumulative(subscription.consumers[0], places[6], None)
    subscription.disconnect()
    assert (await view(stage, topic, **options)).keys == [places[8]]


async def test_failover_consumer_takes_over_the_compacted_view() -> None:
    stage = Stage(failover_delay_ms=0)
    topic, places = await three_keys(stage)
    options: dict[str, Any] = {"subscription": "f", "read_compacted": True}
    subscription, first, port = await stage.consume(topic, FAILOVER, permits=1, name="a", **options)
    await stage.fire()
    _, _, second = await stage.consume(topic, FAILOVER, permits=10, name="b", **options)
    assert (port.keys, second.keys) == (places[6:7], [])
    subscription.remove_consumer(first)
    await stage.settle()
    await stage.fire()
    assert second.keys == places[6:]


async def test_consumer_without_the_compacted_view_takes_over_the_log() -> None:
    """A read of the compacted ledger that was in flight must not move the cursor of the next consumer."""
    stage = Stage(reads_budget=1 << 20)
    topic, places = await three_keys(stage)
    subscription, first, _ = await stage.consume(topic, EXCLUSIVE, subscription="s", read_compacted=True)
    subscription.flow(first, 10)
    dispatcher = subscription.dispatcher
    assert dispatcher is not None
    # Until the read of the compacted ledger is under way, and no further.
    while not dispatcher.reads.reading:
        stage.soon.popleft()()
    subscription.remove_consumer(first)
    await stage.settle()
    limiter = stage.environment.reads_limiter
    assert limiter.remaining_bytes == limiter.budget_bytes
    _, _, port = await stage.consume(topic, EXCLUSIVE, subscription="s", permits=100)
    assert port.keys == places


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        ([single("a", b"1"), single("b", b"2"), single("b", b"")], (0, -1)),
        ([batch([("a", b"1"), ("b", b"2"), ("b", b"")])], (0, 0)),
        ([batch([("a", b"1"), ("b", b"2")])], (0, 1)),
        ([batch([("a", b"1")], encrypted=True)], (0, 0)),
        ([single("a", b"1"), single("a", b"")], None),
        ([single(None, b"1")], None),
    ],
)
async def test_last_message_is_that_of_the_compacted_view(
    bodies: list[bytes], expected: tuple[int, int] | None
) -> None:
    stage = Stage()
    topic = await stage.open()
    places = await publish(stage, topic, *bodies)
    await compact(stage, topic)
    compacted = topic.compaction.last_ledger()
    assert compacted is not None
    found = await stage.run(compacted.last_message())
    assert found == ((EARLIEST, 0) if expected is None else (places[expected[0]], expected[1]))
    assert compacted.known_last_message == found
    await publish(stage, topic, single("z", b"later"))
    assert topic.compaction.last_ledger() is None


async def test_empty_topic_and_a_second_request_without_messages_succeed() -> None:
    stage = Stage()
    topic = await stage.open()
    assert await compact(stage, topic) is CompactionStatus.SUCCESS
    await publish(stage, topic, single("a", b"1"))
    await compact(stage, topic)
    current = topic.compaction.current
    assert await compact(stage, topic) is CompactionStatus.SUCCESS
    assert topic.compaction.current is current
    assert len(stage.workers) == 1


async def test_second_request_is_refused_while_one_runs() -> None:
    stage = Stage()
    topic = await stage.open()
    topic.compaction.start()
    with pytest.raises(CompactionRunning, match="already in progress"):
        topic.compaction.start()
    await stage.run(topic.compaction.wait())


@pytest.mark.parametrize(("threshold", "starts"), [(0, False), (10_000, False), (100, True)])
async def test_threshold_starts_a_compaction(threshold: int, starts: bool) -> None:
    stage = Stage()
    topic = await stage.open()
    await publish(stage, topic, *values(*((f"k{n}", b"v") for n in range(20))))
    assert topic.compaction.start_if_due(threshold) is starts
    await stage.run(topic.compaction.wait())
    assert topic.compaction.start_if_due(threshold) is False


async def test_threshold_of_the_namespace_outranks_that_of_the_broker() -> None:
    stage = Stage(compaction_threshold_bytes=7)
    await stage.open()
    name = parse_topic_name(TOPIC)
    assert stage.registry.policies.of(name, COMPACTION) == 7
    await stage.run(stage.namespaces.set_policy("public/default", "compaction_threshold", 9))
    assert stage.registry.policies.of(name, COMPACTION) == 9


async def test_subscription_of_the_broker_belongs_to_no_client() -> None:
    stage = Stage()
    topic, _ = await three_keys(stage)
    assert COMPACTION_CURSOR in topic.subscriptions
    for kind in (EXCLUSIVE, FAILOVER):
        with pytest.raises(NotAllowed, match="broker's own"):
            await stage.consume(topic, kind, subscription=COMPACTION_CURSOR)
    with pytest.raises(NotAllowed, match="broker's own"):
        await stage.run(topic.subscriptions[COMPACTION_CURSOR].seek(EARLIEST))


async def test_deleted_subscription_takes_the_compacted_ledger_with_it() -> None:
    stage = Stage()
    topic, places = await three_keys(stage)
    current = topic.compaction.current
    assert current is not None
    subscription = topic.subscriptions[COMPACTION_CURSOR]
    await stage.run(topic.subscribing.delete(subscription, None, force=True))
    assert await stage.metadata.get(ledger_key(current.ledger_id)) is None
    assert (await view(stage, topic)).keys == places
    assert topic.compaction.status is CompactionStatus.NOT_RUN


async def test_deleted_topic_leaves_no_ledger() -> None:
    stage = Stage(entries_per_ledger=3)
    topic, _ = await three_keys(stage)
    await stage.run(stage.deletions.topic(topic.name, force=True))
    assert await ledgers_of(stage.metadata) == set()


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 12, 16, 20, 24, 28, 32, 40, 50])
@pytest.mark.parametrize("end", ["topic", "subscription", "unload"])
async def test_compaction_is_stopped_at_any_moment_by_what_ends_it(end: str, turns: int) -> None:
    stage = Stage(entries_per_ledger=3)
    topic, places = await three_keys(stage)
    await publish(stage, topic, *values(("k0", b"9")))
    topic.compaction.start()
    for _ in range(turns):
        if stage.soon:
            stage.soon.popleft()()
        await asyncio.sleep(0)
    if end == "topic":
        await stage.run(stage.deletions.topic(topic.name, force=True))
        assert await ledgers_of(stage.metadata) == set()
    elif end == "subscription":
        subscription = topic.subscriptions[COMPACTION_CURSOR]
        await stage.run(topic.subscribing.delete(subscription, None, force=True))
        await stage.settle()
        assert (topic.compaction.current, topic.ledger.store.beside) == (None, ())
    else:
        await stage.run(stage.registry.unload(topic.name))
        again = await stage.open()
        assert again.ledger.state == "open"
        assert (await view(stage, again)).keys[-3:-1] == places[7:]
        assert await ledgers_of(stage.metadata) == await referenced(stage.metadata, again.name.ledger_name)


async def test_cancelled_write_is_finished_first() -> None:
    gate, stored = asyncio.Event(), list[str]()

    async def write() -> None:
        await gate.wait()
        stored.append("stored")

    task = asyncio.ensure_future(uninterrupted(write()))
    await asyncio.sleep(0)
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    gate.set()
    await asyncio.wait((task,))
    assert (task.cancelled(), stored) == (True, ["stored"])


async def test_read_that_takes_too_long_fails_the_compaction() -> None:
    stage = Stage()
    topic = await stage.open()
    places = await publish(stage, topic, single("a", b"1"))
    segments = segments_of(topic.ledger.ledgers, None, places[0])
    source = CompactionSource(stage.environment.ledgers, segments, 0.0)
    with pytest.raises(ReadTimedOut, match="brokerServiceCompactionPhaseOneLoopTimeInSeconds"):
        async for _ in source.runs():
            pass


async def test_worker_that_dies_leaves_the_former_compacted_ledger() -> None:
    stage = Stage()
    topic, places = await three_keys(stage)
    former = topic.compaction.current
    await publish(stage, topic, *values(("k0", b"9")))
    stage.workers_break = True
    assert await compact(stage, topic) is CompactionStatus.ERROR
    assert topic.compaction.current is former
    assert "worker has ended" in topic.compaction.last_error
    assert stage.workers[1].closed
    stage.workers_break = False
    assert await compact(stage, topic) is CompactionStatus.SUCCESS
    assert topic.compaction.counts.failed == 1
    assert (await view(stage, topic)).keys[:2] == places[7:]


async def test_metadata_store_that_refuses_leaves_the_former_compacted_ledger() -> None:
    stage = Stage()
    topic, _ = await three_keys(stage)
    former = topic.compaction.current
    await publish(stage, topic, *values(("k0", b"9")))
    stage.metadata.refusing = True
    assert await compact(stage, topic) is CompactionStatus.ERROR
    assert topic.compaction.current is former
    assert topic.ledger.store.beside == (former.ledger_id if former else None,)
    stage.metadata.refusing = False
    assert await compact(stage, topic) is CompactionStatus.SUCCESS


async def test_log_is_not_trimmed_before_the_horizon_is_stored() -> None:
    stage = Stage(entries_per_ledger=3)
    topic, _ = await three_keys(stage)
    await publish(stage, topic, *values(*((f"k{n % 3}", b"%d" % n) for n in range(9))))
    kept = [one.ledger_id for one in topic.ledger.ledgers.infos()]
    cursor = topic.ledger.cursors.by_name[COMPACTION_CURSOR]
    cursor.acknowledge_cumulative(topic.ledger.last_confirmed)
    topic.ledger.trimming.trim(stage.wall_ms)
    assert [one.ledger_id for one in topic.ledger.ledgers.infos()] == kept


async def ledgers_of(store: MemoryMetadataStore) -> set[int]:
    """All ledgers that the metadata store has."""
    return {number for number in range(200) if await store.get(ledger_key(number)) is not None}


async def referenced(store: MemoryMetadataStore, name: str) -> set[int]:
    """All ledgers that the log's list names; the compacted one must be the cursor's."""
    found = await store.get(f"/managed-ledgers/{name}")
    assert found is not None
    info = decode_ledger_list(found.value)
    cursor = await store.get(cursor_key(name, COMPACTION_CURSOR))
    used = decode_cursor(cursor.value).info.properties.get(LEDGER_PROPERTY) if cursor else None
    assert info.beside == ([] if used is None else [used])
    return {*(one.ledger_id for one in info.ledgers), *info.beside}


FIRST: list[Item] = [(f"k{n % 3}", b"a%d" % n) for n in range(7)]
SECOND: list[Item] = [(f"k{n % 4}", b"b%d" % n) for n in range(7)]


async def life(stage: Stage, ports: list[FakeProducerPort]) -> None:
    """Two compactions of a topic whose log is trimmed in between."""
    topic = await stage.open()
    for items in (FIRST, SECOND):
        producer = await stage.producer(topic, "publisher")
        ports.append(port_of(producer))
        for number, (key, payload) in enumerate(items):
            send(producer, number, single(key, payload))
        await stage.settle()
        await topic.remove_producer(producer)
        await compact(stage, topic)


async def lived_until_dead(
    way: WritesUntilCrash,
) -> tuple[Stage, list[FakeProducerPort], asyncio.Future[None]]:
    """Begins a topic's life on a store behind `way`; returns when the way lets no write through, or the life has ended."""
    stage, ports = Stage(entries_per_ledger=3, metadata=way), list[FakeProducerPort]()
    work = asyncio.ensure_future(life(stage, ports))
    while not (way.dead or work.done()):
        while stage.soon:
            stage.soon.popleft()()
        await asyncio.sleep(0)
    return stage, ports, work


async def test_crash_between_any_two_writes_keeps_the_view_and_leaves_no_ledger() -> None:
    horizons = set()
    # The first four writes make tenants and namespaces.
    for writes in range(4, 60):
        shared = MemoryMetadataStore()
        way = WritesUntilCrash(shared, writes)
        stage, ports, work = await lived_until_dead(way)
        work.cancel()
        stage.soon.clear()
        await asyncio.wait((work,))
        after = Stage(entries_per_ledger=3, metadata=shared, before=stage)
        topic = await after.open()
        horizons.add(None if topic.compaction.current is None else topic.compaction.current.horizon)
        confirmed = sum(len(port.receipts) for port in ports)
        await check_view(after, topic, confirmed)
        assert await ledgers_of(shared) - await referenced(shared, topic.name.ledger_name) == set()
        assert await compact(after, topic) is CompactionStatus.SUCCESS
        await check_view(after, topic, confirmed)
        if not way.dead:
            break
    else:
        raise AssertionError("the life never ends")
    # Crashes came before the first horizon, between the two, and behind the second one.
    assert len(horizons) == 3


async def check_view(stage: Stage, topic: PersistentTopic, confirmed: int) -> None:
    """Folded by key, the compacted view is that of all confirmed messages, and of no more than a few after them."""
    port = await view(stage, topic, subscription=f"view-{stage.now_ns}-{len(topic.subscriptions)}")
    folded: dict[str, bytes] = {}
    for entry in port.got:
        metadata, payload = read_entry(entry.body)
        folded[metadata.partition_key] = bytes(payload)
    messages = [*FIRST, *SECOND]
    possible = [dict(messages[:count]) for count in range(confirmed, len(messages) + 1)]
    assert folded in possible
    assert len(port.keys) == len(set(port.keys))
