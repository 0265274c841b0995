"""A whole broker in memory with its console, one per test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from tests.support.memory_broker import memory_broker


@pytest.fixture
async def broker() -> AsyncIterator[BrokerService]:
    async with memory_broker() as service:
        yield service


@pytest.fixture
async def admin(broker: BrokerService) -> AsyncIterator[ClientSession]:
    async with ClientSession(base_url=broker.addresses.admin_url) as session:
        yield session
