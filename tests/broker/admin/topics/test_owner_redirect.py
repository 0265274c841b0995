"""Which requests go to another broker, and with which address; two brokers on one store in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from aiohttp import ClientSession
from yarl import URL

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.admin.topics.owner_redirect import FROM_CONSOLE
from broker.compose.broker_service import BrokerService
from broker.security.authorization.permissions import Action, NamespacePermissions
from foundation.model.topic_name import parse_topic_name
from tests.support.memory_broker import memory_broker
from tests.support.tokens import SECRET_URL, token

TOPIC = parse_topic_name("persistent://public/default/t")
PATH = "persistent/public/default/t"


@pytest.fixture
async def two() -> AsyncIterator[tuple[BrokerService, BrokerService]]:
    """The owner of the topic, which leads, and another broker."""
    first = MemoryMetadataStore()
    async with AsyncExitStack() as stack:
        owner, other = [
            await stack.enter_async_context(memory_broker(metadata=store))
            for store in (first, first.another())
        ]
        await owner.registry.ownership.owner_of(TOPIC, authoritative=True)
        await owner.registry.get(TOPIC, create=True)
        yield owner, other


async def asked(broker: BrokerService, method: str, path: str, root: str = "/admin/v2/") -> tuple[int, str]:
    # As it is written: a client may send a name of dots.
    url = URL(f"{broker.addresses.admin_url}{root}{path}", encoded=True)
    async with (
        ClientSession() as session,
        session.request(method, url, allow_redirects=False) as answer,
    ):
        return answer.status, answer.headers.get("Location", "")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{PATH}/stats"),
        ("GET", f"{PATH}/internalStats?metadata=true"),
        ("PUT", f"{PATH}/subscription/s%2F1"),
        ("GET", f"{PATH}/retention?applied=true"),
        ("DELETE", PATH),
        ("GET", "schemas/public/default/t/schema"),
        ("GET", f"magnetar/subscriptions/why/{PATH}/s"),
        ("GET", f"magnetar/evictions/{PATH}"),
        ("GET", f"magnetar/cache/why/{PATH}/1/0"),
    ],
)
async def test_requests_about_a_topic_go_to_its_owner(
    two: tuple[BrokerService, BrokerService], method: str, path: str
) -> None:
    owner, other = two
    joint = "&" if "?" in path else "?"
    to = f"{owner.addresses.admin_url}/admin/v2/{path}{joint}authoritative=false"
    assert await asked(other, method, path) == (307, to)
    assert (await asked(owner, method, path))[0] != 307


@pytest.mark.parametrize("name", ["..", ".", "%2e%2e", "a%2Fb", "%c3%a4"])
async def test_path_at_the_owner_is_that_of_the_request(
    two: tuple[BrokerService, BrokerService], name: str
) -> None:
    owner, other = two
    path = f"{PATH}/subscription/{name}/properties"
    to = f"{owner.addresses.admin_url}/admin/v2/{path}?authoritative=false"
    assert await asked(other, "PUT", path) == (307, to)


async def test_published_messages_go_to_the_owner(two: tuple[BrokerService, BrokerService]) -> None:
    owner, other = two
    path = f"topics/{PATH}"
    to = f"{owner.addresses.admin_url}/{path}?authoritative=false"
    assert await asked(other, "POST", path, root="/") == (307, to)


async def test_requests_about_a_bundle_go_to_its_owner(two: tuple[BrokerService, BrokerService]) -> None:
    owner, other = two
    bundle = owner.registry.ownership.bundle_of(TOPIC).rpartition("/")[2]
    path = f"namespaces/public/default/{bundle}/unload"
    to = f"{owner.addresses.admin_url}/admin/v2/{path}?authoritative=false"
    assert await asked(other, "PUT", path) == (307, to)
    assert await asked(owner, "PUT", path) == (204, "")


@pytest.mark.parametrize("largest", ["LARGEST", "%4cARGEST"])
async def test_requests_about_the_largest_bundle_go_to_its_owner_by_its_name(
    two: tuple[BrokerService, BrokerService], largest: str
) -> None:
    owner, other = two
    namespaces = f"{owner.addresses.admin_url}/admin/v2/namespaces/public/default"
    bundle = owner.registry.ownership.bundle_of(TOPIC).rpartition("/")[2]
    for action in ("unload", "split"):
        to = f"{namespaces}/{bundle}/{action}?unload=true&authoritative=false"
        asked_for = f"namespaces/public/default/{largest}/{action}?unload=true"
        assert await asked(other, "PUT", asked_for) == (307, to)
    assert await asked(owner, "PUT", f"namespaces/public/default/{largest}/split") == (204, "")


@pytest.mark.parametrize("prefix", ["", "http:%2F%2F"])
async def test_requests_about_a_broker_go_to_it(
    two: tuple[BrokerService, BrokerService], prefix: str
) -> None:
    named, other = two
    for path in (
        f"brokers/standalone/{prefix}{named.addresses.broker_id}/ownedNamespaces",
        f"brokers/health?brokerId={prefix.replace('%2F', '/')}{named.addresses.broker_id}",
    ):
        status, to = await asked(other, "GET", path)
        assert status == 307
        assert URL(to) == URL(f"{named.addresses.admin_url}/admin/v2/{path}", encoded=True)
        assert await asked(named, "GET", path) == (200, "")


async def test_requests_about_a_broker_that_is_not_there_are_not_found(
    two: tuple[BrokerService, BrokerService],
) -> None:
    for path in ("brokers/standalone/nobody:1/ownedNamespaces", "brokers/health?brokerId=nobody:1"):
        assert await asked(two[1], "GET", path) == (404, "")


async def test_leader_says_that_it_leads(two: tuple[BrokerService, BrokerService]) -> None:
    leader, other = two
    name = parse_topic_name("persistent://public/default/elsewhere")
    while leader.registry.ownership.bundle_of(name) == leader.registry.ownership.bundle_of(TOPIC):
        name = parse_topic_name(f"{name}-1")
    await other.registry.ownership.owner_of(name, authoritative=True)
    path = f"persistent/public/default/{name.local}/stats"
    to = f"{other.addresses.admin_url}/admin/v2/{path}?authoritative=true"
    assert await asked(leader, "GET", f"{path}?authoritative=false") == (307, to)


@pytest.mark.parametrize(
    "path",
    [
        "persistent/public/default",
        f"{PATH}/partitions",
        f"{PATH}/permissions",
        "namespaces/public/default",
        "namespaces/public/default/bundles",
        "brokers",
    ],
)
async def test_other_requests_are_answered_by_every_broker(
    two: tuple[BrokerService, BrokerService], path: str
) -> None:
    for broker in two:
        assert (await asked(broker, "GET", path))[0] != 307


async def test_missing_namespace_is_refused_where_it_is_asked_for(
    two: tuple[BrokerService, BrokerService],
) -> None:
    assert (await asked(two[1], "GET", "persistent/public/missing/t/stats"))[0] == 404


async def test_owner_is_asked_for_the_console(two: tuple[BrokerService, BrokerService]) -> None:
    """A browser follows no redirect to another broker."""
    owner, other = two
    async with ClientSession(other.addresses.admin_url, headers={FROM_CONSOLE: "1"}) as session:
        async with session.put(f"/admin/v2/{PATH}/subscription/s", json={}, allow_redirects=False) as made:
            assert made.status == 204
        assert "s" in (await owner.registry.get(TOPIC, create=False)).subscriptions
        async with session.get(f"/admin/v2/magnetar/console/topics/{PATH}") as shown:
            assert (await shown.json())["owner"]["broker"] == owner.registry.ownership.owner.broker_id
        async with session.put(f"/admin/v2/{PATH}/subscription/s", json={}) as refused:
            assert (refused.status, (await refused.json())["reason"]) == (
                409,
                "Subscription already exists for topic",
            )


async def test_owner_is_not_asked_for_a_role_that_it_could_refuse() -> None:
    """The asked broker has rights of its own; those of a role without all rights are checked by the owner."""
    first = MemoryMetadataStore()
    settings = (
        "authenticationEnabled=true",
        "authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        f"tokenSecretKey={SECRET_URL}",
        "authorizationEnabled=true",
        "superUserRoles=admin",
        "brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken",
        f"brokerClientAuthenticationParameters=token:{token({'sub': 'admin'})}",
    )
    async with AsyncExitStack() as stack:
        owner, other = [
            await stack.enter_async_context(memory_broker(*settings, metadata=store))
            for store in (first, first.another())
        ]
        await owner.registry.ownership.owner_of(TOPIC, authoritative=True)
        await owner.registry.get(TOPIC, create=True)
        await other.namespaces.change_permissions(
            TOPIC.namespace, lambda _: NamespacePermissions(roles={"user": frozenset((Action.CONSUME,))})
        )
        answers = {}
        session = await stack.enter_async_context(ClientSession(other.addresses.admin_url))
        for role in ("user", "admin"):
            headers = {FROM_CONSOLE: "1", "Authorization": f"Bearer {token({'sub': role})}"}
            async with session.get(
                f"/admin/v2/{PATH}/stats", headers=headers, allow_redirects=False
            ) as answer:
                answers[role] = answer.status
    assert answers == {"user": 307, "admin": 200}
