"""A broker that leaves the cluster hands all of its bundles over, whatever fails, and begins nothing new."""

from __future__ import annotations

import pytest

from broker.cluster.records import BROKERS
from broker.service.successor import Successor
from foundation.model.errors import MetadataError, ServiceNotReady
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
