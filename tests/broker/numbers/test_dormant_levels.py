"""The levels of a dormant topic, in metrics and in lists of statistics, are those that it had when it was open."""

from __future__ import annotations

from typing import Final

import pytest

from broker.admin.topics.dormant_stats import dormant_stats
from broker.admin.topics.stats import stats_now
from broker.numbers.columns import Number
from broker.numbers.family import Family
from broker.numbers.readings import SUBSCRIPTIONS, TOPICS, TopicReading
from broker.numbers.topic_families import BACKLOG_AGE, SUBSCRIPTION, TOPIC
from broker.numbers.topic_reader import TopicReader
from broker.numbers.windows import NOTHING_YET
from broker.service.policies import table
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.position import EARLIEST, Position
from foundation.model.topic_name import parse_topic_name
from foundation.value import Json
from tests.broker.service.lifecycle.test_dormancy import NAMESPACE, Scene
from tests.broker.service.lifecycle.test_dormant_offloads import Tiered
from tests.fakes.stage import TOPIC as NAME

BEGIN_ANEW: Final = {
    "pulsar_publish_rate_limit_times",
    "pulsar_subscription_total_msg_expired",
    "pulsar_subscription_last_expire_timestamp",
    "pulsar_subscription_last_consumed_flow_timestamp",
}
"""Gauges that count since the opening, or tell of a moment since then."""


def reading_of(scene: Scene) -> TopicReading:
    [reading] = TopicReader(scene.registry, 2, consumers=False, producers=False).topics()
    return reading


def levels_of(reading: TopicReading) -> dict[str, Number]:
    """Returns the levels by name, those of subscriptions by name and subscription."""

    def is_level(family: Family) -> bool:
        return family.over == "now" and family.kind == "gauge" and family.name not in BEGIN_ANEW

    found: dict[str, Number] = {
        family.name: reading.row[TOPICS.names.index(family.source)]
        for family in TOPIC
        if is_level(family) and family.source in TOPICS.names
    }
    for part in reading.subscriptions:
        found |= {
            f"{family.name} {part.key[0]}": part.row[SUBSCRIPTIONS.names.index(family.source)]
            for family in (*SUBSCRIPTION, BACKLOG_AGE)
            if is_level(family)
        }
    return found


def stats_of(scene: Scene) -> dict[str, Json]:
    """Returns sizes and the members of subscriptions in the list of all topics, but for the acknowledged ranges.

    A record does not count these.
    """
    record = scene.registry.dormant.get(NAME)
    if record is not None:
        stats = dormant_stats(record, scene.registry.settings, scene.wall_ms)
    else:
        topic = scene.registry.topics[NAME]
        stats = stats_now(topic, "", NOTHING_YET)
    subscriptions = stats["subscriptions"]
    assert isinstance(subscriptions, dict)
    for one in subscriptions.values():
        assert isinstance(one, dict)
        del one["nonContiguousDeletedMessagesRanges"]
    return {
        "storageSize": stats["storageSize"],
        "backlogSize": stats["backlogSize"],
        **subscriptions,
    }


async def waiting(scene: Scene) -> PersistentTopic:
    """Publishes nine entries a second apart; `first` lacks the first one, `later` some from the fourth, `none` nothing."""
    topic = await scene.open()
    for name in ("first", "later", "none"):
        await scene.run(topic.subscribing.create(name, EARLIEST))
    for _ in range(9):
        scene.wall_ms += 1_000
        await scene.publish(topic)
    infos = topic.ledger.ledgers.infos()
    positions = [Position(info.ledger_id, entry) for info in infos for entry in range(info.entries)]
    topic.subscriptions["first"].cursor.acknowledge(positions[1:])
    topic.subscriptions["later"].cursor.acknowledge([*positions[:3], positions[5]])
    topic.subscriptions["none"].acknowledge_through(positions[-1])
    scene.wall_ms += 60_000
    return topic


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("without", [(), ("first",), ("later", "none")])
async def test_levels_of_a_topic_stay_when_it_falls_asleep(precise: bool, without: tuple[str, ...]) -> None:
    scene = Scene(entries_per_ledger=2, quota_age_precise=precise, subscription_ages=True)
    topic = await waiting(scene)
    for name in without:
        await scene.run(topic.subscribing.delete(topic.subscriptions[name], None, force=True))
    await scene.run(topic.quotas.look())
    asked_ms = scene.wall_ms
    awake, listed = levels_of(reading_of(scene)), stats_of(scene)
    await scene.sleep()
    scene.wall_ms = asked_ms
    asleep = levels_of(reading_of(scene))
    assert asleep == awake
    assert stats_of(scene) == listed
    ages = [value for name, value in awake.items() if "age_seconds" in name]
    assert max(ages) > 60


async def test_level_of_copied_ledgers_stays_when_a_topic_falls_asleep() -> None:
    tiered = Tiered()
    await tiered.with_backlog(5)
    await tiered.policy(managedLedgerOffloadThresholdInSeconds=0, managedLedgerOffloadDeletionLagInMillis=0)
    await tiered.sleep()
    await tiered.later(1_000_000)
    await tiered.settle()
    awake = levels_of(reading_of(tiered))
    size = awake["pulsar_storage_offloaded_size"]
    assert size == awake["pulsar_storage_logical_size"]
    await tiered.asleep_again()
    assert levels_of(reading_of(tiered))["pulsar_storage_offloaded_size"] == size
    await tiered.later(1_000_000)
    await tiered.asleep_again()
    assert not tiered.ledgers._ledgers, "the bookies have lost them"
    # Also where no policy names a storage any more, as after a start.
    record = tiered.record()
    tiered.registry.dormant.drop(NAME)
    await tiered.run(tiered.namespaces.set_policy(NAMESPACE, table.OFFLOAD_POLICIES.name, None))
    tiered.registry.dormant.add(parse_topic_name(NAME), record)
    assert levels_of(reading_of(tiered))["pulsar_storage_offloaded_size"] == size


async def test_record_has_no_backlog_of_its_own_for_each_subscription_where_there_is_one() -> None:
    scene = Scene(subscription_ages=True)
    topic = await waiting(scene)
    await scene.run(topic.subscribing.delete(topic.subscriptions["later"], None, force=True))
    assert (await scene.sleep()).backlogs is None
