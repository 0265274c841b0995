"""Requests about a tenant or namespace that another broker has made or changed, before this one's watch tells of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Final

import pytest
from aiohttp import ClientSession
from yarl import URL

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Versioned
from broker.compose.broker_service import BrokerService
from foundation.value import Json
from tests.support.memory_broker import memory_broker
from tests.support.tokens import SECRET_URL, token

TENANT: Final[Mapping[str, Json]] = {"adminRoles": ["user"], "allowedClusters": ["standalone"]}
SETTINGS = (
    "authenticationEnabled=true",
    "authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
    f"tokenSecretKey={SECRET_URL}",
    "authorizationEnabled=true",
    "superUserRoles=admin",
)
MORE = ("forceDeleteTenantAllowed=true", "magnetarHttpRequestTimeoutSeconds=1")
MISSING = ("public/missing", "public/..", "../default", "./.", "a%20b/c", "public/n%2Fm")


class Behind(MemoryMetadataStore):
    """A session at a server of ZooKeeper that may be behind the others."""

    def __init__(self) -> None:
        super().__init__()
        self.late: set[str] = set()
        """Keys that reads do not find before a sync."""
        self.reads: list[str] = []
        self.answers = asyncio.Event()
        self.answers.set()

    async def get(self, key: str) -> Versioned | None:
        self.reads.append(key)
        await self.answers.wait()
        return None if key in self.late else await super().get(key)

    async def sync(self) -> None:
        self.late.clear()


class Two:
    """A broker that makes tenants, and another one whose watches are late."""

    def __init__(
        self, maker: BrokerService, other: BrokerService, store: Behind, http: ClientSession
    ) -> None:
        self.store = store
        """That of the other one."""
        self._maker, self._other, self._http = maker, other, http

    async def make(self, name: str) -> None:
        """Makes a tenant, or a namespace."""
        if "/" in name:
            await self._maker.namespaces.create(name)
        else:
            await self._maker.namespaces.create_tenant(name, TENANT)
        self.store.late.add(f"/admin/policies/{name}")
        known = {*self._other.namespaces.tenants(), *self._other.namespaces.names(name.partition("/")[0])}
        assert name not in known, "its watch is late"

    async def ask(self, method: str, path: str, body: object = None, role: str = "admin") -> int:
        """Returns the other broker's status."""
        # As it is written: a client may send a name of dots.
        url = URL(f"{self._other.addresses.admin_url}/admin/v2/{path}", encoded=True)
        headers = {"Authorization": f"Bearer {token({'sub': role})}"}
        async with self._http.request(method, url, json=body, headers=headers) as answer:
            return answer.status


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    store = Behind()
    async with AsyncExitStack() as stack:
        maker, other = [
            await stack.enter_async_context(memory_broker(*SETTINGS, *MORE, metadata=one))
            for one in (store.another(), store)
        ]
        http = await stack.enter_async_context(ClientSession())
        await other.namespaces.stored.tenants.close()
        await other.namespaces.stored.policies.close()
        yield Two(maker, other, store, http)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "tenants/g", None, 200),
        ("POST", "tenants/g", TENANT, 204),
        ("PUT", "tenants/g", TENANT, 409),
        ("DELETE", "tenants/g", None, 204),
        ("GET", "namespaces/g", None, 200),
        ("PUT", "namespaces/g/n", None, 204),
    ],
)
async def test_tenant_that_another_broker_has_just_made_is_found(
    two: Two, method: str, path: str, body: object, status: int
) -> None:
    await two.make("g")
    assert await two.ask(method, path, body) == status


async def test_administrator_of_a_tenant_that_another_broker_has_just_made_is_admitted(two: Two) -> None:
    await two.make("g")
    assert await two.ask("PUT", "namespaces/g/n", role="other") == 401
    await two.make("h")
    assert await two.ask("PUT", "namespaces/h/n", role="user") == 204


@pytest.mark.parametrize("force", ["false", "true"])
async def test_tenant_with_a_namespace_that_another_broker_has_just_made_is_not_deleted_before_it(
    two: Two, force: str
) -> None:
    await two.make("g")
    await two.make("g/n")
    assert await two.ask("DELETE", f"tenants/g?force={force}") == (409 if force == "false" else 204)
    left = {key for key in ("g", "g/n") if await two.store.get(f"/admin/policies/{key}")}
    assert left == ({"g", "g/n"} if force == "false" else set())


async def test_unknown_tenant_costs_one_read_and_a_known_one_none(two: Two) -> None:
    two.store.reads.clear()
    for _ in range(2):
        assert await two.ask("GET", "namespaces/missing/n/retention") == 404
    assert two.store.reads == ["/admin/policies/missing"] * 2
    two.store.reads.clear()
    assert await two.ask("GET", "tenants/public") == 200
    assert await two.ask("GET", "persistent/public/default") == 200
    assert two.store.reads == []


async def test_request_ends_at_its_deadline_while_the_store_does_not_answer(two: Two) -> None:
    two.store.answers.clear()
    asked = (
        ("GET", "tenants/missing"),
        ("PUT", "namespaces/missing/n"),
        ("GET", "namespaces/public/default/retention"),
        ("GET", "namespaces/public/default/bundles"),
        ("GET", "persistent/public/missing"),
    )
    assert await asyncio.gather(*(two.ask(*one) for one in asked)) == [504] * len(asked)
    two.store.answers.set()


@pytest.mark.parametrize("name", ["..", "a%20b", "n%2Fm"])
async def test_name_that_no_tenant_has_is_not_read(two: Two, name: str) -> None:
    two.store.reads.clear()
    assert await two.ask("GET", f"tenants/{name}") in (404, 412)
    assert two.store.reads == []


async def test_namespace_that_another_broker_has_just_made_is_found() -> None:
    store = MemoryMetadataStore()
    async with AsyncExitStack() as stack:
        maker, other = [
            await stack.enter_async_context(memory_broker(metadata=one)) for one in (store, store.another())
        ]
        http = await stack.enter_async_context(ClientSession())

        async def ask(url: str, method: str, path: str) -> int:
            async with http.request(method, f"{url}/admin/v2/{path}") as answer:
                return answer.status

        await other.namespaces.stored.policies.close()
        assert await ask(maker.addresses.admin_url, "PUT", "namespaces/public/fresh") == 204
        assert not other.namespaces.exists("public/fresh"), "its watch is late"
        url = other.addresses.admin_url
        assert await ask(url, "PUT", "persistent/public/fresh/t") == 204
        assert await ask(url, "GET", "namespaces/public/fresh") == 200
        for missing in MISSING:
            assert await ask(url, "GET", f"persistent/{missing}/t/stats") in (404, 412), missing


async def test_policies_that_another_broker_has_just_set_are_shown() -> None:
    store = MemoryMetadataStore()
    async with AsyncExitStack() as stack:
        setter, other = [
            await stack.enter_async_context(memory_broker(metadata=one)) for one in (store, store.another())
        ]
        http = await stack.enter_async_context(ClientSession())
        await other.namespaces.stored.policies.close()
        await other.namespaces.stored.local.close()
        for policy, value in (("maxProducersPerTopic", 7), ("antiAffinity", "g")):
            path = f"/admin/v2/namespaces/public/default/{policy}"
            async with http.post(setter.addresses.admin_url + path, json=value) as answer:
                assert answer.status == 204
            async with http.get(other.addresses.admin_url + path) as answer:
                assert str(value) in await answer.text(), policy
