"""The answers to lookups, who may open what, the end of a session, hand-over and division of bundles."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from itertools import count

import pytest

from bookkeeper.metadata.metadata_store import Check, Ephemeral, SessionState
from broker.cluster import hand_over
from broker.cluster.records import BROKERS, BUNDLES, encode_owner
from broker.service.namespaces.bundles import HASH_MAX, Bundles, hash_of
from broker.service.successor import NOBODY, Successor
from broker.service.topics.topic_ownership import Addresses, Owner
from foundation.model.errors import BadVersion, BrokerError, MetadataError, OwnerUncertain, ServiceNotReady
from foundation.model.topic_name import TopicName
from protocol.pulsar_api_pb2 import ServerError
from tests.broker.cluster.support import TOPIC, Node, addresses, cluster, settle

BUNDLE = "shop/orders/0xc0000000_0xffffffff"
FIRST = "shop/orders/0x00000000_0x40000000"
SECOND = "shop/orders/0x40000000_0x80000000"
THIRD = "shop/orders/0x80000000_0xc0000000"


async def owned(node: Node, bundle: str = BUNDLE) -> None:
    answer = await node.ownership.owner_of_bundle(bundle, authoritative=True)
    assert answer == Owner(node.addresses)


async def condition(node: Node) -> Check:
    lease = await node.ownership.check_owned(TOPIC)
    assert lease is not None
    return lease()


async def follow(nodes: list[Node], asked: Node, steps: int = 3) -> tuple[Node, int]:
    """Looks up as a client does: the broker that serves the bundle, and how many lookups it took."""
    authoritative = False
    for step in range(1, steps + 1):
        answer = await asked.ownership.owner_of_bundle(BUNDLE, authoritative=authoritative)
        asked = next(node for node in nodes if node.addresses == answer.addresses)
        if not answer.is_redirect:
            return asked, step
        authoritative = answer.authoritative
    raise AssertionError(f"no owner after {steps} lookups")


async def test_topic_is_in_the_bundle_of_its_hash() -> None:
    (node,) = await cluster(1)
    low, _, high = node.ownership.bundle_of(TOPIC).removeprefix("shop/orders/").partition("_")
    assert int(low, 16) <= hash_of(str(TOPIC)) < int(high, 16)


async def test_first_broker_describes_the_cluster_as_apaches_setup_does() -> None:
    nodes = await cluster(2)
    found = await nodes[0].store.get("/admin/clusters/c1")
    assert found is not None
    assert (json.loads(found.value), found.version) == (nodes[0].addresses.cluster_data, 0)


async def test_every_broker_names_the_owner_whatever_the_request_says() -> None:
    nodes = await cluster(3)
    await owned(nodes[1])
    for node in nodes:
        for authoritative in (False, True):
            answer = await node.ownership.owner_of_bundle(BUNDLE, authoritative=authoritative)
            assert answer == Owner(nodes[1].addresses)


async def test_lookup_ends_after_three_steps_at_the_broker_with_the_fewest_bundles() -> None:
    nodes = await cluster(3)
    for number, node in enumerate((nodes[0], nodes[1])):
        await owned(node, (FIRST, SECOND)[number])
        await node.ownership.tick()
    await nodes[0].ownership.tick()
    await settle(*nodes)
    assert await follow(nodes, nodes[1]) == (nodes[2], 3)
    assert await follow(nodes, nodes[1]) == (nodes[2], 1)


async def test_lookup_after_an_interruption_is_answered_by_the_leader_of_now() -> None:
    nodes = await cluster(3)
    cut = nodes[2].ownership
    # As read before the interruption, whose news were lost.
    cut.members.leader = nodes[1].addresses.broker_id
    cut._told(SessionState.SUSPENDED)
    cut._told(SessionState.CONNECTED)
    assert await cut.owner_of_bundle(BUNDLE) == Owner(nodes[0].addresses, is_redirect=True)


async def test_broker_without_a_session_sends_nobody_to_the_leader_that_it_knew() -> None:
    nodes = await cluster(2)
    for state in (SessionState.LOST, SessionState.SUSPENDED):
        nodes[1].ownership._told(state)
        with pytest.raises(OwnerUncertain, match="opens nothing"):
            await nodes[1].ownership.owner_of_bundle(BUNDLE)


async def test_leader_answers_the_same_until_the_chosen_broker_has_the_bundle() -> None:
    leader, *others = await cluster(3)
    await owned(leader, "shop/orders/0x00000000_0x40000000")
    first = await leader.ownership.owner_of_bundle(BUNDLE)
    again = await leader.ownership.owner_of_bundle(BUNDLE)
    assert first == again == Owner(others[0].addresses, is_redirect=True, authoritative=True)
    other = await leader.ownership.owner_of_bundle("shop/orders/0x40000000_0x80000000")
    assert other.addresses == others[1].addresses, "what was chosen counts before its broker reports it"


async def test_bundle_is_served_by_a_survivor_after_the_session_of_its_owner() -> None:
    nodes = await cluster(2)
    await owned(nodes[0])
    await nodes[0].kill()
    await settle(nodes[1])
    assert nodes[1].ownership.leader == nodes[1].addresses.broker_id
    assert await follow(nodes, nodes[1]) == (nodes[1], 1)


async def test_topics_open_under_a_lease_alone() -> None:
    node, other = await cluster(2)
    bundle = node.ownership.bundle_of(TOPIC)
    with pytest.raises(ServiceNotReady, match=rf"Namespace bundle \({bundle}\) .* not served .*:host0:8080"):
        await node.ownership.check_owned(TOPIC)
    await owned(node, bundle)
    assert await condition(node) == Check(f"{BUNDLES}/{bundle}", 0)
    with pytest.raises(ServiceNotReady):
        await other.ownership.check_owned(TOPIC)


async def test_nothing_opens_before_the_cluster_is_joined() -> None:
    (node,) = await cluster(1)
    late = Node(node.store.another(), 1)
    late.ownership.owner = late.addresses
    with pytest.raises(OwnerUncertain):
        await late.ownership.owner_of_bundle(BUNDLE, authoritative=True)


async def test_bundle_of_an_earlier_life_is_taken_again() -> None:
    node, other = await cluster(2)
    await other.store.put_all([Ephemeral(f"{BUNDLES}/{BUNDLE}", encode_owner(node.addresses))])
    await owned(node)
    await other.store.close()
    assert await node.store.get(f"{BUNDLES}/{BUNDLE}") is not None, "the node is one of this session"


async def test_bundle_of_an_earlier_life_is_taken_by_a_broker_that_does_not_lead() -> None:
    leader, node = await cluster(2)
    bundle = node.ownership.bundle_of(TOPIC)
    for name in (BUNDLE, bundle):
        with suppress(BadVersion):
            await leader.store.put_all([Ephemeral(f"{BUNDLES}/{name}", encode_owner(node.addresses))])
    assert await leader.ownership.owner_of_bundle(bundle) == Owner(node.addresses)
    assert await condition(node) == Check(f"{BUNDLES}/{bundle}", 0)
    assert await node.ownership.owner_of_bundle(BUNDLE) == Owner(node.addresses)
    assert BUNDLE in node.ownership.leases


async def test_connection_that_comes_back_does_not_make_up_for_leases_of_an_ended_session() -> None:
    (node,) = await cluster(1)
    await owned(node)
    ownership = node.ownership
    for state in (
        SessionState.LOST,
        SessionState.RE_ESTABLISHED,
        SessionState.SUSPENDED,
        SessionState.CONNECTED,
    ):
        ownership._told(state)
    with pytest.raises(OwnerUncertain, match="opens nothing"):
        # Without the read of a lookup, during which the leases would be taken again.
        await ownership._acquire(FIRST)
    await settle(node)
    await owned(node, FIRST)


async def test_return_after_an_earlier_session_does_not_undo_the_one_after_the_present_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (node,) = await cluster(1)
    members, held = node.ownership.members, asyncio.Event()
    plain, returns = members.register, count()

    async def register() -> None:
        if next(returns) == 0:
            await held.wait()
        await plain()

    monkeypatch.setattr(members, "register", register)
    for _ in range(2):
        node.ownership._told(SessionState.LOST)
        node.ownership._told(SessionState.RE_ESTABLISHED)
        await asyncio.sleep(0)  # The return begins.
    while not node.ownership.counts.is_serving:  # noqa: ASYNC110
        await asyncio.sleep(0)
    held.set()
    await settle(node)
    assert node.ownership.counts.is_serving


async def test_expired_session_takes_its_bundles_again_and_closes_those_that_others_have() -> None:
    node, other = await cluster(2)
    await owned(node)
    await owned(node, FIRST)
    # The other broker is faster than the news of the expired session.
    node.store._end_session()
    assert await other.ownership.leases.acquire(BUNDLE) == other.addresses
    node.store.expire()
    await settle(node, other)
    assert node.closed == [BUNDLE]
    assert list(node.ownership.leases) == [FIRST]
    assert await other.store.get(f"{BROKERS}/{node.addresses.broker_id}") is not None
    await owned(other)


async def test_topic_of_an_ended_session_takes_nothing_under_the_lease_of_another_broker() -> None:
    node, other = await cluster(2)
    bundle = node.ownership.bundle_of(TOPIC)
    await owned(node, bundle)
    lease = await node.ownership.check_owned(TOPIC)
    assert lease is not None
    assert lease() == Check(f"{BUNDLES}/{bundle}", 0)
    node.store._end_session()
    # At once: this broker takes a lease again that it finds removed.
    assert await other.ownership.leases.acquire(bundle) == other.addresses
    node.ownership._told(SessionState.LOST)
    # The other broker's node has the same version.
    with pytest.raises(OwnerUncertain, match=r"no lease of .* in this session"):
        lease()
    node.ownership._told(SessionState.RE_ESTABLISHED)
    await settle(node, other)
    with pytest.raises(MetadataError, match="no lease"):
        lease()


async def test_bundles_of_a_deleted_namespace_are_given_up() -> None:
    (node,) = await cluster(1)
    await owned(node)
    await owned(node, "shop/gone/0x00000000_0x40000000")
    node.namespaces.missing.add("shop/gone")
    await node.ownership.tick()
    assert list(node.ownership.leases) == [BUNDLE]
    assert node.closed == ["shop/gone/0x00000000_0x40000000"]
    assert await node.store.children(f"{BUNDLES}/shop") == ["orders"]


async def test_bundle_whose_session_has_ended_is_given_up_without_a_deletion() -> None:
    """Its node may be another broker's by then."""
    node, other = await cluster(2)
    await owned(node)
    node.store._end_session()
    assert await other.ownership.leases.acquire(BUNDLE) == other.addresses
    node.ownership._told(SessionState.LOST)
    await node.ownership.leases.release(BUNDLE)
    assert await other.store.get(f"{BUNDLES}/{BUNDLE}") is not None
    assert BUNDLE not in node.ownership.leases


