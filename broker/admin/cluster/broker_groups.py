"""Groups of brokers of a cluster: failure domains, whose brokers may fail together, and isolation policies, which name the
brokers that shall serve certain namespaces.

The leader obeys both when it chooses the owner of a bundle (`broker/cluster/placement.py`, `isolation.py`). A bundle that
has an owner stays there until it is unloaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from aiohttp import web

from broker.admin.http.answers import answering, body_of, empty
from broker.admin.http.fields import checked_fields, fields_of
from broker.admin.service_view import BROKER, CLUSTERS
from broker.cluster.isolation import KEYS, fault_of, names_broker, patterns
from broker.service.namespaces.clusters import BROKERS, ClusterNotFound
from broker.service.policies.forms import Choice, Form, Names, Texts
from foundation.model.errors import BrokerError
from foundation.value import Json

_CLUSTER: Final = "/admin/v2/clusters/{cluster}"
_DOMAINS: Final = _CLUSTER + "/failureDomains"
_POLICIES: Final = _CLUSTER + "/namespaceIsolationPolicies"
_DOMAIN_FIELDS: Final[Mapping[str, Form[Any]]] = {BROKERS: Names()}
_FIELDS: Final[Mapping[str, Form[Any]]] = {
    "namespaces": Names(),
    "primary": Names(),
    "secondary": Names(),
    "unload_scope": Choice("all_matching", "none", "changed"),
}
_FAILOVER: Final = "auto_failover_policy"
_FAILOVER_FIELDS: Final[Mapping[str, Form[Any]]] = {
    "parameters": Texts(),
    "policy_type": Choice("min_available"),
}
_FAILOVER_PARAMETERS: Final = ("min_limit", "usage_threshold")


class IsolationRefused(BrokerError):
    """The policy is incomplete, or a member of it is wrong."""

    status = 400


async def domains(request: web.Request) -> Json:
    """Returns the failure domains of a cluster by name; {} for an unknown cluster, as in Pulsar."""
    return {**await request.app[CLUSTERS].domains(request.match_info["cluster"])}


async def domain(request: web.Request) -> Json:
    """Returns one failure domain; 404 if it does not exist."""
    return await request.app[CLUSTERS].domain(*_path(request))


async def set_domain(request: web.Request) -> None:
    """Stores a failure domain; 409 for a broker that is in another one."""
    data = await fields_of(request, _DOMAIN_FIELDS) or {}
    await request.app[CLUSTERS].set_domain(*_path(request), data)


async def delete_domain(request: web.Request) -> None:
    """Deletes a failure domain; 404 if it does not exist."""
    await request.app[CLUSTERS].delete_domain(*_path(request))


async def policies(request: web.Request) -> Json:
    """Returns all isolation policies by name; 404 where none was ever stored, and for an unknown cluster."""
    clusters, cluster = request.app[CLUSTERS], request.match_info["cluster"]
    if not await clusters.exists(cluster):
        # Pulsar's answer to this request alone. It refuses the others about an unknown cluster with 412.
        raise ClusterNotFound(f"Cluster {cluster} does not exist.")
    return {**await clusters.isolation_policies(cluster)}


async def policy(request: web.Request) -> Json:
    """Returns one isolation policy; 404 if it does not exist."""
    return await request.app[CLUSTERS].isolation_policy(*_path(request))


async def set_policy(request: web.Request) -> None:
    """Stores an isolation policy. 400 for one that is incomplete."""
    cluster, name = _path(request)
    await request.app[CLUSTERS].set_isolation_policy(cluster, name, await _policy(request, name))


async def remove_policy(request: web.Request) -> None:
    """Removes an isolation policy; a missing one is no error, as in Pulsar."""
    await request.app[CLUSTERS].set_isolation_policy(*_path(request), None)


async def brokers(request: web.Request) -> Json:
    """Returns each broker with the namespaces that policies give it."""
    found = await request.app[CLUSTERS].isolation_policies(request.match_info["cluster"])
    return [_assigned(name, found) for name in sorted(request.app[BROKER].registry.ownership.brokers)]


async def broker(request: web.Request) -> Json:
    """Returns the same for one broker, also for one that does not exist."""
    cluster, name = _path(request)
    return _assigned(name, await request.app[CLUSTERS].isolation_policies(cluster))


def _path(request: web.Request) -> tuple[str, str]:
    cluster, name = request.match_info.values()
    return cluster, name


def _assigned(name: str, policies: Mapping[str, Json]) -> dict[str, Json]:
    """Returns the namespaces that policies give a broker as a primary or a secondary one."""
    namespaces: list[Json] = []
    last, primary = "", False
    for policy_name, policy in policies.items():
        if not isinstance(policy, dict):
            continue  # Stored by another program; placement logs it.
        is_primary = names_broker(policy, "primary", name)
        if is_primary or names_broker(policy, "secondary", name):
            namespaces += [one for one in patterns(policy, "namespaces") if one not in namespaces]
            last, primary = policy_name, primary or is_primary
    named: dict[str, Json] = {"policyName": last} if last else {}
    return {"brokerName": name, **named, "namespaceRegex": namespaces, "primary": primary}


async def _policy(request: web.Request, name: str) -> dict[str, Json]:
    words = f"Invalid format of input policy data. policy: {name}"
    body = await body_of(request)
    policy = await fields_of(request, _FIELDS)
    if policy is None or not isinstance(body, dict):
        raise IsolationRefused(f"{words}; the body is empty")
    failover = body.get(_FAILOVER)
    if isinstance(failover, dict):
        policy[_FAILOVER] = checked_fields(failover, _FAILOVER_FIELDS)
    if (fault := next(_faults(policy), None)) is not None:
        raise IsolationRefused(f"{words}; {fault}")
    return policy


def _faults(policy: Mapping[str, Json]) -> Iterator[str]:
    for key in ("namespaces", "primary"):
        if not policy.get(key):
            yield f"{key} must have at least one pattern"
    if "secondary" not in policy:
        yield "secondary must be a list, [] for none"
    failover = cast("dict[str, Json]", policy.get(_FAILOVER) or {})
    if "policy_type" not in failover:
        yield f"{_FAILOVER} must have policy_type=min_available"
    parameters = cast("dict[str, Json]", failover.get("parameters") or {})
    for key in _FAILOVER_PARAMETERS:
        if not re.fullmatch("[0-9]{1,9}", str(parameters.get(key))):
            yield f"{_FAILOVER}.parameters.{key} must be a whole number"
    for key in KEYS:
        for pattern in patterns(policy, key):
            if (reason := fault_of(pattern)) is not None:
                yield f"{key} has the pattern {pattern[:50]!a}: {reason}"


BROKER_GROUP_ROUTES: Final = (
    web.get(_DOMAINS, answering(domains)),
    web.get(_DOMAINS + "/{domain}", answering(domain)),
    web.post(_DOMAINS + "/{domain}", answering(set_domain)),
    # Pulsar answers 200 here.
    web.delete(_DOMAINS + "/{domain}", answering(delete_domain, empty)),
    web.get(_POLICIES, answering(policies)),
    # `brokers` is a fixed word and cannot be the name of a policy in a GET, as in Pulsar.
    web.get(_POLICIES + "/brokers", answering(brokers)),
    web.get(_POLICIES + "/brokers/{broker}", answering(broker)),
    web.get(_POLICIES + "/{policy}", answering(policy)),
    web.post(_POLICIES + "/{policy}", answering(set_policy)),
    web.delete(_POLICIES + "/{policy}", answering(remove_policy)),
)
"""The routes."""
