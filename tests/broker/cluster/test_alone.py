"""A broker with transactions and another one on the same store: one of them does not start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Write
from broker.cluster import alone
from broker.cluster.alone import ALONE, be_alone, join
from broker.cluster.members import put_own
from broker.cluster.records import BROKERS
from foundation.model.errors import MetadataError
from tests.broker.cluster.support import Node, cluster


async def test_broker_with_transactions_does_not_start_beside_another_one() -> None:
    (node,) = await cluster(1)
    with pytest.raises(MetadataError, match=r"host0:8080 is on this .* transactionCoordinatorEnabled=false"):
        await be_alone(node.store.another(), "host1:8080", 0)


async def test_no_broker_joins_one_with_transactions() -> None:
    store = MemoryMetadataStore()
    await be_alone(store, "host0:8080", 0)
    late = Node(store.another(), 1)
    with pytest.raises(MetadataError, match="host0:8080"):
        await late.open()
    with pytest.raises(MetadataError, match="host0:8080"):
        await be_alone(store.another(), "host2:8080", 0)


async def test_of_two_that_start_together_one_sees_the_other() -> None:
    store = MemoryMetadataStore()
    other = store.another()
    await put_own(store, ALONE, b"host0:8080")
    await put_own(other, f"{BROKERS}/host1:8080", b"{}")
    with pytest.raises(MetadataError):
        await join(other, "host1:8080", 0)


async def test_broker_that_registered_meanwhile_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryMetadataStore()
    other, put_all = store.another(), store.put_all

    async def put_after_another(puts: Sequence[Write]) -> list[int]:
        await put_own(other, f"{BROKERS}/host1:8080", b"{}")
        return await put_all(puts)

    monkeypatch.setattr(store, "put_all", put_after_another)
    with pytest.raises(MetadataError, match="host1:8080"):
        await be_alone(store, "host0:8080", 60)


async def test_own_nodes_of_an_earlier_life_are_no_other_broker() -> None:
    store = MemoryMetadataStore()
    before = store.another()
    await be_alone(before, "host0:8080", 0)
    await put_own(before, f"{BROKERS}/host0:8080", b"{}")
    await be_alone(store, "host0:8080", 0)
    await before.close()
    assert await store.get(ALONE) is not None


async def test_of_two_with_transactions_that_start_together_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryMetadataStore()
    other, put_all = store.another(), store.put_all

    async def put_after_another(puts: Sequence[Write]) -> list[int]:
        monkeypatch.undo()
        await be_alone(other, "host1:8080", 0)
        return await put_all(puts)

    monkeypatch.setattr(store, "put_all", put_after_another)
    with pytest.raises(MetadataError, match="host1:8080"):
        await be_alone(store, "host0:8080", 0)


async def test_nodes_of_a_killed_broker_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "_LOOK_S", 0.001)
    (killed,) = await cluster(1)
    starting = asyncio.ensure_future(be_alone(killed.store.another(), "host1:8080", 60))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not starting.done()
    await killed.kill()
    await starting


async def test_expired_session_of_a_lone_broker_opens_nothing_once_others_are_there() -> None:
    store = MemoryMetadataStore()
    node = Node(store, 0)
    other = Node(store.another(), 1)
    await node.ownership.be_alone("host0:8080")
    await node.open()
    store._end_session()
    await other.open()
    store.expire()
    for _ in range(20):
        await asyncio.sleep(0)
    answer = node.ownership.owner_of_bundle("shop/orders/0x00000000_0x40000000", authoritative=True)
    with pytest.raises(Exception, match="opens nothing"):
        await answer