async def test_lease_that_somebody_removed_is_made_again() -> None:
    node, other = await cluster(2)
    await owned(node)
    await other.store.delete(f"{BUNDLES}/{BUNDLE}")
    await settle(node)
    assert await other.ownership.owner_of_bundle(BUNDLE) == Owner(node.addresses)
    assert node.closed == []


async def test_unloaded_bundle_is_opened_by_nobody_until_its_topics_are_closed() -> None:
    node, other = await cluster(2)
    await owned(node)
    seen: list[Owner | tuple[int, str]] = []

    async def close(bundle: str, successor: Successor | None) -> None:
        for asked in (node, other):
            try:
                seen.append(await asked.ownership.owner_of_bundle(BUNDLE))
            except BrokerError as error:
                # At ServiceNotReady, Apache's clients would close their connection.
                seen.append((error.code, str(error)))

    node.ownership.close_bundle = close
    await node.ownership.unload(BUNDLE)
    refusal = ServerError.MetadataError, f"Namespace bundle {BUNDLE} is being unloaded"
    assert seen == [refusal, Owner(node.addresses)]
    await owned(other)


async def test_topic_that_cannot_be_closed_keeps_no_other_bundle_of_a_leaving_broker() -> None:
    leader, other = await cluster(2)
    await owned(leader)
    await owned(leader, FIRST)

    async def close(bundle: str, successor: Successor | None) -> None:
        raise MetadataError("away")

    leader.ownership.close_bundle = close
    await leader.ownership.leave()
    assert list(leader.ownership.leases) == []
    await settle(other)
    assert other.ownership.leader == other.addresses.broker_id


