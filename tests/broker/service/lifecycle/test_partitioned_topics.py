"""PartitionedTopics: the hard limit, slices, and a creation that fails half-way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from unittest.mock import Mock

import pytest

from broker.service.lifecycle.partitioned_topics import PARTITIONS_PER_SLICE
from broker.service.policies.partition_limit import PARTITIONS_MAX
from foundation.model.errors import MetadataError, NotAllowed
from foundation.model.topic_name import TopicName, parse_topic_name
from tests.fakes.stage import Stage

NAME = parse_topic_name("persistent://public/default/parts")


async def a_stage(**settings: object) -> Stage:
    stage = Stage(**settings)  # type: ignore[arg-type]
    await stage.namespaces.open()
    return stage


def fail_at(stage: Stage, index: int) -> None:
    """Lets the creation of one partition fail, as a metadata store that is gone would."""
    make = stage.registry.make

    async def make_or_fail(name: TopicName, store: Callable[[], Coroutine[object, object, None]]) -> None:
        if name.partition == index:
            raise MetadataError("refused by the test")
        await make(name, store)

    stage.registry.make = make_or_fail  # type: ignore[method-assign]


@pytest.mark.parametrize("count", [-1, 0, PARTITIONS_MAX + 1, 20_000_000, 10**23])
async def test_number_of_partitions_out_of_range_stores_nothing(count: int) -> None:
    stage = await a_stage()
    with pytest.raises(NotAllowed):
        await stage.partitioned.create(NAME, count)
    assert await stage.registry.partitions.count(NAME) == 0
    assert stage.registry.topics == {}


async def test_growth_beyond_the_hard_limit_changes_nothing() -> None:
    stage = await a_stage()
    await stage.run(stage.partitioned.create(NAME, 2))
    with pytest.raises(NotAllowed):
        await stage.partitioned.grow(NAME, PARTITIONS_MAX + 1)
    assert await stage.registry.partitions.count(NAME) == 2


async def test_automatic_creation_obeys_the_hard_limit() -> None:
    stage = await a_stage(auto_topic_partitions=20_000_000)
    with pytest.raises(NotAllowed):
        await stage.partitioned.count_or_create(NAME, create=True)
    assert await stage.registry.partitions.count(NAME) == 0


async def test_configured_limit_acts_below_the_hard_one() -> None:
    stage = await a_stage(partitions_max=3)
    with pytest.raises(NotAllowed, match="from 1 to 3, not 4"):
        await stage.partitioned.create(NAME, 4)


async def test_partitions_are_stored_in_slices_and_not_opened() -> None:
    stage = await a_stage()
    creating = asyncio.ensure_future(stage.partitioned.create(NAME, 3 * PARTITIONS_PER_SLICE + 1))
    most = 0
    while not creating.done():
        most = max(most, len(stage.registry._closing))
        while stage.soon:
            stage.soon.popleft()()
        await asyncio.sleep(0)
    assert most == PARTITIONS_PER_SLICE
    assert len(await stage.registry.names("public/default")) == 3 * PARTITIONS_PER_SLICE + 1
    assert stage.registry.topics == {}
    assert stage.registry.loads == 0


async def test_partitions_of_a_slice_are_one_request_to_the_metadata_store() -> None:
    stage = await a_stage()
    stage.metadata.put_all = put_all = Mock(wraps=stage.metadata.put_all)  # type: ignore[method-assign]
    await stage.run(stage.partitioned.create(NAME, 2 * PARTITIONS_PER_SLICE + 1))
    assert [len(call.args[0]) for call in put_all.mock_calls] == [PARTITIONS_PER_SLICE] * 2 + [1]


async def test_partitions_are_dormant_where_topics_sleep() -> None:
    stage = await a_stage(dormant_after_s=60)
    created: list[tuple[str, bool]] = []
    stage.registry.events.watch("public/default", lambda name, exists: created.append((str(name), exists)))
    await stage.run(stage.partitioned.create(NAME, 3))
    names = [str(NAME.with_partition(index)) for index in range(3)]
    assert created == [(name, True) for name in names]
    assert [name for name, _ in stage.registry.dormant] == names
    topic = await stage.open(names[2])
    assert topic.ledger.store.created_ms == stage.wall_ms
    assert [name for name, _ in stage.registry.dormant] == names[:2]


async def test_partition_that_a_client_opens_meanwhile_is_opened_once() -> None:
    stage = await a_stage()
    stage.metadata.gate = asyncio.Event()
    creating = asyncio.ensure_future(stage.partitioned.create(NAME, 1))
    stage.metadata.gate.set()
    while not stage.registry._closing:  # noqa: ASYNC110 - nobody waits for it
        await asyncio.sleep(0)
    opening = asyncio.ensure_future(stage.registry.get(NAME.with_partition(0), create=True))
    await stage.run(creating)
    assert (await stage.run(opening)) is stage.registry.topics[str(NAME.with_partition(0))]
    assert stage.registry.loads == 1


async def test_creation_that_fails_half_way_is_undone() -> None:
    stage = await a_stage()
    fail_at(stage, PARTITIONS_PER_SLICE + 5)
    with pytest.raises(MetadataError):
        await stage.run(stage.partitioned.create(NAME, 2 * PARTITIONS_PER_SLICE))
    assert stage.registry.topics == {}
    assert await stage.registry.names("public/default") == []
    assert await stage.registry.partitions.count(NAME) == 0


async def test_growth_that_fails_half_way_is_undone() -> None:
    stage = await a_stage()
    await stage.run(stage.partitioned.create(NAME, 2))
    fail_at(stage, 4)
    with pytest.raises(MetadataError):
        await stage.run(stage.partitioned.grow(NAME, 6))
    assert await stage.registry.partitions.count(NAME) == 2
    assert len(await stage.registry.names("public/default")) == 2


async def test_partition_that_a_stopped_creation_left_out_is_created_on_demand() -> None:
    stage = await a_stage(auto_topic_creation=False)
    creating = asyncio.ensure_future(stage.partitioned.create(NAME, 2 * PARTITIONS_PER_SLICE))
    while not await stage.registry.names("public/default"):
        while stage.soon:
            stage.soon.popleft()()
        await asyncio.sleep(0)
    creating.cancel()
    await stage.settle()
    last = NAME.with_partition(2 * PARTITIONS_PER_SLICE - 1)
    assert not await stage.registry.is_stored(last)
    assert await stage.run(stage.registry.get(last, create=True)) is stage.registry.topics[str(last)]
