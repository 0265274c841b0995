"""Bundles that get their next owner: of which broker clients are told, and of which not."""

from __future__ import annotations

import pytest

from broker.service.successor import NOBODY
from tests.broker.cluster.support import cluster

BUNDLE = "shop/orders/0xc0000000_0xffffffff"


@pytest.mark.parametrize("outside", [0, 1])
async def test_clients_look_up_where_the_former_or_the_next_owner_has_a_listener_with_another_url(
    outside: int,
) -> None:
    owner, other = await cluster(2, outside=[outside])
    await owner.ownership.owner_of_bundle(BUNDLE, authoritative=True)
    await owner.ownership.unload(BUNDLE, other.addresses.broker_id)
    assert owner.told == [NOBODY]
    assert BUNDLE in other.ownership.leases
