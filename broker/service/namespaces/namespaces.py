"""Namespaces: tenants, namespaces, and the policies set on namespaces and on single topics.

Everything is in memory and written through to the metadata store, below `/admin/policies` and `/admin/local-policies`;
policies of single topics as `TopicPolicies` keeps them.
Reads on the way of a lookup or a publish are therefore plain dictionary reads and never wait. A change is visible
once the store has it; changes are made one after the other, and of what another broker may have stored meanwhile. In a
shared store a change of another process is visible as soon as a watch tells of it (see `Documents`). Policies are JSON
values under the names of the admin REST interface; `EffectivePolicies` and the admin handlers interpret them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final, cast

from bookkeeper.metadata.documents import Beside
from bookkeeper.metadata.metadata_store import MetadataStore, Write
from broker.security.authorization.permissions import (
    NamespacePermissions,
    parse_permissions,
    stored_permissions,
)
from broker.service.namespaces.stored_forms import BUNDLES_KEY, DELETED, LOCAL, RATES, REPLICATION
from broker.service.namespaces.stored_forms import Document as Document
from broker.service.namespaces.stored_policies import (
    NOTHING,
    PERMISSIONS,
    SUBSCRIPTION_MODE,
    PolicyListener,
    StoredPolicies,
    rights_of,
    without,
)
from foundation.loop.uninterrupted import uninterrupted
from foundation.model.errors import BrokerError, ServiceNotReady, TopicNotFound
from foundation.model.topic_name import check_new_namespace_part, parse_topic_name
from foundation.value import Json as Json

GLOBAL: Final = "global:"
"""Begins the key of a topic's global policy, which Pulsar copies to other clusters and a local one overrides."""


class NamespaceNotFound(TopicNotFound):
    """The tenant or namespace is missing; on the wire, its topics are missing topics."""


class AlreadyExists(BrokerError):
    """The tenant, namespace or topic to be created exists."""

    code = 22
    """Pulsar's NotAllowedError on the wire."""
    status = 409
    """HTTP status of the answer."""


class NotEmpty(BrokerError):
    """The tenant to be deleted has namespaces."""

    code = 22
    """Pulsar's NotAllowedError on the wire."""
    status = 409
    """HTTP status of the answer."""


