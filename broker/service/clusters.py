"""Clusters: data of Pulsar clusters, kept for the admin interface. The broker uses its own name only.

Each call reads the metadata store: requests are rare, and a copy in memory would have to follow other brokers' writes.
"""

from __future__ import annotations

import json
import re
from typing import Final, cast

from broker.metadata.metadata_store import MetadataStore
from broker.model.errors import BrokerError, InvalidTopicName
from broker.service.namespaces import Json

ROOT: Final = "/admin/clusters"
"""Pulsar's path in the metadata store."""
_NAME: Final = re.compile(r"[-=:.\w]+", re.ASCII)


class ClusterNotFound(BrokerError):
    """No data is stored for a cluster other than the broker's own."""

    status = 404
    """HTTP status of the answer."""


class Clusters:
    """Reads and writes the data of clusters by name."""

    def __init__(self, store: MetadataStore, own: str) -> None:
        """`own`: `clusterName` of this broker."""
        self._store = store
        self._own = own

    async def names(self) -> list[str]:
        """Returns all cluster names, the broker's own one included, sorted."""
        return sorted({self._own, *await self._store.children(ROOT)})

    async def get(self, name: str) -> dict[str, Json]:
        """Returns the stored data, {} for the broker's own cluster without any. Raises ClusterNotFound."""
        found = await self._store.get(f"{ROOT}/{name}")
        if found is not None:
            return cast("dict[str, Json]", json.loads(found.value))
        if name != self._own:
            raise ClusterNotFound("Cluster does not exist")
        return {}

    async def put(self, name: str, data: dict[str, Json]) -> None:
        """Creates or replaces the data. InvalidTopicName for a name outside `[-=:.\\w]+`."""
        if not _NAME.fullmatch(name):
            raise InvalidTopicName("Cluster name is not valid")
        await self._store.put(f"{ROOT}/{name}", json.dumps(data).encode())

    async def delete(self, name: str) -> None:
        """Deletes the data. ClusterNotFound when there is none."""
        # For ClusterNotFound: the store itself accepts the deletion of a missing key.
        await self.get(name)
        await self._store.delete(f"{ROOT}/{name}")
