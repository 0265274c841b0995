"""Policies of topics on a shared store, which are events, act on dormant topics that nobody has opened."""

from __future__ import annotations

import pytest

from broker.managed_ledger.managed_ledger_info import ROOT as LEDGERS_ROOT
from broker.service.lifecycle import dormant_filling
from broker.service.lifecycle.dormant_filling import POLICIES_RETRY_NS
from broker.service.namespaces.bundles import bundles_of
from broker.service.topics.dormant_topic import NEVER
from broker.service.topics.event_log import EventLog
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.policy_events import PolicyEvents
from foundation.model.errors import MetadataError, PersistenceError
from foundation.model.position import EARLIEST
from foundation.model.topic_name import parse_topic_name
from foundation.value import Json
from tests.broker.service.lifecycle.test_dormant_filling import MINUTE_MS, NAMESPACE, Scene, SomeBundles
from tests.fakes.policy_brokers import EVENTS
from tests.fakes.stage import TOPIC

OTHER = f"{TOPIC}-other"
PART = f"{TOPIC}-parts-partition-0"
AGE_QUOTA = "backLogQuotaMap"
EVICTED_BY_AGE: Json = {"message_age": {"limitTime": 3600, "policy": "consumer_backlog_eviction"}}


class Sharing(Scene):
    """A broker that shares its store, with bundles of its own once it has some."""

    bundles: SomeBundles

    def __init__(self, earlier: Scene | None = None) -> None:
        super().__init__(earlier)
        PolicyEvents(self.registry, self.environment)
        self.bundles = SomeBundles(self)
        self.registry.ownership = self.bundles

    async def next(self) -> Sharing:
        """Ends this broker in order; returns the next one, without bundles."""
        await self.run(self.registry.close())
        later = Sharing(self)
        await later.run(later.namespaces.open())
        return later

    async def take_all(self) -> None:
        """Takes all bundles and fills them."""
        bundles = bundles_of(self.namespaces, NAMESPACE).all()
        self.bundles.owned = {f"{NAMESPACE}/{bundle}" for bundle in bundles}
        await self.run(self.filling.run())
        await self.settle()

    def backlogs(self) -> dict[str, int]:
        return {name: record.backlog for name, record in self.registry.dormant}


async def with_backlogs(*names: str) -> Sharing:
    scene = Sharing()
    for name in names:
        topic = await scene.open(name)
        await scene.run(topic.subscribing.create("s", EARLIEST))
        await scene.publish(topic, 4)
    return scene


async def test_policies_of_topics_act_on_topics_of_a_taken_bundle_that_nobody_has_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A wait for the topic with the events, which the filling opens, would never end.
    monkeypatch.setattr(dormant_filling, "QUIET_S", 3_600)
    former = await with_backlogs(TOPIC, OTHER, PART)
    for name in (TOPIC, str(parse_topic_name(PART).base)):
        await former.run(former.namespaces.set_topic_policy(name, "messageTTLInSeconds", 3600))
    await former.run(former.namespaces.set_topic_policy(OTHER, AGE_QUOTA, EVICTED_BY_AGE))
    scene = await former.next()
    await scene.take_all()
    assert scene.backlogs() == {TOPIC: 4, OTHER: 4, PART: 4}
    assert [*scene.registry.topics] == [EVENTS]
    await scene.later(61 * MINUTE_MS)
    assert scene.backlogs() == {TOPIC: 0, OTHER: 0, PART: 0}


async def test_policies_of_a_namespace_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    former = await with_backlogs(*(f"{TOPIC}-{number}" for number in range(50)))
    await former.run(former.namespaces.set_topic_policy(OTHER, "messageTTLInSeconds", 3600))
    reads: list[str] = []
    catch_up = EventLog.catch_up

    async def counted(self: EventLog, topic: PersistentTopic) -> set[str]:
        reads.append(str(topic.name))
        return await catch_up(self, topic)

    monkeypatch.setattr(EventLog, "catch_up", counted)
    scene = await former.next()
    await scene.take_all()
    scene.now_ns += dormant_filling.REFILL_NS
    await scene.run(scene.filling.run())
    assert (scene.registry.dormant.count, reads) == (50, [EVENTS])


async def test_topic_with_events_is_neither_opened_nor_made_where_there_is_none() -> None:
    scene = await (await with_backlogs(TOPIC)).next()
    await scene.take_all()
    assert scene.registry.loads == 0
    assert await scene.metadata.children(f"{LEDGERS_ROOT}/{NAMESPACE}/persistent") == ["t"]


@pytest.mark.parametrize("defect", [PersistenceError("no bookie"), ValueError("a defect")])
async def test_topics_are_planned_anew_when_policies_can_be_read_again(
    defect: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = await with_backlogs(TOPIC)
    await former.run(former.namespaces.set_topic_policy(TOPIC, "messageTTLInSeconds", 3600))
    scene = await former.next()
    attempts: list[int] = []

    async def refused(self: EventLog, topic: PersistentTopic) -> set[str]:
        attempts.append(scene.now_ns)
        raise defect

    with monkeypatch.context() as broken:
        broken.setattr(EventLog, "catch_up", refused)
        await scene.take_all()
        assert (scene.backlogs(), scene.registry.dormant.filling) == ({TOPIC: 4}, False)
        assert scene.record().due_ns == NEVER
        await scene.run(scene.filling.run())
        assert len(attempts) == 1, "not in each run"
        scene.now_ns += POLICIES_RETRY_NS
        await scene.run(scene.filling.run())
        assert len(attempts) == 2
    scene.now_ns += POLICIES_RETRY_NS
    await scene.run(scene.filling.run())
    await scene.settle()
    assert scene.record().due_ns != NEVER
    await scene.later(61 * MINUTE_MS)
    assert scene.backlogs() == {TOPIC: 0}


async def test_topics_are_planned_anew_when_a_client_has_the_policies_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    former = await with_backlogs(TOPIC, OTHER)
    await former.run(former.namespaces.set_topic_policy(TOPIC, "messageTTLInSeconds", 3600))
    scene = await former.next()

    async def refused(self: EventLog, topic: PersistentTopic) -> set[str]:
        raise MetadataError("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(EventLog, "catch_up", refused)
        await scene.take_all()
        assert scene.record().due_ns == NEVER
    await scene.open(OTHER)
    await scene.settle()
    assert scene.record().due_ns != NEVER


async def test_policies_that_could_not_be_read_are_not_read_for_a_bundle_that_was_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    former = await with_backlogs(TOPIC)
    await former.run(former.namespaces.set_topic_policy(TOPIC, "messageTTLInSeconds", 3600))
    scene = await former.next()
    attempts: list[int] = []

    async def refused(self: EventLog, topic: PersistentTopic) -> set[str]:
        attempts.append(scene.now_ns)
        raise MetadataError("no answer")

    monkeypatch.setattr(EventLog, "catch_up", refused)
    await scene.take_all()
    scene.bundles.owned = set()
    scene.now_ns += POLICIES_RETRY_NS
    await scene.run(scene.filling.run())
    assert len(attempts) == 1
