"""A divided bundle: who owns the parts, and under which lease its topics write."""

from __future__ import annotations

import pytest

from broker.cluster.records import BUNDLES
from broker.service.topics.topic_ownership import Owner
from foundation.model.errors import MetadataError
from tests.broker.cluster.support import TOPIC, cluster
from tests.broker.cluster.test_ownership import BUNDLE, HALVES, owned


async def test_divided_bundle_stays_with_its_owner() -> None:
    node, other = await cluster(2)
    await owned(node)
    owners: list[Owner] = []

    async def store() -> None:
        owners.extend([await other.ownership.owner_of_bundle(half) for half in HALVES])

    await node.ownership.split(BUNDLE, HALVES, store)
    assert owners == [Owner(node.addresses)] * 2, "nobody else may take them while the division is stored"
    assert sorted(node.ownership.leases) == HALVES


async def test_topic_of_a_divided_bundle_writes_under_the_lease_of_its_part() -> None:
    (node,) = await cluster(1)
    whole = node.ownership.bundle_of(TOPIC)
    await owned(node, whole)
    lease = await node.ownership.check_owned(TOPIC)
    assert lease is not None
    namespace, _, text = whole.rpartition("/")
    known = node.namespaces.bundles
    bundle = known.find(namespace, text)
    divided = known.split(bundle, [bundle.middle()])

    async def store() -> None:
        node.namespaces.bundles = divided

    parts = [f"{namespace}/{one}" for one in divided.all() if bundle.low <= one.low < bundle.high]
    await node.ownership.split(whole, parts, store)
    assert lease().key == f"{BUNDLES}/{node.ownership.bundle_of(TOPIC)}"


async def test_division_that_is_not_stored_leaves_the_bundle() -> None:
    (node,) = await cluster(1)
    await owned(node)

    async def store() -> None:
        raise MetadataError("away")

    with pytest.raises(MetadataError):
        await node.ownership.split(BUNDLE, HALVES, store)
    assert list(node.ownership.leases) == [BUNDLE]
