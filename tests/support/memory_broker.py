"""A whole broker in memory inside the test's loop, with the settings of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bookkeeper.client.memory import MemoryLedgerClient
from bookkeeper.ensembles.ledger_ids import LedgerIdSource
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import MetadataStore
from broker.compose.broker_service import BrokerService
from broker.config import load_broker_settings
from broker.security.authentication.make import make_authenticator
from foundation.loop import clock
from foundation.loop.turn import Turn
from tests.fakes.ledgers import on_one_bookie


@asynccontextmanager
async def memory_broker(
    *overrides: str, metadata: MetadataStore | None = None, ids: LedgerIdSource | None = None
) -> AsyncIterator[BrokerService]:
    """Starts a broker with both ports, and stops it at the end of the block. `metadata` None: a store of its own.

    `ids` None: ids of ledgers are counted in the store.
    """
    loop = asyncio.get_running_loop()
    usual = (
        "clusterName=standalone",
        "brokerServicePort=0",
        "webServicePort=0",
        "bindAddress=127.0.0.1",
        "advertisedAddress=127.0.0.1",
    )
    settings = load_broker_settings(None, environ={}, overrides=[*usual, *overrides], profile=None)
    metadata = metadata or MemoryMetadataStore()
    service = BrokerService(
        settings,
        metadata=metadata,
        ledgers=on_one_bookie(metadata, MemoryLedgerClient(loop.call_soon)),
        turn=Turn(loop.call_soon, clock.monotonic_ns),
        version="1.2.3",
        ids=ids,
        authenticator=make_authenticator(settings),
    )
    await service.start()
    await service.start_admin()
    try:
        yield service
    finally:
        await service.stop()
