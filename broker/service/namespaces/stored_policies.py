"""StoredPolicies: the documents of tenants, namespaces and topics in the metadata store, and news of their changes.

Stores of versions up to 0.2.0 are brought into Pulsar's form when they are opened. On a shared store a change of another
process is applied as a change of this broker is: what is open gets the new policies, and what a role has no right to ends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from bookkeeper.metadata.documents import Documents
from bookkeeper.metadata.metadata_store import MetadataStore
from broker.managed_ledger.removal.deletion import together
from broker.service.namespaces.stored_forms import (
    CLUSTERS_ROOT,
    EARLIER_OF_CLUSTERS,
    Document,
    dump_bounded,
    is_earlier,
)
from foundation.model.topic_name import TopicName
from foundation.value import Json

ROOT: Final = "/admin/policies"
"""Pulsar's path of tenants and namespaces in the metadata store."""
LOCAL_ROOT: Final = "/admin/local-policies"
"""Pulsar's path of those policies of namespaces that hold in one cluster alone (`LOCAL`)."""
TOPICS_ROOT: Final = "/admin/topic-policies"
"""Path of policies of single topics, by their quoted full name; of a shared store, of those that Pulsar does not have."""
PERMISSIONS: Final = "auth_policies"
"""Key of the permissions among a namespace's policies."""
SUBSCRIPTION_MODE: Final = "subscription_auth_mode"
"""Key of the policy that binds names of subscriptions to roles."""
_OLD_NAMES: Final = {
    "deduplication": "deduplicationEnabled",
    "autoTopicCreation": "autoTopicCreationOverride",
}
"""Keys that stores of earlier versions have, and the present ones, which are Pulsar's."""


_DELETED_AT_ONCE: Final = 50
"""Policies of topics that are removed at the same time."""
NOTHING: Final[Mapping[str, Json]] = MappingProxyType({})
"""The policies of an owner without any."""


class PolicyListener(Protocol):
    """Applies changed policies to what is open."""

    async def namespace_changed(self, namespace: str) -> None:
        """A policy of the namespace was stored."""
        ...

    async def topic_changed(self, topic: str) -> None:
        """A policy of the topic, given by its full name without partition, was stored."""
        ...


class Appliers(Protocol):
    """Apply what has changed; `Namespaces` has them."""

    listener: PolicyListener | None
    """Applies policies; None before there are topics."""
    rights_changed: Callable[[], None]
    """Ends what a role has no right to any more."""


class TopicPolicies(Protocol):
    """Keeps the policies of single topics; the caller makes one change at a time, and does not cancel it."""

    def of(self, topic: str) -> Mapping[str, Json]:
        """Returns the policies of a topic whose namespace is loaded, by its full name without partition."""
        ...

    async def take_over(self) -> None:
        """Brings what versions up to 0.2.0 have stored into the present form, as far as that is possible now."""
        ...

    async def load(self, name: TopicName) -> None:
        """Returns when `of` has what is stored for all topics of the topic's namespace. Raises BrokerError."""
        ...

    async def change(self, topic: str, changed: Callable[[Document | None], Document | None]) -> None:
        """Stores what `changed` makes of the newest policies of a topic, as `Documents.change`."""
        ...

    async def forget(self, topic: str) -> None:
        """Removes all policies of a topic."""
        ...

    async def forget_namespace(self, namespace: str) -> None:
        """Removes the policies of all topics of a namespace that has no topics any more."""
        ...

    async def close(self) -> None:
        """Follows the store no longer."""
        ...


class TopicPolicyDocuments(TopicPolicies):
    """Keeps the policies of each topic in one document of the metadata store."""

    def __init__(self, documents: Documents[Document]) -> None:
        self.documents = documents
        """By the full name of the topic, all loaded."""

    def of(self, topic: str) -> Mapping[str, Json]:
        """Returns the document."""
        return self.documents.values.get(topic, NOTHING)

    async def take_over(self) -> None:
        """Does nothing: the documents are in their form."""

    async def load(self, name: TopicName) -> None:
        """Does nothing: the documents are loaded."""

    async def close(self) -> None:
        """Does nothing: the owner of the documents closes them."""

    async def change(self, topic: str, changed: Callable[[Document | None], Document | None]) -> None:
        """Stores the document."""
        await self.documents.change(topic, changed)

    async def forget(self, topic: str) -> None:
        """Removes the document."""
        await self.documents.change(topic, without)

    async def forget_namespace(self, namespace: str) -> None:
        """Removes the documents."""
        gone = self.in_namespace(namespace)
        for start in range(0, len(gone), _DELETED_AT_ONCE):
            await together(self.forget(topic) for topic in gone[start : start + _DELETED_AT_ONCE])

    def in_namespace(self, namespace: str) -> list[str]:
        """Returns the topics of a namespace that have a document."""
        return [one for one in self.documents.values if one.partition("://")[2].startswith(f"{namespace}/")]


