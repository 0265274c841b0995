"""Rights on the console: of superusers, roles of one namespace, and clients without a token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession

from broker.admin.rights.table import RIGHTS
from broker.admin.server import create_app
from broker.compose.broker_service import BrokerService
from broker.compose.console import Console
from broker.console.access import ACTIONS, CONFIGURE, CONSOLE, ON_SUBSCRIPTION
from tests.support.memory_broker import memory_broker
from tests.support.tokens import SECRET_URL, token

PATH = "/admin/v2/magnetar/console"
SETTINGS = (
    "authenticationEnabled=true",
    "authorizationEnabled=true",
    "superUserRoles=root",
    "authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
    f"tokenSecretKey={SECRET_URL}",
    # The console must not depend on the broker's own client.
    "brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken",
    "brokerClientAuthenticationParameters=token:none",
)
OWN, FOREIGN = "persistent://public/own/mine", "persistent://public/default/other"


@pytest.fixture
async def broker() -> AsyncIterator[BrokerService]:
    async with memory_broker(*SETTINGS) as service:
        yield service


@pytest.fixture
async def admin(broker: BrokerService) -> AsyncIterator[ClientSession]:
    """Role `reader` may consume in the namespace `public/own`, which has one of the two topics."""
    async with ClientSession(broker.addresses.admin_url) as session:
        for method, path, body in (
            ("PUT", "/admin/v2/namespaces/public/own", {}),
            ("POST", "/admin/v2/namespaces/public/own/permissions/reader", ["consume"]),
            ("PUT", "/admin/v2/persistent/public/own/mine", {}),
            ("PUT", "/admin/v2/persistent/public/default/other", {}),
        ):
            async with session.request(method, path, json=body, headers=of("root")) as answer:
                assert answer.status == 204, await answer.text()
        for name in ("own/mine", "default/other"):
            async with session.get(f"/admin/v2/persistent/public/{name}/stats", headers=of("root")) as answer:
                assert answer.status == 200  # The topic is open now.
        yield session


def of(role: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token({'sub': role})}"}


async def asked(admin: ClientSession, path: str, role: str, status: int = 200) -> Any:
    async with admin.get(f"{PATH}/{path}", headers=of(role)) as answer:
        assert answer.status == status, await answer.text()
        return await answer.json()


WHOLE_BROKER = ("cache", "bookies", "settings", "overview", "events")


async def test_data_of_the_whole_broker_need_a_superuser(admin: ClientSession) -> None:
    for path in WHOLE_BROKER[:-1]:
        await asked(admin, path, "root")
    for path in WHOLE_BROKER:
        async with admin.get(f"{PATH}/{path}", headers=of("reader")) as answer:
            assert answer.status in (401, 403), path
        async with admin.get(f"{PATH}/{path}") as answer:
            assert answer.status == 401, path


async def test_role_sees_the_topics_of_its_namespaces(admin: ClientSession) -> None:
    found = await asked(admin, "topics", "reader")
    assert [row["topic"] for row in found["topics"]] == [OWN]
    assert (found["total"], found["found"]) == (1, 1)
    assert (await asked(admin, "topics?search=other", "reader"))["found"] == 0
    assert (await asked(admin, "topics", "root"))["total"] == 2
    assert (await asked(admin, "topics/persistent/public/own/mine", "reader"))["topic"] == OWN
    await asked(admin, "topics/persistent/public/default/other", "reader", 401)
    await asked(admin, "messages/persistent/public/default/other/ledger/0/entry/0", "reader", 401)
    assert (await asked(admin, "topics", "nobody"))["total"] == 0


async def test_role_gets_the_events_of_its_topic_alone(admin: ClientSession) -> None:
    async with admin.get(f"{PATH}/events?topic={OWN}", headers=of("reader")) as answer:
        assert answer.status == 200
        assert await answer.content.readline() == b"event: topic\n"
    async with admin.get(f"{PATH}/events?topic={FOREIGN}", headers=of("reader")) as answer:
        assert answer.status == 403


async def test_stream_ends_when_the_right_is_withdrawn(admin: ClientSession) -> None:
    async with admin.get(f"{PATH}/events?topic={OWN}", headers=of("reader")) as answer:
        await answer.content.readline()
        path = "/admin/v2/namespaces/public/own/permissions/reader"
        async with admin.delete(path, headers=of("root")) as removed:
            assert removed.status == 204
        await answer.content.read()


ON_EACH = {"peek", "skip", "reset", "expire", "unsubscribe"}


async def test_rights_are_those_of_the_routes(admin: ClientSession) -> None:
    path = "/admin/v2/persistent/public/own/mine/subscription"
    for name in ("s", "theirs"):
        async with admin.put(f"{path}/{name}", headers=of("root")) as answer:
            assert answer.status == 204, await answer.text()
    grant = "/admin/v2/namespaces/public/own/permissions/subscription/theirs"
    async with admin.post(grant, json=["another"], headers=of("root")) as answer:
        assert answer.status == 204, await answer.text()
    root = await asked(admin, f"rights?topic={OWN}", "root")
    assert (root["role"], root["console"], root["configure"]) == ("root", True, True)
    assert set(root["topic"].values()) == {True}
    assert root["subscriptions"] == dict.fromkeys(("s", "theirs"), dict.fromkeys(ON_EACH, True))
    reader = await asked(admin, f"rights?topic={OWN}", "reader")
    assert (reader["console"], reader["configure"]) == (False, False)
    assert {action for action, allowed in reader["topic"].items() if allowed} == {"look", "read"}
    assert reader["subscriptions"] == {
        "s": dict.fromkeys(ON_EACH, True),
        "theirs": dict.fromkeys(ON_EACH, False),
    }
    # The routes say the same.
    messages = "messages/persistent/public/own/mine/subscription"
    await asked(admin, f"{messages}/s", "reader")
    await asked(admin, f"{messages}/theirs", "reader", 401)
    for name, status in (("s", 204), ("theirs", 401)):
        async with admin.post(f"{path}/{name}/skip_all", headers=of("reader")) as answer:
            assert answer.status == status, await answer.text()
    foreign = await asked(admin, f"rights?topic={FOREIGN}", "reader")
    assert not any(foreign["topic"].values())
    assert foreign["subscriptions"] == {}
    await asked(admin, "rights?topic=a/b", "reader", 412)


async def test_session_names_the_role_and_the_end_of_its_proof(admin: ClientSession) -> None:
    headers = {"Authorization": f"Bearer {token({'sub': 'reader', 'exp': 4_000_000_000})}"}
    async with admin.get(f"{PATH}/session", headers=headers) as answer:
        found = await answer.json()
    assert (found["role"], found["console"], found["expiresAtMs"]) == ("reader", False, 4_000_000_000_000)
    assert (found["authentication"], found["methods"], found["pages"]) == (True, ["token"], 0)


async def test_static_files_need_no_token(admin: ClientSession) -> None:
    async with admin.get("/", headers={"Accept": "text/html"}) as answer:
        assert answer.status in (200, 404)
    async with admin.get("/console/nosuch.js") as answer:
        assert answer.status == 404
    async with admin.get("/consolex") as answer:
        assert answer.status == 401


async def test_every_action_is_a_route_and_every_route_has_a_row(broker: BrokerService) -> None:
    topics, clients = broker.registry.topics, broker.net.connections
    console = Console(
        broker.environment, topics, broker.registry.dormant, broker.cache, clients, broker.loop_watch
    )
    app = await create_app(broker, console.pages.routes())
    served = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None
    }
    for method, template in served:
        if "console" in template:
            assert RIGHTS.find(method, template) is not None, template
    shapes = {(method, template.count("/"), template.rpartition("/")[2][:4]) for method, template in served}
    for method, template in (*ACTIONS.values(), *ON_SUBSCRIPTION.values(), CONFIGURE, CONSOLE):
        row = RIGHTS.find(method, template)
        assert row is not None, template
        assert (method, template.count("/"), template.rpartition("/")[2][:4]) in shapes or "{" in template