async def test_load_report_makes_no_registration_that_would_last() -> None:
    node, other = await cluster(2)
    await node.store.close()
    await node.ownership.members.report(b"{}")
    assert node.addresses.broker_id not in await other.store.children(BROKERS)


async def test_leaving_broker_is_chosen_no_more_and_its_bundles_are_free() -> None:
    leader, other = await cluster(2)
    await owned(leader)
    await owned(leader, FIRST)
    await leader.ownership.leave()
    await settle(other)
    assert leader.closed == [BUNDLE, FIRST]
    assert other.ownership.leader == other.addresses.broker_id
    assert sorted(other.ownership.brokers) == [other.addresses.broker_id]
    assert sorted(other.ownership.leases) == sorted((BUNDLE, FIRST))


async def test_asked_while_it_leaves_a_broker_sends_clients_to_another_one() -> None:
    leader, other = await cluster(2)
    await owned(leader)

    async def close(bundle: str, successor: Successor | None) -> None:
        await settle(other)
        found = await leader.ownership.owner_of_bundle(SECOND)
        assert found.addresses == other.addresses
        # Chosen by a leader that does not know yet, it sends nobody on: that would be a loop.
        with pytest.raises(ServiceNotReady, match="shutting down"):
            await leader.ownership.owner_of_bundle(SECOND, authoritative=True)

    leader.ownership.close_bundle = close
    await leader.ownership.leave()


