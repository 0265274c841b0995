"""The brokers of a cluster and its leader, as each broker learns of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Check, Ephemeral, Versioned, Write
from broker.cluster import members
from broker.cluster.loads import BrokerLoad
from broker.cluster.records import (
    BROKERS,
    LEADER,
    LoadReport,
    Member,
    decode_member,
    encode_leader,
    encode_member,
)
from foundation.model.errors import MetadataError, OwnerUncertain
from tests.broker.cluster.support import TOPIC, Node, addresses, cluster, settle


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - a failed read is no event
        await asyncio.sleep(0.001)


async def test_first_broker_leads_and_all_know_all() -> None:
    nodes = await cluster(3)
    for node in nodes:
        assert sorted(node.ownership.brokers) == [f"host{number}:8080" for number in range(3)]
        assert node.ownership.leader == "host0:8080"


async def test_one_of_the_others_leads_after_the_leader() -> None:
    nodes = await cluster(3)
    await nodes[0].kill()
    await settle(*nodes[1:])
    leaders = {node.ownership.leader for node in nodes[1:]}
    assert leaders in ({"host1:8080"}, {"host2:8080"})
    assert sorted(nodes[1].ownership.brokers) == ["host1:8080", "host2:8080"]


async def test_lead_of_an_earlier_life_is_taken_when_its_session_ends() -> None:
    store = MemoryMetadataStore()
    before = store.another()
    await before.put_all([Ephemeral(LEADER, encode_leader(addresses(0)))])
    node = Node(store, 0)
    await node.open()
    await before.close()
    await settle(node)
    assert await store.get(LEADER) is not None
    assert node.ownership.leader == "host0:8080"


async def test_damaged_registration_is_left_out() -> None:
    (node,) = await cluster(1)
    await node.store.another().put_all([Ephemeral(f"{BROKERS}/strange:1", b"{")])
    await settle(node)
    assert list(node.ownership.brokers) == ["host0:8080"]


async def test_damaged_node_of_the_leader_is_read_until_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "RETRY_S", 0.001)
    (node,) = await cluster(1)
    other = node.store.another()
    await other.put(LEADER, b"{")
    await asyncio.sleep(0.01)
    await other.put(LEADER, encode_leader(addresses(7)))
    await settle(node)
    assert node.ownership.leader == "host7:8080"


async def test_damaged_node_of_the_leader_ends_lookups_and_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(members, "RETRY_S", 0.001)
    _, node = await cluster(2)
    other, seen = node.store.another(), node.ownership.members
    await other.put(LEADER, b"{")
    await until(lambda: bool(seen._fault))
    with pytest.raises(OwnerUncertain, match="cannot be read: node /loadbalance/leader names no leader"):
        await node.ownership.owner_of(TOPIC)
    reads = 0
    read = seen._read

    async def counted() -> None:
        nonlocal reads
        reads += 1
        await read()

    monkeypatch.setattr(seen, "_read", counted)
    await until(lambda: reads >= 3)
    # By this broker; the other one has its own line.
    assert caplog.text.count("cannot be read, trying again") == 2
    await node.ownership.tick()
    await other.put(LEADER, encode_leader(addresses(0)))
    await until(lambda: not seen._fault)
    assert (await node.ownership.owner_of(TOPIC)).addresses == addresses(0)


async def test_leader_with_a_damaged_node_reports_and_does_not_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "RETRY_S", 0.001)
    (node,) = await cluster(1)
    await node.store.another().put(LEADER, b"{")
    await until(lambda: bool(node.ownership.members._fault))
    await node.ownership.tick()
    await node.store.another().put(LEADER, encode_leader(addresses(0)))
    await settle(node)
    await node.ownership.tick()


async def test_broker_that_leaves_is_no_longer_listed() -> None:
    nodes = await cluster(2)
    await nodes[0].ownership.leave()
    await settle(nodes[1])
    assert list(nodes[1].ownership.brokers) == ["host1:8080"]
    assert nodes[1].ownership.leader == "host1:8080"


async def test_registration_that_somebody_removed_is_made_again() -> None:
    node, other = await cluster(2)
    await other.store.delete(f"{BROKERS}/{node.addresses.broker_id}")
    await settle(node, other)
    assert sorted(other.ownership.brokers) == ["host0:8080", "host1:8080"]


async def test_broker_that_leaves_removes_no_other_leader() -> None:
    leader, other = await cluster(2)
    # It has not heard of the end of its session.
    leader._is_dead = True
    leader.store._end_session()
    await settle(other)
    assert other.ownership.leader == other.addresses.broker_id
    leader.ownership.members.leader = leader.addresses.broker_id
    leader.ownership.members.end_session()
    await leader.ownership.members.close()
    node = await other.store.get(LEADER)
    assert node is not None
    assert node.value == encode_leader(other.addresses)


class SmallNodes(MemoryMetadataStore):
    """Refuses values of more than a thousand bytes, and counts reads."""

    reads = 0

    async def get(self, key: str) -> Versioned | None:
        self.reads += 1
        return await super().get(key)

    async def children(self, key: str) -> list[str]:
        self.reads += 1
        return await super().children(key)

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        _check(value)
        return await super().put(key, value, expected)

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        for put in puts:
            _check(b"" if isinstance(put, Check) else put.value)
        return await super().put_all(puts)


def _check(value: bytes) -> None:
    if len(value) > 1000:
        raise MetadataError("too long")


async def test_broker_with_a_report_that_is_too_long_registers_in_its_next_session() -> None:
    store = SmallNodes()
    node = Node(store, 0)
    await node.open()
    before = await store.get(f"{BROKERS}/host0:8080")
    with pytest.raises(MetadataError, match="too long"):
        await node.ownership.members.report(b"r" * 1001)
    await node.ownership.members.register()
    assert await store.get(f"{BROKERS}/host0:8080") == before


async def test_look_at_all_brokers_reads_each_once() -> None:
    # As docs/reference/limits.md has it.
    store = SmallNodes()
    node = Node(store, 0)
    await node.open()
    for number in range(1, 5):
        await Node(store.another(), number).open()
    await settle(node)
    store.reads = 0
    await node.ownership.members._read()
    assert store.reads == 5 + 2


def registration(number: int) -> bytes:
    return encode_member(addresses(number), "1.0", 0, LoadReport(0, BrokerLoad()))


async def test_registration_is_decoded_again_once_its_value_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (node,) = await cluster(1)
    other, key = node.store.another(), f"{BROKERS}/host1:8080"
    await other.put_all([Ephemeral(key, registration(1))])
    await settle(node)
    before = node.ownership.brokers
    decoded: list[str] = []

    def decode(name: str, value: bytes) -> Member:
        decoded.append(name)
        return decode_member(name, value)

    monkeypatch.setattr(members, "decode_member", decode)
    await node.ownership.members._read()
    assert (decoded, node.ownership.brokers) == ([], before)
    # It hears nothing of the next two changes. Made anew, as by a start with other addresses, a node has the same version.
    node._is_dead = True
    await other.delete(key)
    await other.put_all([Ephemeral(key, registration(2))])
    await node.ownership.members._read()
    assert decoded == ["host1:8080"]
    assert node.ownership.brokers == {**before, "host1:8080": addresses(2)}


class HeldChildren(MemoryMetadataStore):
    """Answers a list of names late, as it was when it was asked for."""

    held: asyncio.Event | None = None

    async def children(self, key: str) -> list[str]:
        found = await super().children(key)
        if (held := self.held) is not None:
            self.held = None
            await held.wait()
        return found


async def test_read_that_began_earlier_brings_nothing_back() -> None:
    store = HeldChildren()
    node, held = Node(store, 0), asyncio.Event()
    await node.open()
    other = Node(store.another(), 1)
    await other.open()
    await settle(node, other)
    store.held = held
    first = asyncio.ensure_future(node.ownership.members._read())
    await asyncio.sleep(0)
    await other.kill()
    second = asyncio.ensure_future(node.ownership.members._read())
    await asyncio.sleep(0)
    held.set()
    await asyncio.gather(first, second)
    assert list(node.ownership.brokers) == ["host0:8080"]
