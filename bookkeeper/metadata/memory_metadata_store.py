"""MemoryMetadataStore: a metadata store in a dictionary, for `--memory` and tests; lost when the process ends.

It keeps the laws of `MetadataStore` except durability, and never waits. Each object is one session; `another` makes one more
on the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bookkeeper.metadata.local_watches import WatchedLocally
from bookkeeper.metadata.metadata_store import (
    ABSENT,
    VALUE_BYTES_MAX,
    Check,
    Ephemeral,
    SessionState,
    Versioned,
    Write,
)
from foundation.model.errors import BadVersion


class MemoryMetadataStore(WatchedLocally):
    """`MetadataStore` without a disk."""

    value_bytes_max: int = VALUE_BYTES_MAX
    """Longest value, in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.is_shared = False
        """True once there is another session."""
        self._values: dict[str, Versioned] = {}
        self._children: dict[str, set[str]] = {}
        """By key, also one without a value, the names directly below it."""
        self._owners: dict[str, MemoryMetadataStore] = {}
        """The session of each ephemeral key."""
        self._listeners: list[Callable[[SessionState], None]] = []

    def another(self) -> MemoryMetadataStore:
        """Returns another session on the same values."""
        other = MemoryMetadataStore()
        self.is_shared = other.is_shared = True
        other._values, other._children = self._values, self._children
        other._watches, other._owners = self._watches, self._owners
        return other

    async def get(self, key: str) -> Versioned | None:
        """Looks into a dictionary."""
        return self._values.get(key)

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        """Counts versions from 0."""
        return self._set(key, value, self._checked_version(key, expected) + 1)

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        """Compares every version before the first write."""
        # Two passes, so that a mismatch of the last write leaves the first undone.
        versions = [self._checked_version(put.key, put.expected) for put in puts]
        return [
            version
            if isinstance(put, Check)
            else self._set(put.key, put.value, version + 1, ephemeral=isinstance(put, Ephemeral))
            for put, version in zip(puts, versions, strict=True)
        ]

    async def delete(self, key: str, expected: int | None = None) -> None:
        """Stores the value; a key that comes again begins with version 0."""
        if self._checked_version(key, expected) != ABSENT:
            self._remove(key)

    async def children(self, key: str) -> list[str]:
        """Names are kept for every level, so nothing is searched."""
        return sorted(self._children.get(key.rstrip("/"), ()))

    async def sync(self) -> None:
        """Does nothing: a read shows every write."""

    def listen(self, told: Callable[[SessionState], None]) -> None:
        """Tells of `expire` alone."""
        self._listeners.append(told)

    def expire(self) -> None:
        """Ends the session as ZooKeeper ends one that it did not hear of, and begins the next."""
        self._end_session()
        self._watches.tell_all()
        for state in (SessionState.LOST, SessionState.RE_ESTABLISHED):
            for told in self._listeners:
                told(state)

    async def close(self) -> None:
        """Removes the session's ephemeral keys; the values are gone with the last session."""
        self._end_session()

    def _end_session(self) -> None:
        for key in [key for key, owner in self._owners.items() if owner is self]:
            self._remove(key)

    def _checked_version(self, key: str, expected: int | None) -> int:
        found = self._values.get(key)
        version = ABSENT if found is None else found.version
        if expected is not None and expected != version:
            raise BadVersion(f"{key} has version {version}, expected {expected}")
        return version

    def _set(self, key: str, value: bytes, version: int, *, ephemeral: bool = False) -> int:
        self._values[key] = Versioned(value, version)
        if version == 0:
            self._link(key)
            if ephemeral:
                self._owners[key] = self
        self._watches.tell(key, names=version == 0)
        return version

    def _remove(self, key: str) -> None:
        del self._values[key]
        self._owners.pop(key, None)
        self._unlink(key)
        self._watches.tell(key, names=True)

    def _link(self, key: str) -> None:
        """Enters the key into the names of its parents.

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
        """Removes the key from its parent's names, and removes parents that became empty.

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
