"""Requests about a namespace that another broker has made or changed, before this one's watch tells of it."""

from __future__ import annotations

from contextlib import AsyncExitStack

from aiohttp import ClientSession

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from tests.support.memory_broker import memory_broker

MISSING = ("public/missing", "public/..", "../default", "./.", "a%20b/c", "public/n%2Fm")


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
