"""Limits on the service: counts that consumers and producers see, with a clock turned by hand."""

from __future__ import annotations

import pytest

from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.service.consumer import SubscriptionType
from broker.service.policies import table
from broker.service.policies.table import Policy
from broker.service.policies.values import DispatchRate, PublishRate
from broker.service.settings import ServiceSettings
from foundation.model.errors import NotAllowed
from tests.fakes.sends import send
from tests.fakes.stage import EXCLUSIVE, KEY_SHARED, SHARED, TOPIC, Stage, port_of

S = 1_000_000_000


async def set_rate(stage: Stage, policy: Policy[DispatchRate] | Policy[PublishRate], **value: int) -> None:
    await stage.run(stage.namespaces.set_topic_policy(TOPIC, policy.topic_name, {**value}))


async def pass_time(stage: Stage, seconds: float) -> None:
    """Lets every timer that falls due come, at its own time."""
    end_ns = stage.now_ns + round(seconds * S)
    due = [(stage.now_ns + round(after * S), call) for after, call in stage.timers]
    stage.timers = []
    while due:
        due.sort(key=lambda one: one[0])
        at_ns, call = due.pop(0)
        if at_ns > end_ns:
            stage.timers.append(((at_ns - end_ns) / S, call))
            continue
        stage.now_ns = at_ns
        call()
        await stage.settle()
        due += [(stage.now_ns + round(after * S), call) for after, call in stage.timers]
        stage.timers = []
    stage.now_ns = end_ns


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
async def test_topic_delivers_at_its_rate_and_all_at_once_when_the_rate_is_removed(
    kind: SubscriptionType,
) -> None:
    stage = Stage()
    topic = await stage.open()
    await set_rate(stage, table.DISPATCH, dispatchThrottlingRateInMsg=10, ratePeriodInSecond=1)
    await stage.publish(topic, 100)
    _, _, port = await stage.consume(topic, kind, permits=1000)
    assert len(port.got) == 10
    await pass_time(stage, 3)
    assert 39 <= len(port.got) <= 41
    await stage.run(stage.namespaces.set_topic_policy(TOPIC, table.DISPATCH.topic_name, None))
    await stage.settle()
    assert len(port.got) == 100


async def test_rate_by_bytes_counts_batches_by_their_size() -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.publish(topic, 20, batch=5)
    size = topic.ledger.ledgers.size_bytes // 20
    await set_rate(stage, table.DISPATCH, dispatchThrottlingRateInByte=2 * size, ratePeriodInSecond=1)
    _, _, port = await stage.consume(topic, SHARED, permits=1000)
    assert len(port.got) == 2
    await pass_time(stage, 5)
    assert 11 <= len(port.got) <= 13


@pytest.mark.parametrize(("whole", "entries"), [(False, 2), (True, 10)])
async def test_batch_counts_by_its_messages_or_as_one(whole: bool, entries: int) -> None:
    stage = Stage(throttle_entries=whole, subscription_dispatch_messages=10)
    topic = await stage.open()
    await stage.publish(topic, 30, batch=5)
    _, consumer, port = await stage.consume(topic, EXCLUSIVE)
    consumer.messages_per_entry = 5.0
    topic.subscriptions["s"].flow(consumer, 1000)
    await stage.settle()
    assert len(port.got) == entries


async def test_subscriptions_share_the_rate_of_the_topic_and_have_one_of_their_own() -> None:
    stage = Stage(topic_dispatch_messages=30, subscription_dispatch_messages=10)
    topic = await stage.open()
    await stage.publish(topic, 100)
    ports = []
    for name in "abcd":
        _, _, port = await stage.consume(topic, SHARED, permits=1000, subscription=name)
        ports.append(port)
    assert [len(port.got) for port in ports] == [10, 10, 10, 0]


async def test_rate_of_the_broker_holds_for_all_topics() -> None:
    stage = Stage(broker_dispatch_messages=10)
    for name in ("one", "two"):
        topic = await stage.open(f"persistent://public/default/{name}")
        await stage.publish(topic, 10)
        _, _, port = await stage.consume(topic, EXCLUSIVE, permits=1000)
    assert len(port.got) == 0
    stage.registry.reconfigure(topic.ledger.context.settings, ServiceSettings())
    await stage.settle()
    assert len(port.got) == 10


async def test_subscription_that_has_caught_up_is_not_slowed_down_when_so_set() -> None:
    stage = Stage(throttle_caught_up=False, caught_up_entries=50, topic_dispatch_messages=10)
    topic = await stage.open()
    await stage.publish(topic, 50)
    found, _, near = await stage.consume(topic, EXCLUSIVE, permits=1000, subscription="near")
    assert len(near.got) == 50
    found.remove_consumer(found.consumers[0])
    await stage.publish(topic, 1)
    _, _, far = await stage.consume(topic, EXCLUSIVE, permits=1000, subscription="far")
    assert len(far.got) == 10


