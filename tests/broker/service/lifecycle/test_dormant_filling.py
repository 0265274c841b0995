"""Behind a start every topic on disk gets its record, unopened, and what is due acts."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import Any

import pytest

from broker.compose.cluster_membership import unload_bundle
from broker.managed_ledger.managed_ledger_info import ROOT as LEDGERS_ROOT
from broker.managed_ledger.opening import create_ledger_list
from broker.service.lifecycle import dormant_filling
from broker.service.lifecycle.dormancy import Dormancy
from broker.service.lifecycle.dormant_filling import REFILL_NS, DormantFilling
from broker.service.lifecycle.inactive_topics import InactiveTopicRounds
from broker.service.namespaces.bundles import bundles_of
from broker.service.topics.dormant_topic import NEVER, DormantTopic
from broker.service.topics.new_topic import store_topic
from broker.service.topics.topic_ownership import TopicOwnership
from foundation.model.errors import MetadataError
from foundation.model.position import EARLIEST, Position
from foundation.model.topic_name import TopicName, parse_topic_name
from tests.fakes.messages import SENT_AT_MS
from tests.fakes.stage import SHARED, TOPIC, Stage

NAMESPACE = "public/default"
MINUTE_MS = 60_000


class Scene(Stage):
    """A broker that starts on the store of another; its topics fall asleep after ten seconds."""

    def __init__(self, earlier: Stage | None = None, **settings: Any) -> None:
        given: dict[str, Any] = {"dormant_after_s": 10, "delete_inactive": False, **settings}
        if earlier is None:
            super().__init__(**given)
        else:
            super().__init__(metadata=earlier.metadata, before=earlier, **given)
            self.metadata = earlier.metadata
            self.wall_ms = earlier.wall_ms + MINUTE_MS
        inactive = InactiveTopicRounds(self.registry, self.deletions, lambda: self.now_ns)
        self.dormancy = Dormancy(self.registry, inactive)
        self.filling = DormantFilling(self.registry, self.dormancy)

    async def started(self, **settings: Any) -> Scene:
        """Ends this broker in order; returns the next one with its records."""
        await self.run(self.registry.close())
        return await self.killed(**settings)

    async def killed(self, **settings: Any) -> Scene:
        """Returns a broker that starts while this one has never closed a topic."""
        later = Scene(self, **settings)
        await later.run(later.namespaces.open())
        await later.run(later.filling.run())
        return later

    async def later(self, ms: int) -> None:
        """Moves both clocks, and lets the broker look at its topics."""
        self.wall_ms += ms
        self.now_ns += ms * 1_000_000
        await self.run(self.dormancy.run())

    def record(self, name: str = TOPIC) -> DormantTopic:
        record = self.registry.dormant.get(name)
        assert record is not None
        return record


async def with_backlog(**settings: Any) -> Scene:
    scene = Scene(**settings)
    topic = await scene.open()
    await scene.run(topic.subscribing.create("s", EARLIEST))
    await scene.publish(topic, 6, batch=4)
    cursor = topic.subscriptions["s"].cursor
    ledger_id = topic.ledger.ledgers.current.ledger_id
    cursor.acknowledge([(ledger_id, 0), (ledger_id, 3)])
    return scene


async def test_record_of_a_start_equals_the_one_of_falling_asleep() -> None:
    scene = await with_backlog()
    await scene.later(0)
    await scene.later(10_000)
    before = scene.record()
    scene = await scene.started()
    after = scene.record()
    assert (after.info, after.subscriptions[0].node) == (before.info, before.subscriptions[0].node)
    for of in (before, after):
        of.looked_ns = of.used_at_ns = of.oldest_ms = 0
        of.subscriptions = (of.subscriptions[0]._replace(left_at_ns=0),)
    assert after == before
    assert after.backlog == 4
    assert scene.registry.loads == 0
    assert scene.registry.dormant.filled


async def test_record_of_a_start_has_the_backlog_of_each_subscription() -> None:
    scene = Scene(entries_per_ledger=2)
    topic = await scene.open()
    for name, acked in (("s", 0), ("t", 4)):
        await scene.run(topic.subscribing.create(name, EARLIEST))
        if acked:
            await scene.publish(topic, 6)
            ledger = topic.ledger.ledgers.infos()[acked // 2]
            topic.subscriptions[name].acknowledge_through(Position(ledger.ledger_id, 0))
    await scene.later(0)
    await scene.later(10_000)
    before = scene.record().backlogs
    scene = await scene.started()
    after = scene.record().backlogs
    assert before is not None
    assert after is not None
    assert [one._replace(oldest_ms=0) for one in after] == [one._replace(oldest_ms=0) for one in before]
    assert len({one.size_bytes for one in after}) == 2
    assert all(0 < one.oldest_ms <= scene.wall_ms for one in after)


@pytest.mark.parametrize("waits", [3, 10_000])
async def test_filling_waits_while_topics_are_opened_but_not_for_ever(
    waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dormant_filling, "QUIET_S", 0)
    monkeypatch.setattr(dormant_filling, "WAITS_MAX", waits)
    earlier = await with_backlog()
    await earlier.run(earlier.registry.close())
    scene = Scene(earlier)
    await scene.run(scene.namespaces.open())
    filling = asyncio.ensure_future(scene.run(scene.filling.run()))
    turns = 0
    while not filling.done() and turns < 1_000:
        scene.registry.loads += 1
        turns += 1
        await asyncio.sleep(0)
    assert (scene.registry.dormant.count, filling.done()) == ((1, True) if waits == 3 else (0, False))
    await filling
    assert scene.registry.dormant.count == 1


async def test_topic_of_a_filled_record_wakes_with_its_holes() -> None:
    scene = await (await with_backlog()).started()
    _, _, port = await scene.consume(await scene.open(), SHARED, permits=100)
    assert [entry_id for _, entry_id in port.keys] == [1, 2, 4, 5]


async def test_messages_expire_in_a_topic_that_nobody_has_opened_since_the_start() -> None:
    scene = await (await with_backlog()).started(ttl_s=600)
    # The topic was made when its messages were sent, a minute ago.
    assert scene.record().oldest_ms == SENT_AT_MS
    assert scene.record().due_ns == scene.now_ns + 540 * 10**9 + 10**6
    await scene.later(530_000)
    assert scene.record().backlog == 4
    await scene.later(20_000)
    assert scene.record().backlog == 0


async def test_oldest_message_is_no_older_than_the_end_of_the_ledger_before() -> None:
    scene = await with_backlog()
    topic = await scene.open()
    topic.subscriptions["s"].acknowledge_through(topic.ledger.last_confirmed)
    await scene.settle()
    scene.wall_ms += MINUTE_MS
    await scene.run(scene.registry.unload(topic.name))
    scene.wall_ms += MINUTE_MS
    await scene.publish(await scene.open(), 1)
    scene = await scene.started(ttl_s=600, retention_minutes=-1, retention_mib=-1)
    assert scene.record().backlog == 1
    assert scene.record().oldest_ms == SENT_AT_MS + MINUTE_MS


async def test_topic_that_was_left_open_is_opened_and_falls_asleep() -> None:
    scene = await (await with_backlog()).killed()
    assert scene.registry.loads == 1
    assert not scene.registry.topics
    # Its acknowledgements were stored, and the broker died with its last ledger open.
    assert (scene.record().entries, scene.record().backlog) == (6, 4)


async def test_unused_topic_is_deleted_after_the_start() -> None:
    scene = Scene()
    await scene.open()
    scene = await scene.started(delete_inactive=True, inactive_after_s=300)
    await scene.later(200_000)
    assert scene.registry.dormant.get(TOPIC) is not None
    await scene.later(100_000)
    assert scene.registry.dormant.get(TOPIC) is None
    assert await scene.run(scene.metadata.children(f"{LEDGERS_ROOT}/{NAMESPACE}/persistent")) == []


async def test_acknowledged_ledger_is_removed_after_the_start() -> None:
    scene = await with_backlog(retention_minutes=30, retention_mib=-1)
    topic = await scene.open()
    topic.subscriptions["s"].acknowledge_through(topic.ledger.last_confirmed)
    scene = await scene.started(retention_minutes=30, retention_mib=-1)
    await scene.later(28 * MINUTE_MS)
    assert scene.record().entries == 6
    await scene.later(4 * MINUTE_MS)
    assert (scene.record().entries, scene.record().due_ns) == (0, NEVER)


@pytest.mark.parametrize("ended", ["in order", "killed"])
async def test_messages_without_a_subscription_are_kept_after_a_start_until_somebody_opens_their_topic(
    ended: str,
) -> None:
    scene = Scene(trim_interval_s=60, ttl_s=60)
    await scene.publish(await scene.open(), 5)
    scene = await (scene.started() if ended == "in order" else scene.killed())
    assert not scene.registry.topics, "the round for open topics would remove them"
    assert scene.record().due_ns == NEVER
    for _ in range(3):
        await scene.later(15 * MINUTE_MS)
        await scene.run(scene.dormancy.do_due([TOPIC]))
    assert not scene.registry.topics
    assert scene.record().entries == 5


async def test_messages_of_a_dormant_topic_are_removed_with_its_last_unused_subscription() -> None:
    scene = await (await with_backlog()).started(subscription_expires_min=10)
    await scene.later(20 * MINUTE_MS)
    assert (scene.record().subscriptions, scene.record().entries) == ((), 0)


async def test_topic_with_deduplication_keeps_it_over_a_filled_record() -> None:
    scene = Scene(deduplication=True)
    topic = await scene.open()
    await scene.run(topic.subscribing.create("s", EARLIEST))
    await scene.publish(topic, 3)
    scene = await scene.started(deduplication=True)
    assert [one.name for one in scene.record().subscriptions] == ["s"]
    # Without its cursor in the record the opening would make one, and fail.
    assert (await scene.open()).deduplication is not None


async def test_terminated_topic_stays_terminated_over_a_filled_record() -> None:
    scene = await with_backlog()
    await scene.run((await scene.open()).terminate())
    scene = await scene.started()
    assert scene.record().backlog == 4
    assert (await scene.open()).is_terminated


async def test_topic_that_is_opened_or_deleted_during_the_filling_gets_no_record() -> None:
    first = await with_backlog()
    await first.open("persistent://public/default/u")
    await first.open("persistent://public/default/v")
    await first.run(first.registry.close())
    scene = Scene(first)
    await scene.run(scene.namespaces.open())
    get, gate = scene.metadata.get, asyncio.Event()

    async def late(key: str) -> object:
        found = await get(key)
        if key.startswith(f"{LEDGERS_ROOT}/{NAMESPACE}"):
            await gate.wait()
        return found

    scene.metadata.get = late  # type: ignore[method-assign, assignment]
    filling = asyncio.ensure_future(scene.filling.run())
    await scene.settle()
    scene.metadata.get = get  # type: ignore[method-assign]
    topic = await scene.open()
    await scene.publish(topic, 1)
    await scene.run(scene.registry.unload(topic.name))
    await scene.run(scene.deletions.topic(parse_topic_name("persistent://public/default/u"), force=False))
    gate.set()
    await scene.run(filling)
    assert [name for name, _ in scene.registry.dormant] == ["persistent://public/default/v"]
    assert (await scene.open()).ledger.ledgers.entries == 7


async def test_filling_that_fails_goes_on_in_the_next_run() -> None:
    scene = Scene(await with_backlog())
    await scene.run(scene.namespaces.open())
    children = scene.metadata.children

    async def refused(key: str) -> list[str]:
        raise MetadataError("no answer")

    scene.metadata.children = refused  # type: ignore[method-assign]
    await scene.run(scene.filling.run())
    assert [scene.registry.dormant.filled, scene.registry.dormant.filling] == [False, True]
    scene.metadata.children = children  # type: ignore[method-assign]
    await scene.run(scene.filling.run())
    assert [scene.registry.dormant.filled, scene.registry.dormant.filling] == [True, False]
    assert scene.record().backlog == 4


async def test_broker_whose_topics_stay_open_fills_no_records() -> None:
    scene = await (await with_backlog()).started(dormant_after_s=0)
    assert scene.registry.dormant.count == 0
    assert not scene.registry.dormant.filled


class SomeBundles(TopicOwnership):
    """The ownership of a broker that shares its store."""

    is_shared = True

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._namespaces = scene.registry.namespaces
        self.owned: set[str] = set()
        self.parts = lambda: {*self.owned}

    def bundle_of(self, name: TopicName) -> str:
        return f"{name.namespace}/{bundles_of(self._namespaces, name.namespace).of(str(name))}"


class Shared(Scene):
    """A broker that owns no bundle yet, after another one has left topics with a backlog in each."""

    bundles: SomeBundles

    @classmethod
    async def of(cls, topics: int = 12, **settings: Any) -> Shared:
        earlier = Scene()
        for number in range(topics):
            topic = await earlier.open(f"{TOPIC}-{number}")
            await earlier.run(topic.subscribing.create("s", EARLIEST))
            await earlier.publish(topic, 3)
        await earlier.run(earlier.registry.close())
        found = cls(earlier, **settings)
        await found.run(found.namespaces.open())
        found.registry.ownership = found.bundles = SomeBundles(found)
        return found

    def of_bundle(self, bundle: str) -> list[str]:
        """The topics of a bundle, of all twelve."""
        names = [f"{TOPIC}-{number}" for number in range(12)]
        return sorted(name for name in names if self.bundles.bundle_of(parse_topic_name(name)) == bundle)

    async def fill(self) -> list[str]:
        await self.run(self.filling.run())
        return sorted(name for name, _ in self.registry.dormant)


ONE = f"{NAMESPACE}/0x00000000_0x40000000"
OTHER = f"{NAMESPACE}/0x80000000_0xc0000000"


async def test_each_bundle_is_filled_once_this_broker_has_it() -> None:
    scene = await Shared.of()
    assert await scene.fill() == []
    assert not scene.registry.dormant.filling, "it has no topics"
    scene.bundles.owned = {ONE}
    assert await scene.fill() == scene.of_bundle(ONE) != []
    scene.bundles.owned = {ONE, OTHER}
    both = sorted([*scene.of_bundle(ONE), *scene.of_bundle(OTHER)])
    assert await scene.fill() == both
    assert scene.registry.dormant.backlog == 3 * len(both)
    assert scene.registry.loads == 0


async def test_sums_are_too_small_until_a_taken_bundle_is_filled() -> None:
    scene = await Shared.of()
    scene.bundles.owned = {ONE}
    children = scene.metadata.children

    async def refused(key: str) -> list[str]:
        raise MetadataError("no answer")

    scene.metadata.children = refused  # type: ignore[method-assign]
    assert await scene.fill() == []
    assert scene.registry.dormant.filling
    scene.metadata.children = children  # type: ignore[method-assign]
    assert await scene.fill() == scene.of_bundle(ONE)
    assert not scene.registry.dormant.filling


async def test_messages_expire_in_a_topic_of_a_taken_bundle_that_nobody_has_opened() -> None:
    scene = await Shared.of(ttl_s=600)
    scene.bundles.owned = {ONE}
    await scene.fill()
    await scene.later(610_000)
    assert scene.registry.dormant.backlog == 0
    assert scene.registry.loads == len(scene.of_bundle(ONE))


async def test_bundle_that_was_given_up_and_taken_again_is_filled_anew() -> None:
    scene = await Shared.of()
    scene.bundles.owned = {ONE, OTHER}
    await scene.fill()
    await scene.run(unload_bundle(scene.registry, ONE))
    assert sorted(name for name, _ in scene.registry.dormant) == scene.of_bundle(OTHER)
    # No run has seen the broker without it.
    assert await scene.fill() == sorted([*scene.of_bundle(ONE), *scene.of_bundle(OTHER)])


async def test_bundle_that_is_given_up_during_the_reads_gets_no_record_of_them() -> None:
    scene = await Shared.of()
    scene.bundles.owned = {ONE}
    get, gate = scene.metadata.get, asyncio.Event()

    async def late(key: str) -> object:
        found = await get(key)
        await gate.wait()
        return found

    scene.metadata.get = late  # type: ignore[method-assign, assignment]
    filling = asyncio.ensure_future(scene.filling.run())
    await scene.settle()
    scene.metadata.get = get  # type: ignore[method-assign]
    await scene.run(unload_bundle(scene.registry, ONE))
    gate.set()
    await scene.run(filling)
    assert scene.registry.dormant.count == 0
    assert await scene.fill() == scene.of_bundle(ONE)


async def test_topic_that_another_broker_has_stored_gets_its_record_after_a_while() -> None:
    scene = await Shared.of(topics=11)
    scene.bundles.owned = {scene.bundles.bundle_of(parse_topic_name(f"{TOPIC}-11"))}
    before = await scene.fill()
    await create_ledger_list(
        parse_topic_name(f"{TOPIC}-11").ledger_name,
        scene.environment,
        scene.registry.ledger_settings_of(parse_topic_name(f"{TOPIC}-11")),
        {},
    )
    assert await scene.fill() == before
    scene.now_ns += REFILL_NS
    assert await scene.fill() == sorted([*before, f"{TOPIC}-11"])


async def test_partition_of_a_bundle_that_another_broker_has_gets_no_record_here() -> None:
    scene = await Shared.of()
    name = parse_topic_name(f"{TOPIC}-new")
    await scene.run(store_topic(scene.registry, name))
    assert scene.registry.dormant.count == 0
    scene.bundles.owned = {scene.bundles.bundle_of(name)}
    await scene.run(scene.deletions.topic(name, force=False))
    await scene.run(store_topic(scene.registry, name))
    assert [name for name, _ in scene.registry.dormant] == [str(name)]


async def test_records_of_a_start_have_few_objects_besides_the_stored_values() -> None:
    scene = Scene()
    for number in range(20):
        topic = await scene.open(f"{TOPIC}-{number}")
        await scene.run(topic.subscribing.create("s", EARLIEST))
    scene = await scene.started()
    found: dict[int, object] = {}
    waiting: list[object] = [record for _, record in scene.registry.dormant]
    while waiting:
        each = waiting.pop()
        if isinstance(each, DormantTopic | tuple | int) and id(each) not in found:
            found[id(each)] = each
            waiting += gc.get_referents(each)
    each_bytes = sum(map(sys.getsizeof, found.values())) / 20
    assert each_bytes < 320, "600,000 records in 1 KiB each, with names, values and places in dicts"
