"""`/admin/v2/clusters/{cluster}/namespaceIsolationPolicies`: the brokers that shall serve certain namespaces.

Stored, checked and shown. One broker serves all namespaces, so there is nothing to isolate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import re2
from aiohttp import web

from broker.admin.cluster.brokers import broker_id
from broker.admin.http.answers import answer, body_of, done, refused
from broker.admin.http.fields import checked_fields, fields_of
from broker.admin.service_view import BROKER, CLUSTERS
from broker.service.namespaces.namespaces import Json
from broker.service.policies.forms import Choice, Form, Names, Texts
from foundation.model.errors import BrokerError

_POLICIES = "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies"
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


async def policies(request: web.Request) -> web.Response:
    """Returns all policies by name; 404 where none was ever stored."""
    return answer({**await request.app[CLUSTERS].isolation_policies(request.match_info["cluster"])})


async def get(request: web.Request) -> web.Response:
    """Returns one policy; 404 if it does not exist."""
    cluster, name = request.match_info["cluster"], request.match_info["policy"]
    found = (await request.app[CLUSTERS].isolation_policies(cluster)).get(name)
    if found is None:
        return refused(404, f"Cannot find NamespaceIsolationPolicy {name} for cluster {cluster}")
    return answer(found)


async def put(request: web.Request) -> web.Response:
    """Stores a policy. 400 for one that is incomplete."""
    cluster, name = request.match_info["cluster"], request.match_info["policy"]
    policy = await _policy(request, name)
    await request.app[CLUSTERS].set_isolation_policy(cluster, name, policy)
    return done()


async def delete(request: web.Request) -> web.Response:
    """Removes a policy; a missing one is no error, as in Pulsar."""
    cluster, name = request.match_info["cluster"], request.match_info["policy"]
    await request.app[CLUSTERS].set_isolation_policy(cluster, name, None)
    return done()


async def brokers(request: web.Request) -> web.Response:
    """Returns this broker with the namespaces that policies give it."""
    found = await request.app[CLUSTERS].isolation_policies(request.match_info["cluster"])
    return answer([_assigned(broker_id(request.app[BROKER]), found)])


async def broker(request: web.Request) -> web.Response:
    """Returns the same for one broker, also for one that does not exist."""
    found = await request.app[CLUSTERS].isolation_policies(request.match_info["cluster"])
    return answer(_assigned(request.match_info["broker"], found))


def _assigned(name: str, policies: Mapping[str, Json]) -> dict[str, Json]:
    """Returns the namespaces that policies give a broker as a primary or a secondary one."""
    namespaces: list[Json] = []
    last, primary = "", False
    for policy_name, policy in policies.items():
        assert isinstance(policy, dict), "checked when it was stored"
        is_primary = _names_broker(policy.get("primary"), name)
        if is_primary or _names_broker(policy.get("secondary"), name):
            namespaces += [one for one in cast("list[Json]", policy["namespaces"]) if one not in namespaces]
            last, primary = policy_name, primary or is_primary
    named: dict[str, Json] = {"policyName": last} if last else {}
    return {"brokerName": name, **named, "namespaceRegex": namespaces, "primary": primary}


def _names_broker(patterns: Json, name: str) -> bool:
    # A broker's name is host:port; administrators write patterns for the host, as in Pulsar's documentation.
    names = (name, name.rpartition(":")[0])
    return isinstance(patterns, list) and any(
        pattern.fullmatch(one) for pattern in map(_compiled, cast("list[str]", patterns)) for one in names
    )


def _compiled(pattern: str) -> Any:
    # RE2 needs linear time; Python's `re` lets a short pattern run for minutes.
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


async def _policy(request: web.Request, name: str) -> dict[str, Json]:
    words = f"Invalid format of input policy data. policy: {name}"
    body = await body_of(request)
    policy = await fields_of(request, _FIELDS)
    if policy is None or not isinstance(body, dict):
        raise IsolationRefused(f"{words}; the body is empty")
    failover = body.get(_FAILOVER)
    if isinstance(failover, dict):
        policy[_FAILOVER] = failover = checked_fields(failover, _FAILOVER_FIELDS)
    for key in ("namespaces", "primary"):
        if not policy.get(key):
            raise IsolationRefused(f"{words}; {key} must have at least one pattern")
    if "secondary" not in policy:
        raise IsolationRefused(f"{words}; secondary must be a list, [] for none")
    if not isinstance(failover, dict) or "policy_type" not in failover:
        raise IsolationRefused(f"{words}; {_FAILOVER} must have policy_type=min_available")
    parameters = failover.get("parameters")
    for key in _FAILOVER_PARAMETERS:
        if not isinstance(parameters, dict) or not re.fullmatch("[0-9]{1,9}", str(parameters.get(key))):
            raise IsolationRefused(f"{words}; {_FAILOVER}.parameters.{key} must be a whole number")
    for key in ("namespaces", "primary", "secondary"):
        _check_patterns(f"{words}; {key}", cast("list[str]", policy[key]))
    return policy


def _check_patterns(words: str, patterns: Iterable[str]) -> None:
    for pattern in patterns:
        try:
            _compiled(pattern)
        except re2.error as error:
            raise IsolationRefused(f"{words} has the pattern {pattern[:50]}: {error}") from None


ISOLATION_ROUTES = (
    web.get(_POLICIES, policies),
    web.get(_POLICIES + "/brokers", brokers),
    web.get(_POLICIES + "/brokers/{broker}", broker),
    web.get(_POLICIES + "/{policy}", get),
    web.post(_POLICIES + "/{policy}", put),
    web.delete(_POLICIES + "/{policy}", delete),
)
"""The routes; `brokers` is a fixed word and cannot be the name of a policy in a GET, as in Pulsar."""
