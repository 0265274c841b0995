"""Work on many topics that takes longer than the idle time of one of them loses nothing, and the topic opens as before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.managed_ledger.managed_ledger_info import cursor_key
from broker.service.lifecycle import dormancy, namespace_topics
from broker.service.lifecycle.rounds import TopicRounds, Work
from broker.service.lifecycle.unused_subscriptions import delete_unused_subscriptions
from broker.service.subscriptions.backlog.message_expiry import MessageExpiry
from broker.service.topics.persistent_topic import expire
from broker.service.topics.topic import Topic, held
from foundation.model.position import EARLIEST, Position
from foundation.model.topic_name import TopicName, parse_topic_name
from tests.broker.service.lifecycle.test_dormancy import MINUTE_MS, NAMESPACE, Scene
from tests.fakes.stage import TOPIC

ROUNDS: dict[str, Callable[[Scene, Work], Awaitable[None]]] = {
    "a round over open topics": lambda scene, work: TopicRounds(scene.registry, "tests", work).run(),
    "what is due at topics": lambda scene, _: scene.dormancy.do_due([TOPIC]),
}


class SlowDeletes:
    """Holds back each deletion of a cursor until the test lets that one pass."""

    def __init__(self, scene: Scene) -> None:
        self.waiting: dict[str, asyncio.Event] = {}
        self._delete = scene.metadata.delete
        scene.metadata.delete = self.delete  # type: ignore[method-assign]

    async def delete(self, key: str, expected: int | None = None) -> None:
        event = self.waiting[key] = asyncio.Event()
        await event.wait()
        await self._delete(key, expected)

    def pass_on(self, subscription: str) -> None:
        """Lets the deletion of this subscription's cursor pass."""
        self.waiting[cursor_key(parse_topic_name(TOPIC).ledger_name, subscription)].set()


async def idle(scene: Scene) -> list[asyncio.Task[None]]:
    """Lets the topic be idle for long enough; returns the looks, one of which may wait for its close."""
    looks: list[asyncio.Task[None]] = []
    for _ in range(3):
        looks.append(asyncio.ensure_future(scene.dormancy.run()))
        await scene.settle()
        scene.wall_ms += 10_000
        scene.now_ns += 10_000 * 1_000_000
    return looks


@pytest.mark.parametrize("name", ROUNDS)
async def test_topic_does_not_fall_asleep_while_its_messages_expire(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(ttl_s=60, entries_per_ledger=1)
    await scene.with_backlog(6)
    scene.wall_ms += 2 * MINUTE_MS
    find, looking, may_go_on = MessageExpiry._newest_old_enough, asyncio.Event(), asyncio.Event()

    async def slow(self: MessageExpiry, slowest: Position, before_ms: int) -> Position | None:
        looking.set()
        await may_go_on.wait()  # As for an entry that a bookie is slow to return.
        return await find(self, slowest, before_ms)

    monkeypatch.setattr(MessageExpiry, "_newest_old_enough", slow)
    work = asyncio.ensure_future(ROUNDS[name](scene, expire))
    await scene.settle()
    assert looking.is_set()
    await idle(scene)
    may_go_on.set()
    await scene.run(work)
    if TOPIC in scene.registry.topics:
        await scene.sleep()
    # The expiry has removed ledgers. After a close it would write the list of which the record has the version before.
    topic = await scene.open()
    assert topic.subscriptions["s"].cursor.backlog == 0
    await scene.publish(topic, 1)


@pytest.mark.parametrize("name", ROUNDS)
async def test_topic_does_not_fall_asleep_while_its_unused_subscriptions_are_deleted(name: str) -> None:
    scene = Scene(subscription_expires_min=10)
    # With messages and no subscription it would stay open.
    await scene.with_backlog(0)
    await scene.run((await scene.open()).subscribing.create("s2", EARLIEST))
    scene.now_ns += 11 * MINUTE_MS * 1_000_000
    deletes = SlowDeletes(scene)
    work = asyncio.ensure_future(ROUNDS[name](scene, delete_unused_subscriptions))
    await scene.settle()
    await idle(scene)
    deletes.pass_on("s")
    await scene.settle()
    deletes.pass_on("s2")
    await scene.run(work)
    record = scene.registry.dormant.get(TOPIC) or await scene.sleep()
    assert not record.subscriptions


async def test_topic_that_falls_asleep_while_a_namespace_is_unsubscribed_has_lost_the_subscription() -> None:
    """It is not held: the deletion has the lock for which the close waits."""
    scene = Scene()
    await scene.with_backlog()
    deletes = SlowDeletes(scene)
    walk = asyncio.ensure_future(namespace_topics.unsubscribe(scene.registry, NAMESPACE, None, "s"))
    await scene.settle()
    looks = await idle(scene)
    assert scene.registry.topics[TOPIC].closed
    deletes.pass_on("s")
    await scene.run(walk)
    await scene.run(asyncio.gather(*looks))
    record = scene.registry.dormant.get(TOPIC)
    assert record is not None
    assert not record.subscriptions
    topic = await scene.open()
    assert not topic.subscriptions
    await scene.publish(topic, 1)


async def test_topic_that_falls_asleep_after_its_turn_in_a_namespace_keeps_its_cleared_backlog() -> None:
    """It is not held: its turn has no pause, and the close stores what was acknowledged."""
    scene = Scene()
    await scene.with_backlog()
    later = await scene.open(f"{TOPIC}-later")
    may_go_on, get = asyncio.Event(), scene.registry.get

    async def slow(name: TopicName, *, create: bool, by_admin: bool = False) -> Topic:
        if name == later.name:
            await may_go_on.wait()
        return await get(name, create=create, by_admin=by_admin)

    scene.registry.get = slow  # type: ignore[method-assign]
    walk = asyncio.ensure_future(namespace_topics.clear_backlog(scene.registry, NAMESPACE))
    await scene.settle()
    await idle(scene)
    assert scene.backlog() == 0
    may_go_on.set()
    await scene.run(walk)
    assert (await scene.open()).subscriptions["s"].cursor.backlog == 0


async def test_topic_falls_asleep_though_each_look_meets_a_round_that_waits_at_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dormancy, "PASSING_LOOKS", 1000)
    scene = Scene()
    await scene.with_backlog()
    topic = scene.registry.topics[TOPIC]
    for _ in range(2):
        with held(topic):
            look = asyncio.ensure_future(scene.dormancy.run())
            await scene.settle()
            assert not topic.closed
        await scene.run(look)
        scene.wall_ms += 10_000
        scene.now_ns += 10_000 * 1_000_000
    assert TOPIC not in scene.registry.topics
    assert scene.registry.dormant.get(TOPIC) is not None
