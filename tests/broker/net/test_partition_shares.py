"""Shares of partitions: even, stable when others come and go, and told to those whose share changed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import cast

import pytest

from broker.compose.background_tasks import BackgroundTasks
from broker.net import partition_shares
from broker.net.partition_shares import PartitionShares, ShareRegistration, share_out
from broker.net.stored_shares import ROOT, GroupKey, Share, StoredShares
from broker.service.transactions.coordinator import Spawn
from foundation.model.errors import NotAllowed
from protocol.scalable_answers import segments_of
from tests.fakes.metadata import FakeMetadata

GROUP = GroupKey("persistent://public/default/t", "s", 0)


def topics(count: int) -> list[str]:
    return [f"persistent://public/default/t-partition-{number}" for number in range(count)]


def numbers(share: Share) -> list[int]:
    return [segment.number for segment in share]


def test_segments_of_cuts_the_hashes_as_pulsar_does() -> None:
    assert [(one.hash_start, one.hash_end) for one in segments_of(topics(3))] == [
        (0, 21844),
        (21845, 43689),
        (43690, 65535),
    ]
    assert [(one.hash_start, one.hash_end) for one in segments_of(["t"])] == [(0, 65535)]


@pytest.mark.parametrize("seed", range(30))
def test_share_out_is_even_and_moves_as_little_as_it_can(seed: int) -> None:
    chance = random.Random(seed)
    segments = segments_of(topics(chance.randint(1, 40)))
    shares: dict[str, Share] = {}
    for step in range(20):
        if shares and chance.random() < 0.4:
            del shares[chance.choice(sorted(shares))]
        else:
            shares[f"c{step}"] = ()
        after = share_out(segments, shares)
        assert sorted(number for share in after.values() for number in numbers(share)) == (
            list(range(len(segments))) if shares else []
        )
        sizes = [len(share) for share in after.values()]
        assert not sizes or max(sizes) - min(sizes) <= 1
        # A consumer loses a segment only where its former share was larger than the new one.
        for name, before in shares.items():
            lost = set(numbers(before)) - set(numbers(after[name]))
            assert len(lost) == max(0, len(before) - len(after[name]))
        shares = after


def test_share_out_keeps_numbers_when_partitions_are_added() -> None:
    before = share_out(segments_of(topics(2)), {"a": (), "b": ()})
    after = share_out(segments_of(topics(4)), before)
    assert {name: set(numbers(share)) for name, share in before.items()} == {"a": {0}, "b": {1}}
    assert all(set(numbers(before[name])) <= set(numbers(after[name])) for name in before)
    assert after["a"][0].hash_end == 16383


class Consumer:
    def __init__(self, name: str) -> None:
        self.told: list[list[int]] = []
        self.registration = ShareRegistration(GROUP, name, lambda share: self.told.append(numbers(share)))

    @property
    def share(self) -> list[int]:
        return numbers(self.registration.share)


class Broker:
    """The shares of one lifetime of a broker; timers run when the test says so."""

    def __init__(self, metadata: FakeMetadata | None = None) -> None:
        self.metadata = metadata or FakeMetadata()
        self.tasks = BackgroundTasks()
        self.timers: list[tuple[float, Callable[[], None]]] = []
        stored = StoredShares(self.metadata, cast("Spawn", self.tasks.spawn))
        self.shares = PartitionShares(stored, lambda *timer: self.timers.append(timer), lambda: 60)

    async def join(self, name: str, count: int = 4) -> Consumer:
        await self.shares.open()
        consumer = Consumer(name)
        self.shares.join(consumer.registration, segments_of(topics(count)))
        return consumer

    def let_graces_end(self) -> None:
        timers, self.timers = self.timers, []
        for seconds, callback in timers:
            assert seconds == 60
            callback()

    async def restart(self) -> Broker:
        await self.written()
        return Broker(self.metadata)

    async def written(self) -> None:
        await self.tasks.settle(set(), timeout_s=30)


async def test_join_and_leave_tell_only_those_whose_share_changes() -> None:
    broker = Broker()
    first = await broker.join("a")
    assert first.share == [0, 1, 2, 3]
    second = await broker.join("b")
    assert (first.told, second.share) == ([[0, 1]], [2, 3])
    third = await broker.join("c")
    assert (first.told, second.told, third.share) == ([[0, 1]], [[2]], [3])
    broker.shares.leave(second.registration)
    assert (first.told, third.told) == ([[0, 1]], [[2, 3]])
    broker.shares.leave(first.registration)
    broker.shares.leave(third.registration)
    assert len(broker.shares) == 0


async def test_a_consumer_that_comes_back_takes_its_share_over() -> None:
    broker = Broker()
    first, second = await broker.join("a"), await broker.join("b")
    again = await broker.join("a")
    assert (again.share, second.told) == ([0, 1], [])
    # The end of the replaced connection comes late.
    broker.shares.lose([first.registration])
    broker.let_graces_end()
    assert (again.share, second.told) == ([0, 1], [])


async def test_a_lost_consumer_keeps_its_share_until_its_grace_ends() -> None:
    broker = Broker()
    first, second = await broker.join("a"), await broker.join("b")
    broker.shares.lose([first.registration])
    assert second.told == []
    third = await broker.join("c")
    assert (third.share, first.told) == ([3], [[0, 1]])
    broker.let_graces_end()
    assert (second.told, third.told, first.told) == ([[2], [0, 2]], [[1, 3]], [[0, 1]])


async def test_a_lost_consumer_that_comes_back_is_not_removed_by_its_timer() -> None:
    broker = Broker()
    first, second = await broker.join("a"), await broker.join("b")
    broker.shares.lose([first.registration])
    again = await broker.join("a")
    broker.let_graces_end()
    assert (again.share, second.told) == ([0, 1], [])
    assert len(broker.shares) == 1


async def test_absent_consumers_are_limited_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_shares, "ABSENT_MAX", 2)
    broker = Broker()
    stays = await broker.join("a", count=8)
    for name in "bcd":
        broker.shares.lose([(await broker.join(name, count=8)).registration])
    # The first one has gone before its grace was over; its two partitions are shared out.
    assert [len(share) for share in stays.told] == [4, 3, 2, 3]


async def test_group_takes_a_limited_number_of_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_shares, "MEMBERS_MAX", 2)
    broker = Broker()
    first = await broker.join("a")
    await broker.join("b")
    broker.shares.lose([first.registration])
    with pytest.raises(NotAllowed, match="2 consumers share"):
        await broker.join("c")
    # A consumer that comes back has its place.
    assert (await broker.join("a")).share == [0, 1]


async def test_connection_that_ends_with_many_consumers_shares_their_group_out_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker()
    stays = await broker.join("stays")
    lost = [(await broker.join(f"lost-{number}")).registration for number in range(100)]
    shared_out = []

    def counted(*arguments: object) -> dict[str, Share]:
        shared_out.append(arguments)
        return share_out(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(partition_shares, "share_out", counted)
    broker.shares.lose(lost)
    assert len(broker.timers) == 1
    broker.let_graces_end()
    assert len(shared_out) == 1
    assert stays.told[-1] == [0, 1, 2, 3]
    monkeypatch.setattr(partition_shares, "ABSENT_MAX", 10)
    lost = [(await broker.join(f"lost-{number}")).registration for number in range(100)]
    shared_out.clear()
    broker.shares.lose(lost)
    assert len(shared_out) == 1


@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_a_restart_moves_no_partition(order: str) -> None:
    before = Broker()
    shares = {name: (await before.join(name)).share for name in "ab"}
    assert shares["b"] == [2, 3]
    broker = await before.restart()
    consumers = {name: await broker.join(name) for name in order}
    assert {name: one.share for name, one in consumers.items()} == {"a": [0, 1], "b": [2, 3]}
    assert all(one.told == [] for one in consumers.values())
    assert [segment.topic for segment in consumers["a"].registration.share] == topics(4)[:2]


async def test_a_consumer_that_does_not_return_after_a_restart_gives_its_share_up() -> None:
    before = Broker()
    await before.join("a")
    await before.join("b")
    broker = await before.restart()
    second = await broker.join("b")
    broker.let_graces_end()
    assert second.told == [[0, 1, 2, 3]]
    broker.shares.leave(second.registration)
    await broker.written()
    assert await broker.metadata.children(ROOT) == []


async def test_groups_that_nobody_returns_to_leave_the_store() -> None:
    before = Broker()
    await before.join("a")
    broker = await before.restart()
    await broker.shares.open()
    assert len(broker.shares) == 1
    broker.let_graces_end()
    await broker.written()
    assert (len(broker.shares), await broker.metadata.children(ROOT)) == (0, [])


async def test_a_restart_with_more_partitions_keeps_what_each_one_had() -> None:
    before = Broker()
    await before.join("a", count=2)
    await before.join("b", count=2)
    broker = await before.restart()
    first, second = await broker.join("a"), await broker.join("b")
    assert (first.share[0], second.share[0]) == (0, 1)
    assert sorted(first.share + second.share) == [0, 1, 2, 3]


def test_more_consumers_than_partitions_leave_some_without() -> None:
    shares = share_out(segments_of(topics(2)), {"a": (), "b": (), "c": ()})
    assert sorted(map(numbers, shares.values())) == [[], [0], [1]]
