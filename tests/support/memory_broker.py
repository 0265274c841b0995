"""A whole broker inside the test's loop, with the settings of the test: in memory, or with stores of the caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bookkeeper.client.ledger_client import LedgerClient
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
    """Starts a broker in memory, and stops it at the end of the block. `metadata` None: a store of its own.

    `ids` None: ids of ledgers are counted in the store.
    """
    loop = asyncio.get_running_loop()
    turn = Turn(loop.call_soon, clock.monotonic_ns)
    client = MemoryLedgerClient(loop.call_soon)
    async with broker_with(metadata or MemoryMetadataStore(), client, turn, *overrides, ids=ids) as service:
        yield service


@asynccontextmanager
async def broker_with(
    metadata: MetadataStore,
    client: LedgerClient,
    turn: Turn,
    *overrides: str,
    ids: LedgerIdSource | None = None,
) -> AsyncIterator[BrokerService]:
    """Starts a broker with both ports over these stores, and stops it at the end of the block."""
    usual = (
        "clusterName=standalone",
        "brokerServicePort=0",
        "webServicePort=0",
        "bindAddress=127.0.0.1",
        "advertisedAddress=127.0.0.1",
    )
    settings = load_broker_settings(None, environ={}, overrides=[*usual, *overrides], profile=None)
    service = BrokerService(
        settings,
        metadata=metadata,
        ledgers=on_one_bookie(metadata, client),
        turn=turn,
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