class Namespaces:
    """Registry of tenants (`tenant`) and namespaces (`tenant/namespace`); call `open` first."""

    def __init__(self, store: MetadataStore, cluster: str) -> None:
        self.cluster = cluster
        """`clusterName`; tenants created at the start allow it."""
        self.stored = StoredPolicies(store, cluster, self)
        """Follows the store; `close` it at the end."""
        # Theirs, for reads: one step less on the way of a lookup.
        self._tenants = self.stored.tenants.values
        self._policies = self.stored.policies.values
        self._local = self.stored.local.values
        # Permissions by namespace with the policies that they were parsed from, so that a check of rights parses nothing.
        self._permissions: dict[str, tuple[Document, NamespacePermissions]] = {}
        self._changing = asyncio.Lock()
        self._changing_topics = asyncio.Lock()
        self.read_endings: Callable[[str], Awaitable[None]] = _is_always_known
        """Asks the store whether a deletion of this tenant or namespace that another broker carries out goes on, for
        `is_ending`. `Deletions` sets it."""
        self.is_ending: Callable[[str], bool] = _is_never_ending
        """Returns True for a tenant or namespace while it is being deleted: creating it, or anything in it, is refused.
        `Deletions` sets it."""
        self.listener: PolicyListener | None = None
        """Called after each change of a policy and before the change returns; the topic registry sets itself."""
        self.rights_changed: Callable[[], None] = _do_nothing
        """Called after each change that may take a right away from a role; ends what the role has open."""

    async def open(self) -> None:
        """Loads everything from the store and creates `public/default` and `pulsar/system` where missing."""
        await self.stored.open()
        for namespace in ("public/default", "pulsar/system"):
            tenant = namespace.partition("/")[0]
            # Another broker that starts on the same store may be quicker.
            if not self.tenant_exists(tenant):
                with suppress(AlreadyExists):
                    await self.create_tenant(tenant, {"adminRoles": [], "allowedClusters": [self.cluster]})
            if not self.exists(namespace):
                with suppress(AlreadyExists):
                    await self.create(namespace)

    # Reads: never wait.

    def tenants(self) -> list[str]:
        """Returns the names of all tenants, sorted."""
        return sorted(self._tenants)

    def tenant_exists(self, tenant: str) -> bool:
        """Returns True for a known tenant."""
        return tenant in self._tenants

    def tenant(self, tenant: str) -> Mapping[str, Json]:
        """Returns `adminRoles` and `allowedClusters` of a tenant. NamespaceNotFound for an unknown one."""
        info = self._tenants.get(tenant)
        if info is None:
            raise NamespaceNotFound("Tenant does not exist")
        # Read-only, because it is the registry's own dict: a change must go through the store.
        return MappingProxyType(info)

    def exists(self, namespace: str) -> bool:
        """Returns True for a known `tenant/namespace`."""
        return namespace in self._policies

    def names(self, tenant: str) -> list[str]:
        """Returns the namespaces of a tenant as `tenant/namespace`, sorted."""
        return sorted(name for name in self._policies if name.partition("/")[0] == tenant)

    def policy(self, namespace: str, key: str) -> Json:
        """Returns the value set under `key`, of a rate that of the own cluster; None when there is none."""
        value = self._policies.get(namespace, NOTHING).get(key)
        if key in RATES:
            return value.get(self.cluster) if isinstance(value, dict) else None
        if key in LOCAL:
            return self._local.get(namespace, NOTHING).get(key, value)
        return value

    def policies(self, namespace: str) -> Mapping[str, Json]:
        """Returns all values that are set, as they are stored, without local policies. NamespaceNotFound."""
        policies = self._policies.get(namespace)
        if policies is None:
            raise NamespaceNotFound("Namespace does not exist")
        return MappingProxyType(policies)

    def topic_policies(self, topic: str) -> Mapping[str, Json]:
        """Returns everything that is set on a topic; partitions use their base name."""
        return self.stored.of_topics.of(topic)

    def topic_policy(self, topic: str, key: str) -> Json:
        """Returns the value set on a topic, or None; partitions use their base name."""
        return self.stored.of_topics.of(topic).get(key)

    # Reads for the checks of rights (`Grants` in `broker/security/authorization/authorizer.py`)

    def admin_roles(self, tenant: str) -> list[str] | None:
        """Returns the administrators of a tenant; None for an unknown tenant."""
        info = self._tenants.get(tenant)
        if info is None:
            return None
        roles = info.get("adminRoles")
        return [role for role in roles if isinstance(role, str)] if isinstance(roles, list) else []

    def permissions(self, namespace: str) -> NamespacePermissions | None:
        """Returns what was granted in a namespace; None for an unknown namespace."""
        policies, known = self._policies.get(namespace), self._permissions.get(namespace)
        if policies is None:
            return None
        # Changed policies are another object.
        if known is None or known[0] is not policies:
            known = self._permissions[namespace] = policies, parse_permissions(policies.get(PERMISSIONS))
        return known[1]

    def needs_prefix(self, namespace: str) -> bool:
        """Returns True if names of subscriptions must begin with the consumer's role."""
        return self.policy(namespace, SUBSCRIPTION_MODE) == "Prefix"

    # Changes: return when the store has them.

    async def create_tenant(self, tenant: str, info: Mapping[str, Json]) -> None:
        """Creates a tenant. AlreadyExists, or InvalidTopicName for a name that is not allowed."""
        check_new_namespace_part("Tenant", tenant)

        def created(before: Document | None) -> Document:
            if before is not None:
                raise AlreadyExists("Tenant already exist")
            if self.is_ending(tenant):
                raise ServiceNotReady(f"Tenant {tenant} is being deleted; ask again")
            return dict(info)

        await self.read_endings(tenant)
        await self.stored.read_known(self.stored.tenants, tenant)
        async with self._changing:
            await uninterrupted(self.stored.tenants.change(tenant, created))

    async def update_tenant(self, tenant: str, info: Mapping[str, Json]) -> None:
        """Replaces a tenant's values. NamespaceNotFound for an unknown tenant."""

        def replaced(_: Document | None) -> Document:
            self.tenant(tenant)
            return dict(info)

        async def change() -> None:
            await self.stored.tenants.change(tenant, replaced)
            self.rights_changed()

        async with self._changing:
            await uninterrupted(change())

    async def delete_tenant(self, tenant: str) -> None:
        """Deletes a tenant. NotEmpty while it has namespaces; NamespaceNotFound for an unknown one."""
        async with self._changing:
            if tenant not in self._tenants:
                raise NamespaceNotFound("Tenant doesn't exist")
            if self.names(tenant):
                raise NotEmpty("The tenant still has active namespaces")
            await uninterrupted(self.stored.tenants.change(tenant, without))

    async def create(self, namespace: str, policies: Mapping[str, Json] = NOTHING) -> None:
        """Creates a namespace. AlreadyExists, InvalidTopicName, or NamespaceNotFound for an unknown tenant."""
        tenant, _, name = namespace.partition("/")
        check_new_namespace_part("Namespace", name)

        def created(before: Document | None) -> Document:
            if before is not None:
                raise AlreadyExists("Namespace already exists")
            if self.is_ending(tenant):
                raise NamespaceNotFound("Tenant is being deleted")
            if self.is_ending(namespace):
                # Otherwise the rest of the deletion, perhaps after a restart, would take the new one too.
                raise ServiceNotReady(f"Namespace {namespace} is being deleted; ask again")
            # As Pulsar does: its brokers refuse a namespace that names no cluster.
            return {REPLICATION: [self.cluster], **policies}

        await self.read_endings(namespace)
        await self.stored.read_known(self.stored.policies, namespace)
        async with self._changing:
            self.tenant(tenant)
            await uninterrupted(self.stored.policies.change(namespace, created))

    async def delete(self, namespace: str) -> None:
        """Deletes the namespace with its policies. The caller checks first that it has no topics."""
        async with self._changing:
            if namespace not in self._policies:
                raise NamespaceNotFound(f"Namespace {namespace} does not exist.")
            # Topics without storage leave no trace when they close, so their policies end with the namespace; before it,
            # so that a deletion that fails here can be repeated.
            await uninterrupted(self.stored.of_topics.forget_namespace(namespace))
            # Read before: another broker may have written them.
            await self.stored.local.read(namespace)
            await uninterrupted(self.stored.local.change(namespace, without))
            await uninterrupted(self._change_policies(namespace, without))

    async def mark_deleted(self, namespace: str, beside: Sequence[Write]) -> None:
        """Marks a namespace whose deletion is decided, in one write with `beside`. NamespaceNotFound, MetadataError."""

        def marked(_: Document | None) -> Document:
            return {**self.policies(namespace), DELETED: True}

        async with self._changing:
            await uninterrupted(self._change_policies(namespace, marked, lambda: beside))

    async def set_policy(self, namespace: str, key: str, value: Json) -> None:
        """Sets one policy of a namespace; None removes it. NamespaceNotFound for an unknown namespace."""
        await self.change_policy(namespace, key, lambda _: value)

    async def change_policy(self, namespace: str, key: str, changed: Callable[[Json], Json]) -> None:
        """Sets the policy as `set_policy`, for a value that follows from the stored one; None stands for no value.

        A key of LOCAL is for `change_local_policy`.
        """

        def document(_: Document | None) -> Document:
            # Of the newest document: of two changes made at once, each must see the other.
            policies = self.policies(namespace)
            value = changed(self.policy(namespace, key))
            for one in RATES.get(key, ()):
                rates = _with_value(cast("Document", policies.get(one) or {}), self.cluster, value)
                policies = _with_value(policies, one, rates or None)
            return dict(policies) if key in RATES else _with_value(policies, key, value)

        async def change() -> None:
            # Each change writes all policies of the namespace, so two at once would lose one of them.
            await self._change_policies(namespace, document)
            # Within the lock: of two changes the later one must be the last that topics are told of.
            if self.listener is not None:
                await self.listener.namespace_changed(namespace)

        async with self._changing:
            await uninterrupted(change())

    async def change_local_policy(
        self,
        namespace: str,
        key: str,
        changed: Callable[[Json], Json],
        bundles: Json,
        beside: Beside = tuple,
    ) -> None:
        """Changes a policy as `change_policy`, for a key of LOCAL, in one write with `beside`.

        New local policies get `bundles`: Pulsar takes them from there alone.
        """

        def document(before: Document | None) -> Document:
            self.policies(namespace)
            local = before or {BUNDLES_KEY: bundles, "migrated": False}
            return _with_value(local, key, changed(self.policy(namespace, key)))

        async def change() -> None:
            await self.stored.local.change(namespace, document, beside)
            if key == BUNDLES_KEY:
                # As Pulsar does after a split.
                await self._change_policies(
                    namespace, lambda _: {**self.policies(namespace), key: self.policy(namespace, key)}
                )
            if self.listener is not None:
                await self.listener.namespace_changed(namespace)

        async with self._changing:
            await uninterrupted(change())

    async def change_permissions(
        self, namespace: str, change: Callable[[NamespacePermissions], NamespacePermissions]
    ) -> None:
        """Replaces the permissions of a namespace by the result of `change`. NamespaceNotFound for an unknown one."""

        def changed(_: Document | None) -> Document:
            policies = self.policies(namespace)
            permissions = change(parse_permissions(policies.get(PERMISSIONS)))
            # Without any grant the key goes too, so that a namespace is stored as before its first grant.
            stored = stored_permissions(permissions) if permissions != NamespacePermissions() else None
            return _with_value(policies, PERMISSIONS, cast("Json", stored))

        # Within the lock: a change begins with the result of the one before.
        async with self._changing:
            await uninterrupted(self._change_policies(namespace, changed))

    async def _change_policies(
        self,
        namespace: str,
        changed: Callable[[Document | None], Document | None],
        beside: Beside = tuple,
    ) -> None:
        rights = rights_of(self._policies.get(namespace))
        try:
            await self.stored.policies.change(namespace, changed, beside)
        finally:
            # Also after a failure: the change may have read what another broker had granted or revoked. And also for a
            # deletion: watches of topics would go on in a later namespace of the same name, whose grants are others.
            if rights_of(self._policies.get(namespace)) != rights:
                self.rights_changed()

    async def set_topic_policy(self, topic: str, key: str, value: Json) -> None:
        """Sets one policy of a topic; None removes it. The caller checks that the topic exists."""
        await self.change_topic_policy(topic, key, lambda _: value)

    async def change_topic_policy(self, topic: str, key: str, changed: Callable[[Json], Json]) -> None:
        """Sets the policy as `set_topic_policy`, for a value that follows from the stored one; None stands for no
        value.
        """

        def document(before: Document | None) -> Document | None:
            policies = before or {}
            # Of the newest document: of two changes made at once, each must see the other.
            return _with_value(policies, key, changed(policies.get(key))) or None

        async with self._changing_topics:
            await uninterrupted(self._change_topic(topic, self.stored.of_topics.change(topic, document)))

    async def forget_topic(self, topic: str) -> None:
        """Removes all policies of a topic that shall have none any more."""
        await self.stored.of_topics.load(parse_topic_name(topic))
        if self.stored.of_topics.of(topic):
            async with self._changing_topics:
                await uninterrupted(self._change_topic(topic, self.stored.of_topics.forget(topic)))

    async def topic_deleted(self, topic: str) -> None:
        """Removes all policies of a topic that was deleted, and what was granted on it and on its partitions."""
        await self.forget_topic(topic)
        name = parse_topic_name(topic)
        granted = self.permissions(name.namespace)
        # By the text first: a namespace may have grants on many thousands of topics, and each deletion looks at all.
        gone = [
            one
            for one in (granted.topics if granted else ())
            if one.startswith(topic) and parse_topic_name(one).base == name
        ]
        if gone:
            # Otherwise a later topic of the same name would be open to the roles of this one.
            await self.change_permissions(name.namespace, lambda now: now.forget_topics(gone))

    async def _change_topic(self, topic: str, change: Awaitable[None]) -> None:
        await change
        if self.listener is not None:
            await self.listener.topic_changed(topic)


def _with_value(policies: Mapping[str, Json], key: str, value: Json) -> Document:
    """Returns the policies with one value in place of another; None stands for no value."""
    changed = {**policies, key: value}
    if value is None:
        del changed[key]
    return changed


def _do_nothing() -> None: ...


async def _is_always_known(_name: str) -> None:
    """Stands for `Namespaces.read_endings` without deletions."""


def _is_never_ending(_name: str) -> bool:
    return False
