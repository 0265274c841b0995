"""Bundles that nobody owns get owners by the leader's choice, whichever broker is asked about a partitioned topic."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from aiohttp import ClientSession

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.compose.broker_service import BrokerService
from broker.compose.cache_counts import CacheCounts
from broker.compose.cluster_membership import publisher_elsewhere
from broker.service.topics.topic_ownership import MoveKind
from foundation.model.errors import ServiceNotReady
from foundation.model.topic_name import parse_topic_name
from tests.support.memory_broker import memory_broker

NAMESPACE = "public/iso"
BUNDLES = 12
TOPIC = parse_topic_name(f"persistent://{NAMESPACE}/p")
PATH = f"persistent/{NAMESPACE}/p"


class Two:
    """Two brokers on one store, the first of which leads."""

    def __init__(self, brokers: list[BrokerService], http: ClientSession) -> None:
        self.brokers, self.http = brokers, http

    async def ask(self, method: str, path: str, body: object = None, *, at: int) -> int:
        url = f"{self.brokers[at].addresses.admin_url}{path}"
        async with self.http.request(method, url, json=body) as answer:
            return answer.status

    async def admin(self, method: str, path: str, body: object = None, *, at: int) -> int:
        return await self.ask(method, f"/admin/v2/{path}", body, at=at)

    async def permit(self, index: int) -> None:
        """Permits the bundles of the namespace to one broker alone."""
        policy = {
            "namespaces": [NAMESPACE],
            "primary": [self.brokers[index].addresses.broker_id],
            "secondary": [],
            "auto_failover_policy": {
                "policy_type": "min_available",
                "parameters": {"min_limit": "1", "usage_threshold": "100"},
            },
        }
        path = "clusters/standalone/namespaceIsolationPolicies/iso"
        assert await self.admin("POST", path, policy, at=0) == 204

    def owned(self, at: int) -> list[str]:
        return [one for one in self.brokers[at].registry.ownership.parts() if one.startswith(f"{NAMESPACE}/")]

    def taken(self) -> int:
        """How often brokers have taken a bundle."""
        counts = [broker.registry.ownership.counts.moves for broker in self.brokers]
        return sum(found.get(MoveKind.TAKEN, 0) for found in counts)

    def wanted(self) -> set[str]:
        """The bundles of the partitions."""
        ownership = self.brokers[0].registry.ownership
        return {ownership.bundle_of(TOPIC.with_partition(index)) for index in range(BUNDLES)}


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    store = MemoryMetadataStore()
    async with AsyncExitStack() as stack:
        settings = "webSocketServiceEnabled=true", "forceDeleteNamespaceAllowed=true"
        brokers = [
            await stack.enter_async_context(memory_broker(*settings, metadata=one))
            for one in (store, store.another())
        ]
        found = Two(brokers, await stack.enter_async_context(ClientSession()))
        body = {"bundles": {"numBundles": BUNDLES}}
        assert await found.admin("PUT", f"namespaces/{NAMESPACE}", body, at=0) == 204
        assert await found.admin("PUT", f"{PATH}/partitions", BUNDLES, at=0) == 204
        assert brokers[0].registry.ownership.leader == brokers[0].addresses.broker_id
        assert found.owned(0) == found.owned(1) == []
        yield found


MESSAGES = {
    "producerName": "p",
    "valueSchema": json.dumps({"name": "", "schema": "", "type": "BYTES", "properties": {}}),
    "messages": [{"payload": "a", "key": str(number)} for number in range(20)],
}


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", f"/admin/v2/{PATH}/subscription/s", None),
        ("GET", f"/admin/v2/{PATH}/subscriptions", None),
        ("PUT", f"/admin/v2/{PATH}/unload", None),
        ("GET", f"/admin/v2/{PATH}/partitioned-stats", None),
        ("POST", f"/admin/v2/{PATH}/partitions", BUNDLES + 4),
        ("DELETE", f"/admin/v2/{PATH}/partitions", None),
        ("DELETE", f"/admin/v2/{PATH}/partitions?force=true", None),
        ("DELETE", f"/admin/v2/namespaces/{NAMESPACE}?force=true", None),
        ("POST", f"/topics/{PATH}", MESSAGES),
    ],
)
async def test_partitions_get_the_owner_that_a_policy_permits(
    two: Two, method: str, path: str, body: object, at: int
) -> None:
    await two.permit(1 - at)
    assert await two.ask(method, path, body, at=at) in (200, 204)
    assert two.owned(at) == []
    assert two.owned(1 - at) or method == "DELETE"


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("kind", ["producer", "consumer", "reader"])
async def test_web_socket_gives_partitions_the_owner_that_a_policy_permits(
    two: Two, kind: str, at: int
) -> None:
    await two.permit(1 - at)
    end = "/s" if kind == "consumer" else ""
    url = f"{two.brokers[at].addresses.admin_url}/ws/v2/{kind}/{PATH}{end}"
    await (await two.http.ws_connect(url)).close()
    assert two.owned(at) == []
    assert set(two.owned(1 - at)) == two.wanted()


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    ("method", "end", "body", "status"),
    [
        ("GET", "/stats", None, 404),
        ("POST", "/maxProducers", 3, 204),
        ("POST", "/subscription/s/resetcursor", None, 405),
        ("POST", "/terminate", None, 405),
        ("DELETE", "", None, 409),
    ],
)
async def test_request_that_needs_no_partition_gives_none_an_owner(
    two: Two, method: str, end: str, body: object, status: int, at: int
) -> None:
    assert await two.admin(method, f"{PATH}{end}", body, at=at) == status
    assert two.owned(0) == two.owned(1) == []


@pytest.mark.parametrize("at", [0, 1])
async def test_partitions_are_spread_over_the_brokers(two: Two, at: int) -> None:
    assert await two.admin("PUT", f"{PATH}/subscription/s", at=at) == 204
    counts = [len(two.owned(index)) for index in (0, 1)]
    assert sum(counts) == len(two.wanted())
    assert abs(counts[0] - counts[1]) <= 1


async def test_messages_give_an_owner_to_the_partitions_that_get_one_alone(two: Two) -> None:
    body = {**MESSAGES, "messages": [{"payload": "a", "key": "k"}]}
    assert await two.ask("POST", f"/topics/{PATH}", body, at=1) == 200
    assert len(two.owned(0)) + len(two.owned(1)) == 1


async def test_request_is_answered_503_while_the_leader_does_not_answer(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: object, **__: object) -> None:
        raise ServiceNotReady("the leader does not answer")

    monkeypatch.setattr(two.brokers[1].registry.ownership.peers, "find_owner", silent)  # type: ignore[attr-defined]
    assert await two.admin("PUT", f"{PATH}/subscription/s", at=1) == 503
    assert two.owned(0) == two.owned(1) == []
    # The leader chooses without asking another broker, and bundles with owners need no request.
    monkeypatch.setattr(two.brokers[0].registry.ownership.peers, "find_owner", silent)  # type: ignore[attr-defined]
    await two.permit(0)
    assert await two.admin("PUT", f"{PATH}/subscription/s", at=0) == 204
    assert set(two.owned(0)) == two.wanted()
    assert await two.admin("DELETE", f"{PATH}/subscription/s", at=1) == 204


@pytest.mark.parametrize("at", [0, 1])
async def test_unload_of_a_namespace_skips_bundles_without_owner(two: Two, at: int) -> None:
    path = f"namespaces/{NAMESPACE}/unload"
    taken = two.taken()
    assert await two.admin("PUT", path, at=at) == 204
    assert two.taken() == taken, "not even for a moment"
    closed = []
    for index in (0, 1):
        name = TOPIC.with_partition(index)
        registry = two.brokers[index].registry
        await registry.ownership.owner_of(name, authoritative=True)
        closed.append(await registry.get(name, create=True))
    assert [len(two.owned(index)) for index in (0, 1)] == [1, 1]
    assert await two.admin("PUT", path, at=at) == 204
    assert all(topic.closed for topic in closed)
    assert two.owned(0) == two.owned(1) == []
    assert two.taken() == taken + 2


@pytest.mark.parametrize("at", [0, 1])
async def test_cache_counts_go_to_the_owner_that_a_policy_permits(two: Two, at: int) -> None:
    await two.permit(1 - at)
    registry, name = two.brokers[at].registry, parse_topic_name(f"persistent://{NAMESPACE}/counts")
    counts = CacheCounts(
        registry,
        name,
        "b:8080",
        60,
        spawn=lambda work, name: None,
        wall_ms=lambda: 0,
        publish_elsewhere=publisher_elsewhere(registry),
    )
    await counts._publish([{"topic": "t", "hits": 1, "misses": 0, "coalesced": 0}])
    assert str(name) in two.brokers[1 - at].registry.topics
    assert two.owned(at) == []
