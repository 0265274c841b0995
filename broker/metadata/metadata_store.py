"""What every metadata store promises: versioned values under slash-separated keys.

A key looks like a path (`/managed-ledgers/public/default/persistent/orders`), a value has at least one byte. Each
successful put adds one to the key's version; a fresh key has version 0, or more where the store already had to keep
a place for the keys below it. A put or delete is answered when it would survive a
crash of the machine (unless the store is in memory), and operations are applied in the order in which
they were asked for, many per commit, so waiting for the last of several is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Versioned(NamedTuple):
    value: bytes
    version: int


ABSENT = -1
"""As `expected`: the key must not exist yet."""


class Put(NamedTuple):
    """One write of several that belong together."""

    key: str
    value: bytes
    expected: int
    """A version, or ABSENT."""


class MetadataStore(Protocol):
    async def get(self, key: str) -> Versioned | None: ...

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        """Write and answer the new version. `expected` None = whatever is there; else BadVersion on a mismatch."""
        ...

    async def put_all(self, puts: Sequence[Put]) -> list[int]:
        """Write all of them, of different keys, or none; answers the new versions. BadVersion when one mismatches."""
        ...

    async def delete(self, key: str, expected: int | None = None) -> None:
        """Remove the key. A missing one is no error unless `expected` names a version."""
        ...

    async def children(self, key: str) -> list[str]:
        """The names one level below `key`, sorted, each once, without slashes."""
        ...

    async def close(self) -> None: ...
