"""Topics fall asleep, keep everything, wake once, and do what is due at its time."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest

from broker.managed_ledger.managed_ledger_info import ROOT as LEDGERS_ROOT
from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE
from broker.service.lifecycle import dormancy
from broker.service.lifecycle.dormancy import Dormancy
from broker.service.lifecycle.inactive_topics import InactiveTopicRounds
from broker.service.policies import table
from broker.service.policies.backlog_quota import EVICTION
from broker.service.topics.dormant_topic import NEVER, DormantTopic
from broker.service.topics.new_topic import create_shadow
from foundation.model.errors import MetadataError, QuotaRefused
from foundation.model.position import EARLIEST, LATEST
from foundation.model.topic_name import parse_topic_name
from tests.fakes.stage import EXCLUSIVE, KEY_SHARED, SHARED, TOPIC, Stage

NAMESPACE = "public/default"
MINUTE_MS = 60_000
SHADOW = "persistent://public/default/shadow"


class Scene(Stage):
    """A stage whose topics fall asleep after ten seconds."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**{"dormant_after_s": 10, "delete_inactive": False, **settings})  # type: ignore[arg-type]
        inactive = InactiveTopicRounds(self.registry, self.deletions, lambda: self.now_ns)
        self.dormancy = Dormancy(self.registry, inactive)

    async def later(self, ms: int) -> None:
        """Moves both clocks, and lets the broker look at its topics."""
        self.wall_ms += ms
        self.now_ns += ms * 1_000_000
        await self.run(self.dormancy.run())

    async def sleep(self) -> DormantTopic:
        """Lets the topic fall asleep."""
        await self.later(0)
        await self.later(10_000)
        record = self.registry.dormant.get(TOPIC)
        assert record is not None
        assert TOPIC not in self.registry.topics
        return record

    async def with_backlog(self, count: int = 3) -> None:
        topic = await self.open()
        await self.run(topic.subscribing.create("s", EARLIEST))
        await self.publish(topic, count)

    def backlog(self) -> int:
        """The backlog of the topic, which must be dormant."""
        record = self.registry.dormant.get(TOPIC)
        assert record is not None
        return record.subscriptions[0].backlog


async def test_idle_topic_falls_asleep_and_wakes_with_its_backlog_in_order() -> None:
    scene = Scene()
    await scene.with_backlog(5)
    record = await scene.sleep()
    assert (record.entries, record.subscriptions[0].name, record.subscriptions[0].backlog) == (5, "s", 5)
    _, _, port = await scene.consume(await scene.open(), EXCLUSIVE, permits=10)
    assert [entry_id for _, entry_id in port.keys] == [0, 1, 2, 3, 4]
    assert scene.registry.dormant.get(TOPIC) is None


async def test_sums_over_dormant_topics_are_kept() -> None:
    scene = Scene()
    dormant = scene.registry.dormant
    await scene.with_backlog(5)
    record = await scene.sleep()
    assert (dormant.count, dormant.backlog, dormant.subscriptions) == (1, 5, 1)
    assert dormant.size_bytes == record.size_bytes > 0
    assert dormant.levels == {"public/default": (1, 5)}
    await scene.open()
    assert (dormant.count, dormant.backlog, dormant.size_bytes, dormant.subscriptions) == (0, 0, 0, 0)
    assert dormant.levels == {}


async def test_topic_with_a_client_or_a_request_stays_open() -> None:
    scene = Scene()
    await scene.with_backlog()
    topic = await scene.open()
    producer = await scene.producer(topic)
    await scene.later(20_000)
    await topic.remove_producer(producer)
    subscription, consumer, _ = await scene.consume(topic)
    await scene.later(20_000)
    subscription.remove_consumer(consumer)
    await scene.later(20_000)
    await scene.open()  # As a request of an administrator asks for it.
    await scene.later(9_000)
    assert TOPIC in scene.registry.topics
    await scene.later(1_000)
    assert TOPIC in scene.registry.topics, "it was used during these ten seconds"
    await scene.later(9_000)
    assert TOPIC in scene.registry.topics
    await scene.later(1_000)
    assert scene.registry.dormant.get(TOPIC) is not None


