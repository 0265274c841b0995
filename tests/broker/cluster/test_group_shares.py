"""Shares of resource groups: the parts of a rate, and what several brokers let through together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.cluster.group_shares import SHARE_INTERVAL_S, USAGE, Demand, GroupShares, share_of
from broker.service.limits.broker_limits import BrokerLimits
from broker.service.limits.resource_groups import ResourceGroups
from broker.service.policies.values import ResourceGroupRates
from broker.service.settings import ServiceSettings
from foundation.units import NS_PER_SECOND

RATE = 1000
STEP_NS = NS_PER_SECOND // 1000
BUSY, IDLE = Demand(500.0, is_limited=True), Demand()


@pytest.mark.parametrize(
    ("own", "others", "share"),
    [
        (BUSY, [], RATE),
        (IDLE, [], RATE),
        (BUSY, [BUSY], RATE // 2),
        (BUSY, [BUSY, BUSY, BUSY], RATE // 4),
        # A broker that wants less than its part has it, and the rest is the others'.
        (BUSY, [Demand(80.0)], RATE - 100),
        (Demand(80.0), [BUSY], 100),
        # One that has not begun yet can begin.
        (IDLE, [BUSY], 1),
        # The rest is divided evenly.
        (Demand(80.0), [Demand(160.0)], 100 + (RATE - 300) // 2),
    ],
)
def test_share_follows_what_each_broker_wants(own: Demand, others: list[Demand], share: int) -> None:
    assert share_of(RATE, own, others) == share


def test_rate_without_a_limit_has_no_shares() -> None:
    assert share_of(-1, BUSY, [BUSY]) == -1


@given(st.lists(st.builds(Demand, st.floats(0, 10_000), st.booleans()), min_size=1, max_size=6))
def test_shares_add_up_to_the_rate(demands: list[Demand]) -> None:
    shares = [
        share_of(RATE, own, demands[:index] + demands[index + 1 :]) for index, own in enumerate(demands)
    ]
    assert RATE - len(shares) <= sum(shares) <= RATE + len(shares)


class Groups(SimpleNamespace):
    """One group."""

    def names(self) -> list[str]:
        return ["g"]

    def get(self, name: str) -> ResourceGroupRates:
        return ResourceGroupRates(publish_messages=RATE)


class Port:
    """A producer's connection."""

    def __init__(self) -> None:
        self.paused = 0

    def pause(self) -> None:
        self.paused += 1

    def go_on(self) -> None:
        self.paused -= 1


class Broker:
    """Its limits, and a client that publishes whenever it may."""

    def __init__(self, store: MemoryMetadataStore, number: int) -> None:
        self.store = store
        self.now_ns = 0
        self._timers: list[tuple[int, object]] = []
        self.limits = BrokerLimits(ServiceSettings(), now_ns=lambda: self.now_ns, call_later=self._call_later)
        self.limits.set_group("g", Groups().get("g"))
        self.shares = GroupShares(store, cast(ResourceGroups, Groups()), self.limits, f"broker{number}")
        self.port = Port()
        self.published = 0

    def _call_later(self, seconds: float, action: object) -> None:
        self._timers.append((self.now_ns + round(seconds * NS_PER_SECOND), action))

    def step(self, wanted: int) -> None:
        """Lets a moment pass, in which the client publishes up to `wanted` messages."""
        self.now_ns += STEP_NS
        due = [action for at, action in self._timers if at <= self.now_ns]
        self._timers = [one for one in self._timers if one[0] > self.now_ns]
        for action in due:
            assert callable(action)
            action()
        group = self.limits.group("g")
        assert group is not None
        for _ in range(wanted):
            if self.port.paused:
                return
            group.publish.count(self.port, 1, 10)
            self.published += 1


class Cluster:
    def __init__(self, count: int) -> None:
        first = MemoryMetadataStore()
        stores = [first, *(first.another() for _ in range(count - 1))]
        self.brokers = [Broker(store, number) for number, store in enumerate(stores)]

    async def run(self, seconds: float, *wanted: int) -> list[int]:
        """Returns the messages per second that each broker let through; `wanted`: messages per millisecond."""
        before = [broker.published for broker in self.brokers]
        for step in range(int(seconds * 1000)):
            for broker, count in zip(self.brokers, wanted, strict=True):
                broker.step(count)
            if step % int(SHARE_INTERVAL_S * 1000) == 0:
                for broker in self.brokers:
                    await broker.shares.tick()
        return [
            round((broker.published - then) / seconds)
            for broker, then in zip(self.brokers, before, strict=True)
        ]


async def test_two_brokers_together_keep_the_rate_of_one_group() -> None:
    cluster = Cluster(2)
    await cluster.run(3 * SHARE_INTERVAL_S, 10, 10)
    rates = await cluster.run(10, 10, 10)
    assert sum(rates) == pytest.approx(RATE, rel=0.05)
    assert rates[0] == pytest.approx(rates[1], rel=0.1)


async def test_broker_that_becomes_busy_gets_its_part_and_one_that_ends_leaves_it() -> None:
    cluster = Cluster(2)
    await cluster.run(3 * SHARE_INTERVAL_S, 10, 0)
    assert await cluster.run(10, 10, 0) == [pytest.approx(RATE, rel=0.05), 0]
    await cluster.run(4 * SHARE_INTERVAL_S, 10, 10)
    rates = await cluster.run(10, 10, 10)
    assert sum(rates) == pytest.approx(RATE, rel=0.05)
    assert min(rates) == pytest.approx(RATE / 2, rel=0.1)
    # Killed: its node goes with its session.
    await cluster.brokers[1].store.close()
    survivor = Cluster(1)
    survivor.brokers = cluster.brokers[:1]
    await survivor.run(3 * SHARE_INTERVAL_S, 10)
    assert (await survivor.run(10, 10))[0] == pytest.approx(RATE, rel=0.05)


async def test_group_that_nobody_uses_costs_no_request() -> None:
    cluster = Cluster(2)
    await cluster.run(2 * SHARE_INTERVAL_S, 0, 0)
    assert await cluster.brokers[0].store.children(USAGE) == []


async def test_report_that_cannot_be_read_leaves_the_share_as_it_was() -> None:
    cluster = Cluster(2)
    await cluster.run(3 * SHARE_INTERVAL_S, 10, 10)
    await cluster.brokers[0].store.put(f"{USAGE}/other", b'{"g": 3}')
    rates = await cluster.run(10, 10, 10)
    assert sum(rates) == pytest.approx(RATE, rel=0.05)
