"""Resource quotas of bundles over REST: stored and shown."""

from __future__ import annotations

from aiohttp import ClientSession

from tests.broker.admin.test_rest import call, refusal

QUOTAS = "/admin/v2/resource-quotas"
BUNDLE = "0x00000000_0x40000000"


async def test_quota_of_a_bundle_is_kept_until_its_namespace_is_deleted(admin: ClientSession) -> None:
    line = f"{QUOTAS}/public/n/{BUNDLE}"
    await call(admin, "PUT /admin/v2/namespaces/public/n")
    default = await call(admin, f"GET {QUOTAS}")
    assert await call(admin, f"GET {line}") == default
    assert await call(admin, f"POST {line}", {"msgRateIn": 7, "dynamic": False}) == (204, "")
    status, quota = await call(admin, f"GET {line}")
    assert isinstance(quota, dict)
    assert (status, quota["msgRateIn"], quota["memory"], quota["dynamic"]) == (200, 7.0, 0.0, False)
    status, policies = await call(admin, "GET /admin/v2/namespaces/public/n")
    assert isinstance(policies, dict)
    assert "resource_quotas" not in policies
    await call(admin, "DELETE /admin/v2/namespaces/public/n")
    await call(admin, "PUT /admin/v2/namespaces/public/n")
    assert await call(admin, f"GET {line}") == default
    assert (await refusal(admin, f"DELETE {line}"))[0] == 404


async def test_default_quota_holds_for_bundles_without_one(admin: ClientSession) -> None:
    assert await call(admin, f"POST {QUOTAS}", {"msgRateIn": 1}) == (204, "")
    shown = await call(admin, f"GET {QUOTAS}")
    assert shown == await call(admin, f"GET {QUOTAS}/public/default/{BUNDLE}")
    for wrong in ({"memory": -1}, None):
        assert (await refusal(admin, f"POST {QUOTAS}", wrong))[0] == 412
    others: tuple[object, ...] = ([], {"memory": "much"}, {"dynamic": 5})
    for other in others:
        assert (await call(admin, f"POST {QUOTAS}", other))[0] == 400
    assert await call(admin, f"GET {QUOTAS}") == shown


async def test_quota_of_a_range_that_is_no_bundle_is_refused(admin: ClientSession) -> None:
    for bundle in ("xyz", "0x00000000_0x41000000", "0x00000001_0x40000000"):
        assert (await refusal(admin, f"GET {QUOTAS}/public/default/{bundle}"))[0] == 412
        assert (await refusal(admin, f"POST {QUOTAS}/public/default/{bundle}", {}))[0] == 412
    assert (await refusal(admin, f"GET {QUOTAS}/public/nope/{BUNDLE}"))[0] == 412
