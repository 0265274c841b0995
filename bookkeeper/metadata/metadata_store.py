"""MetadataStore: versioned values under keys that look like paths. Pulsar's name: MetadataStore.

The laws that every store obeys:

1. A key is a path (`/managed-ledgers/public/default/persistent/orders`), a value has at least one byte.
2. Each successful put adds one to the key's version. A fresh key has version 0, or more where the store already had to
   keep a node for the keys below it.
3. A write returns when it would survive a crash of the machine, except in memory.
4. Writes are applied in the order of the calls, many per commit, so waiting for the last of several is enough.

Three stores: SQLite for a broker alone, ZooKeeper for what several processes share, a dictionary for `--memory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Versioned(NamedTuple):
    """A value and the version that a compare-and-set needs."""

    value: bytes
    """At least one byte."""
    version: int
    """Goes up by one with each put."""


ABSENT = -1
"""As `expected`: the key must not exist yet."""


class Put(NamedTuple):
    """A write of several that belong together."""

    key: str
    """A path."""
    value: bytes
    """At least one byte."""
    expected: int
    """A version, or ABSENT."""


VALUE_BYTES_MAX = 100_000_000
"""Bytes of a value where the store itself sets no lower limit: a tenth of what SQLite can keep."""


class MetadataStore(Protocol):
    """The store of everything that must outlive the process.

    Calls raise MetadataError when the store fails; a write was then perhaps carried out.
    """

    @property
    def value_bytes_max(self) -> int:
        """Bytes of the largest value that `put` accepts."""
        ...

    async def get(self, key: str) -> Versioned | None:
        """The value, None for a key that does not exist."""
        ...

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        """Write; returns the new version.

        Raises BadVersion when `expected` is another; None does not compare.
        """
        ...

    async def put_all(self, puts: Sequence[Put]) -> list[int]:
        """Write all of them, of different keys, or none.

        Returns the new versions. Raises BadVersion.
        """
        ...

    async def delete(self, key: str, expected: int | None = None) -> None:
        """Remove the key.

        A missing one is fine unless `expected` names a version; then BadVersion.
        """
        ...

    async def children(self, key: str) -> list[str]:
        """The names one level below `key`, sorted, each once, without slashes."""
        ...

    async def close(self) -> None:
        """Finish the writes that wait; later ones raise MetadataError."""
        ...
