"""The PING that is sent to the holder of a name before another client is refused it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from protocol.pulsar_api_pb2 import BaseCommand
from tests.fakes.client import Client, Port
from tests.fakes.stage import Stage

WANTS: list[Callable[[Client], object]] = [
    lambda client: client.produce(0, producer_name="p"),
    lambda client: client.subscribe(0),
]
SUCCESS = ["PRODUCER_SUCCESS", "SUCCESS"]


async def two_clients(want: Callable[[Client], object], timeout_s: float) -> tuple[Client, Client]:
    """The first has the place, the second asks for it."""
    port = Port(Stage(), liveness_timeout_s=timeout_s)
    first, second = await port.client(), await port.client()
    want(first)
    await first.hear()
    want(second)
    return first, second


@pytest.mark.parametrize("kind", [0, 1])
async def test_client_that_answers_the_ping_keeps_its_place(kind: int) -> None:
    first, second = await two_clients(WANTS[kind], 30)
    assert await first.names() == ["PING"]
    assert await second.names() == []
    first.say(BaseCommand.PONG, "pong")
    assert await second.names() == ["ERROR"]
    assert not first.transport.closing


@pytest.mark.parametrize("kind", [0, 1])
async def test_client_that_is_gone_loses_its_place_to_the_next_one(kind: int) -> None:
    first, second = await two_clients(WANTS[kind], 0.01)
    assert await first.names() == ["PING"]
    while not first.transport.aborted:
        await asyncio.sleep(0.001)
        await second.port.stage.settle()
    assert await second.names() == []
    await first.lose()
    assert await second.names() == [SUCCESS[kind]]


async def test_no_ping_is_sent_when_the_liveness_check_is_off() -> None:
    first, second = await two_clients(WANTS[0], 0)
    assert await second.names() == ["ERROR"]
    assert await first.names() == []
