"""A divided bundle: who owns the parts, under which lease its topics write, and what is left where it fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from bookkeeper.metadata.documents import Beside
from bookkeeper.metadata.metadata_store import Check, Put
from broker.cluster.leases import BundleGone
from broker.cluster.records import BUNDLES
from broker.service.namespaces.bundles import Bundle, Bundles
from broker.service.topics.topic_ownership import Owner
from foundation.model.errors import MetadataError, OwnerUncertain, ServiceNotReady
from tests.broker.cluster.support import TOPIC, Node, cluster, settle
from tests.broker.cluster.test_ownership import BUNDLE, FIRST, owned

HALVES = ["shop/orders/0xc0000000_0xe0000000", "shop/orders/0xe0000000_0xffffffff"]
POLICIES = "/admin/local-policies/shop/orders"


def divided() -> Bundles:
    return Bundles((*Bundles.equal(4).boundaries[:4], 0xE0000000, 0xFFFFFFFF))


async def divide(node: Node, before: Callable[[], Awaitable[None]] | None = None) -> None:
    """Divides BUNDLE into HALVES; `before` comes between the leases of the parts and the write."""

    async def store(condition: Beside) -> None:
        if before is not None:
            await before()
        await node.store.put_all([Put(POLICIES, b"divided", -1), *condition()])
        node.namespaces.bundles = divided()

    await node.ownership.split(BUNDLE, HALVES, store)


def fail_once(node: Node) -> None:
    """Has the next removal of a node fail."""
    plain = node.store.delete

    async def delete(_key: str, _expected: int | None = None) -> None:
        node.store.delete = plain  # type: ignore[method-assign]
        raise MetadataError("connection lost")

    node.store.delete = delete  # type: ignore[method-assign,assignment]


async def nodes_of(node: Node) -> list[str]:
    return sorted(f"shop/orders/{one}" for one in await node.store.children(f"{BUNDLES}/shop/orders"))


async def test_divided_bundle_stays_with_its_owner() -> None:
    node, other = await cluster(2)
    await owned(node)
    owners: list[Owner] = []

    async def look_up() -> None:
        owners.extend([await other.ownership.owner_of_bundle(half) for half in HALVES])

    await divide(node, look_up)
    assert owners == [Owner(node.addresses)] * 2, "nobody else may take them while the division is stored"
    assert sorted(node.ownership.leases) == HALVES == await nodes_of(node)


async def test_topic_of_a_divided_bundle_writes_under_the_lease_of_its_part() -> None:
    (node,) = await cluster(1)
    whole = node.ownership.bundle_of(TOPIC)
    await owned(node, whole)
    lease = await node.ownership.check_owned(TOPIC)
    assert lease is not None
    namespace, _, text = whole.rpartition("/")
    bundle = Bundle.parsed(text)
    after = node.namespaces.bundles.split(bundle, [bundle.middle()])

    async def store(_condition: Beside) -> None:
        node.namespaces.bundles = after

    await node.ownership.split(whole, [f"{namespace}/{one}" for one in after.overlapping(bundle)], store)
    assert lease().key == f"{BUNDLES}/{node.ownership.bundle_of(TOPIC)}"


async def test_division_is_stored_on_the_condition_of_all_its_leases() -> None:
    (node,) = await cluster(1)
    await owned(node)
    asked: list[Sequence[object]] = []

    async def store(condition: Beside) -> None:
        asked.append(condition())

    await node.ownership.split(BUNDLE, HALVES, store)
    assert asked == [[Check(f"{BUNDLES}/{one}", 0) for one in (BUNDLE, *HALVES)]]


async def test_division_that_is_not_stored_leaves_the_bundle() -> None:
    (node,) = await cluster(1)
    await owned(node)

    async def fail() -> None:
        raise MetadataError("away")

    with pytest.raises(MetadataError):
        await divide(node, fail)
    assert list(node.ownership.leases) == [BUNDLE]
    assert node.closed == [], "its topics stay open"
    assert await nodes_of(node) == [BUNDLE]


async def test_division_whose_answer_is_lost_gives_up_the_bundle_and_keeps_the_parts() -> None:
    (node,) = await cluster(1)
    await owned(node)

    async def store(_condition: Beside) -> None:
        async def read_newest(_namespace: str) -> None:
            node.namespaces.bundles = divided()

        node.namespaces.read_newest = read_newest  # type: ignore[method-assign,assignment]
        raise MetadataError("connection lost")

    with pytest.raises(MetadataError):
        await node.ownership.split(BUNDLE, HALVES, store)
    assert sorted(node.ownership.leases) == HALVES == await nodes_of(node)


async def test_bundle_that_is_unloaded_meanwhile_is_not_divided() -> None:
    node, other = await cluster(2)
    await owned(node)

    async def unload() -> None:
        await node.ownership.unload(BUNDLE, other.addresses.broker_id)
        assert await node.ownership.leases.owner(BUNDLE) == other.addresses

    with pytest.raises(MetadataError, match="no lease"):
        await divide(node, unload)
    assert await node.store.get(POLICIES) is None
    assert await nodes_of(node) == [BUNDLE]


async def test_bundle_whose_node_was_removed_is_not_divided() -> None:
    (node,) = await cluster(1)
    await owned(node)
    leases = node.ownership.leases

    async def remove() -> None:
        # No news of it comes: without a watch.
        leases.drop(BUNDLE)
        leases._stops[BUNDLE] = lambda: None
        await node.store.delete(f"{BUNDLES}/{BUNDLE}")

    with pytest.raises(OwnerUncertain, match="lost a lease"):
        await divide(node, remove)
    assert await node.store.get(POLICIES) is None


async def test_only_the_owner_divides_a_bundle() -> None:
    node, other = await cluster(2)
    await owned(other)
    with pytest.raises(ServiceNotReady, match="not owned by this broker"):
        await divide(node)
    assert await node.store.get(POLICIES) is None


async def test_second_division_is_refused_while_the_first_goes_on() -> None:
    (node,) = await cluster(1)
    await owned(node)

    async def again() -> None:
        with pytest.raises(OwnerUncertain, match="is being divided"):
            await divide(node)

    await divide(node, again)
    assert sorted(node.ownership.leases) == HALVES


async def test_division_is_refused_while_the_bundle_is_unloaded() -> None:
    (node,) = await cluster(1)
    await owned(node)
    node.ownership.hand_over.leaving.add(BUNDLE)
    with pytest.raises(OwnerUncertain, match="is being unloaded"):
        await divide(node)


async def test_division_into_one_part_changes_nothing() -> None:
    (node,) = await cluster(1)
    await owned(node)

    async def store(_condition: Beside) -> None:
        raise AssertionError("there is nothing to store")

    await node.ownership.split(BUNDLE, [BUNDLE], store)
    assert list(node.ownership.leases) == [BUNDLE]


async def test_bundle_that_was_divided_is_not_taken_by_a_broker_that_does_not_know() -> None:
    node, other = await cluster(2)
    await owned(node)
    await divide(node)

    async def read_newest(_namespace: str) -> None:
        other.namespaces.bundles = divided()

    other.namespaces.read_newest = read_newest  # type: ignore[method-assign,assignment]
    with pytest.raises(BundleGone, match="was divided"):
        await other.ownership.owner_of_bundle(BUNDLE, authoritative=True)
    assert await nodes_of(other) == HALVES
    assert list(other.ownership.leases) == []


async def test_bundle_that_others_divided_is_given_up_with_its_topics() -> None:
    node, other = await cluster(2)
    await owned(node)
    await owned(node, FIRST)
    node.namespaces.bundles = divided()
    await node.ownership.tick()
    assert (node.closed, list(node.ownership.leases)) == ([BUNDLE], [FIRST])
    assert await nodes_of(other) == [FIRST]


async def test_return_after_an_ended_session_closes_the_topics_of_a_bundle_that_was_divided() -> None:
    node, other = await cluster(2)
    await owned(node)
    node.store._end_session()
    # The other broker is faster than the news of the expired session.
    assert await other.ownership.leases.acquire(BUNDLE) == other.addresses
    await divide(other)
    node.namespaces.bundles = divided()
    node.store.expire()
    await settle(node, other)
    assert (node.closed, list(node.ownership.leases)) == ([BUNDLE], [])
    assert await nodes_of(node) == HALVES


async def test_topics_of_a_bundle_that_was_divided_are_closed_though_its_lease_cannot_be_removed() -> None:
    node, other = await cluster(2)
    await owned(node)
    node.store._end_session()
    assert await other.ownership.leases.acquire(BUNDLE) == other.addresses
    await divide(other)
    node.namespaces.bundles = divided()
    fail_once(node)
    node.store.expire()
    await settle(node, other)
    assert (node.closed, list(node.ownership.leases)) == ([BUNDLE], [])
    await node.ownership.tick()
    assert await nodes_of(node) == HALVES


async def test_lease_that_cannot_be_removed_after_the_division_is_removed_later() -> None:
    (node,) = await cluster(1)
    await owned(node)
    fail_once(node)
    await divide(node)
    assert await nodes_of(node) == sorted([BUNDLE, *HALVES])
    assert sorted(node.ownership.leases) == HALVES
    await node.ownership.tick()
    assert await nodes_of(node) == HALVES
