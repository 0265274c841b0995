"""The bundles of a broker over REST, with what isolation policies say of them."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from tests.broker.admin.test_rest import call

POLICIES = "/admin/v2/clusters/standalone/namespaceIsolationPolicies"
TOPIC = "/admin/v2/persistent/public/default/t"


async def statuses(admin: ClientSession, broker: BrokerService) -> list[object]:
    name = broker.addresses.broker_id
    status, found = await call(admin, f"GET /admin/v2/brokers/standalone/{name}/ownedNamespaces")
    assert status == 200
    assert isinstance(found, dict)
    return list(found.values())


async def test_owned_bundles_are_shared_without_a_policy(admin: ClientSession, broker: BrokerService) -> None:
    await call(admin, f"PUT {TOPIC}")
    shared = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    assert await statuses(admin, broker) == [shared]


@pytest.mark.parametrize(
    ("primary", "secondary", "expected"),
    [(".*", [], "primary"), ("other", [".*"], "secondary"), ("other", [], "shared")],
)
async def test_owned_bundles_tell_the_policy_of_their_namespace(
    admin: ClientSession, broker: BrokerService, primary: str, secondary: list[str], expected: str
) -> None:
    await call(admin, f"PUT {TOPIC}")
    policy = {
        "namespaces": ["public/default"],
        "primary": [primary],
        "secondary": secondary,
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "80"},
        },
    }
    assert (await call(admin, f"POST {POLICIES}/p", policy))[0] == 204
    controlled = {"broker_assignment": expected, "is_controlled": True, "is_active": True}
    assert await statuses(admin, broker) == [controlled]
