"""Requests about all partitions of a topic, and about a namespace, where two brokers own them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final, cast

import pulsar
import pytest
from aiohttp import ClientSession
from yarl import URL

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.admin.http.request_classes import CLASSES, RequestClass
from broker.admin.topics.over_owners import RULES
from broker.admin.topics.owner_redirect import FROM_CONSOLE
from broker.cluster.ownership import ClusterOwnership
from broker.compaction.entry_content import read_entry
from broker.compose.broker_service import BrokerService
from broker.peers.peers import PeerAnswer
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic
from broker.service.topics.topic_ownership import Addresses
from foundation.model.position import Position
from foundation.model.topic_name import parse_topic_name
from foundation.value import Json
from tests.support.memory_broker import memory_broker

BASE = parse_topic_name("persistent://public/default/t")
PARTITIONS = 6
PATH = "persistent/public/default/t"


class Two:
    """Two brokers that own three and three partitions, and which broker owns each."""

    def __init__(self, brokers: list[BrokerService]) -> None:
        self.brokers = brokers
        self.owners: dict[int, BrokerService] = {}

    async def ask(
        self, method: str, path: str, body: object = None, *, at: int = 0, console: bool = False
    ) -> tuple[int, object]:
        # As it is written: a client may send a name of dots.
        url = URL(f"{self.brokers[at].addresses.admin_url}/admin/v2/{path}", encoded=True)
        headers = {FROM_CONSOLE: "true"} if console else None
        async with (
            ClientSession() as session,
            session.request(method, url, json=body, headers=headers) as answer,
        ):
            content = await answer.read()
            return answer.status, json.loads(content) if content else None

    async def topic(self, index: int) -> PersistentTopic:
        found = await self.owners[index].registry.get(BASE.with_partition(index), create=True)
        assert isinstance(found, PersistentTopic)
        return found

    async def subscriptions(self) -> list[set[str]]:
        """The subscriptions of each partition, at its owner."""
        count = await self.brokers[0].registry.partitions.count(BASE)
        found = []
        for index in range(count):
            await self.own(index)
            found.append(set((await self.topic(index)).subscriptions))
        return found

    async def own(self, index: int) -> None:
        name = BASE.with_partition(index)
        answer = await self.brokers[0].registry.ownership.owner_of(name, authoritative=True)
        self.owners[index] = next(one for one in self.brokers if one.addresses == answer.addresses)


@pytest.fixture
def one_place() -> Iterator[None]:
    """Lets one request of each class run, and one ask: a request that keeps its place while it asks waits for itself."""
    before = [(kind, kind.running_max, kind.asking_max) for kind in CLASSES]
    for kind in CLASSES:
        _set(kind, 1, 1)
    yield
    for kind, running, asking in before:
        _set(kind, running, asking)


def _set(kind: RequestClass, running: int, asking: int) -> None:
    # They are frozen.
    object.__setattr__(kind, "running_max", running)
    object.__setattr__(kind, "asking_max", asking)


@pytest.fixture
async def two(one_place: None) -> AsyncIterator[Two]:
    first = MemoryMetadataStore()
    async with AsyncExitStack() as stack:
        found = Two(
            [
                await stack.enter_async_context(
                    memory_broker("forceDeleteNamespaceAllowed=true", metadata=store)
                )
                for store in (first, first.another())
            ]
        )
        assert await found.ask("PUT", f"{PATH}/partitions", PARTITIONS) == (204, None)
        bundles: dict[str, BrokerService] = {}
        for index in range(PARTITIONS):
            name = BASE.with_partition(index)
            ownership = found.brokers[0].registry.ownership
            owner = bundles.setdefault(ownership.bundle_of(name), found.brokers[len(bundles) % 2])
            await owner.registry.ownership.owner_of(name, authoritative=True)
            found.owners[index] = owner
        assert len({id(one) for one in found.owners.values()}) == 2, "both own partitions"
        yield found


@pytest.mark.parametrize("at", [0, 1])
async def test_subscription_is_made_listed_and_deleted_on_all_partitions(two: Two, at: int) -> None:
    path = f"{PATH}/subscription/s%2F1"
    assert await two.ask("PUT", path, "earliest", at=at) == (204, None)
    assert await two.subscriptions() == [{"s/1"}] * PARTITIONS
    assert await two.ask("GET", f"{PATH}/subscriptions", at=at) == (200, ["s/1"])
    status, body = await two.ask("PUT", path, "earliest", at=at)
    assert (status, body) == (409, {"reason": "Subscription already exists for topic"})
    assert await two.ask("PUT", f"{path}/properties", {"a": "b"}, at=at) == (204, None)
    assert await two.ask("GET", f"{path}/properties", at=at) == (200, {"a": "b"})
    assert await two.ask("POST", f"{path}/skip_all", at=at) == (204, None)
    assert await two.ask("DELETE", path, at=at) == (204, None)
    assert await two.subscriptions() == [set()] * PARTITIONS
    assert (await two.ask("DELETE", path, at=at))[0] == 404


async def test_subscription_that_some_partitions_lack_is_made_there(two: Two) -> None:
    await (await two.topic(0)).subscribing.create("s", (await two.topic(0)).ledger.last_confirmed)
    assert await two.ask("PUT", f"{PATH}/subscription/s") == (204, None)
    assert await two.subscriptions() == [{"s"}] * PARTITIONS


@pytest.mark.parametrize("name", ["..", "%2e%2e", "%2E."])
async def test_request_about_a_subscription_of_dots_is_none_about_its_topic(two: Two, name: str) -> None:
    status, body = await two.ask("PUT", f"{PATH}/subscription/{name}/properties", {"a": "b"})
    assert (status, str(body)[:31]) == (404, "{'reason': 'Subscription .. not"), body
    for index in range(PARTITIONS):
        assert not (await two.topic(index)).properties


@pytest.mark.parametrize("at", [0, 1])
async def test_statistics_of_partitions_are_summed_over_their_owners(two: Two, at: int) -> None:
    assert await two.ask("PUT", f"{PATH}/subscription/s") == (204, None)
    for index in range(PARTITIONS):
        (await two.topic(index)).messages_in += index
    status, body = await two.ask("GET", f"{PATH}/partitioned-stats", at=at)
    assert status == 200
    assert isinstance(body, dict)
    assert body["msgInCounter"] == sum(range(PARTITIONS))
    assert list(body["subscriptions"]) == ["s"]
    assert body["metadata"] == {"partitions": PARTITIONS, "deleted": False}
    names = [str(BASE.with_partition(index)) for index in range(PARTITIONS)]
    assert list(body["partitions"]) == names
    assert [body["partitions"][name]["msgInCounter"] for name in names] == [*range(PARTITIONS)]
    _, whole = await two.ask("GET", f"{PATH}/partitioned-stats?perPartition=false", at=at)
    assert isinstance(whole, dict)
    assert whole["partitions"] == {}
    status, body = await two.ask("GET", f"{PATH}/partitioned-internalStats", at=at)
    assert isinstance(body, dict)
    assert (status, list(body["partitions"])) == (200, names)


async def test_partitions_are_terminated_compacted_and_unloaded_at_their_owners(two: Two) -> None:
    topics = [await two.topic(index) for index in range(PARTITIONS)]
    assert await two.ask("PUT", f"{PATH}/compaction") == (204, None)
    for topic in topics:
        await topic.compaction.wait()
        assert topic.compaction.counts.succeeded + topic.compaction.counts.failed == 1
    status, body = await two.ask("POST", f"{PATH}/terminate/partitions")
    assert isinstance(body, dict)
    assert (status, list(body)) == (200, [str(index) for index in range(PARTITIONS)])
    assert all(topic.is_terminated for topic in topics)
    assert await two.ask("PUT", f"{PATH}/unload") == (204, None)
    assert all(topic.closed for topic in topics)


@pytest.mark.parametrize("at", [0, 1])
async def test_partitions_are_trimmed_at_their_owners_with_the_answer_for_one(two: Two, at: int) -> None:
    part = await two.topic(0)
    assert await two.ask("POST", f"persistent/public/default/{part.name.local}/trim", at=at) == (200, None)
    assert await two.ask("POST", f"{PATH}/trim", at=at) == (200, None)


async def published(two: Two, body: object, at: int) -> tuple[int, list[dict[str, object]]]:
    """Publishes over REST; returns the status and the outcomes."""
    url = f"{two.brokers[at].addresses.admin_url}/topics/{PATH}"
    async with ClientSession() as session, session.post(url, json=body) as answer:
        found = await answer.json()
        assert isinstance(found, dict)
        return answer.status, found.get("messagePublishResults", [found])


@pytest.mark.parametrize("at", [0, 1])
async def test_messages_over_rest_are_published_at_the_owners_of_their_partitions(two: Two, at: int) -> None:
    messages = [{"payload": f"é{number}"} for number in range(2 * PARTITIONS)]
    status, results = await published(two, {"producerName": "rp", "messages": messages}, at)
    assert (status, len(results)) == (200, 2 * PARTITIONS)
    assert {(one["errorCode"], one["schemaVersion"]) for one in results} == {(0, 0)}
    # Each message is where its id says.
    for number, one in enumerate(results):
        ledger_id, entry_id, index = map(int, str(one["messageId"]).split(":"))
        entry = await (await two.topic(index)).ledger.read_entry(Position(ledger_id, entry_id))
        metadata, payload = read_entry(entry.body)
        assert (metadata.producer_name, bytes(payload).decode()) == ("rp", f"é{number}")
    assert sorted(str(one["messageId"]).split(":")[2] for one in results) == sorted("001122334455")


@pytest.mark.parametrize("at", [0, 1])
async def test_messages_over_rest_with_one_key_go_to_one_partition_whichever_broker_is_asked(
    two: Two, at: int
) -> None:
    keyed = {"messages": [{"payload": "x", "key": key} for key in "abcdefgh"]}
    _, results = await published(two, keyed, at)
    _, others = await published(two, keyed, 1 - at)
    indexes = [str(one["messageId"]).split(":")[2] for one in results]
    assert indexes == [str(one["messageId"]).split(":")[2] for one in others]
    assert len(set(indexes)) > 1


@pytest.mark.parametrize("at", [0, 1])
async def test_messages_over_rest_that_an_owner_refuses_have_its_reason(two: Two, at: int) -> None:
    ended = next(index for index, owner in two.owners.items() if owner is two.brokers[1 - at])
    await (await two.topic(ended)).terminate()
    messages = [{"payload": "x"} for _ in range(PARTITIONS)]
    status, results = await published(two, {"messages": messages}, at)
    refused = [one for one in results if one["errorCode"] != 0]
    assert (status, len(results), len(refused)) == (200, PARTITIONS, 1)
    assert (refused[0]["messageId"], refused[0]["errorCode"]) == (str(ended), 2)
    assert "terminated" in str(refused[0]["errorMsg"])
    for index in range(PARTITIONS):
        await (await two.topic(index)).terminate()
    status, (refusal,) = await published(two, {"messages": [{"payload": "x"}]}, at)
    assert status >= 400
    assert "terminated" in str(refusal["reason"])


async def test_new_partitions_get_the_subscriptions_of_the_first_one_wherever_they_are(two: Two) -> None:
    assert await two.ask("PUT", f"{PATH}/subscription/s") == (204, None)
    assert await two.ask("POST", f"{PATH}/partitions", PARTITIONS + 4) == (204, None)
    assert await two.subscriptions() == [{"s"}] * (PARTITIONS + 4)


async def test_request_about_a_namespace_asks_the_owners_of_all_bundles(two: Two) -> None:
    assert await two.ask("PUT", f"{PATH}/subscription/s") == (204, None)
    topics = [await two.topic(index) for index in range(PARTITIONS)]
    assert await two.ask("POST", "namespaces/public/default/clearBacklog/s") == (204, None)
    assert await two.ask("POST", "namespaces/public/default/unsubscribe/s") == (204, None)
    assert [set(topic.subscriptions) for topic in topics] == [set()] * PARTITIONS
    assert await two.ask("PUT", "namespaces/public/default/unload") == (204, None)
    assert all(topic.closed for topic in topics)


@pytest.mark.parametrize("namespace", ["public/a=b", "public/a%3Db", "public/c%3ad", "%70ublic/c:d"])
async def test_request_about_a_namespace_may_quote_its_name(two: Two, namespace: str) -> None:
    assert await two.ask("PUT", f"namespaces/{namespace}") == (204, None)
    topic = f"persistent/{namespace}/t"
    assert await two.ask("PUT", topic) == (204, None)
    assert await two.ask("PUT", f"{topic}/subscription/s%2F1") == (204, None)
    for method, action in (
        ("POST", "clearBacklog"),
        ("POST", "clearBacklog/s%2F1"),
        ("POST", "unsubscribe/s%2F1"),
        ("PUT", "unload"),
    ):
        assert await two.ask(method, f"namespaces/{namespace}/{action}") == (204, None), action
    assert await two.ask("GET", f"{topic}/subscriptions") == (200, [])


@pytest.mark.parametrize("at", [0, 1])
async def test_subscription_in_use_at_one_owner_is_deleted_from_no_topic_of_the_namespace(
    two: Two, at: int
) -> None:
    assert await two.ask("PUT", f"{PATH}/subscription/s") == (204, None)
    for used, owner in enumerate(two.brokers):
        index = next(index for index, one in two.owners.items() if one is owner)
        client = pulsar.Client(owner.addresses.service_url)
        await asyncio.to_thread(client.subscribe, str(BASE.with_partition(index)), "s")
        status, body = await two.ask("POST", "namespaces/public/default/unsubscribe/s", at=at)
        assert (status, body) == (412, {"reason": "Subscription has active connected consumers"}), used
        assert await two.subscriptions() == [{"s"}] * PARTITIONS
        await asyncio.to_thread(client.close)


async def test_every_rule_is_about_a_route(two: Two) -> None:
    from broker.admin.server import create_app

    app = await create_app(two.brokers[0])
    served = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None
    }
    topic = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
    assert {(method, topic + end) for method, end in RULES} <= served


async def test_partitioned_topic_is_deleted_at_the_owners_of_its_partitions(two: Two) -> None:
    topics = [await two.topic(index) for index in range(PARTITIONS)]
    assert await two.ask("DELETE", f"{PATH}/partitions") == (204, None)
    assert all(topic.closed for topic in topics)
    assert [str(topic.name) for one in two.brokers for topic in one.registry.topics.values()] == []
    assert await two.ask("GET", "persistent/public/default") == (200, [])
    assert (await two.ask("GET", f"{PATH}/partitions", at=1))[0] == 404


@pytest.mark.parametrize("at", [0, 1])
async def test_partitioned_topic_with_a_client_at_any_owner_is_deleted_by_force_alone(
    two: Two, at: int
) -> None:
    used = next(index for index, owner in two.owners.items() if owner is two.brokers[0])
    topic, name = await two.topic(used), BASE.with_partition(used)
    client = pulsar.Client(two.owners[used].addresses.service_url)
    await asyncio.to_thread(client.subscribe, str(name), "s")
    status, body = await two.ask("DELETE", f"{PATH}/partitions", at=at)
    assert (status, body) == (412, {"reason": f"Topic {name} has connected clients"})
    assert not topic.closed
    assert await two.ask("DELETE", f"{PATH}/partitions?force=true", at=at) == (204, None)
    assert not two.brokers[0].registry.topics
    await asyncio.to_thread(client.close)


async def test_namespace_is_deleted_by_force_with_topics_that_another_broker_has_open(two: Two) -> None:
    topics = [await two.topic(index) for index in range(PARTITIONS)]
    assert (await two.ask("DELETE", "namespaces/public/default?force=true"))[0] == 204
    assert all(topic.closed for topic in topics)


@pytest.mark.parametrize("at", [0, 1])
async def test_non_persistent_topics_of_all_owners_are_listed(two: Two, at: int) -> None:
    names = [replace(BASE.with_partition(index), domain="non-persistent") for index in range(PARTITIONS)]
    assert await two.ask("PUT", "non-persistent/public/default/t/partitions", PARTITIONS) == (204, None)
    for index, name in enumerate(names):
        await two.owners[index].registry.get(name, create=True)
    listed = [str(name) for name in names]
    assert await two.ask("GET", "non-persistent/public/default", at=at) == (200, listed)
    topics, stored = "namespaces/public/default/topics", [name.replace("non-", "", 1) for name in listed]
    assert await two.ask("PUT", "persistent/public/default/__change_events") == (204, None)
    assert await two.ask("GET", f"{topics}?mode=NON_PERSISTENT", at=at) == (200, listed)
    assert await two.ask("GET", f"{topics}?mode=ALL", at=at) == (200, stored + listed)
    assert await two.ask("GET", topics, at=at) == (200, stored)
    found = set()
    for bundle in {two.brokers[0].registry.ownership.bundle_of(name) for name in names}:
        _, some = await two.ask("GET", f"non-persistent/{bundle}", at=at)
        assert isinstance(some, list)
        found.update(some)
    assert found == set(listed)


async def test_missed_partitions_are_created_whoever_owns_them(two: Two) -> None:
    for index in (1, 2, 4):
        assert (await two.topic(index)).name.partition == index
        owner = two.brokers.index(two.owners[index])
        assert await two.ask("DELETE", f"{PATH}-partition-{index}", at=owner) == (204, None)
    assert len(await two.brokers[0].registry.names("public/default", non_persistent=False)) == 3
    assert await two.ask("POST", f"{PATH}/createMissedPartitions") == (204, None)
    _, names = await two.ask("GET", "persistent/public/default", at=1)
    assert names == [str(BASE.with_partition(index)) for index in range(PARTITIONS)]


@pytest.mark.parametrize("at", [0, 1])
async def test_stored_lists_of_partitions_are_read_at_their_owners(two: Two, at: int) -> None:
    status, body = await two.ask("GET", f"{PATH}/internal-info", at=at)
    assert isinstance(body, dict)
    assert (status, list(body["partitions"])) == (
        200,
        [str(BASE.with_partition(index)) for index in range(PARTITIONS)],
    )
    assert all(shown["ledgers"] for shown in body["partitions"].values())


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"{PATH}/partitioned-internalStats", None),
        ("GET", f"{PATH}/internal-info", None),
        ("GET", f"{PATH}/subscriptions", None),
        ("PUT", f"{PATH}/subscription/s%d", "earliest"),
        ("GET", "non-persistent/public/default", None),
        ("POST", "namespaces/public/default/clearBacklog", None),
    ],
)
async def test_requests_about_all_partitions_at_once_at_all_brokers_are_all_answered(
    two: Two, method: str, path: str, body: object
) -> None:
    paths = [path.replace("%d", str(number)) for number in range(12)]
    asked = (two.ask(method, one, body, at=number % 2) for number, one in enumerate(paths))
    found = await asyncio.gather(*asked)
    assert {status for status, _ in found} == {204 if body or method == "POST" else 200}, found


async def test_messages_over_rest_at_once_at_all_brokers_are_all_published(two: Two) -> None:
    messages = {"messages": [{"payload": "x"} for _ in range(PARTITIONS)]}
    found = await asyncio.gather(*(published(two, messages, number % 2) for number in range(12)))
    assert {one["errorCode"] for _, results in found for one in results} == {0}


async def test_partitioned_topics_deleted_and_grown_at_once_at_all_brokers_are_all_changed(two: Two) -> None:
    names = [f"persistent/public/default/d{number}/partitions" for number in range(6)]
    for method, body in (("PUT", 4), ("POST", 8), ("DELETE", None)):
        found = await asyncio.gather(
            *(two.ask(method, name, body, at=number % 2) for number, name in enumerate(names))
        )
        assert [status for status, _ in found] == [204] * len(names), (method, found)


async def test_requests_of_consoles_about_topics_of_each_other_are_all_answered(two: Two) -> None:
    asked = [
        two.ask(
            "PUT",
            f"{PATH}-partition-{index}/subscription/s{number}",
            "earliest",
            at=1 - two.brokers.index(owner),
            console=True,
        )
        for number in range(4)
        for index, owner in two.owners.items()
    ]
    found = await asyncio.gather(*asked)
    assert {status for status, _ in found} == {204}, found


ONE: Final = "namespaces/public/one"
"""A namespace of one bundle."""
BUNDLE: Final = "0x00000000_0xffffffff"


async def opened_at(two: Two, at: int) -> list[Topic]:
    """Makes the namespace, its bundle owned by that broker; returns two open topics in it."""
    bundles = {"numBundles": 1, "boundaries": ["0x00000000", "0xffffffff"]}
    assert await two.ask("PUT", ONE, {"bundles": bundles}) == (204, None)
    names = [parse_topic_name(f"{domain}://public/one/t") for domain in ("persistent", "non-persistent")]
    registry = two.brokers[at].registry
    await registry.ownership.owner_of(names[0], authoritative=True)
    return [await registry.get(name, create=True) for name in names]


@pytest.mark.parametrize("at", [0, 1])
async def test_namespace_is_unloaded_where_another_broker_has_just_divided_its_bundle(
    two: Two, at: int
) -> None:
    topics = await opened_at(two, 1 - at)
    # The notice of the division never comes.
    stored = two.brokers[at].namespaces.stored
    await stored.policies.close()
    await stored.local.close()
    assert await two.ask("PUT", f"{ONE}/{BUNDLE}/split", at=1 - at) == (204, None)
    assert not any(topic.closed for topic in topics)
    assert await two.ask("PUT", f"{ONE}/unload", at=at) == (204, None)
    assert all(topic.closed for topic in topics)


@pytest.mark.parametrize("at", [0, 1])
async def test_namespace_is_unloaded_whose_bundle_is_divided_meanwhile(
    two: Two, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = await opened_at(two, 1 - at)
    peers = cast(ClusterOwnership, two.brokers[at].registry.ownership).peers
    request, asked = peers.request, []

    async def divided_first(
        to: Addresses, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Json = None
    ) -> PeerAnswer:
        asked.append(path)
        if len(asked) == 1:
            assert await two.ask("PUT", f"{ONE}/{BUNDLE}/split", at=1 - at) == (204, None)
        return await request(to, method, path, query=query, body=body)

    monkeypatch.setattr(peers, "request", divided_first)
    assert await two.ask("PUT", f"{ONE}/unload", at=at) == (204, None)
    assert all(topic.closed for topic in topics)
    assert [path.rpartition(ONE)[2] for path in asked] == [
        f"/{bundle}/unload" for bundle in (BUNDLE, "0x00000000_0x7fffffff", "0x7fffffff_0xffffffff")
    ]


@pytest.mark.parametrize("at", [0, 1])
async def test_non_persistent_topics_of_parts_that_another_broker_has_just_made_are_listed(
    two: Two, at: int
) -> None:
    await opened_at(two, 1 - at)
    stored = two.brokers[at].namespaces.stored
    await stored.policies.close()
    await stored.local.close()
    assert await two.ask("PUT", f"{ONE}/{BUNDLE}/split", at=1 - at) == (204, None)
    listed = await two.ask("GET", "non-persistent/public/one", at=at)
    assert listed == (200, ["non-persistent://public/one/t"])
