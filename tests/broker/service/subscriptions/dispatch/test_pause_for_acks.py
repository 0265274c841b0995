"""`dispatcherPauseOnAckStatePersistentEnabled`: nothing new is sent while a cursor's info cannot hold all acks.

The cases are those of Pulsar's own tests: Shared and Key_Shared pause, Failover and Exclusive do not, redelivered entries
are sent all the same, and each way of acknowledging ends the pause.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace

import pytest

from broker.service.consumer import SubscriptionType
from broker.service.policies import table
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.position import LATEST
from tests.fakes.stage import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, TOPIC, Stage

LIMIT = 10


async def with_holes(
    kind: SubscriptionType, *, pauses: bool = True
) -> tuple[Stage, PersistentTopic, Subscription, Callable[[], int]]:
    """A subscription with 20 acknowledged ranges, and the number of entries that its consumer has received."""
    stage = Stage(ack_ranges_max=LIMIT, pause_on_ack_state=pauses)
    topic = await stage.open()
    subscription, consumer, port = await stage.consume(topic, kind, permits=1000)
    if kind is FAILOVER:
        await stage.pass_time(2000)
    await stage.publish(topic, keys=[f"k{number}" for number in range(40)])
    ledger_id = topic.ledger.ledgers.current.ledger_id
    subscription.acknowledge(consumer, [(ledger_id, entry) for entry in range(1, 40, 2)])
    await stage.settle()
    return stage, topic, subscription, lambda: len(port.got)


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
async def test_shared_subscription_pauses_until_acknowledgements_fit(kind: SubscriptionType) -> None:
    stage, topic, subscription, received = await with_holes(kind)
    await stage.publish(topic, keys=["k1"])
    assert received() == 40
    ledger_id = topic.ledger.ledgers.current.ledger_id
    for entry in range(0, 18, 2):
        subscription.acknowledge(subscription.consumers[0], [(ledger_id, entry)])
        await stage.settle()
        assert received() == 40, "eleven ranges are left, one more than fit"
    subscription.acknowledge(subscription.consumers[0], [(ledger_id, 18)])
    await stage.settle()
    assert received() == 41


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
async def test_single_consumer_never_pauses(kind: SubscriptionType) -> None:
    stage, topic, _, received = await with_holes(kind)
    await stage.publish(topic, keys=["k1"])
    assert received() == 41


async def test_without_the_key_nothing_pauses() -> None:
    stage, topic, _, received = await with_holes(SHARED, pauses=False)
    await stage.publish(topic, 1)
    assert received() == 41


async def test_redelivered_entries_are_sent_during_a_pause() -> None:
    stage, topic, subscription, received = await with_holes(SHARED)
    await stage.publish(topic, 1)
    subscription.redeliver(subscription.consumers[0], None, None)
    await stage.settle()
    assert received() == 40 + 20


Skip = Callable[[Subscription], Coroutine[object, object, None]]


async def _clear(subscription: Subscription) -> None:
    subscription.acknowledge_through(LATEST)


async def _expire(subscription: Subscription) -> None:
    # As the expiry of messages does it beside delayed ones, and the end of a transaction: at the cursor itself.
    ledger_id = subscription.cursor.context.ledgers.current.ledger_id
    subscription.cursor.acknowledge([(ledger_id, entry) for entry in range(40)])


@pytest.mark.parametrize("skip", [_clear, _expire])
async def test_acknowledgement_without_a_consumer_ends_the_pause(skip: Skip) -> None:
    stage, topic, subscription, received = await with_holes(SHARED)
    await stage.publish(topic, 1)
    await stage.run(skip(subscription))
    await stage.publish(topic, 1)
    assert received() in (41, 42), "the first of both may have been skipped"


async def test_changed_key_ends_the_pause() -> None:
    stage, topic, _, received = await with_holes(SHARED)
    await stage.publish(topic, 1)
    ledger_settings = topic.ledger.context.settings
    stage.registry.reconfigure(ledger_settings, replace(stage.registry.settings, pause_on_ack_state=False))
    await stage.settle()
    assert received() == 41


async def test_consumer_that_comes_back_to_a_paused_subscription_gets_the_holes() -> None:
    stage, topic, subscription, _ = await with_holes(SHARED)
    await stage.publish(topic, 1)
    subscription.remove_consumer(subscription.consumers[0])
    _, _, port = await stage.consume(topic, SHARED, permits=1000)
    await stage.settle()
    assert [entry.entry_id for entry in port.got] == list(range(0, 40, 2)), "the new one waits"


@pytest.mark.parametrize("level", ["namespace", "topic"])
async def test_policy_outranks_the_key_both_ways(level: str) -> None:
    stage, topic, _, received = await with_holes(SHARED, pauses=False)
    policy = table.DISPATCHER_PAUSE

    async def set_policy(value: bool | None) -> None:
        if level == "topic":
            await stage.run(stage.namespaces.set_topic_policy(TOPIC, policy.topic_name, value))
        else:
            await stage.run(stage.namespaces.set_policy("public/default", policy.name, value))
        await stage.settle()

    await set_policy(True)
    await stage.publish(topic, 1)
    assert received() == 40
    await set_policy(None)
    assert received() == 41, "the removed policy ends the pause"
