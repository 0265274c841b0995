"""PolicyEvents: policies of topics in `__change_events`, of one broker and of several on one store."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, cast

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.schemas.avro_schema import parse_avro
from broker.schemas.decoding import decode_avro
from broker.schemas.encoding import encode
from broker.schemas.schema import Schema, SchemaType
from broker.schemas.strategy import Strategy
from broker.service.namespaces.stored_forms import Document
from broker.service.policies.event_locks import ROOT
from broker.service.policies.forms import PolicyRefused
from broker.service.policies.pulsar_event import EVENT_SCHEMA
from broker.service.policies.topic_events import EVENT_TYPE, EventKey, event_of, no_policies
from broker.service.producer import Producer
from broker.service.topics.event_producer import publish
from broker.service.topics.topic_schemas import version_bytes
from foundation.model.errors import (
    BadVersion,
    BrokerError,
    LedgerFenced,
    NoSuchLedger,
    PersistenceError,
    ServiceNotReady,
)
from foundation.model.position import Position
from foundation.model.topic_name import parse_topic_name
from foundation.value import Json
from protocol.frame import message_body
from protocol.pulsar_api_pb2 import MessageMetadata
from tests.fakes.policy_brokers import (
    DOCUMENT,
    EVENTS,
    EVENTS_NAME,
    Broker,
    one_broker,
    three_brokers,
    two_brokers,
)
from tests.fakes.ports import FakeProducerPort
from tests.fakes.sends import send
from tests.fakes.stage import TOPIC

NAME = parse_topic_name(TOPIC)


async def test_policies_are_events_and_survive_a_restart() -> None:
    broker = await one_broker()
    await broker.set("maxProducerPerTopic", 3)
    await broker.set("global:maxConsumerPerTopic", 4)
    wanted = {"maxProducerPerTopic": 3, "global:maxConsumerPerTopic": 4}
    assert await broker.policies() == wanted
    keys = [(one.partition_key, list(one.replicate_to)) for one, _ in await broker.stored()]
    assert keys == [(TOPIC, ["standalone"]), (f"__G__{TOPIC}", [])]
    store = cast("MemoryMetadataStore", broker.stage.environment.metadata)
    assert await store.children("/admin/topic-policies") == []
    await broker.stage.run(broker.stage.registry.close())
    assert await (await Broker(store, broker).open()).policies() == wanted


async def test_change_of_one_broker_acts_on_the_open_topics_of_another() -> None:
    one, other = await two_brokers()
    topic = await other.stage.open()
    await one.set("maxMessageSize", 50)
    await one.stage.settle()
    assert topic.message_bytes_max == 50
    await one.set("maxMessageSize", 60)
    await one.stage.settle()
    assert topic.message_bytes_max == 60, "an event in a ledger that is open"
    assert EVENTS not in other.stage.registry.topics, "the first broker keeps its topic"
    await one.forget()
    await one.stage.settle()
    assert topic.message_bytes_max == 0


async def test_policies_that_two_brokers_set_at_once_are_all_kept() -> None:
    one, other = await two_brokers()
    changes = (
        ("maxProducerPerTopic", 1),
        ("maxConsumerPerTopic", 2),
        ("maxSubscriptionsPerTopic", 3),
        ("messageTTLInSeconds", 4),
    )
    await one.stage.run(
        asyncio.gather(
            *(
                broker.stage.namespaces.set_topic_policy(TOPIC, *change)
                for broker, change in zip((one, other, one, other), changes, strict=True)
            )
        )
    )
    await one.stage.settle()
    assert await one.policies() == await other.policies() == dict(changes)
    await one.forget()
    await other.set("maxMessageSize", 5)
    await one.stage.settle()
    assert await one.policies() == await other.policies() == {"maxMessageSize": 5}


async def test_deleted_topic_leaves_events_without_payload() -> None:
    broker = await one_broker()
    await broker.stage.open()
    await broker.set("maxProducerPerTopic", 3)
    await broker.set("global:maxConsumerPerTopic", 4)
    await broker.stage.run(broker.stage.deletions.topic(NAME, force=True))
    stored = await broker.stored()
    assert [(one.partition_key, one.null_value, payload) for one, payload in stored[2:]] == [
        (TOPIC, True, b""),
        (f"__G__{TOPIC}", True, b""),
    ]
    assert await broker.policies() == {}
    await broker.forget()
    assert len(await broker.stored()) == 4, "a topic without policies needs no event"


async def test_removed_policy_is_one_that_the_next_event_lacks() -> None:
    broker = await one_broker()
    await broker.set("maxProducerPerTopic", 3)
    await broker.set("maxProducerPerTopic", None)
    payloads = [payload for _, payload in await broker.stored()]
    assert payloads[1] == encode(
        EVENT_TYPE, event_of(EventKey(TOPIC, False), no_policies(is_global=False), "standalone")
    )
    assert await broker.policies() == {}


async def test_policy_is_in_force_when_the_topic_opens_first() -> None:
    broker = await one_broker()
    await broker.set("maxMessageSize", 50)
    store = broker.stage.environment.metadata
    # As after a kill: nothing was closed.
    later = await Broker(store, broker).open()
    assert later.stage.namespaces.topic_policies(TOPIC) == {}, "not loaded before a topic needs it"
    assert (await later.stage.open()).message_bytes_max == 50


async def test_no_topic_is_opened_while_events_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await one_broker()
    await broker.set("maxMessageSize", 50)
    later = await Broker(broker.stage.environment.metadata, broker).open()

    def fail(*_: object) -> None:
        raise PersistenceError("the bookie is away")

    with monkeypatch.context() as patched:
        patched.setattr(later.stage.environment.ledgers, "read", fail)
        patched.setattr("broker.service.topics.event_log.EventLog.catch_up", fail)
        for _ in range(2):
            with pytest.raises(PersistenceError):
                await later.stage.open()
    assert (await later.stage.open()).message_bytes_max == 50


async def test_refused_change_hides_no_change_of_the_other_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = await two_brokers()
    topic = await other.stage.open()
    with monkeypatch.context() as patched:
        patched.setattr(other.events, "_value_changed", lambda _: None)
        await one.set("maxMessageSize", 50)
        with pytest.raises(PolicyRefused):
            await other.set("maxProducerPerTopic", "many")
    await other.stage.settle()
    assert topic.message_bytes_max == 50


async def test_own_policy_stays_in_a_document_and_is_followed() -> None:
    one, other = await two_brokers()
    value: Json = {"enabled": False, "periodSeconds": 9, "pendingSeconds": 0}
    await one.set("maxMessageSize", 50)
    await one.set("unackedHoleRedelivery", value)
    await one.stage.settle()
    wanted = {"maxMessageSize": 50, "unackedHoleRedelivery": value}
    assert await one.policies() == await other.policies() == wanted
    await other.forget()
    await one.stage.settle()
    assert await one.policies() == await other.policies() == {}
    assert await one.stage.environment.metadata.get(DOCUMENT) is None


async def add_event(broker: Broker, payload: bytes | None, version: bytes, key: str = TOPIC) -> None:
    topic = await broker.stage.open(EVENTS)
    metadata = MessageMetadata(
        producer_name="c", sequence_id=1, publish_time=1, partition_key=key, schema_version=version
    )
    producer = Producer(topic, FakeProducerPort(), producer_id=0, name="c")
    send(producer, 1, message_body(metadata, payload or b""))
    await broker.stage.settle()


async def test_fields_of_a_newer_apache_stay_when_a_policy_is_set() -> None:
    broker = await one_broker()
    text = EVENT_SCHEMA.data.replace(
        b'{"name":"shadowTopics"',
        b'{"name":"ofTomorrow","type":["null","int"],"default":null},{"name":"shadowTopics"',
    )
    newer = Schema(SchemaType.AVRO, text, EVENT_SCHEMA.properties)
    schemas = broker.stage.registry.schemas.registry
    version = version_bytes(
        await broker.stage.run(
            schemas.add("public/default/__change_events", newer, Strategy("ALWAYS_COMPATIBLE"))
        )
    )
    fields: Document = {**no_policies(is_global=False), "ofTomorrow": 8, "shadowTopics": [TOPIC]}
    await add_event(broker, encode(parse_avro(text), event_of(EventKey(TOPIC, False), fields, "c")), version)
    await broker.set("maxMessageSize", 50)
    metadata, payload = (await broker.stored())[-1]
    assert metadata.schema_version == version
    event = decode_avro(parse_avro(text), payload)
    assert isinstance(event, dict)
    assert isinstance(named := event["topicPoliciesEvent"], dict)
    assert named["policies"] == {**dict.fromkeys(_fields(text)), **fields, "maxMessageSize": 50}


def _fields(text: bytes) -> list[str]:
    policies = json.loads(text)["fields"][3]["type"][1]["fields"][2]["type"][1]
    return [one["name"] for one in policies["fields"]]


@pytest.mark.parametrize("version", [b"", version_bytes(77), b"short"])
async def test_message_that_is_no_event_is_skipped(version: bytes, caplog: pytest.LogCaptureFixture) -> None:
    broker = await one_broker()
    await broker.set("maxMessageSize", 50)
    await add_event(broker, b"no event", version)
    later = await Broker(broker.stage.environment.metadata, broker).open()
    assert await later.policies() == {"maxMessageSize": 50}
    assert "is no event of policies" in caplog.text


async def test_event_of_another_namespace_changes_nothing_there() -> None:
    broker = await one_broker()
    await broker.stage.run(broker.stage.namespaces.create("public/other"))
    await broker.set("maxMessageSize", 50)
    key = EventKey("persistent://public/other/t", False)
    fields = {**no_policies(is_global=False), "maxMessageSize": 1}
    await add_event(broker, encode(EVENT_TYPE, event_of(key, fields, "c")), version_bytes(0), key.text)
    later = await Broker(broker.stage.environment.metadata, broker).open()
    await later.policies()
    assert await later.policies(key.topic) == {}


async def test_compacted_events_are_read() -> None:
    broker = await one_broker()
    for size in range(1, 4):
        await broker.set("maxMessageSize", size)
    await broker.set("maxMessageSize", 9, "persistent://public/default/other")
    topic = await broker.stage.open(EVENTS)
    topic.compaction.start()
    await broker.stage.run(topic.compaction.wait())
    assert topic.compaction.current is not None
    assert topic.compaction.current.entries == 2
    await broker.set("maxProducerPerTopic", 7)
    later = await Broker(broker.stage.environment.metadata, broker).open()
    assert await later.policies() == {"maxMessageSize": 3, "maxProducerPerTopic": 7}
    assert await later.policies("persistent://public/default/other") == {"maxMessageSize": 9}


async def test_events_stay_when_nothing_but_the_broker_needs_them() -> None:
    """The periodic check takes all ledgers but the last one from a topic without a cursor."""
    broker = await one_broker()
    for size in range(1, 4):
        await broker.set("maxMessageSize", size, f"{TOPIC}{size}")
        topic = await broker.stage.open(EVENTS)
        topic.ledger.trimming.trim(broker.stage.wall_ms, without_cursors=True)
        await broker.stage.settle()
        await broker.stage.run(broker.stage.registry.unload(EVENTS_NAME))
    assert len(await broker.stored()) == 3


async def other_after_compaction(monkeypatch: pytest.MonkeyPatch, topic: str) -> Broker:
    """A broker that has read a policy, which the other one then removed; no ledger has an event of that any more."""
    one, other = await two_brokers()
    await other.policies()
    await one.set("maxMessageSize", 1)
    await one.stage.settle()
    assert await other.policies() == {"maxMessageSize": 1}
    # The other broker is told nothing until the ledgers are gone.
    with monkeypatch.context() as patched:
        patched.setattr(other.events, "_wake", lambda: None)
        await one.forget()
        await one.set("maxMessageSize", 2, topic)
        await one.stage.run(one.stage.registry.unload(EVENTS_NAME))
        events = await one.stage.open(EVENTS)
        events.compaction.start()
        await one.stage.run(events.compaction.wait())
        await one.stage.settle()
        await one.set("maxMessageSize", 3, f"{topic}-later")
        assert len(await one.stored()) == 1
    return other


async def test_trimmed_ledgers_that_were_not_followed_are_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = "persistent://public/default/other"
    other = await other_after_compaction(monkeypatch, topic)
    other.events._wake()
    while not await other.policies(topic):
        await other.stage.settle()
    found = [await other.policies(name) for name in (TOPIC, topic, f"{topic}-later")]
    assert found == [{}, {"maxMessageSize": 2}, {"maxMessageSize": 3}]


async def test_deletion_that_was_compacted_away_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = "persistent://public/default/other"
    other = await other_after_compaction(monkeypatch, topic)
    monkeypatch.setattr(other.events, "_wake", lambda: None)
    await other.set("maxProducerPerTopic", 4, topic)
    found = [await other.policies(name) for name in (TOPIC, topic)]
    assert found == [{}, {"maxMessageSize": 2, "maxProducerPerTopic": 4}]


async def test_partitioned_events_go_where_apache_looks_for_them() -> None:
    broker = await one_broker()
    await broker.stage.run(broker.stage.registry.partitions.create(EVENTS_NAME, 3, None))
    topics = [f"persistent://public/default/t{number}" for number in range(8)]
    for topic in topics:
        await broker.set("maxMessageSize", 5, topic)
    await broker.forget(topics[0])
    counts = []
    for number in range(3):
        events = await broker.stage.open(f"{EVENTS}-partition-{number}")
        counts.append(events.ledger.ledgers.entries)
    assert sum(counts) == 9
    assert 0 not in counts
    later = await Broker(broker.stage.environment.metadata, broker).open()
    assert [await later.policies(topic) for topic in topics] == [{}] + [{"maxMessageSize": 5}] * 7


async def test_namespace_with_nothing_but_events_can_be_deleted() -> None:
    broker, topic = await one_broker(), "persistent://public/shop/t"
    namespaces, deletions = broker.stage.namespaces, broker.stage.deletions
    await broker.stage.run(namespaces.create("public/shop"))
    await broker.set("maxMessageSize", 5, topic)
    await broker.set("unackedHoleRedelivery", {"enabled": True}, topic)
    assert await broker.stage.registry.names("public/shop") == ["persistent://public/shop/__change_events"]
    await broker.stage.run(deletions.namespace("public/shop", force=False))
    assert dict(namespaces.topic_policies(topic)) == {}
    await broker.stage.run(namespaces.create("public/shop"))
    assert await broker.policies(topic) == {}


async def test_events_are_no_topic_that_clients_look_for() -> None:
    broker = await one_broker()
    announced = list[str]()
    broker.stage.registry.events.watch("public/default", lambda name, _: announced.append(str(name)))
    await broker.stage.run(
        broker.stage.namespaces.set_policy("public/default", "max_topics_per_namespace", 1)
    )
    await broker.set("maxMessageSize", 5)
    await broker.stage.open()
    assert announced == [TOPIC], "nor do they count"
    await broker.stage.run(broker.stage.namespaces.create("public/full"))
    await broker.stage.run(broker.stage.namespaces.set_policy("public/full", "max_topics_per_namespace", 1))
    await broker.stage.open("persistent://public/full/t")
    await broker.set("maxMessageSize", 5, "persistent://public/full/t")


async def test_failed_change_changes_nothing_and_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await one_broker()
    await broker.set("maxMessageSize", 5)
    with monkeypatch.context() as patched:

        async def fail(*_: object, **__: object) -> None:
            raise NoSuchLedger("gone")

        patched.setattr(broker.stage.registry, "get", fail)
        with pytest.raises(NoSuchLedger):
            await broker.set("maxMessageSize", 6)
    assert await broker.policies() == {"maxMessageSize": 5}
    await broker.set("maxMessageSize", 6)
    assert await broker.policies() == {"maxMessageSize": 6}


async def test_many_changes_and_deletions_by_three_brokers_at_once_are_all_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    brokers = await three_brokers()
    stage = brokers[0].stage
    topics = [f"{TOPIC}-{number}" for number in range(24)]
    for value in range(3):
        changes = (
            brokers[number % 3].stage.namespaces.set_topic_policy(topic, "maxMessageSize", value + number + 1)
            for number, topic in enumerate(topics)
        )
        await stage.run(asyncio.gather(*changes))
        await stage.settle()
        for broker in brokers:
            found = [(await broker.policies(topic))["maxMessageSize"] for topic in topics]
            assert found == [value + number + 1 for number in range(24)]
    forgets = (
        brokers[number % 3].stage.namespaces.forget_topic(topic) for number, topic in enumerate(topics)
    )
    await stage.run(asyncio.gather(*forgets))
    await stage.settle()
    assert [await broker.policies(topic) for broker in brokers for topic in topics] == [{}] * 72
    assert "was taken over" not in caplog.text, "a broker opens the topic anew before it writes"
    assert await stage.environment.metadata.children(f"{ROOT}/public/default") == []


async def test_changes_are_made_beside_a_broker_without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = await two_brokers()
    monkeypatch.setattr(one.events._locks, "hold", lambda *_, **__: contextlib.nullcontext())
    for value in range(1, 6):
        await one.stage.run(
            asyncio.gather(
                one.stage.namespaces.set_topic_policy(TOPIC, "maxProducerPerTopic", value),
                other.stage.namespaces.set_topic_policy(TOPIC, "maxConsumerPerTopic", value),
            )
        )
    await one.stage.settle()
    wanted = {"maxProducerPerTopic": 5, "maxConsumerPerTopic": 5}
    assert await one.policies() == await other.policies() == wanted


@pytest.mark.parametrize("error", [BadVersion("version 7"), LedgerFenced("fenced"), PersistenceError("lost")])
async def test_change_that_other_brokers_end_each_time_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, error: BrokerError
) -> None:
    broker = await one_broker()
    await broker.set("maxMessageSize", 5)

    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("broker.service.topics.policy_events.publish", fail)
    with pytest.raises(ServiceNotReady, match="cannot be read or changed now"):
        await broker.set("maxMessageSize", 6)
    assert await broker.policies() == {"maxMessageSize": 5}


async def test_change_that_is_cancelled_while_its_event_is_written_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker, begun = await one_broker(), list[bool]()
    await broker.set("maxMessageSize", 5)

    async def publish_noted(*given: Any, **named: Any) -> Position:
        begun.append(True)
        return await publish(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr("broker.service.topics.policy_events.publish", publish_noted)
        # As at the end of its time; a client that goes does not cancel it.
        change = asyncio.create_task(
            broker.events.change(TOPIC, lambda found: {**(found or {}), "maxMessageSize": 6})
        )
        while not begun:
            # The ledger confirms nothing from the event on: the stage stands still.
            while broker.stage.soon:
                broker.stage.soon.popleft()()
            await asyncio.sleep(0)
        change.cancel()
        with pytest.raises(asyncio.CancelledError):
            await change
    await broker.stage.settle()
    await broker.set("maxProducerPerTopic", 7)
    assert await broker.policies() == {"maxMessageSize": 6, "maxProducerPerTopic": 7}
    assert "failed" not in caplog.text, "nobody waits for the receipt"


async def test_namespace_without_events_needs_no_lock() -> None:
    broker = await one_broker()
    await broker.stage.open()
    assert await broker.stage.environment.metadata.children(ROOT) == []
