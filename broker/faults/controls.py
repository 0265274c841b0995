"""TestControls: the clock and the faults of one broker under test, and where they take hold of it.

clock     the broker takes `held.clock` as its own
faults    `around` wraps the connections of clients, `FaultyBookie` and `FaultyMetadata` the storage; `unloads` closes topics
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress

from bookkeeper.client.ledger_client import LedgerClient
from bookkeeper.metadata.metadata_store import MetadataStore
from broker.faults.faulty_storage import FaultyBookie, FaultyMetadata
from broker.faults.filtered_connection import FilteredConnection
from broker.faults.held_clock import HeldClock
from broker.faults.script import FaultScript
from broker.service.topics.topic_registry import TopicRegistry
from foundation.model.errors import TopicNotFound
from foundation.model.topic_name import parse_topic_name


class TestControls:
    """The controls of one broker."""

    __test__ = False
    """Tells pytest that this is no test."""

    def __init__(self) -> None:
        """Begins with the machine's time and without a fault."""
        self.held = HeldClock()
        """The clock that the test advances."""
        self.script = FaultScript()
        """The faults."""
        self.refusals = Counter[str]()
        """Errors sent to clients since the start, those of faults included, by names of `ServerError`."""

    def around(self, connection: asyncio.BufferedProtocol) -> FilteredConnection:
        """Puts the faults between a client's socket and its connection."""
        return FilteredConnection(connection, self.script, self.held, self.refusals)

    def unloads(
        self, registry: TopicRegistry, spawn: Callable[[Coroutine[object, None, None], str], object]
    ) -> None:
        """Lets faults close topics of this registry, each in a task that `spawn` starts."""

        async def close(topic: str) -> None:
            # The client or a deletion may have closed it in the turn before.
            with suppress(TopicNotFound):
                await registry.unload(parse_topic_name(topic))

        def unload(topic: str) -> bool:
            if topic not in registry.topics:
                return False
            spawn(close(topic), f"unload of {topic} by a fault")
            return True

        self.script.unload = unload

    def faulty_bookie(self, bookie: LedgerClient) -> LedgerClient:
        """Puts the faults in front of a bookie."""
        return FaultyBookie(bookie, self.script)

    def faulty_metadata(self, store: MetadataStore) -> MetadataStore:
        """Puts the faults in front of the metadata store."""
        return FaultyMetadata(store, self.script)