async def test_load_report_names_the_bundles() -> None:
    node, other = await cluster(2)
    await owned(node)
    await other.ownership.tick()
    await node.ownership.tick()
    await settle(node, other)
    assert node.ownership.members.members[node.addresses.broker_id].load.bundles.keys() == {BUNDLE}
    assert other.ownership.brokers == {f"host{number}:8080": addresses(number) for number in range(2)}


async def test_bundle_that_a_report_shows_counts_once_for_the_leader() -> None:
    leader, other = await cluster(2)
    await owned(leader, "shop/orders/0x00000000_0x40000000")
    chosen = await leader.ownership.owner_of_bundle(BUNDLE)
    assert chosen.addresses == other.addresses
    await owned(other)
    await other.ownership.tick()
    await leader.ownership.tick()
    await settle(leader, other)
    await leader.ownership.tick()
    assert leader.ownership.balance.chosen == {}
    await other.ownership.unload(BUNDLE, leader.addresses.broker_id)
    await leader.ownership.unload(BUNDLE, other.addresses.broker_id)
    await other.ownership.leases.release(BUNDLE)
    await owned(other, SECOND)
    await owned(other, THIRD)
    await other.ownership.tick()
    await leader.ownership.tick()
    await settle(leader, other)
    assert await leader.ownership.owner_of_bundle(BUNDLE) == Owner(leader.addresses), "it had fewer by then"


async def test_second_unload_of_a_bundle_is_refused_while_the_first_goes_on() -> None:
    (node,) = await cluster(1)
    await owned(node)

    async def close(bundle: str, successor: Successor | None) -> None:
        with pytest.raises(OwnerUncertain, match="is being unloaded"):
            await node.ownership.unload(BUNDLE)

    node.ownership.close_bundle = close
    await node.ownership.unload(BUNDLE)
    await owned(node)


