"""Authorizer: says whether a principal may do something, by Pulsar's default provider of authorization.

The rules are those of `PulsarAuthorizationProvider` of Apache 4.2.4, as its recorded answers show them:

    superuser                everything
    administrator of tenant  everything within the tenant, publishing and consuming included
    produce on a topic       publish, look up, statistics, schemas
    consume on a topic       subscribe and everything about subscriptions, look up, statistics, schemas
    either on a namespace    the same on each of its topics, and the lists of topics and bundles

Every method reads memory only, never waits, and answers True for each client while `authorizationEnabled=false`. While the
metadata store does not confirm the rights in memory (`is_confirmed`), nobody has any.
A client without a role has no right. Each role of a proxied client needs the right (`roles.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from broker.security.authorization.permissions import Action, NamespacePermissions, is_granted
from broker.security.authorization.roles import original_fault, roles_to_check
from broker.security.authorization.settings import AuthorizationSettings
from broker.security.principal import Principal
from foundation.model.errors import ServiceNotReady
from foundation.model.topic_name import TopicName


class Grants(Protocol):
    """The grants that are in force, in memory."""

    def admin_roles(self, tenant: str) -> Collection[str] | None:
        """Returns the administrators of a tenant; None for an unknown tenant."""
        ...

    def permissions(self, namespace: str) -> NamespacePermissions | None:
        """Returns what was granted in `tenant/namespace`; None for an unknown namespace."""
        ...

    def needs_prefix(self, namespace: str) -> bool:
        """Returns True if names of subscriptions must begin with the role (`subscriptionAuthMode=Prefix`)."""
        ...


class Authorizer:
    """Decides about rights with the present settings and grants."""

    def __init__(self, settings: AuthorizationSettings, grants: Grants) -> None:
        """`grants` is asked at each decision, so a change of it acts at once."""
        self._settings = settings
        self._superusers = frozenset(settings.superusers)
        self._proxies = frozenset(settings.proxies)
        self._grants = grants
        self.is_confirmed: Callable[[], bool] = _always
        """Returns False while the rights in memory may be older than their bound; `ConfirmedRights` sets it."""

    @property
    def enabled(self) -> bool:
        """False when every client may do everything."""
        return self._settings.enabled

    def reconfigure(self, settings: AuthorizationSettings) -> None:
        """Takes changed settings; the next decision obeys them."""
        self._settings = settings
        self._superusers = frozenset(settings.superusers)
        self._proxies = frozenset(settings.proxies)

    def check_confirmed(self) -> None:
        """Raises ServiceNotReady while rights may be too old: another broker may have revoked them."""
        if self.enabled and not self.is_confirmed():
            raise ServiceNotReady("The metadata store does not confirm the rights; ask again")

    def connection_fault(self, principal: Principal) -> str | None:
        """Returns the fault for which a new connection of this principal must be refused; None for a valid one."""
        return original_fault(principal, self._proxies) if self.enabled else None

    def client_role(self, principal: Principal) -> str | None:
        """Returns the role of the client itself: behind a proxy the original one. None without authentication."""
        # Only a proxy's word counts: without authorization any client may name another role as its original one.
        return (principal.role in self._proxies and principal.original) or principal.role

    def is_superuser(self, principal: Principal) -> bool:
        """Returns True if the principal may do everything (`superUserRoles`)."""
        return self._each(principal, self._is_superuser)

    def administers(self, principal: Principal, tenant: str) -> bool:
        """Returns True for superusers and for administrators of the tenant (`adminRoles`)."""
        return self._each(principal, lambda role: self._administers(role, tenant))

    def tenant_exists(self, tenant: str) -> bool:
        """Returns False for an unknown tenant."""
        return self._grants.admin_roles(tenant) is not None

    def may_act(self, principal: Principal, namespace: str, *actions: Action) -> bool:
        """Returns True if one of the actions is allowed on the whole namespace, or the principal administers it."""

        def decide(role: str) -> bool:
            if self._administers(role, namespace.partition("/")[0]):
                return True
            granted = self._grants.permissions(namespace)
            return granted is not None and any(
                is_granted(granted.roles, role, action, wildcards=self._settings.wildcards)
                for action in actions
            )

        return self._each(principal, decide)

    def may_list_topics(self, principal: Principal, namespace: str) -> bool:
        """Returns True if the principal may see names of topics and bundles of a namespace."""
        return self.may_act(principal, namespace, Action.PRODUCE, Action.CONSUME)

    def may_produce(self, principal: Principal, topic: TopicName) -> bool:
        """Returns True if the principal may publish to the topic.

        Events of topic policies are for those alone who may set policies.
        """
        if topic.has_policy_events:
            return self.administers(principal, topic.tenant)
        return self._each(principal, lambda role: self._may(role, topic, Action.PRODUCE))

    def may_look_up(self, principal: Principal, topic: TopicName) -> bool:
        """Returns True if the principal may look the topic up and see its partitions, statistics and schemas."""
        return self._each(
            principal,
            lambda role: self._may(role, topic, Action.PRODUCE) or self._may(role, topic, Action.CONSUME),
        )

    def may_consume(self, principal: Principal, topic: TopicName, subscription: str | None = None) -> bool:
        """Returns True if the principal may consume from the topic, through the subscription where one is given."""
        return self._each(principal, lambda role: self._may_consume(role, topic, subscription))

    def _may_consume(self, role: str, topic: TopicName, subscription: str | None) -> bool:
        if self._administers(role, topic.tenant):
            return True
        granted = self._grants.permissions(topic.namespace)
        if granted is None:
            return False
        if subscription:
            allowed = granted.subscriptions.get(subscription)
            if allowed and role not in allowed:
                return False
            if self._grants.needs_prefix(topic.namespace) and not subscription.startswith(role):
                return False
        return self._is_granted(granted, role, topic, Action.CONSUME)

    def _may(self, role: str, topic: TopicName, action: Action) -> bool:
        if self._administers(role, topic.tenant):
            return True
        granted = self._grants.permissions(topic.namespace)
        return granted is not None and self._is_granted(granted, role, topic, action)

    def _is_granted(self, granted: NamespacePermissions, role: str, topic: TopicName, action: Action) -> bool:
        wildcards = self._settings.wildcards
        if is_granted(granted.roles, role, action, wildcards=wildcards):
            return True
        # A partition that was added after the grant has no entry of its own, so its topic's entry counts too.
        for name in {str(topic), str(topic.base)} if granted.topics else ():
            if is_granted(granted.topics.get(name, {}), role, action, wildcards=wildcards):
                return True
        return False

    def _administers(self, role: str, tenant: str) -> bool:
        if self._is_superuser(role):
            return True
        admins = self._grants.admin_roles(tenant)
        return admins is not None and role in admins

    def _is_superuser(self, role: str) -> bool:
        return role in self._superusers

    def _each(self, principal: Principal, decide: Callable[[str], bool]) -> bool:
        if not self._settings.enabled:
            return True
        roles = roles_to_check(principal, self._proxies)
        return bool(roles) and self.is_confirmed() and all(decide(role) for role in roles)


def _always() -> bool:
    return True
