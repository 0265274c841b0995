"""Shadow topics: they read the log of their source, keep what they need of it, and live and end with it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from broker.managed_ledger.ledger_writer import ManagedLedgerState
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE, cursor_key, managed_ledger_key
from broker.managed_ledger.records.pulsar_records import decode_ledger_list, encode_ledger_list
from broker.service.lifecycle.inactive_topics import in_use
from broker.service.namespaces.namespaces import Json
from broker.service.policies.table import SHADOW_TOPICS
from broker.service.topics.new_topic import create_shadow
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.shadow_topic import ShadowTopic
from broker.service.topics.shadows import HasShadows
from foundation.model.errors import MetadataError, NotAllowed, TopicNotFound
from foundation.model.position import EARLIEST, Position
from foundation.model.topic_name import TopicName, parse_topic_name
from protocol.ledger_metadata import ledger_key
from tests.fakes.messages import message
from tests.fakes.sends import send
from tests.fakes.stage import EXCLUSIVE, SHARED, TOPIC, Stage, port_of

SHADOW = "persistent://public/default/shadow"
SHADOW_NAME, SOURCE_NAME = parse_topic_name(SHADOW), parse_topic_name(TOPIC)


async def with_shadow(stage: Stage) -> tuple[PersistentTopic, PersistentTopic]:
    """Returns a source and its shadow, both open."""
    source = await stage.open()
    await stage.run(create_shadow(stage.registry, SHADOW_NAME, {SHADOW_SOURCE: TOPIC}))
    return source, await stage.open(SHADOW)


async def test_shadow_delivers_the_messages_of_its_source_at_their_positions() -> None:
    stage = Stage()
    source, shadow = await with_shadow(stage)
    await stage.publish(source, 3)
    _, _, at_source = await stage.consume(source, EXCLUSIVE, permits=10)
    _, _, at_shadow = await stage.consume(shadow, EXCLUSIVE, permits=10)
    assert at_shadow.keys == at_source.keys != []
    await stage.publish(source, 2)
    assert at_shadow.keys == at_source.keys
    assert len(at_shadow.keys) == 5


async def test_readers_of_source_and_shadow_share_cached_entries_and_storage_reads() -> None:
    stage = Stage()
    source, shadow = await with_shadow(stage)
    ports = [
        (await stage.consume(topic, EXCLUSIVE, permits=100, subscription=name))[2]
        for topic in (source, shadow)
        for name in ("s", "other")
    ]
    await stage.publish(source, 10)
    assert [len(port.keys) for port in ports] == [10] * 4
    cache = source.ledger.cache
    assert shadow.ledger.cache is cache
    assert source.ledger.reading_cursors.active.count == 4
    assert (cache.reads.hit_entries, cache.reads.miss_entries) == (40, 0)
    assert source.ledger.stats.storage_entries_read == 0
    assert [topic.ledger.reads.hit_entries for topic in (source, shadow)] == [20, 20], (
        "sums count each read once"
    )
    await stage.run(shadow.subscribing.delete(shadow.subscriptions["other"], None, force=True))
    assert [topic.ledger.reads.hit_entries for topic in (source, shadow)] == [20, 20]


async def test_reader_of_a_shadow_has_a_name_that_tells_the_topic() -> None:
    stage = Stage()
    source, shadow = await with_shadow(stage)
    one, _, _ = await stage.consume(source, subscription="same")
    other, _, _ = await stage.consume(shadow, subscription="same")
    assert one.cursor.reader.name == "same"
    assert other.cursor.reader.name == f"same of {SHADOW}"


async def test_source_keeps_what_an_open_shadow_has_not_acknowledged() -> None:
    stage = Stage(entries_per_ledger=2)
    source, shadow = await with_shadow(stage)
    quick, _, _ = await stage.consume(source, EXCLUSIVE, permits=100)
    slow, _, _ = await stage.consume(shadow, EXCLUSIVE, permits=100)
    await stage.publish(source, 6)
    quick.acknowledge_through(source.ledger.last_confirmed)
    await stage.settle()
    first = source.ledger.ledgers.first()
    assert (first.entry_id, source.ledger.ledgers.entries) == (0, 6), "the shadow needs all of them"
    slow.acknowledge_through(Position(first.ledger_id, 1))
    await stage.settle()
    assert source.ledger.ledgers.entries == 4, "an acknowledgement on the shadow trims its source"
    slow.acknowledge_through(source.ledger.last_confirmed)
    await stage.settle()
    assert source.ledger.ledgers.entries == 0


async def test_source_keeps_what_a_closed_shadow_has_not_acknowledged_also_after_a_restart() -> None:
    stage = Stage(entries_per_ledger=2)
    source, shadow = await with_shadow(stage)
    await stage.run(source.subscribing.create("s", EARLIEST))
    await stage.run(shadow.subscribing.create("s", EARLIEST))
    await stage.publish(source, 6)
    await stage.run(stage.registry.unload(SHADOW_NAME))
    source.subscriptions["s"].acknowledge_through(source.ledger.last_confirmed)
    await stage.run(stage.registry.shadows.trim(source))
    assert source.ledger.ledgers.entries == 6
    await stage.run(stage.registry.unload(SOURCE_NAME))
    source = await stage.open()
    source.ledger.trimming.trim(stage.wall_ms, without_cursors=True)
    assert source.ledger.ledgers.entries == 6, "nothing goes before the positions of the shadow are read"
    await stage.run(stage.registry.shadows.trim(source))
    assert source.ledger.ledgers.entries == 6
    shadow = await stage.open(SHADOW)
    _, _, port = await stage.consume(shadow, EXCLUSIVE, permits=100)
    assert len(port.keys) == 6
    shadow.subscriptions["s"].acknowledge_through(source.ledger.last_confirmed)
    await stage.run(stage.registry.unload(SHADOW_NAME))
    await stage.run(stage.registry.shadows.trim(source))
    assert source.ledger.ledgers.entries == 0


async def test_source_keeps_nothing_for_a_topic_that_it_does_not_list_any_more() -> None:
    stage = Stage(entries_per_ledger=2)
    source, shadow = await with_shadow(stage)
    await stage.run(shadow.subscribing.create("s", EARLIEST))
    await stage.publish(source, 6)
    await stage.run(stage.registry.unload(SHADOW_NAME))
    await stage.run(stage.registry.shadows.trim(source))
    assert source.ledger.ledgers.entries == 6
    await stage.run(stage.namespaces.set_topic_policy(TOPIC, SHADOW_TOPICS, None))
    await stage.run(stage.registry.shadows.trim(source))
    assert source.ledger.ledgers.entries == 0


async def test_shadow_keeps_ledgers_by_a_retention_of_its_own() -> None:
    stage = Stage(entries_per_ledger=2)
    source, _ = await with_shadow(stage)
    await stage.publish(source, 4)
    keep: Json = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    await stage.run(stage.namespaces.set_topic_policy(SHADOW, "retentionPolicies", keep))
    await stage.run(stage.registry.shadows.trim(source))
    assert source.ledger.ledgers.entries == 4
    assert source.ledger.trimming.keep_ms == 0
    await stage.run(stage.namespaces.set_topic_policy(SHADOW, "retentionPolicies", None))
    await stage.run(stage.registry.shadows.trim(source))
    assert source.ledger.ledgers.entries == 0


async def test_closing_of_a_source_closes_its_shadows_and_opening_one_opens_both() -> None:
    stage = Stage()
    _, shadow = await with_shadow(stage)
    _, _, port = await stage.consume(shadow, EXCLUSIVE, permits=10)
    await stage.run(stage.registry.unload(SOURCE_NAME))
    assert "closed" in port.events
    assert shadow.closed
    assert stage.registry.topics == {}
    again = await stage.open(SHADOW)
    assert isinstance(again, ShadowTopic)
    assert TOPIC in stage.registry.topics
    assert again.ledger.source is stage.registry.topics[TOPIC].ledger  # type: ignore[attr-defined]


async def test_source_is_closed_also_when_its_shadow_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    source, _ = await with_shadow(stage)

    async def fails(topic: ShadowTopic) -> None:
        raise MetadataError("no store")

    monkeypatch.setattr(ShadowTopic, "close", fails)
    await stage.run(stage.registry.unload(SOURCE_NAME))
    assert source.ledger.state is ManagedLedgerState.CLOSED


async def test_shadow_refuses_messages_and_its_own_end() -> None:
    stage = Stage()
    source, shadow = await with_shadow(stage)
    producer = await stage.producer(shadow)
    send(producer, 0, message(b"x"))
    await stage.settle()
    assert [type(error) for _, error in port_of(producer).refusals] == [NotAllowed]
    with pytest.raises(NotAllowed):
        await stage.run(shadow.terminate())
    assert source.ledger.ledgers.entries == 0


async def test_source_with_shadows_is_not_deleted() -> None:
    stage = Stage()
    await with_shadow(stage)
    with pytest.raises(HasShadows, match=SHADOW):
        await stage.run(stage.deletions.topic(SOURCE_NAME, force=True))
    await stage.run(stage.deletions.topic(SHADOW_NAME, force=True))
    await stage.run(stage.deletions.topic(SOURCE_NAME, force=True))
    with pytest.raises(TopicNotFound):
        await stage.run(stage.registry.get(SOURCE_NAME, create=False))


async def test_deleted_shadow_takes_its_cursors_along_and_leaves_the_ledgers_of_its_source() -> None:
    stage = Stage(entries_per_ledger=2)
    source, shadow = await with_shadow(stage)
    await stage.run(shadow.subscribing.create("s", EARLIEST))
    await stage.publish(source, 4)
    await stage.run(stage.deletions.topic(SHADOW_NAME, force=True))
    await stage.settle()
    assert source.ledger.shadows == {}
    _, _, port = await stage.consume(source, EXCLUSIVE, permits=10)
    assert len(port.keys) == 4
    assert not await stage.metadata.children(f"/managed-ledgers/{SHADOW_NAME.ledger_name}")


async def test_consumers_of_a_shadow_learn_of_the_end_of_its_source() -> None:
    stage = Stage()
    source, shadow = await with_shadow(stage)
    await stage.publish(source, 1)
    subscription, _, port = await stage.consume(shadow, EXCLUSIVE, permits=10)
    subscription.acknowledge_through(source.ledger.last_confirmed)
    await stage.settle()
    await stage.run(source.terminate())
    await stage.fire()
    assert shadow.is_terminated
    assert "end" in port.events


async def test_delayed_messages_wait_at_the_shadow_too() -> None:
    stage = Stage()
    source, shadow = await with_shadow(stage)
    _, _, port = await stage.consume(shadow, SHARED, permits=10)
    await stage.publish(source, 1, delays_ms=[5_000])
    assert port.keys == []
    await stage.pass_time(6_000)
    assert len(port.keys) == 1


@pytest.mark.parametrize(
    "source", ["persistent://public/default/missing", SHADOW, "non-persistent://public/default/x"]
)
async def test_source_of_a_shadow_must_have_a_log_of_its_own(source: str) -> None:
    stage = Stage()
    await with_shadow(stage)
    other = parse_topic_name("persistent://public/default/other")
    with pytest.raises(NotAllowed):
        await stage.run(create_shadow(stage.registry, other, {SHADOW_SOURCE: source}))
    assert not await stage.run(stage.registry.exists(other))


async def test_partitions_of_a_shadow_read_the_same_partitions_of_the_source() -> None:
    stage = Stage()
    await stage.namespaces.open()
    await stage.run(stage.partitioned.create(SOURCE_NAME, 2))
    await stage.run(stage.partitioned.create(SHADOW_NAME, 2, {SHADOW_SOURCE: TOPIC}))
    for index in (0, 1):
        source, shadow = (
            await stage.open(f"{TOPIC}-partition-{index}"),
            await stage.open(f"{SHADOW}-partition-{index}"),
        )
        assert shadow.ledger.source is source.ledger
        await stage.publish(source, index + 1)
        _, _, port = await stage.consume(shadow, EXCLUSIVE, permits=10)
        assert len(port.keys) == index + 1
    with pytest.raises(HasShadows, match=SHADOW):
        await stage.run(stage.partitioned.delete(SOURCE_NAME, force=True))


async def test_closing_of_a_source_waits_for_a_shadow_that_is_being_opened() -> None:
    stage = Stage()
    await with_shadow(stage)
    await stage.run(stage.registry.unload(SHADOW_NAME))
    opening = asyncio.ensure_future(stage.registry.get(SHADOW_NAME, create=False))
    for _ in range(4):
        await asyncio.sleep(0)
    await stage.run(stage.registry.unload(SOURCE_NAME))
    await stage.run(asyncio.wait((opening,)))
    topics = [topic for topic in stage.registry.topics.values() if isinstance(topic, PersistentTopic)]
    for topic in topics:
        assert topic.ledger.source is None or topic.ledger.source in [one.ledger for one in topics]


async def test_namespace_is_not_deleted_while_a_shadow_elsewhere_reads_a_topic_of_it() -> None:
    stage = Stage(force_delete_namespaces=True)
    await stage.namespaces.open()
    await stage.run(stage.namespaces.create("public/sources", {}))
    source = parse_topic_name("persistent://public/sources/t")
    await stage.run(stage.registry.get(source, create=True))
    for name in (SHADOW_NAME, parse_topic_name("persistent://public/sources/shadow")):
        await stage.run(create_shadow(stage.registry, name, {SHADOW_SOURCE: str(source)}))
    with pytest.raises(HasShadows, match=f"first: {SHADOW}$"):
        await stage.run(stage.deletions.namespace("public/sources", force=True))
    with pytest.raises(HasShadows):
        await stage.run(stage.deletions.topic(source, force=True))
    await stage.run(stage.deletions.topic(SHADOW_NAME, force=True))
    await stage.run(stage.deletions.namespace("public/sources", force=True))
    assert not stage.namespaces.exists("public/sources")


async def test_list_of_a_shadow_that_apache_wrote_is_left_alone() -> None:
    """Apache's broker copies the source's ledgers into the node of the shadow."""
    stage = Stage(entries_per_ledger=2)
    source, shadow = await with_shadow(stage)
    await stage.run(shadow.subscribing.create("s", EARLIEST))
    await stage.publish(source, 3)
    await stage.run(stage.registry.unload(SHADOW_NAME))
    key = managed_ledger_key(SHADOW_NAME.ledger_name)
    found = await stage.metadata.get(key)
    assert found is not None
    info = decode_ledger_list(found.value)
    info.ledgers = [replace(one, closed_at_ms=None) for one in source.ledger.ledgers.infos()]
    await stage.metadata.put(key, encode_ledger_list(info), found.version)
    shadow = await stage.open(SHADOW)
    _, _, port = await stage.consume(shadow, EXCLUSIVE, permits=10)
    await stage.publish(source, 2)
    assert len(port.keys) == 5, "no ledger of the source was fenced"
    await stage.run(stage.deletions.topic(SHADOW_NAME, force=True))
    for one in source.ledger.ledgers.infos():
        assert not one.entries or await stage.metadata.get(ledger_key(one.ledger_id)), "it is the source's"


async def test_source_with_a_shadow_counts_as_used() -> None:
    stage = Stage()
    source, _ = await with_shadow(stage)
    assert in_use(source, "delete_when_no_subscriptions")


async def test_shadow_with_a_cursor_that_another_broker_has_stored_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    made = PersistentTopic.__init__
    before: list[object] = []

    def noting(
        topic: PersistentTopic, name: TopicName, ledger: ManagedLedger, *more: Any, **named: Any
    ) -> None:
        # A cursor that is refused during the opening finds nobody to tell.
        before.append(ledger.context.listener)
        made(topic, name, ledger, *more, **named)

    monkeypatch.setattr(PersistentTopic, "__init__", noting)
    source, shadow = await with_shadow(stage)
    assert set(before) == {None}
    subscription, consumer, port = await stage.consume(shadow, EXCLUSIVE, permits=10)
    await stage.publish(source, 1)
    key = cursor_key(SHADOW_NAME.ledger_name, "s")
    stored = await stage.run(stage.environment.metadata.get(key))
    assert stored is not None
    await stage.run(stage.environment.metadata.put(key, stored.value, stored.version))
    subscription.acknowledge_cumulative(consumer, shadow.ledger.last_confirmed, None)
    await stage.settle()
    assert (shadow.closed, source.closed) == (True, False)
    assert port.events[-1:] == ["closed"]
