"""A whole broker in memory with its admin port, one per test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from broker.config import load_broker_settings
from broker.ledger_client.memory import MemoryLedgerClient
from broker.loop import clock
from broker.loop.turn import Turn
from broker.metadata.memory_metadata_store import MemoryMetadataStore
from tests.fakes.ledgers import on_one_bookie


@pytest.fixture
def more_settings() -> list[str]:
    """Settings of this module's broker, as `name=value`."""
    return []


@pytest.fixture
async def broker(more_settings: list[str]) -> AsyncIterator[BrokerService]:
    loop = asyncio.get_running_loop()
    overrides = [
        "clusterName=standalone",
        "brokerServicePort=0",
        "webServicePort=0",
        "bindAddress=127.0.0.1",
        "advertisedAddress=127.0.0.1",
        "statsUpdateFrequencyInSecs=1",
        "managedLedgerStatsPeriodSeconds=1",
        *more_settings,
    ]
    settings = load_broker_settings(None, environ={}, overrides=overrides, profile=None)
    turn = Turn(loop.call_soon, clock.monotonic_ns)
    metadata = MemoryMetadataStore()
    service = BrokerService(
        settings,
        metadata=metadata,
        ledgers=on_one_bookie(metadata, MemoryLedgerClient(loop.call_soon)),
        turn=turn,
        version="1.2.3",
    )
    await service.start()
    await service.start_admin()
    yield service
    await service.stop()


@pytest.fixture
async def admin(broker: BrokerService) -> AsyncIterator[ClientSession]:
    # aiohttp calls a text "text/plain", which the broker refuses because a foreign web page could send it.
    headers = {"Content-Type": "application/json"}
    async with ClientSession(base_url=broker.addresses.admin_url, headers=headers) as session:
        yield session
