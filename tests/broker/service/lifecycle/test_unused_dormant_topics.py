"""A dormant topic counts as unused at the time at which it would if it had been open."""

from __future__ import annotations

import pytest

from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE
from broker.service.policies import table
from broker.service.topics.dormant_topic import IN_USE
from broker.service.topics.new_topic import create_shadow
from foundation.model.topic_name import parse_topic_name
from foundation.value import Json
from tests.broker.service.lifecycle import test_dormancy
from tests.broker.service.lifecycle.test_dormancy import NAMESPACE, SHADOW
from tests.fakes.stage import TOPIC

CAUGHT_UP = "delete_when_subscriptions_caught_up"
BY_SUBSCRIPTIONS = "delete_when_no_subscriptions"
SLEEPS = pytest.mark.parametrize("dormant_after_s", [0, 10], ids=["open", "dormant"])


class Scene(test_dormancy.Scene):
    """A scene that deletes topics that were unused for 600 seconds."""

    def __init__(self, dormant_after_s: int, **settings: object) -> None:
        super().__init__(
            dormant_after_s=dormant_after_s,
            delete_inactive=True,
            inactive_after_s=600,
            inactive_frequency_s=1,
            **settings,
        )

    async def later(self, ms: int) -> None:
        """Moves both clocks, and lets the broker look for unused topics, too."""
        await super().later(ms)
        await self.run(self.dormancy._inactive.look())

    async def idle(self, seconds: int) -> None:
        """Lets the time pass in which a topic falls asleep, if topics do, and `seconds` more."""
        await self.later(0)
        await self.later(10_000)
        assert (TOPIC in self.registry.topics) is (not self.registry.settings.dormant_after_s)
        await self.later(seconds * 1000)

    async def policy(self, mode: str, *, enabled: bool = True) -> None:
        """Sets the policy of the namespace."""
        value: Json = {
            "deleteWhileInactive": enabled,
            "maxInactiveDurationSeconds": 600,
            "inactiveTopicDeleteMode": mode,
        }
        await self.run(self.namespaces.set_policy(NAMESPACE, table.INACTIVE.name, value))
        await self.run(self.registry.namespace_changed(NAMESPACE))

    async def is_there(self) -> bool:
        """True unless the topic was deleted."""
        return await self.run(self.registry.is_stored(parse_topic_name(TOPIC)))

    async def goes_in(self, seconds: int) -> None:
        """Sees that the topic is deleted after so many seconds, and not before."""
        await self.later((seconds - 2) * 1000)
        assert await self.is_there()
        await self.later(3_000)
        assert not await self.is_there()


@SLEEPS
async def test_topic_that_its_subscription_kept_counts_as_unused_from_the_end_of_the_subscription_on(
    dormant_after_s: int,
) -> None:
    scene = Scene(dormant_after_s)
    await scene.with_backlog(0)
    await scene.idle(3000)
    topic = await scene.open()
    await scene.run(topic.subscribing.delete(topic.subscriptions["s"], None, force=False))
    await scene.publish(topic, 3)
    await scene.goes_in(600)


@SLEEPS
async def test_topic_that_its_backlog_kept_counts_as_unused_from_the_end_of_the_backlog_on(
    dormant_after_s: int,
) -> None:
    scene = Scene(dormant_after_s, inactive_mode=CAUGHT_UP)
    await scene.with_backlog()
    await scene.idle(3000)
    topic = await scene.open()
    topic.subscriptions["s"].acknowledge_through(topic.ledger.last_confirmed)
    await scene.settle()
    await scene.goes_in(600)


@SLEEPS
async def test_topic_without_use_is_deleted_at_its_time_though_requests_open_it(dormant_after_s: int) -> None:
    scene = Scene(dormant_after_s, inactive_mode=CAUGHT_UP)
    await scene.with_backlog(0)
    await scene.idle(390)
    await scene.open()
    await scene.goes_in(200)


@SLEEPS
async def test_topic_counts_as_unused_from_a_policy_on_by_which_its_subscription_keeps_it_no_longer(
    dormant_after_s: int,
) -> None:
    scene = Scene(dormant_after_s)
    await scene.with_backlog(0)
    await scene.policy(BY_SUBSCRIPTIONS)
    await scene.idle(3000)
    await scene.policy(CAUGHT_UP)
    await scene.goes_in(600)


@SLEEPS
async def test_policy_that_is_switched_on_deletes_a_topic_that_was_unused_all_the_time(
    dormant_after_s: int,
) -> None:
    scene = Scene(dormant_after_s)
    await scene.with_backlog(0)
    await scene.policy(BY_SUBSCRIPTIONS, enabled=False)
    await scene.idle(3000)
    await scene.policy(CAUGHT_UP)
    await scene.later(1_000)
    assert not await scene.is_there()


async def test_source_that_wakes_is_in_use_while_it_has_a_shadow() -> None:
    scene = Scene(10)
    await scene.open()
    await scene.run(create_shadow(scene.registry, parse_topic_name(SHADOW), {SHADOW_SOURCE: TOPIC}))
    await scene.idle(500)
    assert scene.registry.dormant.get(TOPIC) is not None
    assert (await scene.open()).used_at_ns == scene.now_ns


async def test_record_says_while_its_topic_is_in_use() -> None:
    scene = Scene(10, inactive_mode=CAUGHT_UP)
    await scene.with_backlog()
    record = await scene.sleep()
    assert record.used_at_ns == IN_USE
    await scene.policy(CAUGHT_UP, enabled=False)
    assert record.used_at_ns == scene.now_ns
