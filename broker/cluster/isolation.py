"""Isolation policies: which brokers may have the bundles of a namespace, by patterns of their names. Pure functions.

The first policy that names the namespace gives it to its primary brokers; where fewer of them are there than `min_limit`
(`min_available`), to its secondary ones too. A namespace that no policy names goes to brokers that are primary in none.

Another program may have stored a policy that cannot be read: Java has patterns that RE2 has not. A pattern that cannot be
read fits no name, so it gives nothing to a broker that it might have excluded, and stops no other namespace.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import re2

from foundation.value import Json

KEYS: Final = ("namespaces", "primary", "secondary")
"""Keys of a policy with patterns."""
_SHOWN: Final = 60
"""Characters of a value that an error shows."""


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
        if isinstance(policy, dict) and any(_fits(one, namespace) for one in patterns(policy, "namespaces")):
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
    return any(_fits(pattern, one) for pattern in patterns(policy, key) for one in names)


def patterns(policy: Mapping[str, Json], key: str) -> list[str]:
    """Returns the patterns under one of `KEYS`, also those that cannot be read."""
    found = policy.get(key)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def faults_of(policies: Mapping[str, Json]) -> Iterator[str]:
    """Yields what cannot be read of each policy, with its name, the value and the remedy."""
    for name, policy in policies.items():
        for fault in _faults(policy):
            yield (
                f"isolation policy {_shown(name)}: {fault}; set the policy anew (ns-isolation-policy set), or delete it"
            )


def faults_for(namespace: str, policies: Mapping[str, Json]) -> str:
    """Returns what cannot be read of the policy that names the namespace; empty where all can, or none names it."""
    policy = policy_of(namespace, policies)
    return "; ".join(faults_of({name: one for name, one in policies.items() if one is policy}))


def fault_of(pattern: str) -> str | None:
    """Returns why a pattern cannot be read; None where it can."""
    try:
        _compiled(pattern)
    except re2.error as error:
        # The library gives its message as bytes.
        reason = error.args[0] if error.args else ""
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    except UnicodeEncodeError:
        return "it has a character that UTF-8 has not"
    return None


def _fits(pattern: str, name: str) -> bool:
    return fault_of(pattern) is None and bool(_compiled(pattern).fullmatch(name))


@lru_cache(256)
def _compiled(pattern: str) -> Any:
    """Returns the pattern, ready to be compared. Raises re2.error and UnicodeEncodeError."""
    # RE2 needs linear time; Python's `re` lets a short pattern run for minutes.
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def _faults(policy: Json) -> Iterator[str]:
    if not isinstance(policy, dict):
        yield f"{_shown(policy)} is no object, and is not obeyed"
        return
    for key in KEYS:
        found = policy.get(key)
        if found is not None and not isinstance(found, list):
            yield f"{key}={_shown(found)} is no list of patterns, and fits nothing"
        for one in found if isinstance(found, list) else ():
            reason = fault_of(one) if isinstance(one, str) else "it is no text"
            if reason is not None:
                yield f"{key} has the pattern {_shown(one)}, which cannot be read ({reason}) and fits nothing"
    least = _min_limit(policy)
    if least is not None and not _is_number(least):
        yield f"min_limit={_shown(least)} is no whole number, and counts as 0"


def _shown(value: Json) -> str:
    """Returns a value for a log: no line breaks, and nothing that cannot be encoded."""
    return ascii(value)[:_SHOWN]


def _least(policy: Mapping[str, Json]) -> int:
    least = _min_limit(policy)
    return int(str(least)) if _is_number(least) else 0


def _min_limit(policy: Mapping[str, Json]) -> Json:
    failover = policy.get("auto_failover_policy")
    parameters = failover.get("parameters") if isinstance(failover, dict) else None
    return parameters.get("min_limit") if isinstance(parameters, dict) else None


def _is_number(least: Json) -> bool:
    return re.fullmatch("[0-9]{1,9}", str(least)) is not None
