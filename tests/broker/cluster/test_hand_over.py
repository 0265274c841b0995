"""Bundles that get their next owner: of which broker clients are told, and of which not."""

from __future__ import annotations

import pytest

from broker.service.successor import NOBODY
from broker.service.topics.topic_ownership import Addresses
from foundation.model.topic_name import TopicName
from tests.broker.cluster.support import Node, cluster

BUNDLE = "shop/orders/0xc0000000_0xffffffff"


@pytest.fixture
async def three() -> list[Node]:
    """The owner of the bundle, which leads, and two other brokers."""
    nodes = await cluster(3)
    await nodes[0].ownership.owner_of_bundle(BUNDLE, authoritative=True)
    return nodes


@pytest.mark.parametrize("outside", [0, 1])
async def test_clients_look_up_where_the_former_or_the_next_owner_has_a_listener_with_another_url(
    outside: int,
) -> None:
    owner, other = await cluster(2, outside=[outside])
    await owner.ownership.owner_of_bundle(BUNDLE, authoritative=True)
    await owner.ownership.unload(BUNDLE, other.addresses.broker_id)
    assert owner.told == [NOBODY]
    assert BUNDLE in other.ownership.leases


async def test_clients_are_not_told_the_former_owner_by_a_destination_that_read_before_the_move(
    three: list[Node], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owner, other, _ = three

    async def behind(topic: TopicName, first: Addresses, *, authoritative: bool) -> Addresses:
        return owner.addresses

    monkeypatch.setattr(owner.peers, "find_owner", behind)
    await owner.ownership.unload(BUNDLE, other.addresses.broker_id)
    assert owner.told == [NOBODY]
    assert (
        f"was to move to {other.addresses.broker_id}, which says that its owner is host0:8080" in caplog.text
    )


async def test_clients_are_told_who_took_a_bundle_before_its_destination(
    three: list[Node], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owner, other, third = three
    release = owner.ownership.leases.release

    async def released(bundle: str) -> None:
        await release(bundle)
        await third.ownership.owner_of_bundle(BUNDLE, authoritative=True)

    monkeypatch.setattr(owner.ownership.leases, "release", released)
    await owner.ownership.unload(BUNDLE, other.addresses.broker_id)
    assert owner.told == [third.addresses.service_urls]
    assert (
        f"was to move to {other.addresses.broker_id}, which says that its owner is host2:8080" in caplog.text
    )


async def test_clients_are_told_this_broker_where_it_takes_the_bundle_again(
    three: list[Node], caplog: pytest.LogCaptureFixture
) -> None:
    owner, _, _ = three
    await owner.ownership.unload(BUNDLE, owner.addresses.broker_id)
    assert owner.told == [owner.addresses.service_urls]
    assert not caplog.text
