"""Shares in the metadata store: names of any kind, damaged values, a store that refuses."""

from __future__ import annotations

from typing import cast

import pytest

from broker.compose.background_tasks import BackgroundTasks
from broker.net.stored_shares import ROOT, GroupKey, Share, StoredShares
from broker.service.transactions.coordinator import Spawn
from magnetar.snapshot.node_path import NodePath, describe
from protocol.scalable_answers import HashSegment
from tests.fakes.metadata import FakeMetadata
from tests.support.memory_broker import memory_broker

GROUP = GroupKey("persistent://public/default/t:1/ü%", "s:/ü", 1)


def share(*numbers: int) -> Share:
    return tuple(HashSegment(number, 0, 0, "") for number in numbers)


def stored_in(metadata: FakeMetadata, tasks: BackgroundTasks) -> StoredShares:
    return StoredShares(metadata, cast("Spawn", tasks.spawn))


async def written(tasks: BackgroundTasks) -> None:
    await tasks.settle(set(), timeout_s=30)


async def test_stored_shares_are_those_that_were_put_last() -> None:
    metadata, tasks = FakeMetadata(), BackgroundTasks()
    stored = stored_in(metadata, tasks)
    gone = GROUP._replace(subscription="gone")
    stored.put(GROUP, {"a": share(0)})
    stored.put(gone, {"a": share(0)})
    await written(tasks)
    stored.put(GROUP, {"a": share(0, 2), "b": share()})
    stored.put(GROUP, {"a": share(0), "ü": share(1, 2)})
    stored.put(gone, {})
    await written(tasks)
    assert await stored_in(metadata, tasks).read() == {GROUP: {"a": share(0), "ü": share(1, 2)}}
    (name,) = await metadata.children(ROOT)
    assert describe(f"{ROOT}/{name}") == NodePath(
        "partition-shares", "public/default", GROUP.topic, GROUP.subscription
    )


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"a": 1}', b'{"a": [-1]}', b'{"a": ["0"]}', b"\xff"])
async def test_damaged_values_are_named_and_left_out(value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    metadata, tasks = FakeMetadata(), BackgroundTasks()
    stored = stored_in(metadata, tasks)
    stored.put(GROUP, {"a": share(0)})
    await written(tasks)
    await metadata.put(f"{ROOT}/t:s:0", value)
    await metadata.put(f"{ROOT}/no group", b"{}")
    assert await stored.read() == {GROUP: {"a": share(0)}}
    assert f"{ROOT}/t:s:0" in caplog.text
    assert f"{ROOT}/no group" in caplog.text


async def test_a_refused_write_is_named_and_the_next_one_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    metadata, tasks = FakeMetadata(), BackgroundTasks()
    stored = stored_in(metadata, tasks)
    metadata.refusing = True
    stored.put(GROUP, {"a": share(0)})
    await written(tasks)
    assert "may change partitions" in caplog.text
    metadata.refusing = False
    stored.put(GROUP, {"a": share(1)})
    await written(tasks)
    assert await stored.read() == {GROUP: {"a": share(1)}}


async def test_broker_that_stops_writes_the_last_shares() -> None:
    async with memory_broker() as service:
        service.net.partition_shares.stored.put(GROUP, {"a": share(0)})
        metadata = service.environment.metadata
    assert len(await metadata.children(ROOT)) == 1
