"""Resource groups over REST: their rates, the namespaces in them, and what their topics may publish and deliver."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from aiohttp import ClientSession

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.compose.broker_service import BrokerService
from broker.service.limits.publish_limit import PublishLimit
from tests.broker.admin.test_rest import call, persistent, refusal
from tests.support.memory_broker import memory_broker

GROUPS = "/admin/v2/resourcegroups"
GROUP = "/admin/v2/namespaces/public/default/resourcegroup"
NO_LIMIT = dict.fromkeys(
    ("publishRateInMsgs", "publishRateInBytes", "dispatchRateInMsgs", "dispatchRateInBytes"), -1
)
JSON = {"Content-Type": "application/json"}
MISSING = "ResourceGroup does not exist"


async def test_group_is_created_changed_by_members_and_deleted(admin: ClientSession) -> None:
    assert await call(admin, f"GET {GROUPS}") == (200, [])
    assert await refusal(admin, f"GET {GROUPS}/g") == (404, MISSING)
    assert await refusal(admin, f"DELETE {GROUPS}/g") == (404, MISSING)
    assert await call(admin, f"PUT {GROUPS}/g", {"publishRateInMsgs": 1000}) == (204, "")
    assert await call(admin, f"PUT {GROUPS}/g", {"dispatchRateInBytes": 77, "unknown": 1}) == (204, "")
    rates = {**NO_LIMIT, "publishRateInMsgs": 1000, "dispatchRateInBytes": 77}
    assert await call(admin, f"GET {GROUPS}/g") == (200, rates)
    assert await call(admin, f"PUT {GROUPS}/a%20b", {}) == (204, "")
    assert await call(admin, f"GET {GROUPS}") == (200, ["a b", "g"])
    bodies: tuple[object, ...] = (None, [], {"publishRateInMsgs": "x"}, {"publishRateInMsgs": 3 * 10**9})
    for body in bodies:
        assert (await call(admin, f"PUT {GROUPS}/g", body))[0] == 400
    assert await call(admin, f"GET {GROUPS}/g") == (200, rates)
    assert await call(admin, f"DELETE {GROUPS}/g") == (204, "")
    assert await call(admin, f"GET {GROUPS}") == (200, ["a b"])


async def test_namespace_is_in_one_group_which_stays_until_it_leaves(admin: ClientSession) -> None:
    for name in ("g", "h"):
        await call(admin, f"PUT {GROUPS}/{name}", {})
    assert await call(admin, f"GET {GROUP}") == (200, "")
    assert await refusal(admin, f"POST {GROUP}/nosuch") == (412, MISSING)
    assert await call(admin, f"POST {GROUP}/g") == (204, "")
    assert await call(admin, f"GET {GROUP}") == (200, "g")
    shown = (await call(admin, "GET /admin/v2/namespaces/public/default"))[1]
    assert isinstance(shown, dict)
    assert shown["resource_group_name"] == "g"
    assert await refusal(admin, f"DELETE {GROUPS}/g") == (412, "ResourceGroup is in use")
    assert await call(admin, f"POST {GROUP}/h") == (204, "")
    assert await call(admin, f"DELETE {GROUPS}/g") == (204, "")
    assert await call(admin, f"DELETE {GROUP}") == (204, "")
    assert await call(admin, f"DELETE {GROUP}") == (204, "")
    assert await call(admin, f"GET {GROUP}") == (200, "")
    missing = "/admin/v2/namespaces/public/nope/resourcegroup"
    assert (await refusal(admin, f"GET {missing}"))[0] == 404
    assert (await refusal(admin, f"POST {missing}/h"))[0] == 404


async def test_group_of_a_new_namespace_must_exist(admin: ClientSession) -> None:
    line = "PUT /admin/v2/namespaces/public/n"
    assert await refusal(admin, line, {"resource_group_name": "g"}) == (412, MISSING)
    await call(admin, f"PUT {GROUPS}/g", {})
    assert await call(admin, line, {"resource_group_name": "g"}) == (204, "")
    assert await call(admin, "GET /admin/v2/namespaces/public/n/resourcegroup") == (200, "g")


async def test_group_does_not_go_while_a_namespace_joins_it(admin: ClientSession) -> None:
    await call(admin, f"PUT {GROUPS}/g", {})
    joined, deleted = await asyncio.gather(call(admin, f"POST {GROUP}/g"), call(admin, f"DELETE {GROUPS}/g"))
    assert (joined[0], deleted[0]) in ((204, 412), (412, 204))


async def test_topics_of_a_group_share_its_rates(admin: ClientSession, broker: BrokerService) -> None:
    await call(admin, "PUT /admin/v2/namespaces/public/n")
    for namespace in ("default", "n"):
        await call(admin, f"PUT /admin/v2/persistent/public/{namespace}/t")
    first = await persistent(broker, "t")
    second = broker.registry.topics["persistent://public/n/t"]
    no_limits: tuple[PublishLimit, ...] = ()
    await call(admin, f"PUT {GROUPS}/g", {})
    await call(admin, f"POST {GROUP}/g")
    await call(admin, "POST /admin/v2/namespaces/public/n/resourcegroup/g")
    assert first.publish_limits == second.publish_limits == no_limits
    await call(admin, f"PUT {GROUPS}/g", {"publishRateInMsgs": 5, "dispatchRateInMsgs": 7})
    assert [limit.rate.messages for limit in first.publish_limits] == [5]
    assert first.publish_limits[0] is second.publish_limits[0]
    limits = second.rates.dispatch_limits(None)
    assert limits is not None
    assert limits.available(0)[0] == 7
    await call(admin, f"DELETE {GROUP}")
    assert first.publish_limits == no_limits
    assert [limit.rate.messages for limit in second.publish_limits] == [5]
    await call(admin, f"PUT {GROUPS}/g", {"publishRateInMsgs": 0, "dispatchRateInMsgs": -1})
    assert (second.publish_limits, second.rates.dispatch_limits(None)) == (no_limits, None)


async def test_group_that_another_broker_has_just_made_or_used_is_known() -> None:
    store = MemoryMetadataStore()
    async with AsyncExitStack() as stack:
        maker, other = [
            await stack.enter_async_context(memory_broker(metadata=one)) for one in (store, store.another())
        ]
        makers, others = [
            await stack.enter_async_context(ClientSession(broker.addresses.admin_url, headers=JSON))
            for broker in (maker, other)
        ]
        # Their watches tell too late.
        await other.registry.resource_groups.close()
        await other.namespaces.stored.policies.close()
        assert await call(makers, f"PUT {GROUPS}/g", {"publishRateInMsgs": 1}) == (204, "")
        assert (await call(others, f"GET {GROUPS}/g"))[0] == 200
        assert await call(makers, f"PUT {GROUPS}/h", {}) == (204, "")
        assert await call(others, f"POST {GROUP}/h") == (204, "")
        assert await call(makers, f"PUT {GROUPS}/i", {}) == (204, "")
        assert await call(makers, f"POST {GROUP}/i") == (204, "")
        assert await refusal(others, f"DELETE {GROUPS}/i") == (412, "ResourceGroup is in use")
        assert await refusal(others, f"GET {GROUPS}/%2E%2E") == (404, MISSING)
