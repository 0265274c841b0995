"""A subscription with holes, and the rounds that fill them, on a stage with a clock of its own."""

from __future__ import annotations

import dataclasses
from typing import Any

from broker.service.consumer import Consumer
from broker.service.lifecycle.hole_rounds import HoleRounds
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from tests.fakes.ports import FakeConsumerPort
from tests.fakes.stage import SHARED, Stage

PERIOD_S = 180


class Rounds:
    """The rounds of a stage, and its clock."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.rounds = HoleRounds(stage.registry, lambda: stage.now_ns)

    async def after(self, seconds: int) -> None:
        """Lets the time pass second by second, as the broker's timer does."""
        for _ in range(seconds):
            await self.stage.pass_time(1000)
            await self.stage.run(self.rounds.run())
            await self.stage.settle()


class Breaking(FakeConsumerPort):
    """A port whose next deliveries raise."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0

    def deliver(self, entries: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise MemoryError("by the test")
        super().deliver(entries)


@dataclasses.dataclass
class Play:
    stage: Stage
    topic: PersistentTopic
    subscription: Subscription
    consumer: Consumer
    port: Breaking
    rounds: Rounds

    @property
    def ledger_id(self) -> int:
        return self.topic.ledger.ledgers.current.ledger_id

    def got(self) -> list[int]:
        return [entry.entry_id for entry in self.port.got]

    async def acknowledge(self, *entries: int) -> None:
        self.subscription.acknowledge(self.consumer, [(self.ledger_id, entry) for entry in entries])
        await self.stage.settle()


async def play(kind: Any = SHARED, **config: Any) -> Play:
    """A subscription whose first run of four entries was lost; it has read six more and acknowledged them."""
    stage = Stage(hole_period_s=PERIOD_S, **config)
    topic = await stage.open()
    port = Breaking()
    subscription, consumer, _ = await stage.consume(topic, kind, permits=1000, port=port)
    found = Play(stage, topic, subscription, consumer, port, Rounds(stage))
    port.failures = 1
    await stage.publish(topic, keys=list("abca"))
    await stage.publish(topic, keys=list("abcabc"))
    return found
