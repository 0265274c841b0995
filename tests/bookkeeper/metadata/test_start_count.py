"""count_start: brokers that start at the same time on one store."""

from __future__ import annotations

import asyncio

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Versioned
from bookkeeper.metadata.start_count import count_start


class SlowReads(MemoryMetadataStore):
    """Answers a read one turn of the loop later, so that two starts both read before either writes."""

    async def get(self, key: str) -> Versioned | None:
        found = await super().get(key)
        await asyncio.sleep(0)
        return found


async def test_starts_at_the_same_time_have_different_numbers() -> None:
    store = SlowReads()
    assert sorted(await asyncio.gather(*(count_start(store) for _ in range(5)))) == [0, 1, 2, 3, 4]
    assert await count_start(store) == 5