async def test_publish_rate_pauses_a_producer_and_is_shown() -> None:
    stage = Stage()
    topic = await stage.open()
    producer = await stage.producer(topic)
    await set_rate(stage, table.PUBLISH, publishThrottlingRateInMsg=2)
    for number in range(3):
        send(producer, number, b"x")
    await stage.settle()
    assert (port_of(producer).events, topic.publish_rate_limited) == (["pause"], 2)
    # Nothing is refused: what was sent is stored.
    assert len(port_of(producer).receipts) == 3
    await pass_time(stage, 1)
    assert port_of(producer).events == ["pause", "go on"]


async def test_publish_rate_of_the_broker_holds_for_all_topics() -> None:
    stage = Stage(broker_publish_messages=2)
    for name in ("persistent://public/default/a", "non-persistent://public/default/b"):
        topic = await stage.open(name)
        producer = await stage.producer(topic)
        send(producer, 0, b"x")
    assert port_of(producer).events == ["pause"]
    stage.registry.reconfigure(ManagedLedgerSettings(), ServiceSettings())
    assert (port_of(producer).events, topic.publish_limits) == (["pause", "go on"], ())


async def test_rates_of_a_resource_group_hold_for_its_topics_together() -> None:
    stage = Stage()
    topic, other = [await stage.open(f"persistent://public/default/{name}") for name in "ab"]
    groups = stage.registry.resource_groups
    await stage.run(groups.put("g", {"publishRateInMsgs": 2, "dispatchRateInMsgs": 10}))
    await stage.run(groups.assign("public/default", "g"))
    producers = [await stage.producer(one) for one in (topic, other)]
    for producer in producers:
        send(producer, 0, b"x")
    assert [port_of(producer).events for producer in producers] == [[], ["pause"]]
    await pass_time(stage, 1)
    assert port_of(producers[1]).events == ["pause", "go on"]
    await stage.run(groups.put("g", {"publishRateInMsgs": -1}))
    for one in (topic, other):
        await stage.publish(one, 20)
    ports = [(await stage.consume(one, SHARED, permits=1000))[2] for one in (topic, other)]
    assert sum(len(port.got) for port in ports) == 10
    await pass_time(stage, 3)
    assert 39 <= sum(len(port.got) for port in ports) <= 41


async def test_resource_groups_are_loaded_at_the_next_start() -> None:
    stage = Stage()
    await stage.run(stage.namespaces.open())
    await stage.run(stage.registry.resource_groups.put("g", {"publishRateInMsgs": 2}))
    await stage.run(stage.registry.resource_groups.assign("public/default", "g"))
    again = Stage(metadata=stage.metadata)
    await again.run(again.namespaces.open())
    await again.run(again.registry.resource_groups.open())
    topic = await again.open()
    assert [limit.rate.messages for limit in topic.publish_limits] == [2]


async def test_subscribe_rate_refuses_a_consumer_that_comes_too_often() -> None:
    stage = Stage(subscribes_per_consumer=2, subscribe_period_s=30)
    topic = await stage.open()
    for _ in range(2):
        subscription, consumer, _ = await stage.consume(topic, SHARED, name="c", consumer_id=1)
        subscription.remove_consumer(consumer)
    with pytest.raises(NotAllowed, match="subscribe rate limit"):
        await stage.consume(topic, SHARED, name="c", consumer_id=1)
    await stage.consume(topic, SHARED, name="other")
    stage.now_ns += 30 * S
    await stage.consume(topic, SHARED, name="c", consumer_id=1)


async def test_full_broker_holds_large_subscriptions_until_they_acknowledge() -> None:
    stage = Stage(unacked_max_per_broker=40, unacked_share_when_blocked=0.25)
    topic = await stage.open()
    await stage.publish(topic, 60)
    large, eager, got = await stage.consume(topic, SHARED, permits=36, subscription="large")
    small, _, few = await stage.consume(topic, SHARED, permits=4, subscription="small")
    unacked = stage.registry.limits.unacked
    assert unacked is not None
    assert (len(got.got), len(few.got), unacked.blocked) == (36, 4, True)
    large.flow(eager, 10)
    small.flow(small.consumers[0], 2)
    await stage.settle()
    assert (len(got.got), len(few.got)) == (36, 6)
    large.acknowledge(eager, got.keys[:22])
    await stage.settle()
    assert (len(got.got), unacked.unacked) == (36, 20)
    large.acknowledge(eager, got.keys[22:23])
    await stage.settle()
    assert (len(got.got), unacked.blocked) == (46, False)


async def test_large_subscription_goes_on_below_half_of_its_share() -> None:
    stage = Stage(unacked_max_per_broker=20, unacked_share_when_blocked=0.2)
    topic = await stage.open()
    await stage.publish(topic, 60)
    await stage.consume(topic, SHARED, permits=15, subscription="holder")
    found, consumer, port = await stage.consume(topic, SHARED, permits=5)
    found.flow(consumer, 10)
    await stage.settle()
    assert len(port.got) == 5
    found.acknowledge(consumer, port.keys[:3])
    await stage.settle()
    assert len(port.got) == 5
    found.acknowledge(consumer, port.keys[3:4])
    await stage.settle()
    assert len(port.got) > 5
    found.remove_consumer(consumer)
    unacked = stage.registry.limits.unacked
    assert unacked is not None
    assert unacked.unacked == 15
