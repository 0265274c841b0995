"""Failure domains and isolation policies over REST, as Pulsar has them; tests/broker/cluster/test_balance.py: who obeys."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from tests.broker.admin.test_rest import call, refusal

CLUSTERS = "/admin/v2/clusters"
FAILOVER = {"policy_type": "min_available", "parameters": {"min_limit": "1", "usage_threshold": "80"}}
POLICY = {
    "namespaces": ["public/a.*"],
    "primary": ["127.*"],
    "secondary": [],
    "auto_failover_policy": FAILOVER,
}


async def test_broker_is_in_one_failure_domain(admin: ClientSession) -> None:
    domains = f"{CLUSTERS}/standalone/failureDomains"
    two = {"brokers": ["a:8080", "b:8080"]}
    assert await call(admin, f"POST {domains}/d%20%2F1", two) == (204, "")
    reason = "[a:8080] already exists in d /1"
    assert await refusal(admin, f"POST {domains}/d2", {"brokers": ["a:8080"]}) == (409, reason)
    assert await call(admin, f"GET {domains}") == (200, {"d /1": two})
    assert await call(admin, f"GET {domains}/d%20%2F1") == (200, two)
    assert await call(admin, f"DELETE {domains}/d%20%2F1") == (200, "")
    reason = "Domain-name d or cluster standalone does not exist"
    assert await refusal(admin, f"DELETE {domains}/d") == (404, reason)
    unknown = f"{CLUSTERS}/nope/failureDomains"
    assert await call(admin, f"GET {unknown}") == (200, {})
    assert await refusal(admin, f"POST {unknown}/d", two) == (412, "Cluster nope does not exist.")


async def test_isolation_policies_name_brokers_and_namespaces(
    admin: ClientSession, broker: BrokerService
) -> None:
    policies = f"{CLUSTERS}/standalone/namespaceIsolationPolicies"
    reason = "NamespaceIsolationPolicies for cluster standalone does not exist"
    assert await refusal(admin, f"GET {policies}") == (404, reason)
    assert await call(admin, f"POST {policies}/p", POLICY) == (204, "")
    other = {**POLICY, "namespaces": ["public/b"], "primary": ["other"], "secondary": ["127.0.0.1"]}
    assert await call(admin, f"POST {policies}/q", other) == (204, "")
    assert await call(admin, f"GET {policies}") == (200, {"p": POLICY, "q": other})
    name = broker.addresses.admin_url.partition("://")[2]
    own = {
        "brokerName": name,
        "policyName": "q",
        "namespaceRegex": ["public/a.*", "public/b"],
        "primary": True,
    }
    assert await call(admin, f"GET {policies}/brokers") == (200, [own])
    assert await call(admin, f"GET {policies}/brokers/{name}") == (200, own)
    none = {"brokerName": "nope:1", "namespaceRegex": [], "primary": False}
    assert await call(admin, f"GET {policies}/brokers/nope:1") == (200, none)
    assert await call(admin, f"DELETE {policies}/p") == (204, "")
    reason = "Cannot find NamespaceIsolationPolicy p for cluster standalone"
    assert await refusal(admin, f"GET {policies}/p") == (404, reason)


async def test_isolation_policies_of_an_unknown_cluster_are_refused_as_by_pulsar(
    admin: ClientSession,
) -> None:
    policies, reason = f"{CLUSTERS}/nope/namespaceIsolationPolicies", "Cluster nope does not exist."
    assert await refusal(admin, f"GET {policies}") == (404, reason)
    for path in ("p", "brokers", "brokers/nope:1"):
        assert await refusal(admin, f"GET {policies}/{path}") == (412, reason)
    assert await refusal(admin, f"POST {policies}/p", POLICY) == (412, reason)
    assert await refusal(admin, f"DELETE {policies}/p") == (412, reason)


@pytest.mark.parametrize(
    "change",
    [
        {"namespaces": []},
        {"primary": []},
        {"secondary": None},
        {"auto_failover_policy": None},
        {"auto_failover_policy": {**FAILOVER, "parameters": {}}},
        {"auto_failover_policy": {**FAILOVER, "policy_type": "other"}},
        {"auto_failover_policy": {**FAILOVER, "parameters": {"min_limit": "x", "usage_threshold": "1"}}},
        {"namespaces": ["public/("]},
        {"primary": "127.*"},
    ],
    ids=str,
)
async def test_isolation_policy_is_refused_when_it_is_incomplete(
    admin: ClientSession, change: dict[str, object]
) -> None:
    policies = f"{CLUSTERS}/standalone/namespaceIsolationPolicies"
    assert (await call(admin, f"POST {policies}/p", {**POLICY, **change}))[0] == 400
    assert (await call(admin, f"GET {policies}"))[0] == 404
