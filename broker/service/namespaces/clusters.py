"""Clusters: descriptions of Pulsar clusters, with failure domains and isolation policies, under Pulsar's paths.

Where bundles go is decided by them (`broker/cluster/balance.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, cast

from bookkeeper.metadata.metadata_store import MetadataStore
from broker.service.namespaces.documents import DocumentUnreadable, JsonDocuments
from broker.service.namespaces.namespaces import AlreadyExists
from broker.service.namespaces.stored_forms import CLUSTER_POLICIES, CLUSTERS_ROOT, ISOLATION
from foundation.model.errors import BrokerError
from foundation.model.topic_name import check_new_namespace_part, check_no_folder
from foundation.value import Json

PEERS: Final = "peerClusterNames"
"""Key of the peers in the description of a cluster."""
BROKERS: Final = "brokers"
"""Key of the brokers in a failure domain."""
_DOMAINS: Final = "failureDomain"


class ClusterNotFound(BrokerError):
    """Nothing is stored under the name, and it is not the broker's own cluster."""

    status = 404
    """HTTP status of the answer."""


class ClusterRefused(BrokerError):
    """The request does not fit the clusters that exist."""

    status = 412
    """HTTP status of the answer."""


class Clusters:
    """Reads and writes the descriptions of clusters by name."""

    def __init__(self, store: MetadataStore, own: str) -> None:
        """`own`: `clusterName` of this broker; that cluster always exists."""
        self.own = own
        """The name of the broker's own cluster."""
        self._documents = JsonDocuments(store, CLUSTERS_ROOT)
        # Checks and writes belong together: two requests at once could give a broker to two failure domains.
        self._changing = asyncio.Lock()

    async def names(self) -> list[str]:
        """Returns all cluster names, the broker's own one included, sorted."""
        return sorted({self.own, *await self._documents.names()})

    async def exists(self, name: str) -> bool:
        """Returns True for a known cluster."""
        return name == self.own or await self._documents.get(name) is not None

    async def get(self, name: str) -> dict[str, Json]:
        """Returns the stored description, {} for the broker's own cluster without any. Raises ClusterNotFound."""
        found = await self._documents.get(name)
        if found is None and name != self.own:
            raise ClusterNotFound("Cluster does not exist")
        return found or {}

    async def create(self, name: str, data: dict[str, Json]) -> None:
        """Stores a new description. InvalidTopicName for a name that is not allowed, AlreadyExists."""
        check_new_namespace_part("Cluster", name)
        async with self._changing:
            if await self.exists(name):
                raise AlreadyExists("Cluster already exists")
            await self._documents.put(name, data)

    async def update(self, name: str, data: dict[str, Json]) -> None:
        """Replaces a description. Raises ClusterNotFound."""
        async with self._changing:
            await self.get(name)
            await self._documents.put(name, data)

    async def set_peers(self, name: str, peers: Sequence[str]) -> None:
        """Stores the peers of a cluster, [] for none. ClusterRefused for itself or an unknown cluster."""
        async with self._changing:
            data = await self.get(name)
            for peer in peers:
                if peer == name:
                    raise ClusterRefused(f"{name} itself can't be part of peer-list")
                if not await self.exists(peer):
                    raise ClusterRefused(f"Peer cluster {peer} does not exist")
            data.pop(PEERS, None)
            await self._documents.put(name, {**data, PEERS: list(peers)} if peers else data)

    async def delete(self, name: str) -> None:
        """Deletes a cluster with its failure domains. ClusterRefused for the own one, or with isolation policies."""
        async with self._changing:
            await self.get(name)
            if name == self.own:
                raise ClusterRefused(f"Cluster {name} is this broker's own one: clusterName={name}")
            if await self._policies(name):
                raise ClusterRefused("Cluster not empty")
            # From the bottom up: ZooKeeper deletes no node that has others below it.
            domains = self._documents.below(name, _DOMAINS)
            for domain in await domains.names():
                await domains.delete(domain)
            await self._documents.below(name).delete(ISOLATION)
            await self._documents.below(name).delete(CLUSTER_POLICIES)
            await self._documents.delete(name)

    # Failure domains: brokers that may fail together

    async def domains(self, cluster: str) -> dict[str, dict[str, Json]]:
        """Returns the failure domains of a cluster by name; {} for an unknown cluster."""
        documents = self._documents.below(cluster, _DOMAINS)
        found = {name: await documents.get(name) for name in await documents.names()}
        return {name: domain for name, domain in found.items() if domain is not None}

    async def set_domain(self, cluster: str, name: str, data: dict[str, Json]) -> None:
        """Stores a failure domain. ClusterRefused, or AlreadyExists for a broker that is in another domain."""
        check_no_folder("Failure domain", name)
        async with self._changing:
            await self._check(cluster)
            wanted = cast("list[Json]", data.get(BROKERS) or [])
            for other, domain in (await self.domains(cluster)).items():
                taken = [
                    broker for broker in cast("list[Json]", domain.get(BROKERS) or []) if broker in wanted
                ]
                if other != name and taken:
                    raise AlreadyExists(f"[{', '.join(map(str, taken))}] already exists in {other}")
            await self._documents.below(cluster, _DOMAINS).put(name, data)

    async def domain(self, cluster: str, name: str) -> dict[str, Json]:
        """Returns one failure domain. ClusterRefused for an unknown cluster, ClusterNotFound for a domain."""
        await self._check(cluster)
        found = await self._documents.below(cluster, _DOMAINS).get(name)
        if found is None:
            raise ClusterNotFound(f"Domain {name} for cluster {cluster} does not exist")
        return found

    async def delete_domain(self, cluster: str, name: str) -> None:
        """Deletes one failure domain. Errors as for `domain`."""
        async with self._changing:
            await self._check(cluster)
            domains = self._documents.below(cluster, _DOMAINS)
            if await domains.get(name) is None:
                raise ClusterNotFound(f"Domain-name {name} or cluster {cluster} does not exist")
            await domains.delete(name)

    # Isolation policies: brokers that shall serve certain namespaces

    async def isolation_policies(self, cluster: str) -> Mapping[str, Json]:
        """Returns the policies by name, as some program has stored them: a policy may have any form.

        ClusterRefused; ClusterNotFound where none was ever stored; DocumentUnreadable.
        """
        await self._check(cluster)
        found = await self._policies(cluster)
        if found is None:
            raise ClusterNotFound(f"NamespaceIsolationPolicies for cluster {cluster} does not exist")
        return found

    async def isolation_policy(self, cluster: str, name: str) -> Json:
        """Returns one policy. Errors as for `isolation_policies`; ClusterNotFound."""
        found = (await self.isolation_policies(cluster)).get(name)
        if found is None:
            raise ClusterNotFound(f"Cannot find NamespaceIsolationPolicy {name} for cluster {cluster}")
        return found

    async def set_isolation_policy(self, cluster: str, name: str, policy: dict[str, Json] | None) -> None:
        """Stores one policy; None removes it, and a missing one is no error. Raises ClusterRefused."""
        if policy is not None:
            check_no_folder("Isolation policy", name)
        async with self._changing:
            await self._check(cluster)
            policies: dict[str, Json] = {}
            # A node that no program can read is replaced; there is no other remedy over HTTP.
            with suppress(DocumentUnreadable):
                policies = dict(await self._policies(cluster) or {})
            policies.pop(name, None)
            if policy is not None:
                policies[name] = policy
            await self._documents.below(cluster).put(ISOLATION, policies)

    # Migration: the cluster to which clients of a cluster shall go

    async def migration(self, cluster: str) -> dict[str, Json]:
        """Returns the stored migration. ClusterNotFound for a cluster without one."""
        found = await self._documents.below(cluster).get(CLUSTER_POLICIES)
        if found is None:
            raise ClusterNotFound("Cluster does not exist")
        return found

    async def set_migration(self, cluster: str, migration: dict[str, Json]) -> None:
        """Stores the migration of a cluster. Raises ClusterNotFound."""
        async with self._changing:
            await self.get(cluster)
            await self._documents.below(cluster).put(CLUSTER_POLICIES, migration)

    async def _policies(self, cluster: str) -> dict[str, Json] | None:
        return await self._documents.below(cluster).get(ISOLATION)

    async def _check(self, cluster: str) -> None:
        if not await self.exists(cluster):
            raise ClusterRefused(f"Cluster {cluster} does not exist.")