async def test_run_looks_at_no_topic_whose_clients_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    await scene.with_backlog()
    subscription, consumer, _ = await scene.consume(await scene.open())
    producer = await scene.producer(await scene.open())
    await scene.later(0)
    looks = Mock(wraps=dormancy.has_clients)
    monkeypatch.setattr(dormancy, "has_clients", looks)
    for _ in range(5):
        await scene.later(20_000)
    assert looks.call_count == 0
    subscription.remove_consumer(consumer)
    await scene.later(0)
    assert looks.call_count == 1, "the producer keeps it open"
    await (await scene.open()).remove_producer(producer)
    await scene.sleep()


async def test_topics_stay_open_without_the_setting() -> None:
    scene = Scene(dormant_after_s=0)
    await scene.with_backlog()
    await scene.later(0)
    await scene.later(100_000)
    assert TOPIC in scene.registry.topics


async def test_holes_and_batches_survive_a_sleep() -> None:
    scene = Scene()
    topic = await scene.open()
    await scene.run(topic.subscribing.create("s", EARLIEST))
    await scene.publish(topic, 6, batch=4)
    cursor = topic.subscriptions["s"].cursor
    ledger_id = topic.ledger.ledgers.current.ledger_id
    cursor.acknowledge([(ledger_id, 1), (ledger_id, 3)])
    cursor.acknowledge_batch(topic.ledger.ledgers.at_or_after((ledger_id, 4)), [0b0110], 4)
    await scene.sleep()
    assert scene.backlog() == 4
    again = await scene.open()
    _, _, port = await scene.consume(again, SHARED, permits=100)
    assert [entry_id for _, entry_id in port.keys] == [0, 2, 4, 5]
    assert again.subscriptions["s"].cursor.acks.info(100, 100).batches == [((ledger_id, 4), 0b0110)]


@pytest.mark.parametrize("topic", [TOPIC, f"{TOPIC}-partition-0"])
async def test_two_requests_at_once_wake_one_topic_without_a_read_of_the_store(topic: str) -> None:
    scene = Scene()
    await scene.run((await scene.open(topic)).subscribing.create("s", EARLIEST))
    await scene.later(0)
    await scene.later(10_000)
    assert scene.registry.dormant.get(topic) is not None
    loads, name = scene.registry.loads, parse_topic_name(topic)
    scene.metadata.get = get = Mock(wraps=scene.metadata.get)  # type: ignore[method-assign]
    one, other = await scene.run(
        asyncio.gather(scene.registry.get(name, create=True), scene.registry.get(name, create=False))
    )
    assert one is other
    assert scene.registry.loads == loads + 1
    assert get.mock_calls == []


async def test_request_during_the_falling_asleep_waits_and_opens_the_topic() -> None:
    scene = Scene()
    await scene.with_backlog()
    topic = await scene.open()
    asleep = asyncio.ensure_future(scene.registry.fall_asleep(topic, -1))
    await asyncio.sleep(0)
    assert topic.closed
    again = await scene.open()
    assert again is not topic
    assert again.subscriptions["s"].cursor.backlog == 3
    await scene.run(asleep)
    assert scene.registry.dormant.get(TOPIC) is None
    assert scene.registry.topics == {TOPIC: again}


async def test_topic_whose_close_fails_has_no_record_and_opens_from_the_store() -> None:
    scene = Scene()
    await scene.with_backlog()
    await scene.later(0)
    scene.metadata.refusing = True
    await scene.later(10_000)
    assert scene.registry.dormant.get(TOPIC) is None
    assert TOPIC not in scene.registry.topics
    scene.metadata.refusing = False
    assert (await scene.open()).subscriptions["s"].cursor.backlog == 3


async def test_topic_that_cannot_be_opened_stays_dormant_and_is_tried_again() -> None:
    scene = Scene(ttl_s=60)
    await scene.with_backlog()
    await scene.sleep()

    async def refused(above: int = -1) -> int:
        raise MetadataError("no id")

    ids = scene.environment.ids
    following = ids.next
    ids.next = refused  # type: ignore[method-assign]
    await scene.later(6 * MINUTE_MS)
    assert scene.backlog() == 3
    ids.next = following  # type: ignore[method-assign]
    await scene.later(2 * MINUTE_MS)
    assert scene.backlog() == 0


