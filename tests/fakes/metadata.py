"""A metadata store in memory whose writes a test can refuse or hold back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from broker.metadata.memory_metadata_store import MemoryMetadataStore
from broker.metadata.metadata_store import Put
from broker.model.errors import MetadataError


class FakeMetadata(MemoryMetadataStore):
    """Refuses writes while `refusing`, and delays them while `gate` is an unset event."""

    def __init__(self) -> None:
        super().__init__()
        self.refusing = False
        self.gate: asyncio.Event | None = None
        """Writes and listings wait for it; None = they do not wait."""

    async def put(self, key: str, value: bytes, expected: int | None = None) -> int:
        if self.gate is not None:
            await self.gate.wait()
        if self.refusing:
            raise MetadataError("refused by the test")
        return await super().put(key, value, expected)

    async def put_all(self, puts: Sequence[Put]) -> list[int]:
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
