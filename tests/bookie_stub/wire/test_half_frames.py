"""Frames that are not completed: their memory is accounted for, and others are served meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bookie_stub.compose.bookie import Bookie
from bookie_stub.wire.server import BookieServer
from protocol.bookie_frame import AddResponse, encode_add_request
from protocol.receive_memory import STALE_NS
from tests.bookie_stub.bookie_process import answer
from tests.bookie_stub.conftest import MASTER_KEY, entry_of
from tests.support.bookie_settings import for_directory

MIB = 1 << 20
LIMIT = 4 * MIB


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[BookieServer]:
    post = asyncio.get_running_loop().call_soon_threadsafe
    bookie = Bookie.open(for_directory(tmp_path, port=0), post)
    server = BookieServer(bookie, unfinished_bytes_max=LIMIT)
    await server.start()
    yield server
    await server.close()


async def a_peer(server: BookieServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port)


async def until_used(server: BookieServer, least: int) -> None:
    async with asyncio.timeout(60):
        while server.unfinished.used_bytes < least:  # noqa: ASYNC110 - the other side is a socket
            await asyncio.sleep(0.001)


async def add(server: BookieServer, entry: int, size: int) -> None:
    reader, writer = await a_peer(server)
    writer.write(encode_add_request(entry_of(9, entry, bytes(size)), MASTER_KEY))
    assert await answer(reader) == AddResponse(0, 9, entry)
    writer.transport.abort()


def large_add(entry: int) -> bytes:
    return encode_add_request(entry_of(1, entry, bytes(2 * MIB)), MASTER_KEY)


@pytest.mark.parametrize("after_a_large_one", [False, True])
async def test_half_frames_above_the_limit_are_ended_and_others_are_served(
    server: BookieServer, after_a_large_one: bool, caplog: pytest.LogCaptureFixture
) -> None:
    peers = []
    for number in range(6):
        reader, writer = await a_peer(server)
        peers.append((reader, writer))
        if after_a_large_one:  # The next large add is received in place.
            writer.write(large_add(number))
            assert (await answer(reader))[0] == 0
    for number, (_, writer) in enumerate(peers):
        frame = large_add(100 + number)
        writer.write(frame[: len(frame) - 100])
    ended = [asyncio.ensure_future(reader.read()) for reader, _ in peers]
    await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED, timeout=60)
    await add(server, 0, 100)
    assert server.unfinished.used_bytes <= LIMIT
    lines = [record.getMessage() for record in caplog.records if "incomplete frame" in record.getMessage()]
    assert lines
    assert len(lines) == len(set(lines))
    for task in ended:
        task.cancel()
    for _, writer in peers:
        writer.transport.abort()


async def test_old_half_frame_makes_room_for_a_young_one(server: BookieServer) -> None:
    now_ns = 0
    server.unfinished._now_ns = lambda: now_ns
    reader, writer = await a_peer(server)
    writer.write(encode_add_request(entry_of(1, 0, bytes(3 * MIB)), MASTER_KEY)[: 3 * MIB])
    await until_used(server, 2 * MIB)
    now_ns = STALE_NS
    await add(server, 1, 3 * MIB)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()


async def test_account_is_empty_when_all_frames_are_complete(server: BookieServer) -> None:
    reader, writer = await a_peer(server)
    for entry in range(20):
        writer.write(encode_add_request(entry_of(1, entry, bytes(300_000)), MASTER_KEY))
    for entry in range(20):
        assert await asyncio.wait_for(answer(reader), 60) == AddResponse(0, 1, entry)
    assert server.unfinished.used_bytes == 0
    writer.write(large_add(50)[:MIB])
    await until_used(server, MIB // 2)
    writer.transport.abort()
    async with asyncio.timeout(60):
        while server.unfinished.used_bytes:  # noqa: ASYNC110 - the other side is a socket
            await asyncio.sleep(0.001)