async def test_opening_that_fails_after_a_write_is_repeated_from_the_store() -> None:
    scene = Scene()
    await scene.with_backlog()
    await scene.sleep()
    put, key = scene.metadata.put, f"{LEDGERS_ROOT}/{parse_topic_name(TOPIC).ledger_name}"

    async def written_and_failed(above: int = -1) -> int:
        found = await scene.metadata.get(key)
        assert found is not None
        await put(key, found.value, found.version)
        raise MetadataError("after a write")

    ids = scene.environment.ids
    following = ids.next
    ids.next = written_and_failed  # type: ignore[method-assign]
    with pytest.raises(MetadataError, match="after a write"):
        await scene.open()
    ids.next = following  # type: ignore[method-assign]
    await scene.publish(await scene.open(), 1)
    assert (await scene.sleep()).entries == 4


async def test_messages_expire_while_their_topic_is_dormant() -> None:
    scene = Scene(ttl_s=600)
    await scene.with_backlog()
    record = await scene.sleep()
    assert record.due_ns == scene.now_ns + 590 * 10**9 + 10**6
    await scene.later(580_000)
    assert scene.backlog() == 3
    await scene.later(20_000)
    assert scene.backlog() == 0


async def test_look_that_finds_nothing_is_not_repeated_before_the_interval() -> None:
    scene = Scene(ttl_s=1)
    await scene.with_backlog()
    record = await scene.sleep()
    assert record.due_ns == scene.now_ns + 300 * 10**9, "messageExpiryCheckIntervalInMinutes"


async def test_quota_by_age_evicts_while_the_topic_is_dormant() -> None:
    scene = Scene(quota_age_s=300, quota_reaction=EVICTION, quota_age_precise=True)
    await scene.with_backlog()
    await scene.sleep()
    await scene.later(200_000)
    assert scene.backlog() == 3
    await scene.later(100_000)
    assert scene.backlog() == 0


async def test_first_producer_of_a_woken_topic_meets_its_quota_by_age() -> None:
    scene = Scene(quota_age_s=60, quota_reaction="producer_exception", quota_age_precise=True)
    await scene.with_backlog()
    assert (await scene.sleep()).due_ns == NEVER
    await scene.later(100_000)
    with pytest.raises(QuotaRefused):
        await scene.producer(await scene.open())


async def test_delayed_message_of_a_dormant_topic_comes_at_its_time() -> None:
    scene = Scene()
    topic = await scene.open()
    await scene.run(topic.subscribing.create("s", EARLIEST))
    await scene.publish(topic, 2, delays_ms=[60_000, 0])
    await scene.sleep()
    _, _, port = await scene.consume(await scene.open(), SHARED, permits=10)
    assert [entry_id for _, entry_id in port.keys] == [1]
    await scene.pass_time(50_000)
    assert [entry_id for _, entry_id in port.keys] == [1, 0]


async def test_topic_with_an_index_of_delayed_messages_stays_open() -> None:
    scene = Scene()
    topic = await scene.open()
    subscription, consumer, _ = await scene.consume(topic, SHARED, permits=10)
    await scene.publish(topic, 1, delays_ms=[3_600_000])
    subscription.remove_consumer(consumer)
    await scene.later(0)
    await scene.later(20_000)
    assert TOPIC in scene.registry.topics


async def test_acknowledged_ledger_of_a_dormant_topic_is_removed_after_its_retention() -> None:
    scene = Scene(retention_minutes=30, retention_mib=-1)
    await scene.with_backlog()
    topic = await scene.open()
    topic.subscriptions["s"].acknowledge_through(topic.ledger.last_confirmed)
    await scene.sleep()
    await scene.later(29 * MINUTE_MS)
    record = scene.registry.dormant.get(TOPIC)
    assert record is not None
    assert record.entries == 3
    await scene.later(2 * MINUTE_MS)
    record = scene.registry.dormant.get(TOPIC)
    assert record is not None
    assert (record.entries, record.due_ns) == (0, NEVER)