class StoredPolicies:
    """The documents of one broker; call `open` first."""

    def __init__(self, store: MetadataStore, cluster: str, appliers: Appliers) -> None:
        """`cluster` is the broker's own."""
        self._store = store
        self._cluster = cluster
        self._appliers = appliers
        self.tenants = Documents(store, ROOT, _parse, dump_bounded, told=self._tenant_told)
        """By name."""
        self.policies = Documents(store, ROOT, _parse, dump_bounded, levels=2, told=self._policies_told)
        """Of namespaces, by `tenant/namespace`."""
        self.local = Documents(store, LOCAL_ROOT, _parse, dump_bounded, levels=2, told=self._local_told)
        """Local policies of namespaces, by `tenant/namespace`."""
        self.topic_policies = Documents(
            store, TOPICS_ROOT, _parse, dump_bounded, quoted=True, told=self._topic_told
        )
        """Of topics, by the full name without partition."""
        self.of_topics: TopicPolicies = TopicPolicyDocuments(self.topic_policies)
        """The policies of topics; `PolicyEvents` sets itself where the store is shared."""

    async def has(self, namespace: str) -> bool:
        """Returns True for a namespace that exists, also for one that another broker has made a moment ago.

        Raises MetadataError.
        """
        return await self._has(self.policies, namespace)

    async def has_tenant(self, tenant: str) -> bool:
        """Returns True for a tenant that exists, as `has`."""
        return await self._has(self.tenants, tenant)

    async def _has(self, documents: Documents[Document], name: str) -> bool:
        if name in documents.values:
            return True
        if not self._store.is_shared:
            return False
        # The other broker may have written to another server of ZooKeeper than the one that is read.
        await self._store.sync()
        return await documents.read(name) is not None

    async def read_known(self, documents: Documents[Document], name: str) -> None:
        """Reads a document that is in memory: another broker may have deleted it a moment ago. Raises MetadataError."""
        if name in documents.values and self._store.is_shared:
            await self._store.sync()
            await documents.read(name)

    async def read_newest(self, namespace: str) -> None:
        """Reads the policies of a namespace as they are stored now, sooner than a watch tells. Raises MetadataError."""
        await asyncio.gather(self.policies.read(namespace), self.local.read(namespace))

    async def open(self) -> None:
        """Loads everything, in the present form. Raises MetadataError."""
        for documents in (self.tenants, self.policies, self.local, self.topic_policies):
            await documents.open()
        for namespace in [name for name, found in self.policies.values.items() if is_earlier(found)]:
            # Imported late: stores of this version have no such policies.
            from broker.service.namespaces.earlier_policies import take_over

            await take_over(self._store, f"{ROOT}/{namespace}", f"{LOCAL_ROOT}/{namespace}", self._cluster)
            await self.policies.read(namespace)
            await self.local.read(namespace)
        await _move_earlier_clusters(self._store)

    async def read_rights_again(self) -> None:
        """Returns when all that rights follow from is at least as new as this call. Raises MetadataError."""
        await self.tenants.read_again()
        await self.policies.read_again()

    async def close(self) -> None:
        """Follows the store no longer."""
        await self.of_topics.close()
        for documents in (self.tenants, self.policies, self.local, self.topic_policies):
            await documents.close()

    async def _tenant_told(self, _tenant: str, _before: Document | None) -> None:
        self._appliers.rights_changed()

    async def _policies_told(self, namespace: str, before: Document | None) -> None:
        if rights_of(self.policies.values.get(namespace)) != rights_of(before):
            self._appliers.rights_changed()
        await self._local_told(namespace, before)

    async def _local_told(self, namespace: str, _before: Document | None) -> None:
        if self._appliers.listener is not None:
            await self._appliers.listener.namespace_changed(namespace)

    async def _topic_told(self, topic: str, _before: Document | None) -> None:
        if self._appliers.listener is not None:
            await self._appliers.listener.topic_changed(topic)


def without(_: Document | None) -> None:
    """Returns no document, whatever was there."""


def rights_of(policies: Document | None) -> tuple[Json, Json] | None:
    """Returns those policies that rights follow from; None for no namespace."""
    return None if policies is None else (policies.get(PERMISSIONS), policies.get(SUBSCRIPTION_MODE))


async def _move_earlier_clusters(store: MetadataStore) -> None:
    for cluster in await store.children(CLUSTERS_ROOT):
        for name in EARLIER_OF_CLUSTERS:
            if await store.children(f"{CLUSTERS_ROOT}/{cluster}/{name}"):
                from broker.service.namespaces.earlier_policies import move_up

                await move_up(store, cluster, name)


def _parse(data: bytes) -> Document:
    found: Json = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError(f"an object is expected, not {type(found).__name__}")
    return {_OLD_NAMES.get(key, key): value for key, value in found.items()}
