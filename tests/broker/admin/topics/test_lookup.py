"""`/lookup/v2/topic` where several brokers share a store: a topic without an owner sends the request on."""

from __future__ import annotations

from aiohttp import ClientSession

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from tests.support.memory_broker import memory_broker

PATH = "/lookup/v2/topic/persistent/public/default"


async def test_lookups_of_a_topic_without_an_owner_go_to_the_leader_and_to_the_broker_that_it_chooses() -> (
    None
):
    store = MemoryMetadataStore()
    second = store.another()
    async with (
        memory_broker(metadata=store) as leader,
        memory_broker(metadata=second) as other,
        ClientSession() as session,
    ):
        owners, hops = set(), set()
        # 20 topics lie in all four bundles, two of which each broker gets.
        for number in range(20):
            url = f"{other.addresses.admin_url}{PATH}/t{number}?listenerName="
            async with session.get(url) as answer:
                found = await answer.json()
                steps = [step.headers["Location"] for step in answer.history]
            expected = [
                f"{leader.addresses.admin_url}{PATH}/t{number}?listenerName=&authoritative=false",
                f"{other.addresses.admin_url}{PATH}/t{number}?listenerName=&authoritative=true",
            ]
            assert steps == expected[: len(steps)]
            owners.add(found["httpUrl"])
            hops.add(len(steps))
            async with session.get(f"{leader.addresses.admin_url}{PATH}/t{number}") as answer:
                assert (await answer.json(), answer.history) == (found, ())
        assert owners == {leader.addresses.admin_url, other.addresses.admin_url}
        assert hops == {0, 1, 2}
