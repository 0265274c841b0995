"""The admin port with TLS: the certificate of a request's client, and handshakes that count as connections."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession, TCPConnector, web

from broker.admin.server import Admin, start_admin
from broker.compose.broker_service import BrokerService
from broker.config import load_broker_settings
from broker.net.listener import bind
from foundation.tls.certificates import Certificates
from foundation.tls.contexts import ServerFiles, server_context
from foundation.tls.listener import common_name
from tests.support.certificates import Certificates as Made

CONNECTIONS_MAX = 2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("certificates"))


async def who(request: web.Request) -> web.Response:
    return web.Response(text=common_name(request.transport) or "nobody")


@pytest.fixture
async def server(broker: BrokerService, made: Made) -> AsyncIterator[Admin]:
    """A second admin port of the broker, with TLS alone and few connections."""
    files = ServerFiles(certificate=made.server, key=made.key(made.server), trusted=made.authority)
    certificates = Certificates(
        lambda: server_context(files), files.paths(), check_s=300, now_ns=time.monotonic_ns, warn=print
    )
    before = broker.settings
    overrides = [f"maxHttpServerConnections={CONNECTIONS_MAX}"]
    broker.settings = load_broker_settings(None, environ={}, overrides=overrides, profile=None)
    try:
        running = await start_admin(
            broker, None, (web.get("/who", who),), tls=(bind("127.0.0.1", 0), certificates)
        )
    finally:
        broker.settings = before
    yield running
    await running.close()


async def name_of(server: Admin, made: Made, certificate: Path | None = None) -> str:
    context = ssl.create_default_context(cafile=made.authority)
    if certificate is not None:
        context.load_cert_chain(certificate, made.key(certificate))
    async with (
        ClientSession(connector=TCPConnector(ssl=context)) as session,
        session.get(f"https://localhost:{server.ports[0]}/who") as answer,
    ):
        return await answer.text()


async def test_request_has_the_certificate_of_its_client(server: Admin, made: Made) -> None:
    assert await name_of(server, made) == "nobody"
    assert await name_of(server, made, made.client) == "client"


async def test_handshakes_count_as_connections(server: Admin, made: Made) -> None:
    port = server.ports[0]
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
    # The listener accepts in order, so both are counted when the third one is refused.
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()
    for _, stalled in held:
        stalled.transport.abort()
    # TimeoutError while the ended handshakes still count.
    async with asyncio.timeout(60):
        while not await is_served(server, made):  # noqa: ASYNC110 - the end of a handshake has no event
            await asyncio.sleep(0.02)


async def is_served(server: Admin, made: Made) -> bool:
    try:
        return await name_of(server, made) == "nobody"
    except OSError:
        return False
