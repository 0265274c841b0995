"""The leader has a broker take each bundle with topics that nobody has, where topics fall asleep."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from broker.cluster.unowned_bundles import UnownedBundles
from broker.managed_ledger.managed_ledger_info import managed_ledger_key
from broker.peers.peers import PeerRefused
from broker.service.namespaces.namespaces import Namespaces
from foundation.model.errors import ServiceNotReady
from foundation.model.topic_name import TopicName, parse_topic_name
from tests.broker.cluster.support import FourBundles, Node, cluster

NAMES = [parse_topic_name(f"persistent://shop/orders/t{number}") for number in range(20)]


def looking(node: Node, *, is_wanted: Callable[[], bool] = lambda: True) -> UnownedBundles:
    namespaces = cast(Namespaces, node.namespaces)
    return UnownedBundles(node.ownership, node.store, namespaces, is_wanted, lambda: 0)


async def with_topics(count: int, names: Iterable[TopicName] = NAMES) -> list[Node]:
    nodes = await cluster(count)
    for node in nodes:
        node.namespaces.listed = sorted({name.namespace for name in names})
    for name in names:
        await nodes[0].store.put(managed_ledger_key(name.ledger_name), b"")
    return nodes


def owned(nodes: Iterable[Node]) -> list[str]:
    return sorted(bundle for node in nodes for bundle in node.ownership.leases)


async def test_each_bundle_with_topics_gets_an_owner_by_a_look_of_the_leader() -> None:
    nodes = await with_topics(3)
    await looking(nodes[1]).look()
    assert owned(nodes) == [], "it does not lead"
    await looking(nodes[0]).look()
    bundles = [f"shop/orders/{one}" for one in FourBundles().bundles.all()]
    assert owned(nodes) == sorted(bundles)
    assert len([node for node in nodes if len(node.ownership.leases)]) > 1, "chosen as by lookups"
    await looking(nodes[0]).look()
    assert owned(nodes) == sorted(bundles)


async def test_bundle_that_its_owner_has_stays_there() -> None:
    nodes = await with_topics(2)
    await nodes[1].ownership.owner_of(NAMES[0], authoritative=True)
    (kept,) = nodes[1].ownership.leases
    await looking(nodes[0]).look()
    assert kept in nodes[1].ownership.leases
    assert len(owned(nodes)) == 4


async def test_bundles_without_topics_and_those_with_topics_of_brokers_stay_free() -> None:
    of_brokers = parse_topic_name("persistent://shop/orders/__change_events")
    nodes = await with_topics(1, [of_brokers])
    await looking(nodes[0]).look()
    assert owned(nodes) == []


async def test_bundles_stay_free_where_topics_do_not_fall_asleep() -> None:
    nodes = await with_topics(1)
    await looking(nodes[0], is_wanted=lambda: False).look()
    assert owned(nodes) == []


async def test_namespace_whose_bundles_nobody_may_take_does_not_stop_the_others() -> None:
    other = parse_topic_name("persistent://shop/returns/t")
    (node,) = await with_topics(1, [*NAMES, other])
    find = node.ownership.located

    async def located(name: TopicName) -> object:
        if name.namespace == "shop/orders":
            raise ServiceNotReady("no broker may have it")
        return await find(name)

    node.ownership.located = located  # type: ignore[method-assign, assignment]
    await looking(node).look()
    assert owned([node]) == [node.ownership.bundle_of(other)]


async def test_bundle_that_nobody_may_take_does_not_stop_the_others_of_its_namespace() -> None:
    (node,) = await with_topics(1)
    find, refused = node.ownership.located, node.ownership.bundle_of(NAMES[0])

    async def located(name: TopicName) -> object:
        if node.ownership.bundle_of(name) == refused:
            raise ServiceNotReady("no broker may have it")
        return await find(name)

    node.ownership.located = located  # type: ignore[method-assign, assignment]
    await looking(node).look()
    assert owned([node]) == sorted(
        f"shop/orders/{one}" for one in FourBundles().bundles.all() if f"shop/orders/{one}" != refused
    )


async def test_name_that_brokers_refuse_keeps_its_bundle_from_no_owner() -> None:
    """Another program may have stored it."""
    odd = TopicName("persistent", "shop", "orders", " ")
    (node,) = await with_topics(1, [odd, *NAMES])
    find, asked = node.ownership.located, list[TopicName]()

    async def located(name: TopicName) -> object:
        asked.append(name)
        if name in (odd, *NAMES):
            raise PeerRefused("Topic name is not valid", 412)
        return await find(name)

    node.ownership.located = located  # type: ignore[method-assign, assignment]
    await looking(node).look()
    assert len(asked) == 4
    assert node.ownership.bundle_of(odd) in owned([node])
