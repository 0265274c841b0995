"""A whole broker in memory with its admin port, one per test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from tests.support.memory_broker import memory_broker


@pytest.fixture
def more_settings() -> list[str]:
    """Settings of this module's broker, as `name=value`."""
    return []


@pytest.fixture
async def broker(more_settings: list[str]) -> AsyncIterator[BrokerService]:
    every_second = ("statsUpdateFrequencyInSecs=1", "managedLedgerStatsPeriodSeconds=1")
    async with memory_broker(*every_second, *more_settings) as service:
        yield service


@pytest.fixture
async def admin(broker: BrokerService) -> AsyncIterator[ClientSession]:
    # aiohttp calls a text "text/plain", which the broker refuses because a foreign web page could send it.
    headers = {"Content-Type": "application/json"}
    async with ClientSession(base_url=broker.addresses.admin_url, headers=headers) as session:
        yield session
