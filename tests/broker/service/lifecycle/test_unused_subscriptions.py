"""A subscription without a consumer for its time is deleted; used and internal ones stay."""

from __future__ import annotations

from broker.service.lifecycle.unused_subscriptions import delete_unused_subscriptions
from tests.fakes.stage import SHARED, Stage

MINUTE_NS = 60 * 1_000_000_000


async def test_unused_subscription_is_deleted_after_its_time() -> None:
    stage = Stage(subscription_expires_min=10)
    topic = await stage.open()
    unused, consumer, _ = await stage.consume(topic, SHARED, subscription="unused")
    await stage.consume(topic, SHARED, subscription="used")
    stage.now_ns += 100 * MINUTE_NS
    unused.remove_consumer(consumer)
    await stage.run(topic.subscribing.own_cursor("__compaction"))
    stage.now_ns += 10 * MINUTE_NS - 1
    await stage.run(delete_unused_subscriptions(topic))
    assert sorted(topic.subscriptions) == ["__compaction", "unused", "used"]
    stage.now_ns += 1
    await stage.run(delete_unused_subscriptions(topic))
    assert sorted(topic.subscriptions) == ["__compaction", "used"]
    assert sorted(topic.ledger.cursors.by_name) == ["__compaction", "used"]


async def test_subscriptions_stay_without_a_limit() -> None:
    stage = Stage(subscription_expires_min=0)
    topic = await stage.open()
    unused, consumer, _ = await stage.consume(topic, SHARED, subscription="unused")
    unused.remove_consumer(consumer)
    stage.now_ns += 100_000 * MINUTE_NS
    await stage.run(delete_unused_subscriptions(topic))
    assert list(topic.subscriptions) == ["unused"]