async def test_unused_dormant_topic_is_deleted() -> None:
    scene = Scene(delete_inactive=True, inactive_after_s=300)
    await scene.open()
    await scene.sleep()
    await scene.later(200_000)
    assert scene.registry.dormant.get(TOPIC) is not None
    await scene.later(100_000)
    assert scene.registry.dormant.get(TOPIC) is None
    assert not scene.registry.topics
    assert await scene.run(scene.metadata.children(f"{LEDGERS_ROOT}/{NAMESPACE}/persistent")) == []


async def test_unused_subscription_of_a_dormant_topic_is_deleted() -> None:
    scene = Scene(subscription_expires_min=10)
    await scene.with_backlog(0)
    await scene.sleep()
    await scene.later(9 * MINUTE_MS)
    assert scene.backlog() == 0
    await scene.later(1 * MINUTE_MS)
    record = scene.registry.dormant.get(TOPIC)
    assert record is not None
    assert record.subscriptions == ()


async def test_request_does_not_count_as_use_of_a_dormant_topic() -> None:
    scene = Scene(delete_inactive=True, inactive_after_s=300)
    topic = await scene.open()
    used_at_ns = topic.used_at_ns
    await scene.sleep()
    scene.now_ns += 10**9
    assert (await scene.open()).used_at_ns == used_at_ns


async def test_policy_of_the_namespace_plans_its_dormant_topics_anew() -> None:
    scene = Scene()
    await scene.with_backlog()
    record = await scene.sleep()
    assert record.due_ns == NEVER
    policy = table.MESSAGE_TTL
    await scene.run(scene.namespaces.set_policy(NAMESPACE, policy.name, 600))
    assert record.due_ns == scene.now_ns + 590 * 10**9 + 10**6
    await scene.run(scene.namespaces.set_policy(NAMESPACE, policy.name, None))
    assert record.due_ns == NEVER
    await scene.run(scene.namespaces.set_topic_policy(TOPIC, policy.topic_name, 1200))
    assert record.due_ns == scene.now_ns + 1190 * 10**9 + 10**6
    loads = scene.registry.loads
    await scene.later(600_000)
    assert scene.backlog() == 3
    assert scene.registry.loads == loads, "the moment of the former policy has no effect"


async def test_topic_that_leaves_or_is_planned_anew_leaves_no_moment_behind() -> None:
    scene = Scene(ttl_s=600)
    await scene.with_backlog()
    dormant, policy = scene.registry.dormant, table.MESSAGE_TTL
    for number in range(1, 50):
        await scene.run(scene.namespaces.set_policy(NAMESPACE, policy.name, 600 + 100 * (number % 7)))
        await scene.sleep()
        await scene.run(scene.namespaces.set_policy(NAMESPACE, policy.name, 650 + 100 * (number % 5)))
        if number % 2:
            await scene.open()
    planned = [name for of_second in dormant._due.values() for name in of_second]
    assert planned == ([TOPIC] if dormant.get(TOPIC) is not None else [])
    await scene.sleep()
    await scene.later(20 * MINUTE_MS)
    assert scene.backlog() == 0
    assert [*dormant._due] == dormant._seconds
    assert len(dormant._seconds) <= 1


async def test_moment_that_differs_by_less_than_a_second_is_left_as_it_is() -> None:
    scene = Scene(ttl_s=600)
    await scene.with_backlog()
    record = await scene.sleep()
    due_ns = record.due_ns
    scene.now_ns += 999_999
    scene.registry.dormant.plan(TOPIC)
    assert record.due_ns == due_ns
    scene.now_ns += 10**9
    scene.registry.dormant.plan(TOPIC)
    assert record.due_ns == due_ns + 10**9 + 999_999


async def test_deleted_dormant_topic_leaves_no_record() -> None:
    scene = Scene()
    await scene.with_backlog()
    await scene.sleep()
    await scene.run(scene.deletions.topic(parse_topic_name(TOPIC), force=False))
    assert scene.registry.dormant.get(TOPIC) is None
    assert (await scene.open()).ledger.ledgers.entries == 0


