"""A random round: its producers, the way each consumer acknowledges, the moment of the kill.

Law of the place: data and one seeded draw; the client processes and the judge read the same plan.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Literal, NamedTuple

AckStyle = Literal["individual", "whole-entries", "cumulative", "receipts", "none"]


class ProducerPlan(NamedTuple):
    name: str
    topic: str
    batched: bool


class SubscriptionPlan(NamedTuple):
    name: str
    topic: str
    style: AckStyle
    kind: str
    """ConsumerType by the client's name."""
    consumers: int


class RoundPlan(NamedTuple):
    number: int
    kill_after_s: float
    kill_again_after_s: float | None
    """A second kill, this long after the restart was begun."""
    producers_die_too: bool
    rate: float
    """Messages per second and producer."""

    def topics(self) -> list[str]:
        return [f"persistent://public/default/crash-{self.number}-{letter}" for letter in "ab"]

    def delayed_topic(self) -> str:
        """Its producer and consumer are in a process of their own."""
        return f"persistent://public/default/crash-{self.number}-delayed"

    def transaction_topics(self) -> tuple[str, str]:
        """Source and target of the messages that transactions move."""
        name = f"persistent://public/default/crash-{self.number}"
        return f"{name}-source", f"{name}-target"

    def compacted_topic(self) -> str:
        """Its producer asks for compactions."""
        return f"persistent://public/default/crash-{self.number}-compacted"

    def producers(self) -> Iterator[ProducerPlan]:
        for topic in self.topics():
            for batched in (False, True):
                name = f"{topic.rsplit('-', 1)[1]}-{'batched' if batched else 'single'}"
                yield ProducerPlan(name, topic, batched)

    def subscriptions(self) -> Iterator[SubscriptionPlan]:
        first, second = self.topics()
        yield SubscriptionPlan("keeper", first, "none", "Exclusive", 1)
        yield SubscriptionPlan("one-by-one", first, "whole-entries", "Exclusive", 1)
        yield SubscriptionPlan("up-to", first, "cumulative", "Exclusive", 1)
        yield SubscriptionPlan("keeper", second, "none", "Exclusive", 1)
        yield SubscriptionPlan("shared", second, "individual", "Shared", 2)
        yield SubscriptionPlan("with-receipts", second, "receipts", "Exclusive", 1)


def draw(number: int, lot: random.Random) -> RoundPlan:
    return RoundPlan(
        number,
        kill_after_s=lot.uniform(2.5, 5.0),
        kill_again_after_s=lot.uniform(0.05, 0.6) if lot.random() < 0.25 else None,
        producers_die_too=lot.random() < 0.25,
        rate=lot.choice((100.0, 250.0, 500.0)),
    )


def leaves_unacked(number: int) -> bool:
    """Every seventh is deliberately left without an ack."""
    return number % 7 == 3
