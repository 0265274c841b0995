"""Isolation policies: which brokers may have the bundles of a namespace, by patterns of their names. Pure functions.

The first policy that names the namespace gives it to its primary brokers; where fewer of them are there than `min_limit`
(`min_available`), to its secondary ones too. A namespace that no policy names goes to brokers that are primary in none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, cast

import re2

from foundation.value import Json


def permitted(namespace: str, brokers: Iterable[str], policies: Mapping[str, Json]) -> set[str]:
    """Returns those of the brokers, named `host:port`, that may have bundles of the namespace."""
    every = list(brokers)
    policy = policy_of(namespace, policies)
    if policy is None:
        known = [one for one in policies.values() if isinstance(one, dict)]
        return {broker for broker in every if not any(names_broker(one, "primary", broker) for one in known)}
    found = {broker for broker in every if names_broker(policy, "primary", broker)}
    if len(found) < _least(policy):
        found.update(broker for broker in every if names_broker(policy, "secondary", broker))
    return found


def policy_of(namespace: str, policies: Mapping[str, Json]) -> dict[str, Json] | None:
    """Returns the first policy that names the namespace."""
    for policy in policies.values():
        if isinstance(policy, dict):
            for pattern in _texts(policy, "namespaces"):
                if compiled(pattern).fullmatch(namespace):
                    return policy
    return None


def status_of(namespace: str, broker: str, policies: Mapping[str, Json]) -> dict[str, Json]:
    """Returns how a broker has a namespace, as Pulsar's `NamespaceOwnershipStatus`."""
    policy, assignment = policy_of(namespace, policies), "shared"
    if policy is not None:
        fitting = (one for one in ("primary", "secondary") if names_broker(policy, one, broker))
        assignment = next(fitting, assignment)
    return {"broker_assignment": assignment, "is_controlled": policy is not None, "is_active": True}


def names_broker(policy: Mapping[str, Json], key: str, name: str) -> bool:
    """Returns True where a pattern of `primary` or `secondary` fits the broker, by its host or by `host:port`."""
    # A broker's name is host:port; administrators write patterns for the host, as in Pulsar's documentation.
    names = (name, name.rpartition(":")[0])
    return any(pattern.fullmatch(one) for pattern in map(compiled, _texts(policy, key)) for one in names)


@lru_cache(256)
def compiled(pattern: str) -> Any:
    """Returns the pattern, ready to be compared. Raises re2.error."""
    # RE2 needs linear time; Python's `re` lets a short pattern run for minutes.
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def _texts(policy: Mapping[str, Json], key: str) -> list[str]:
    found = policy.get(key)
    return cast("list[str]", found) if isinstance(found, list) else []


def _least(policy: Mapping[str, Json]) -> int:
    failover = policy.get("auto_failover_policy")
    parameters = failover.get("parameters") if isinstance(failover, dict) else None
    least = parameters.get("min_limit") if isinstance(parameters, dict) else None
    return int(least) if isinstance(least, str) and least.isdigit() else 0
