"""A place that somebody holds who may be gone: the holder is asked before the newcomer is refused."""

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
async def test_a_holder_that_answers_keeps_its_place(kind: int) -> None:
    first, second = await two_clients(WANTS[kind], 30)
    assert await first.names() == ["PING"]
    assert await second.names() == []
    first.say(BaseCommand.PONG, "pong")
    assert await second.names() == ["ERROR"]
    assert not first.transport.closing


@pytest.mark.parametrize("kind", [0, 1])
async def test_a_holder_that_is_gone_makes_room(kind: int) -> None:
    first, second = await two_clients(WANTS[kind], 0.01)
    assert await first.names() == ["PING"]
    while not first.transport.aborted:
        await asyncio.sleep(0.001)
        await second.port.stage.settle()
    assert await second.names() == []
    await first.lose()
    assert await second.names() == [SUCCESS[kind]]


async def test_nobody_is_asked_where_the_check_is_off() -> None:
    first, second = await two_clients(WANTS[0], 0)
    assert await second.names() == ["ERROR"]
    assert await first.names() == []
