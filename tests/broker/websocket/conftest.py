"""A whole broker in memory with its WebSocket API, one per test."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

from bookkeeper.metadata.metadata_store import MetadataStore
from broker.compose.broker_service import BrokerService
from tests.support.memory_broker import memory_broker

WAIT_S = 60


def a_broker(
    *overrides: str, metadata: MetadataStore | None = None
) -> AbstractAsyncContextManager[BrokerService]:
    """Returns a broker in memory with its WebSocket API, for `async with`."""
    return memory_broker("webSocketServiceEnabled=true", *overrides, metadata=metadata)


class Socket:
    """A client's WebSocket, in JSON."""

    def __init__(self, inner: ClientWebSocketResponse) -> None:
        self.inner = inner

    async def send(self, value: object) -> None:
        await self.inner.send_str(value if isinstance(value, str) else json.dumps(value))

    async def next(self) -> Any:
        message = await self.inner.receive(WAIT_S)
        assert message.type is WSMsgType.TEXT, message
        return json.loads(message.data)

    async def ask(self, value: object) -> Any:
        await self.send(value)
        return await self.next()

    async def closed(self) -> tuple[int, str]:
        """Returns code and reason of the close, which must be the next thing to come."""
        message = await self.inner.receive(WAIT_S)
        assert message.type in (WSMsgType.CLOSE, WSMsgType.CLOSED), message
        return int(message.data or self.inner.close_code or 0), str(message.extra or "")

    async def payloads(self, count: int, *, ack: bool = True) -> list[str]:
        found = []
        for _ in range(count):
            message = await self.next()
            found.append(base64.b64decode(message["payload"]).decode())
            if ack:
                await self.send({"messageId": message["messageId"]})
        return found

    async def publish(self, *payloads: str, **more: object) -> list[Any]:
        return [await self.ask({"payload": b64(one), **more}) for one in payloads]

    async def says_nothing(self) -> None:
        """Waits for the answer to a last request, in front of which all other messages would have come."""
        await self.send({"type": "isEndOfTopic"})
        assert "endOfTopic" in await self.next()


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Connect(Protocol):
    async def __call__(self, path: str, **more: Any) -> Socket: ...


@pytest.fixture
async def broker() -> AsyncIterator[BrokerService]:
    async with a_broker() as service:
        yield service


@pytest.fixture
async def http(broker: BrokerService) -> AsyncIterator[ClientSession]:
    async with ClientSession(base_url=broker.addresses.admin_url) as session:
        yield session


@pytest.fixture
async def connect(http: ClientSession) -> AsyncIterator[Connect]:
    opened: list[Socket] = []

    async def to(path: str, **more: Any) -> Socket:
        socket = Socket(await http.ws_connect(path, **more))
        opened.append(socket)
        return socket

    yield to
    for socket in opened:
        await socket.inner.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - a state of the broker has no event
            await asyncio.sleep(0.005)
