"""A broker that leaves the cluster hands all of its bundles over, whatever fails, and begins nothing new."""

from __future__ import annotations

import pytest

from broker.cluster.records import BROKERS
from broker.service.successor import NOBODY, Successor
from broker.service.topics.topic_ownership import Owner
from foundation.model.errors import MetadataError, ServiceNotReady
from foundation.model.topic_name import TopicName
from tests.broker.cluster.support import cluster, settle
from tests.broker.cluster.test_ownership import BUNDLE, FIRST, owned


async def test_lease_that_cannot_be_removed_keeps_no_other_bundle_of_a_leaving_broker() -> None:
    leader, other = await cluster(2)
    await owned(leader)
    await owned(leader, FIRST)
    delete = leader.store.delete

    async def refused(key: str, expected: int | None = None) -> None:
        if key.endswith(BUNDLE):
            raise MetadataError("away")
        await delete(key, expected)

    leader.store.delete = refused  # type: ignore[method-assign]
    await leader.ownership.leave()
    assert leader.closed == [BUNDLE, FIRST]
    await settle(other)
    assert FIRST in other.ownership.leases
    assert other.ownership.leader == other.addresses.broker_id


async def test_registration_that_cannot_be_removed_keeps_no_bundle_of_a_leaving_broker() -> None:
    leader, _ = await cluster(2)
    await owned(leader)
    delete = leader.store.delete

    async def refused(key: str, expected: int | None = None) -> None:
        if key.startswith(BROKERS):
            raise MetadataError("away")
        await delete(key, expected)

    leader.store.delete = refused  # type: ignore[method-assign]
    await leader.ownership.leave()
    assert leader.closed == [BUNDLE]
    assert list(leader.ownership.leases) == []


async def test_leaving_broker_divides_nothing() -> None:
    leader, other = await cluster(2)
    await owned(leader)
    parts = ["shop/orders/0xc0000000_0xd0000000", "shop/orders/0xd0000000_0xffffffff"]

    async def store(_beside: object) -> None:
        raise AssertionError("nothing is stored")

    async def close(bundle: str, successor: Successor | None) -> None:
        with pytest.raises(ServiceNotReady, match="shutting down"):
            await leader.ownership.split(bundle, parts, store)

    leader.ownership.close_bundle = close
    await leader.ownership.leave()
    assert list(leader.ownership.leases) == []
    await settle(other)


@pytest.mark.parametrize(
    ("stopped", "paused", "waits"),
    [
        (0, 1, 1),  # The leader stops, and chooses itself.
        (2, 0, 2),  # The leader stands still: asked to choose, and to take a bundle.
        (2, 1, 2),  # The leader sends the request on to a broker that stands still.
    ],
)
async def test_leaving_broker_waits_for_a_peer_that_stands_still_no_more_once_it_did_not_answer(
    stopped: int, paused: int, waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = await cluster(3)
    node, living = nodes[stopped], nodes[3 - stopped - paused]
    asked = 0

    async def no_answer(name: TopicName, *, authoritative: bool = False) -> Owner:
        nonlocal asked
        asked += 1
        raise TimeoutError  # In place of the wait for it.

    monkeypatch.setattr(nodes[paused].ownership, "owner_of", no_answer)
    for namespace in "abcd":
        for part in BUNDLE, FIRST:
            await owned(node, part.replace("orders", namespace))
    # Before the stop, a broker that does not answer is asked by each unload.
    await node.ownership.unload(BUNDLE.replace("orders", "a"), nodes[paused].addresses.broker_id)
    assert (asked, node.told) == (1, [NOBODY])
    await node.ownership.leave()
    assert asked - 1 == waits
    assert node.told[1:].count(NOBODY) == waits
    assert set(node.told) == {NOBODY, living.addresses.service_urls}
    assert len(node.told) == 8
