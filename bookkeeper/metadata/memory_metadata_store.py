"""MemoryMetadataStore: a metadata store in a dictionary, for `--memory` and tests; gone with the process.

It keeps the laws of `MetadataStore` except durability, and never waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from bookkeeper.metadata.metadata_store import ABSENT, VALUE_BYTES_MAX, Put, Versioned
from foundation.model.errors import BadVersion


class MemoryMetadataStore:
    """`MetadataStore` without a disk."""

    value_bytes_max: int = VALUE_BYTES_MAX
    """See MetadataStore."""

    def __init__(self) -> None:
        self._values: dict[str, Versioned] = {}
        self._children: dict[str, set[str]] = {}
        """By key, also one without a value, the names directly below it."""

    async def get(self, key: str) -> Versioned | None:
        """A look into the dictionary."""
        return self._values.get(key)

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        """Counts versions from 0."""
        return self._set(key, value, self._checked_version(key, expected) + 1)

    async def put_all(self, puts: Sequence[Put]) -> list[int]:
        """Compares every version before the first write."""
        # Two passes, so that a mismatch of the last write leaves the first undone.
        versions = [self._checked_version(key, expected) + 1 for key, _, expected in puts]
        return [
            self._set(key, value, version) for (key, value, _), version in zip(puts, versions, strict=True)
        ]

    async def delete(self, key: str, expected: int | None = None) -> None:
        """A key that comes again begins with version 0."""
        if self._checked_version(key, expected) != ABSENT:
            del self._values[key]
            self._unlink(key)

    async def children(self, key: str) -> list[str]:
        """Names are kept for every level, so nothing is searched."""
        return sorted(self._children.get(key.rstrip("/"), ()))

    async def close(self) -> None:
        """Does nothing; the values are gone with the object."""

    def _checked_version(self, key: str, expected: int | None) -> int:
        found = self._values.get(key)
        version = ABSENT if found is None else found.version
        if expected is not None and expected != version:
            raise BadVersion(f"{key} has version {version}, expected {expected}")
        return version

    def _set(self, key: str, value: bytes, version: int) -> int:
        self._values[key] = Versioned(value, version)
        if version == 0:
            self._link(key)
        return version

    def _link(self, key: str) -> None:
        """Enter the key into the names of its parents.

        Ends at the first parent that has the name already: those above it have theirs too.
        """
        while key:
            parent, _, name = key.rpartition("/")
            names = self._children.setdefault(parent, set())
            if name in names:
                return
            names.add(name)
            key = parent

    def _unlink(self, key: str) -> None:
        """Remove the key from its parent's names, and parents that became empty.

        A parent with a value or another child stays.
        """
        while key and key not in self._values and key not in self._children:
            parent, _, name = key.rpartition("/")
            names = self._children[parent]
            names.discard(name)
            if names:
                return
            del self._children[parent]
            key = parent
