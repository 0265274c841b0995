"""Clusters that this metadata store knows of, as the admin interface keeps them; nothing is done with the others.

Read from the store each time: they are asked for rarely, and the broker itself needs only its own name.
"""

from __future__ import annotations

import json
import re
from typing import Final, cast

from broker.metadata.metadata_store import MetadataStore
from broker.model.errors import BrokerError, InvalidTopicName
from broker.service.namespaces import Json

ROOT: Final = "/admin/clusters"
_NAME: Final = re.compile(r"[-=:.\w]+", re.ASCII)


class ClusterNotFound(BrokerError):
    status = 404


class Clusters:
    def __init__(self, store: MetadataStore, own: str) -> None:
        self._store = store
        self._own = own

    async def names(self) -> list[str]:
        """Always with the broker's own one, sorted."""
        return sorted({self._own, *await self._store.children(ROOT)})

    async def get(self, name: str) -> dict[str, Json]:
        """What was stored, {} for the broker's own cluster until somebody changes it. ClusterNotFound."""
        found = await self._store.get(f"{ROOT}/{name}")
        if found is not None:
            return cast("dict[str, Json]", json.loads(found.value))
        if name != self._own:
            raise ClusterNotFound("Cluster does not exist")
        return {}

    async def put(self, name: str, data: dict[str, Json]) -> None:
        if not _NAME.fullmatch(name):
            raise InvalidTopicName("Cluster name is not valid")
        await self._store.put(f"{ROOT}/{name}", json.dumps(data).encode())

    async def delete(self, name: str) -> None:
        await self.get(name)
        await self._store.delete(f"{ROOT}/{name}")
