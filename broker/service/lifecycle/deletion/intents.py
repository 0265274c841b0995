"""Intents: the deletions that were decided and may not be finished, in the metadata store.

    /admin/deletions/<kind>/<quoted name>    {"decided": 1700000000000, "partitions": 3, "schema": true}

An intent is written in one transaction with the mark that forbids the use of the deleted thing (`Deletions`), and it is
removed last. So the store has an intent for everything that is half deleted, and a start reads a few small keys instead of
searching the whole store.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import quote, unquote

from bookkeeper.metadata.metadata_store import ABSENT, MetadataStore, Put
from foundation.loop.uninterrupted import uninterrupted
from foundation.model.errors import MetadataError

ROOT: Final = "/admin/deletions"
"""Path in the metadata store; Magnetar's own, Pulsar has no such key."""


class Kind(StrEnum):
    """The things that are deleted with all that belongs to them."""

    TOPIC = "topic"
    """A topic without partitions, or one partition; by its full name."""
    PARTITIONED = "partitioned"
    """A partitioned topic with its partitions; by its full name."""
    NAMESPACE = "namespace"
    """A namespace with its topics; `tenant/namespace`."""
    TENANT = "tenant"
    """A tenant with its namespaces; its name."""


@dataclass(frozen=True, slots=True)
class Intent:
    """One decided deletion."""

    kind: Kind
    """The kind of the deleted thing."""
    name: str
    """Its name, see `Kind`."""
    decided_ms: int
    """When it was decided, ms since 1970."""
    partitions: int = 0
    """Partitions of a partitioned topic."""
    schema: bool = False
    """The schema goes too; False for a partition, and where the other domain has a topic of the name."""

    @property
    def key(self) -> str:
        """Its key in the metadata store."""
        return f"{ROOT}/{self.kind}/{quote(self.name, safe='')}"

    def encode(self) -> bytes:
        """Returns the stored value."""
        value: dict[str, int | bool] = {"decided": self.decided_ms}
        if self.partitions:
            value["partitions"] = self.partitions
        if self.schema:
            value["schema"] = True
        return json.dumps(value, separators=(",", ":")).encode()


def decode_intent(kind: Kind, name: str, value: bytes) -> Intent:
    """Returns the intent of a stored value. MetadataError for other bytes."""
    try:
        found = json.loads(value)
        return Intent(
            kind, name, int(found["decided"]), int(found.get("partitions", 0)), bool(found.get("schema"))
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetadataError(f"the intent to delete {kind} {name} cannot be read: {error!r}") from error


class Intents:
    """The stored intents, all of them in memory; call `open` first."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.pending: dict[tuple[Kind, str], Intent] = {}
        """Decided and not finished, by kind and name."""

    async def open(self) -> None:
        """Reads the intents that an earlier broker has left. Raises MetadataError."""
        for kind in Kind:
            for quoted in await self._store.children(f"{ROOT}/{kind}"):
                name = unquote(quoted)
                found = await self._store.get(f"{ROOT}/{kind}/{quoted}")
                if found is not None:
                    self.pending[kind, name] = decode_intent(kind, name, found.value)

    def has(self, kind: Kind, name: str) -> bool:
        """Returns True while the deletion is decided and not finished."""
        return (kind, name) in self.pending

    def put(self, intent: Intent) -> Put:
        """Returns the write that stores the intent, for a transaction; call `decided` when it is stored."""
        return Put(intent.key, intent.encode(), ABSENT)

    def decided(self, intent: Intent) -> None:
        """Takes note of an intent that is stored."""
        self.pending[intent.kind, intent.name] = intent

    async def decide(self, intent: Intent) -> None:
        """Stores an intent alone. Raises MetadataError."""
        await self._store.put(*self.put(intent))
        self.decided(intent)

    async def finished(self, intent: Intent) -> None:
        """Removes an intent whose deletion is complete. Raises MetadataError."""
        await uninterrupted(self._remove(intent))

    async def _remove(self, intent: Intent) -> None:
        await self._store.delete(intent.key)
        self.pending.pop((intent.kind, intent.name), None)
