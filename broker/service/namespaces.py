"""Tenants and namespaces: which exist, and the policies set on them and on single topics.

Everything is kept in memory and written through to the metadata store under `/admin/policies` (of topics:
`/admin/topic-policies`), so that questions on the way of a lookup or a publish are plain dictionary reads and
never wait. A change is visible once the store has it; changes are made one after the other. Policies are JSON
values under the names of the admin REST interface; what a policy means is the business of whoever asks for it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias, cast
from urllib.parse import quote, unquote

from broker.metadata.metadata_store import ABSENT, MetadataStore
from broker.model.errors import BrokerError, InvalidTopicName, TopicNotFound

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

ROOT: Final = "/admin/policies"
TOPICS_ROOT: Final = "/admin/topic-policies"
_NAME: Final = re.compile(r"[-=:.\w]+", re.ASCII)
_NOTHING: Final[Mapping[str, Json]] = MappingProxyType({})


class NamespaceNotFound(TopicNotFound):
    """On the wire a topic of a missing namespace is a missing topic."""


class AlreadyExists(BrokerError):
    code = 22
    status = 409


class NotEmpty(BrokerError):
    code = 22
    status = 409


class Namespaces:
    """The registry. Names are `tenant` and `tenant/namespace`; `open` makes the ones every cluster has."""

    def __init__(self, store: MetadataStore, cluster: str) -> None:
        self.cluster = cluster
        self._store = store
        self._tenants: dict[str, dict[str, Json]] = {}
        self._policies: dict[str, dict[str, Json]] = {}
        self._topic_policies: dict[str, dict[str, Json]] = {}
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        """Load what the store has, then create `public/default` and `pulsar/system` where missing."""
        for tenant in await self._store.children(ROOT):
            self._tenants[tenant] = await self._load(tenant)
            for name in await self._store.children(f"{ROOT}/{tenant}"):
                self._policies[f"{tenant}/{name}"] = await self._load(f"{tenant}/{name}")
        for quoted in await self._store.children(TOPICS_ROOT):
            self._topic_policies[unquote(quoted)] = await self._load(quoted, TOPICS_ROOT)
        for namespace in ("public/default", "pulsar/system"):
            tenant = namespace.partition("/")[0]
            if not self.tenant_exists(tenant):
                await self.create_tenant(tenant, {"adminRoles": [], "allowedClusters": [self.cluster]})
            if not self.exists(namespace):
                await self.create(namespace)

    # Questions: never wait.

    def tenants(self) -> list[str]:
        return sorted(self._tenants)

    def tenant_exists(self, tenant: str) -> bool:
        return tenant in self._tenants

    def tenant(self, tenant: str) -> Mapping[str, Json]:
        """`adminRoles` and `allowedClusters`. NamespaceNotFound when there is no such tenant."""
        info = self._tenants.get(tenant)
        if info is None:
            raise NamespaceNotFound("Tenant does not exist")
        return MappingProxyType(info)

    def exists(self, namespace: str) -> bool:
        return namespace in self._policies

    def names(self, tenant: str) -> list[str]:
        """The namespaces of a tenant as `tenant/namespace`, sorted."""
        return sorted(name for name in self._policies if name.partition("/")[0] == tenant)

    def policy(self, namespace: str, key: str) -> Json:
        """The value set under `key`, or None: never set, removed, or no such namespace."""
        return self._policies.get(namespace, _NOTHING).get(key)

    def policies(self, namespace: str) -> Mapping[str, Json]:
        """All that is set. NamespaceNotFound when there is no such namespace."""
        policies = self._policies.get(namespace)
        if policies is None:
            raise NamespaceNotFound("Namespace does not exist")
        return MappingProxyType(policies)

    def topic_policy(self, topic: str, key: str) -> Json:
        """The value set on `domain://tenant/namespace/name` (partitions: on their base name), or None."""
        return self._topic_policies.get(topic, _NOTHING).get(key)

    # Changes: answered when the store has them.

    async def create_tenant(self, tenant: str, info: Mapping[str, Json]) -> None:
        """AlreadyExists, or InvalidTopicName for a name outside `[-=:.\\w]+`."""
        if not _NAME.fullmatch(tenant):
            raise InvalidTopicName("Tenant name is not valid")
        async with self._changing:
            if tenant in self._tenants:
                raise AlreadyExists("Tenant already exist")
            await self._store.put(f"{ROOT}/{tenant}", _dump(info), ABSENT)
            self._tenants[tenant] = dict(info)

    async def update_tenant(self, tenant: str, info: Mapping[str, Json]) -> None:
        async with self._changing:
            self.tenant(tenant)
            await self._store.put(f"{ROOT}/{tenant}", _dump(info))
            self._tenants[tenant] = dict(info)

    async def delete_tenant(self, tenant: str) -> None:
        """NotEmpty while the tenant has namespaces."""
        async with self._changing:
            if tenant not in self._tenants:
                raise NamespaceNotFound("Tenant doesn't exist")
            if self.names(tenant):
                raise NotEmpty("The tenant still has active namespaces")
            await self._store.delete(f"{ROOT}/{tenant}")
            del self._tenants[tenant]

    async def create(self, namespace: str, policies: Mapping[str, Json] = _NOTHING) -> None:
        """AlreadyExists, InvalidTopicName, or NamespaceNotFound when the tenant is missing."""
        tenant, slash, name = namespace.partition("/")
        if not slash or not _NAME.fullmatch(name) or not _NAME.fullmatch(tenant):
            raise InvalidTopicName("Namespace name is not valid")
        async with self._changing:
            self.tenant(tenant)
            if namespace in self._policies:
                raise AlreadyExists("Namespace already exists")
            await self._store.put(f"{ROOT}/{namespace}", _dump(policies), ABSENT)
            self._policies[namespace] = dict(policies)

    async def delete(self, namespace: str) -> None:
        """Forget the namespace and its policies; that it has no topics is for the caller to see to."""
        async with self._changing:
            if namespace not in self._policies:
                raise NamespaceNotFound(f"Namespace {namespace} does not exist.")
            await self._store.delete(f"{ROOT}/{namespace}")
            del self._policies[namespace]

    async def set_policy(self, namespace: str, key: str, value: Json) -> None:
        """Set one policy; None removes it. NamespaceNotFound when there is no such namespace."""
        async with self._changing:
            policies = dict(self.policies(namespace))
            if value is None:
                policies.pop(key, None)
            else:
                policies[key] = value
            await self._store.put(f"{ROOT}/{namespace}", _dump(policies))
            self._policies[namespace] = policies

    async def set_topic_policy(self, topic: str, key: str, value: Json) -> None:
        """Set one policy of a topic; None removes it. Whether the topic exists is for the caller to know."""
        async with self._changing:
            policies = dict(self._topic_policies.get(topic, _NOTHING))
            if value is None:
                policies.pop(key, None)
            else:
                policies[key] = value
            await self._keep_topic_policies(topic, policies)

    async def forget_topic(self, topic: str) -> None:
        """The topic was deleted: one that is created anew begins without policies."""
        if topic in self._topic_policies:
            async with self._changing:
                await self._keep_topic_policies(topic, {})

    async def _keep_topic_policies(self, topic: str, policies: dict[str, Json]) -> None:
        key = f"{TOPICS_ROOT}/{quote(topic, safe='')}"
        if policies:
            await self._store.put(key, _dump(policies))
            self._topic_policies[topic] = policies
        else:
            await self._store.delete(key)
            self._topic_policies.pop(topic, None)

    async def _load(self, name: str, root: str = ROOT) -> dict[str, Json]:
        found = await self._store.get(f"{root}/{name}")
        return {} if found is None else cast("dict[str, Json]", json.loads(found.value))


def _dump(value: Mapping[str, Json]) -> bytes:
    return json.dumps(dict(value), separators=(",", ":")).encode()
