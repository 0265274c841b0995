"""Thresholds and the deletion lag of offloads act on dormant topics, at their time."""

from __future__ import annotations

import pytest

from broker.managed_ledger.ledger_list import OffloadPlace
from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE
from broker.managed_ledger.offload.rules import ledgers_to_drop, ledgers_to_offload
from broker.managed_ledger.settings import OffloadRules
from broker.offload.ledger_tier import LedgerTier
from broker.service.policies import table
from broker.service.topics.dormant_due import copies_due_ms
from broker.service.topics.dormant_topic import NEVER, DormantTopic, OffloadTimes
from broker.service.topics.new_topic import create_shadow
from foundation.model.position import EARLIEST
from foundation.model.topic_name import parse_topic_name
from tests.broker.managed_ledger.offload.test_rules import COPIED, ledgers
from tests.broker.service.lifecycle.test_dormancy import SHADOW, Scene
from tests.fakes.objects import MemoryObjects
from tests.fakes.stage import TOPIC

NAMESPACE = "public/default"
HOUR_MS = 3_600_000
BUCKET = {"managedLedgerOffloadDriver": "aws-s3", "s3ManagedLedgerOffloadBucket": "b"}


class Tiered(Scene):
    """A scene with two full ledgers and one that sleep ends, in five entries; object storage in memory."""

    def __init__(self) -> None:
        super().__init__(entries_per_ledger=2)
        self.objects = MemoryObjects()
        tier = LedgerTier(self.environment.metadata, 1, lambda _: self.objects)
        object.__setattr__(self.environment, "open_tier", lambda: tier)

    async def policy(self, **members: int) -> None:
        """Sets the offload policies of the namespace."""
        form = table.OFFLOAD_POLICIES.form
        value = form.write(form.read({**BUCKET, **members}))
        await self.run(self.namespaces.set_policy(NAMESPACE, table.OFFLOAD_POLICIES.name, value))
        await self.run(self.registry.namespace_changed(NAMESPACE))

    def record(self) -> DormantTopic:
        """The record of the topic, which must be dormant."""
        record = self.registry.dormant.get(TOPIC)
        assert record is not None
        return record

    async def asleep_again(self) -> DormantTopic:
        """Waits until the topic, which has been opened for an offload, sleeps once more."""
        await self.settle()
        await self.later(0)
        await self.later(10_000)
        return self.record()


@pytest.fixture
async def tiered() -> Tiered:
    tiered = Tiered()
    await tiered.with_backlog(5)
    return tiered


async def test_ledgers_of_a_dormant_topic_are_copied_when_they_are_old_enough(tiered: Tiered) -> None:
    await tiered.policy(managedLedgerOffloadThresholdInSeconds=3600)
    await tiered.sleep()
    await tiered.later(HOUR_MS - 60_000)
    assert (TOPIC in tiered.registry.topics, tiered.objects.stored) == (False, {})
    await tiered.later(60_000)
    record = await tiered.asleep_again()
    # Two objects of each ledger; the one that the sleep ended is closed too.
    assert len(tiered.objects.stored) == 6
    assert record.offload is not None
    assert record.offload.closed_ms == NEVER
    assert record.entries == 5


async def test_dormant_topic_is_copied_when_a_policy_by_size_comes(tiered: Tiered) -> None:
    record = await tiered.sleep()
    assert record.offload is None, "no policy names a storage, so the record is small"
    await tiered.policy(managedLedgerOffloadThresholdInBytes=0)
    await tiered.later(1_000_000)
    await tiered.asleep_again()
    assert len(tiered.objects.stored) == 6


async def test_bookies_lose_copied_ledgers_of_a_dormant_topic_after_the_lag(tiered: Tiered) -> None:
    await tiered.policy(
        managedLedgerOffloadThresholdInSeconds=0, managedLedgerOffloadDeletionLagInMillis=2 * HOUR_MS
    )
    await tiered.sleep()
    await tiered.later(1_000_000)
    await tiered.asleep_again()
    assert (len(tiered.ledgers._ledgers), len(tiered.objects.stored)) == (3, 6)
    await tiered.later(2 * HOUR_MS)
    record = await tiered.asleep_again()
    assert len(tiered.ledgers._ledgers) == 0
    assert (record.offload, record.due_ns) == (OffloadTimes(copied_bytes=record.size_bytes), NEVER)
    _, _, port = await tiered.consume(await tiered.open(), permits=10)
    assert len(port.keys) == 5


async def test_topic_stays_awake_until_its_copies_are_made(tiered: Tiered) -> None:
    await tiered.policy(managedLedgerOffloadThresholdInSeconds=3600)
    await tiered.sleep()
    tiered.wall_ms += HOUR_MS
    tiered.now_ns += HOUR_MS * 1_000_000
    await tiered.run(tiered.dormancy.run())
    assert TOPIC in tiered.registry.topics


async def test_shadow_that_sleeps_is_not_opened_for_the_ledgers_of_its_source(tiered: Tiered) -> None:
    await tiered.policy(managedLedgerOffloadThresholdInSeconds=3600)
    await tiered.run(create_shadow(tiered.registry, parse_topic_name(SHADOW), {SHADOW_SOURCE: TOPIC}))
    await tiered.run((await tiered.open(SHADOW)).subscribing.create("t", EARLIEST))
    await tiered.sleep()
    record = tiered.registry.dormant.get(SHADOW)
    assert record is not None
    assert record.offload == OffloadTimes()


@pytest.mark.parametrize("threshold_bytes", [-1, 0, 149, 150, 350])
@pytest.mark.parametrize("threshold_s", [-1, 0, 5])
@pytest.mark.parametrize("copied", [0, 1, 3])
def test_times_of_a_list_tell_when_a_ledger_is_due(
    threshold_bytes: int, threshold_s: int, copied: int
) -> None:
    infos = ledgers()
    for info in infos[:copied]:
        info.offload = COPIED
    rules = OffloadRules(
        OffloadPlace("filesystem"),
        threshold_bytes=threshold_bytes,
        threshold_s=threshold_s,
        deletion_lag_ms=20_000,
    )
    times = OffloadTimes.of(infos)

    def is_due(now_ms: int) -> bool:
        return bool(ledgers_to_offload(infos, rules, now_ms) or ledgers_to_drop(infos, rules, now_ms))

    for now_ms in (4_000, 6_000, 7_000, 10_000, 21_000):
        assert is_due(now_ms) == any(due_ms <= now_ms for due_ms in copies_due_ms(times, rules, now_ms))
