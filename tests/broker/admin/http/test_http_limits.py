"""HTTP connections that flood, stay silent or break the protocol: a 4xx or the end, one line, no traceback."""

from __future__ import annotations

import asyncio
import logging

import pytest

from broker.admin.http.http_limits import FULL
from broker.admin.server import Admin, start_admin
from broker.compose.broker_service import BrokerService
from broker.config import load_broker_settings
from broker.net.listener import bind
from tests.support.malformed_http import MALFORMED, PLANTED, whole_answer

PATH = b"POST /admin/v2/namespaces/public/default/deduplication HTTP/1.1\r\nHost: 127.0.0.1\r\n"


async def a_server(broker: BrokerService, **changes: int) -> Admin:
    """A second admin port of the broker, with other settings."""
    before = broker.settings
    overrides = [f"{name}={value}" for name, value in changes.items()]
    broker.settings = load_broker_settings(None, environ={}, overrides=overrides, profile=None)
    try:
        return await start_admin(broker, bind("127.0.0.1", 0))
    finally:
        broker.settings = before


@pytest.fixture
def port(broker: BrokerService) -> int:
    return int(broker.addresses.admin_url.rpartition(":")[2])


async def answer_to(port: int, data: bytes) -> bytes:
    """The status line, empty when the connection ends without an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.readline(), 60)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        PATH + b"Content-Length: -1\r\n\r\nabc",
        PATH + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\n",
        PATH + b"Content-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde",
        PATH + b"Content-Type: application/json\r\nContent-Encoding: zstd\r\nContent-Length: 5\r\n\r\nabcde",
    ],
)
async def test_malformed_request_is_400_with_one_line_and_no_traceback(
    port: int, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert b" 400 " in await answer_to(port, data)
    shown = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(shown) <= 1
    assert [record for record in shown if record.exc_info or "\n" in record.getMessage()] == []


@pytest.mark.parametrize(
    "data", [*MALFORMED, PATH + b"Transfer-Encoding: chunked\r\n\r\n" + PLANTED + b"\r\n"]
)
async def test_bytes_that_are_no_request_are_neither_answered_nor_logged(
    port: int, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        whole = await whole_answer(port, data)
    assert whole.startswith((b"HTTP/1.0 4", b"HTTP/1.1 4"))
    assert b"planted" not in whole
    assert "planted" not in caplog.text


async def test_flood_of_malformed_requests_is_not_logged_line_by_line(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for _ in range(50):
            await answer_to(port, b"GET / HTTP/9.9\r\n\r\n")
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) < 25


async def test_client_that_leaves_in_the_middle_of_a_body_is_no_traceback(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(PATH + b"Content-Length: 100\r\n\r\nabc")
        await writer.drain()
        writer.transport.abort()
        assert b" 400 " in await answer_to(port, b"GET / HTTP/9.9\r\n\r\n")
    assert [record for record in caplog.records if record.exc_info] == []


async def test_chunked_body_without_end_is_413(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(PATH + b"Transfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
    sending = asyncio.ensure_future(_send_without_end(writer, chunk))
    try:
        assert b" 413 " in await asyncio.wait_for(reader.readline(), 60)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.transport.abort()


async def _send_without_end(writer: asyncio.StreamWriter, chunk: bytes) -> None:
    while True:
        writer.write(chunk)
        await writer.drain()


async def test_slow_body_is_408(broker: BrokerService) -> None:
    server = await a_server(broker, httpServerIdleTimeout=500)
    try:
        data = PATH + b"Content-Length: 100\r\n\r\nabc"
        assert b" 408 " in await answer_to(server.ports[0], data)
    finally:
        await server.close()


async def test_connection_without_a_whole_first_request_is_closed(broker: BrokerService) -> None:
    server = await a_server(broker, httpServerIdleTimeout=500)
    try:
        for data in (b"", b"GET / HTTP/1.1\r\nX-Slow: "):
            assert await answer_to(server.ports[0], data) == b""
    finally:
        await server.close()


async def test_connection_above_the_limit_is_503(broker: BrokerService) -> None:
    server = await a_server(broker, maxHttpServerConnections=3)
    try:
        ready = b"GET /admin/v2/brokers/ready HTTP/1.1\r\nHost: localhost\r\n\r\n"
        held = []
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
            writer.write(ready)
            assert b" 200 " in await reader.readline()
            held.append(writer)
        assert await answer_to(server.ports[0], ready) == FULL.partition(b"\n")[0] + b"\n"
        held[0].transport.abort()
        # The server notices the end of a connection a little later, also the end of those that ask here.
        async with asyncio.timeout(60):
            while b" 200 " not in await answer_to(server.ports[0], ready):
                pass
        for writer in held:
            writer.transport.abort()
    finally:
        await server.close()
