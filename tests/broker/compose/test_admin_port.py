"""The admin port before, at and after its first connection, which loads the server."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.compose.broker_service import BrokerService
from tests.broker.managed_ledger.ledger_fakes import until
from tests.support.memory_broker import memory_broker


def _connect(broker: BrokerService) -> socket.socket:
    url = urlsplit(broker.addresses.admin_url)
    return socket.create_connection((url.hostname, url.port), timeout=60)


async def _end_of(client: socket.socket) -> bytes:
    """Returns what the broker sends until it closes the connection; b"" also for one that is reset."""
    try:
        return await asyncio.to_thread(client.recv, 1)
    except ConnectionResetError:
        return b""


async def test_admin_port_answers_after_a_client_that_left_at_once() -> None:
    async with memory_broker() as broker, ClientSession(broker.addresses.admin_url) as client:
        _connect(broker).close()
        async with client.get("/admin/v2/clusters") as answer:
            assert await answer.json() == ["standalone"]


async def test_admin_port_closes_when_no_client_came() -> None:
    async with memory_broker() as broker:
        pass
    with pytest.raises(ConnectionRefusedError):
        _connect(broker)


async def test_admin_port_closes_when_the_broker_stops_at_the_first_connection() -> None:
    async with memory_broker() as broker:
        client = _connect(broker)
    with client:
        assert await _end_of(client) == b""
    with pytest.raises(ConnectionRefusedError):
        _connect(broker)


async def test_admin_port_refuses_clients_and_logs_the_reason_when_the_server_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "broker.metrics.http", None)
    async with memory_broker() as broker:
        with caplog.at_level(logging.ERROR), _connect(broker) as client:
            assert await _end_of(client) == b""
        with pytest.raises(ConnectionRefusedError):
            _connect(broker)
    assert "! task 'admin port' failed" in caplog.messages


async def test_admin_port_of_a_broker_among_others_serves_before_the_first_connection() -> None:
    store = MemoryMetadataStore()
    async with memory_broker(metadata=store) as alone:
        assert alone._admin_port._server is None
    # Other brokers ask it to take a bundle, and clients wait for the answer.
    async with memory_broker(metadata=store.another()) as broker:
        await until(lambda: broker._admin_port._server)
