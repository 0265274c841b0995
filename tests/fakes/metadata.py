"""A metadata store in memory whose writes a test can refuse or hold back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import (
    VALUE_BYTES_MAX,
    MetadataStore,
    SessionState,
    Stop,
    Versioned,
    Write,
)
from foundation.model.errors import MetadataError


class FakeMetadata(MemoryMetadataStore):
    """Refuses writes while `refusing`, and delays them while `gate` is an unset event."""

    def __init__(self) -> None:
        super().__init__()
        self.value_bytes_max = VALUE_BYTES_MAX
        self.refusing = False
        self.gate: asyncio.Event | None = None
        """Writes and listings wait for it; None = they do not wait."""

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        if self.gate is not None:
            await self.gate.wait()
        if self.refusing:
            raise MetadataError("refused by the test")
        return await super().put(key, value, expected)

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        if self.gate is not None:
            await self.gate.wait()
        if self.refusing:
            raise MetadataError("refused by the test")
        return await super().put_all(puts)

    async def children(self, key: str) -> list[str]:
        if self.gate is not None:
            await self.gate.wait()
        return await super().children(key)

    async def delete(self, key: str, expected: int | None = None) -> None:
        if self.gate is not None:
            await self.gate.wait()
        await super().delete(key, expected)


class Unwatched:
    """The part of a store that tests of writes do without: no news of the session, no watches."""

    is_shared = False

    async def sync(self) -> None:
        """Reads show every write."""

    async def watch(self, key: str, changed: Callable[[], None]) -> Stop:
        return _nothing

    async def watch_children(self, key: str, changed: Callable[[], None]) -> Stop:
        return _nothing

    def listen(self, told: Callable[[SessionState], None]) -> None:
        """There is no news."""


def _nothing() -> None:
    """Ends no watch."""


class WritesUntilCrash(Unwatched):
    """One broker's way to a store that others share: writes behind the given number never arrive.

    The broker that waits for them is dead, and another one may begin on `shared`.
    """

    def __init__(self, shared: MetadataStore, writes: int) -> None:
        self.shared = shared
        self.left = writes
        self.dead = False
        self.value_bytes_max = shared.value_bytes_max

    async def _arrive(self) -> None:
        if self.left == 0:
            self.dead = True
            await asyncio.Event().wait()
        self.left -= 1

    async def get(self, key: str) -> Versioned | None:
        return await self.shared.get(key)

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        await self._arrive()
        return await self.shared.put(key, value, expected)

    async def put_all(self, puts: Sequence[Write]) -> list[int]:
        await self._arrive()
        return await self.shared.put_all(puts)

    async def delete(self, key: str, expected: int | None = None) -> None:
        await self._arrive()
        await self.shared.delete(key, expected)

    async def children(self, key: str) -> list[str]:
        return await self.shared.children(key)

    async def close(self) -> None:
        pass


class LateWrites(WritesUntilCrash):
    """As its base, and `release` lets the write arrive late, with all behind it: its broker was cut off for a while."""

    def __init__(self, shared: MetadataStore, writes: int) -> None:
        super().__init__(shared, writes)
        self._released = asyncio.Event()

    async def _arrive(self) -> None:
        if self.left == 0:
            self.dead = True
            await self._released.wait()
        else:
            self.left -= 1

    def release(self) -> None:
        """The network is back."""
        self._released.set()


async def everything(store: MetadataStore, below: str) -> dict[str, Versioned]:
    """Returns all keys below a path, with their values and versions."""
    found = {}
    for name in await store.children(below):
        key = f"{below}/{name}"
        if (one := await store.get(key)) is not None:
            found[key] = one
        found |= await everything(store, key)
    return found
