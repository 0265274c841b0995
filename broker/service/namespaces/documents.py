"""JsonDocuments: JSON values below one path of the metadata store, for what administrators store and read rarely.

Each call reads the store: a copy in memory would have to follow the writes of other brokers.
"""

from __future__ import annotations

import json
from urllib.parse import quote, unquote

from bookkeeper.metadata.metadata_store import MetadataStore
from foundation.model.errors import BrokerError
from foundation.value import Json


class DocumentUnreadable(BrokerError):
    """Another program has stored a value that is no JSON object."""


class JsonDocuments:
    """JSON objects by name. Names may have any characters."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        """`root` is the path without a slash at its end."""
        self._store = store
        self._root = root

    async def names(self) -> list[str]:
        """Returns all names, sorted."""
        return sorted(unquote(name) for name in await self._store.children(self._root))

    async def get(self, name: str) -> dict[str, Json] | None:
        """Returns the object, None if there is none. Raises DocumentUnreadable."""
        key = self._key(name)
        found = await self._store.get(key)
        # ZooKeeper keeps an empty node above nodes that have a value.
        if found is None or not found.value:
            return None
        try:
            value: Json = json.loads(found.value)
        except (ValueError, RecursionError) as error:
            raise DocumentUnreadable(f"{key} in the metadata store cannot be read: {error}") from None
        if not isinstance(value, dict):
            raise DocumentUnreadable(f"{key} in the metadata store cannot be read: it is no JSON object")
        return value

    async def put(self, name: str, value: dict[str, Json]) -> None:
        """Creates or replaces the object."""
        await self._store.put(self._key(name), json.dumps(value, separators=(",", ":")).encode())

    async def delete(self, name: str) -> None:
        """Deletes the object; a missing one is no error."""
        await self._store.delete(self._key(name))

    def below(self, *names: str) -> JsonDocuments:
        """Returns the documents below one of these documents, or below one of those."""
        return JsonDocuments(self._store, "/".join((self._root, *(quote(name, safe="") for name in names))))

    def _key(self, name: str) -> str:
        return f"{self._root}/{quote(name, safe='')}"
