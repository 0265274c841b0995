"""The bodies of `…/stats`: counts that the topic's own objects keep."""

from __future__ import annotations

import pytest

from broker.admin.topics.stats import NO_RATES, stats_now
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
    (stats,) = stats_now(topic, "", NO_RATES)["subscriptions"].values()  # type: ignore[union-attr]
    assert isinstance(stats, dict)
    assert stats["msgInReplay"] == subscription.waiting_for_redelivery == waiting
