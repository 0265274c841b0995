"""`/lookup/v2/topic` where several brokers share a store: a topic without an owner sends the request on."""

from __future__ import annotations

import pytest
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


@pytest.mark.parametrize(
    ("query", "header", "url"),
    [
        ("", "", None),
        ("", "outside", "pulsar://outside.example.org:6650"),
        ("?listenerName=", "outside", "pulsar://outside.example.org:6650"),
        ("?listenerName=inside", "outside", "pulsar://inside.example.org:6650"),
    ],
)
async def test_listener_is_named_by_the_query_or_by_a_header(
    query: str, header: str, url: str | None
) -> None:
    listeners = ",".join(f"{name}:pulsar://{name}.example.org:6650" for name in ("inside", "outside"))
    async with memory_broker(f"advertisedListeners={listeners}") as broker, ClientSession() as session:
        headers = {"X-Pulsar-ListenerName": header} if header else {}
        async with session.get(f"{broker.addresses.admin_url}{PATH}/t{query}", headers=headers) as answer:
            found = await answer.json()
        assert found["brokerUrl"] == (url or broker.addresses.service_url)
