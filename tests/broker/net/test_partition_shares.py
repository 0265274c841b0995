"""Shares of partitions: even, stable when others come and go, and told to those whose share changed."""

from __future__ import annotations

import random

import pytest

from broker.net.partition_shares import GroupKey, PartitionShares, Share, ShareRegistration, share_out
from protocol.scalable_answers import segments_of

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


def test_join_and_leave_tell_only_those_whose_share_changes() -> None:
    shares, segments = PartitionShares(), segments_of(topics(4))
    first, second, third = Consumer("a"), Consumer("b"), Consumer("c")
    shares.join(first.registration, segments)
    assert numbers(first.registration.share) == [0, 1, 2, 3]
    shares.join(second.registration, segments)
    assert (first.told, numbers(second.registration.share)) == ([[0, 1]], [2, 3])
    shares.join(third.registration, segments)
    assert (first.told, second.told, numbers(third.registration.share)) == ([[0, 1]], [[2]], [3])
    shares.leave(second.registration)
    assert (first.told, third.told) == ([[0, 1]], [[2, 3]])
    shares.leave(first.registration)
    shares.leave(third.registration)
    assert len(shares) == 0


def test_a_consumer_that_comes_back_takes_its_share_over() -> None:
    shares, segments = PartitionShares(), segments_of(topics(4))
    first, second, again = Consumer("a"), Consumer("b"), Consumer("a")
    shares.join(first.registration, segments)
    shares.join(second.registration, segments)
    shares.join(again.registration, segments)
    assert (numbers(again.registration.share), second.told) == ([0, 1], [])
    # The end of the replaced connection comes late.
    shares.leave(first.registration)
    assert (numbers(again.registration.share), second.told) == ([0, 1], [])


def test_more_consumers_than_partitions_leave_some_without() -> None:
    shares = share_out(segments_of(topics(2)), {"a": (), "b": (), "c": ()})
    assert sorted(map(numbers, shares.values())) == [[], [0], [1]]
