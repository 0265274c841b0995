"""count_start: a number that no other start of a broker on the same store has."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from bookkeeper.metadata.metadata_store import ABSENT, MetadataStore
from foundation.model.errors import BadVersion

STARTS_KEY: Final = "/counters/broker-starts"
"""Key of the metadata store: the number of brokers that have started on it."""


StartName: TypeAlias = Callable[[], Awaitable[str]]
"""Returns a part of names of producers that no other start gets. Raises MetadataError."""


async def count_start(metadata: MetadataStore) -> int:
    """Counts this start and returns the number of earlier ones, of all brokers: it makes names of producers unique."""
    while True:
        found = await metadata.get(STARTS_KEY)
        count, version = (int(found.value), found.version) if found else (0, ABSENT)
        # Another broker may start meanwhile. With one name for two producers, deduplication would drop messages.
        with contextlib.suppress(BadVersion):
            await metadata.put(STARTS_KEY, b"%d" % (count + 1), version)
            return count


async def counted_name(metadata: MetadataStore) -> str:
    """Counts this start; returns what makes its names of producers unique. Raises MetadataError."""
    # Apache's brokers, which may have been on a shared store, number names alike.
    return f"{'m' if metadata.is_shared else ''}{await count_start(metadata)}"
