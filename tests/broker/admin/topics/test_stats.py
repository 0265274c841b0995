"""The bodies of `…/stats`: counts that the topic's own objects keep."""

from __future__ import annotations

import pytest

from broker.admin.topics.stats import stats_now
from broker.numbers.windows import NOTHING_YET
from broker.service.consumer import SubscriptionType
from tests.fakes.stage import EXCLUSIVE, KEY_SHARED, SHARED, Stage


@pytest.mark.parametrize(("kind", "waiting"), [(SHARED, 3), (KEY_SHARED, 3), (EXCLUSIVE, 0)])
async def test_stats_count_entries_that_wait_for_redelivery(kind: SubscriptionType, waiting: int) -> None:
    """As `pulsar_subscription_in_replay` does. An exclusive subscription rewinds its cursor and keeps no queue."""
    stage = Stage()
    topic = await stage.open()
    await stage.publish(topic, 3)
    subscription, consumer, port = await stage.consume(topic, kind, permits=3)
    assert len(port.got) == 3
    subscription.redeliver(consumer, None, None)
    await stage.settle()
    (stats,) = stats_now(topic, "", NOTHING_YET)["subscriptions"].values()  # type: ignore[union-attr]
    assert isinstance(stats, dict)
    assert stats["msgInReplay"] == subscription.waiting_for_redelivery == waiting


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
async def test_stats_keep_what_consumers_did_when_all_have_left(kind: SubscriptionType) -> None:
    """As Apache Pulsar 4.2.4 answered: no consumers, their counts, their last FLOW and their mode."""
    stage = Stage()
    topic = await stage.open()
    await stage.publish(topic, 3)
    subscription, consumer, _ = await stage.consume(topic, kind, permits=3)
    consumer.last_consumed_flow_ms = 5
    subscription.remove_consumer(consumer)
    stats = stats_now(topic, "", NOTHING_YET)
    (shown,) = stats["subscriptions"].values()  # type: ignore[union-attr]
    assert isinstance(shown, dict)
    assert (stats["publishers"], shown["consumers"], shown["msgOutCounter"]) == ([], [], 3)
    assert shown["lastConsumedFlowTimestamp"] == 5
    assert shown.get("keySharedMode") == ("AUTO_SPLIT" if kind is KEY_SHARED else None)


async def test_average_of_a_consumer_begins_with_its_first_delivery() -> None:
    stage = Stage()
    topic = await stage.open()
    await stage.consume(topic, SHARED, permits=100)

    def average() -> object:
        (stats,) = stats_now(topic, "", NOTHING_YET)["subscriptions"].values()  # type: ignore[union-attr]
        return stats["consumers"][0]["avgMessagesPerEntry"]  # type: ignore[index, call-overload]

    assert average() == 0
    await stage.publish(topic, 2, batch=5)
    assert average() == 5
