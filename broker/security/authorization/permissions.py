"""NamespacePermissions: the rights that were granted to roles on a namespace, its topics and its subscriptions.

Pulsar keeps all three in the namespace's policies, under `auth_policies`, so one write changes them together and deleting
the namespace deletes them. Values of this module never change: each `grant` and `revoke` returns a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import Enum
from types import MappingProxyType
from typing import Final, TypeAlias

from foundation.value import Value

Granted: TypeAlias = "Mapping[str, frozenset[Action]]"
"""Actions by the role, or the pattern of roles, that may take them."""


class Action(Enum):
    """An action that can be granted to a role; the values are Pulsar's words (`AuthAction`)."""

    PRODUCE = "produce"
    """Publish messages."""
    CONSUME = "consume"
    """Subscribe, and everything about subscriptions."""
    FUNCTIONS = "functions"
    """Manage functions; stored and shown, because this broker runs none."""
    SOURCES = "sources"
    """Manage sources; stored and shown, because this broker runs none."""
    SINKS = "sinks"
    """Manage sinks; stored and shown, because this broker runs none."""
    PACKAGES = "packages"
    """Manage packages; the route answers that they are not enabled."""


WILDCARD: Final = "*"
"""Stands for any characters at the beginning or at the end of a role pattern."""
_NOTHING: Final[Mapping[str, frozenset[Action]]] = MappingProxyType({})


def role_matches(pattern: str, role: str, *, wildcards: bool) -> bool:
    """Returns True if a granted role, or pattern of roles, covers a role.

    With `wildcards` (`authorizationAllowWildcardsMatching`) a `*` at either end stands for any characters, as in
    `PulsarAuthorizationProvider` of Apache 4.2.4. In any other place it stands for itself.
    """
    if pattern == role:
        return True
    if not wildcards or not pattern:
        return False
    if pattern.endswith(WILDCARD) and role.startswith(pattern[:-1]):
        return True
    return pattern.startswith(WILDCARD) and role.endswith(pattern[1:])


def is_granted(granted: Granted, role: str, action: Action, *, wildcards: bool) -> bool:
    """Returns True if one of the grants covers the role and has the action."""
    if action in granted.get(role, ()):
        return True
    return wildcards and any(
        action in actions and role_matches(pattern, role, wildcards=True)
        for pattern, actions in granted.items()
    )


class NamespacePermissions(Value):
    """Everything that was granted within one namespace."""

    roles: Granted = field(default_factory=dict)
    """Grants on the namespace, which hold for each of its topics."""
    topics: Mapping[str, Granted] = field(default_factory=dict)
    """Grants on single topics, by full name. The name of a partitioned topic holds for its partitions."""
    subscriptions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Roles that may use a subscription, by its name, on all topics. A missing or empty entry excludes no role."""

    def grant(self, role: str, actions: Iterable[Action]) -> NamespacePermissions:
        """Returns permissions in which the role has exactly these actions on the namespace."""
        return replace(self, roles={**self.roles, role: frozenset(actions)})

    def revoke(self, role: str) -> NamespacePermissions:
        """Returns permissions without the grant to the role on the namespace; those on topics stay."""
        return replace(self, roles=_without(self.roles, role))

    def grant_on_topics(
        self, topics: Iterable[str], role: str, actions: Iterable[Action]
    ) -> NamespacePermissions:
        """Returns permissions in which the role has exactly these actions on the topics."""
        granted = frozenset(actions)
        changed = {topic: {**self.topics.get(topic, _NOTHING), role: granted} for topic in topics}
        return replace(self, topics={**self.topics, **changed})

    def revoke_on_topics(self, topics: Iterable[str], role: str) -> NamespacePermissions:
        """Returns permissions without the grants to the role on these topics."""
        changed = dict(self.topics)
        for topic in topics:
            left = _without(changed.pop(topic, _NOTHING), role)
            if left:
                changed[topic] = left
        return replace(self, topics=changed)

    def forget_topics(self, topics: Iterable[str]) -> NamespacePermissions:
        """Returns permissions without any grant on these topics, which are deleted."""
        gone = frozenset(topics)
        return replace(self, topics={topic: one for topic, one in self.topics.items() if topic not in gone})

    def grant_on_subscription(self, subscription: str, roles: Iterable[str]) -> NamespacePermissions:
        """Returns permissions in which only these roles may use the subscription."""
        return replace(self, subscriptions={**self.subscriptions, subscription: frozenset(roles)})

    def revoke_on_subscription(self, subscription: str, role: str) -> NamespacePermissions:
        """Returns permissions in which the role is no longer among those of the subscription.

        The entry stays when its last role goes, as in Pulsar; an empty one excludes no role.
        """
        if subscription not in self.subscriptions:
            return self
        left = self.subscriptions[subscription] - {role}
        return replace(self, subscriptions={**self.subscriptions, subscription: left})


def _without(granted: Granted, role: str) -> Granted:
    return {other: actions for other, actions in granted.items() if other != role}


# The JSON form in the metadata store and in answers of the admin API


def parse_actions(names: Iterable[object]) -> frozenset[Action]:
    """Returns the actions. Raises ValueError, which names the value and the allowed words, for any other value."""
    found: set[Action] = set()
    for name in names:
        try:
            found.add(Action(name))
        except ValueError:
            allowed = ", ".join(action.value for action in Action)
            raise ValueError(f"{str(name)[:60]!r} is not an action; allowed are {allowed}") from None
    return frozenset(found)


def parse_permissions(stored: object) -> NamespacePermissions:
    """Returns the permissions in Pulsar's `auth_policies`; None and missing members mean that nothing was granted.

    Grants that cannot be read, such as an action of a later release, grant nothing.
    """
    if not isinstance(stored, Mapping):
        return NamespacePermissions()
    subscriptions = _mapping(stored.get("subscription_auth_roles"))
    return NamespacePermissions(
        _granted(stored.get("namespace_auth")),
        {topic: _granted(one) for topic, one in _mapping(stored.get("destination_auth")).items()},
        {name: frozenset(map(str, _list(roles))) for name, roles in subscriptions.items()},
    )


def stored_permissions(permissions: NamespacePermissions) -> dict[str, object]:
    """Returns `auth_policies` as Pulsar stores it."""
    return {
        "namespace_auth": stored_grants(permissions.roles),
        "destination_auth": {topic: stored_grants(one) for topic, one in permissions.topics.items()},
        "subscription_auth_roles": {name: sorted(roles) for name, roles in permissions.subscriptions.items()},
    }


def stored_grants(granted: Granted) -> dict[str, list[str]]:
    """Returns grants as Pulsar stores and shows them: lists of words by role."""
    return {role: sorted(action.value for action in actions) for role, actions in granted.items()}


def _granted(stored: object) -> Granted:
    known = {action.value: action for action in Action}
    return {
        role: frozenset(known[name] for name in _list(names) if isinstance(name, str) and name in known)
        for role, names in _mapping(stored).items()
    }


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