async def test_messages_without_a_subscription_keep_their_topic_open() -> None:
    scene = Scene()
    await scene.publish(await scene.open(), 1)
    await scene.later(0)
    await scene.later(20_000)
    assert TOPIC in scene.registry.topics


async def test_acknowledgements_that_memory_alone_has_keep_their_topic_open() -> None:
    scene = Scene(ack_ranges_max=1)
    await scene.with_backlog(6)
    topic = await scene.open()
    ledger_id = topic.ledger.ledgers.current.ledger_id
    topic.subscriptions["s"].cursor.acknowledge([(ledger_id, 1), (ledger_id, 3)])
    await scene.later(0)
    await scene.later(20_000)
    assert TOPIC in scene.registry.topics


async def test_topic_falls_asleep_and_wakes_many_times() -> None:
    scene = Scene()
    await scene.with_backlog(0)
    for number in range(1, 6):
        await scene.publish(await scene.open(), 1)
        await scene.sleep()
        assert scene.backlog() == number
    _, _, port = await scene.consume(await scene.open(), KEY_SHARED, permits=10)
    assert len(port.keys) == 5
    assert port.keys == sorted(port.keys)


async def test_terminated_topic_sleeps_and_stays_terminated() -> None:
    scene = Scene()
    await scene.with_backlog(2)
    topic = await scene.open()
    last = await scene.run(topic.terminate())
    topic.subscriptions["s"].acknowledge_through(last)
    assert (await scene.sleep()).due_ns == NEVER
    assert (await scene.open()).is_terminated
    assert last < LATEST


async def test_shadow_falls_asleep_and_wakes_with_its_source() -> None:
    scene = Scene()
    await scene.with_backlog(2)
    shadow = parse_topic_name(SHADOW)
    await scene.run(create_shadow(scene.registry, shadow, {SHADOW_SOURCE: TOPIC}))
    topic = await scene.open(SHADOW)
    await scene.run(topic.subscribing.create("front", EARLIEST))
    # A client of the shadow keeps both open.
    subscription, consumer, _ = await scene.consume(topic, EXCLUSIVE, subscription="front")
    await scene.later(10_000)
    await scene.later(10_000)
    assert set(scene.registry.topics) == {TOPIC, SHADOW}
    subscription.remove_consumer(consumer)
    await scene.later(10_000)  # The source was looked at while the shadow had a client.
    await scene.sleep()
    record = scene.registry.dormant.get(SHADOW)
    assert record is not None
    assert [(one.name, one.backlog) for one in record.subscriptions] == [("front", 2)]
    assert scene.registry.topics == {}
    source = await scene.open()
    await scene.settle()
    assert set(scene.registry.topics) == {TOPIC, SHADOW}, (
        "what comes to the source may fall due for the shadow"
    )
    await scene.publish(source, 1)
    _, _, port = await scene.consume(await scene.open(SHADOW), EXCLUSIVE, permits=10, subscription="front")
    assert len(port.keys) == 3


async def test_shadow_stays_awake_while_its_source_has_a_client() -> None:
    scene = Scene()
    await scene.with_backlog(2)
    await scene.run(create_shadow(scene.registry, parse_topic_name(SHADOW), {SHADOW_SOURCE: TOPIC}))
    await scene.consume(await scene.open(), EXCLUSIVE)
    await scene.later(10_000)
    await scene.later(10_000)
    assert set(scene.registry.topics) == {TOPIC, SHADOW}


async def test_dormant_shadow_is_a_keeper_of_its_source() -> None:
    scene = Scene(entries_per_ledger=2)
    await scene.with_backlog(4)
    await scene.run(create_shadow(scene.registry, parse_topic_name(SHADOW), {SHADOW_SOURCE: TOPIC}))
    topic = await scene.open(SHADOW)
    await scene.run(topic.subscribing.create("front", EARLIEST))
    await scene.sleep()
    source = await scene.open()
    source.subscriptions["s"].acknowledge_through(source.ledger.last_confirmed)
    await scene.settle()
    assert source.ledger.ledgers.entries == 4