async def test_clients_of_a_moved_bundle_are_told_its_next_owner_once_that_has_it() -> None:
    node, _, third = await cluster(3)
    await owned(node)
    await node.ownership.unload(BUNDLE, third.addresses.broker_id)
    assert node.told == [third.addresses.service_urls]
    assert BUNDLE in third.ownership.leases
    # Without a destination the leader chooses.
    await third.ownership.unload(BUNDLE)
    assert len(third.told) == 1
    found = third.told[0]
    owner = await third.ownership.owner_of_bundle(BUNDLE)
    assert owner.addresses.service_urls == found


async def test_clients_look_up_where_the_next_owner_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_over, "HAND_OVER_S", 0.01)
    node, other = await cluster(2)
    await owned(node)

    async def never(topic: TopicName, first: Addresses, *, authoritative: bool) -> Addresses:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(node.peers, "find_owner", never)
    await node.ownership.unload(BUNDLE, other.addresses.broker_id)
    assert node.told == [NOBODY]
    assert BUNDLE not in node.ownership.leases


async def test_clients_of_a_topic_that_cannot_be_closed_are_told_too() -> None:
    (node,) = await cluster(1)
    await owned(node)

    async def close(bundle: str, successor: Successor | None) -> None:
        await node._close(bundle, successor)
        raise MetadataError("away")

    node.ownership.close_bundle = close
    with pytest.raises(MetadataError):
        await node.ownership.unload(BUNDLE)
    assert node.told == [NOBODY]


async def test_unload_during_which_the_session_ends_can_be_asked_again() -> None:
    node, other = await cluster(2)
    await owned(node)
    error = MetadataError("this session has ended")

    async def close(bundle: str, successor: Successor | None) -> None:
        node.ownership._told(SessionState.LOST)
        raise error

    async def fails(bundle: str, successor: Successor | None) -> None:
        raise error

    node.ownership.close_bundle = close
    with pytest.raises(OwnerUncertain, match="this session has ended") as told:
        await node.ownership.unload(BUNDLE)
    assert told.value.status == 503
    node.ownership.close_bundle = fails
    with pytest.raises(MetadataError) as refused:
        await node.ownership.unload(BUNDLE)
    assert refused.value.status == 500
    assert BUNDLE not in other.ownership.leases


async def test_leaving_broker_tells_clients_who_has_each_bundle() -> None:
    leader, other = await cluster(2)
    await owned(leader)
    await owned(leader, FIRST)
    await leader.ownership.leave()
    assert leader.told == [other.addresses.service_urls] * 2
    assert sorted(other.ownership.leases) == sorted((BUNDLE, FIRST))


async def test_broker_that_stops_while_the_store_is_away_waits_for_nothing() -> None:
    node, other = await cluster(2)
    await owned(node)
    node.ownership._told(SessionState.SUSPENDED)
    await node.ownership.leave()
    assert await other.ownership.owner_of_bundle(BUNDLE) == Owner(node.addresses)


async def test_lease_of_a_topic_whose_namespace_is_gone_is_an_error_of_the_store() -> None:
    (node,) = await cluster(1)
    await owned(node, node.ownership.bundle_of(TOPIC))
    lease = await node.ownership.check_owned(TOPIC)
    assert lease is not None
    node.namespaces.missing.add("shop/orders")
    with pytest.raises(MetadataError, match="has no lease"):
        lease()


@pytest.mark.timeout(20)
async def test_narrowest_bundle_moves_at_once() -> None:
    """One name in 2**32 is in it, so a search for one would hold the broker for hours."""
    leader, other = await cluster(2)
    narrow = Bundles((0, 5, 6, HASH_MAX))
    leader.namespaces.bundles = other.namespaces.bundles = narrow
    bundle = "shop/orders/0x00000005_0x00000006"
    await owned(leader, bundle)
    await leader.ownership.unload(bundle, other.addresses.broker_id)
    assert bundle in other.ownership.leases
