"""The TCP side: any fragmentation, bad frames, peers that read no answers, and an orderly stop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from bookie_stub.compose.bookie import Bookie
from bookie_stub.wire.server import BookieServer
from protocol.bookie_frame import (
    AddResponse,
    BatchReadResponse,
    ReadResponse,
    Response,
    decode_response,
    encode_add_request,
    encode_batch_read_request,
    encode_fence_request,
    encode_read_request,
)
from tests.bookie_stub.conftest import MASTER_KEY, entry_of
from tests.support.bookie_settings import for_directory

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[BookieServer]:
    settings = for_directory(tmp_path, port=0, frame_bytes_max=1 << 20)
    server = BookieServer(
        Bookie.open(settings, asyncio.get_running_loop().call_soon_threadsafe), outstanding_bytes_max=1 << 20
    )
    await server.start()
    yield server
    await server.close()


@pytest.fixture
async def connect(server: BookieServer) -> AsyncIterator[Connect]:
    """Opens connections, and closes them behind the test."""
    writers: list[asyncio.StreamWriter] = []

    async def open_connection() -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writers.append(writer)
        return reader, writer

    yield open_connection
    for writer in writers:
        # Without waiting for what the server does not read; a writer that is not closed is a warning in debug mode.
        writer.transport.abort()


async def answer(reader: asyncio.StreamReader) -> Response:
    async with asyncio.timeout(60):
        length = int.from_bytes(await reader.readexactly(4), "big")
        return decode_response(await reader.readexactly(length))


async def test_requests_are_answered_in_any_fragmentation(connect: Connect) -> None:
    reader, writer = await connect()
    data = b"".join(encode_add_request(entry_of(1, entry, b"x" * entry), MASTER_KEY) for entry in range(60))
    rng = random.Random(2)
    while data:
        size = rng.choice((1, 2, 3, 17, 400))
        writer.write(data[:size])
        data = data[size:]
        await asyncio.sleep(0)
    for entry in range(60):
        assert await answer(reader) == AddResponse(0, 1, entry)
    for byte in encode_read_request(1, -1):
        writer.write(bytes((byte,)))
        await asyncio.sleep(0)
    found = await answer(reader)
    assert isinstance(found, ReadResponse)
    assert found.entry[36:] == b"x" * 59


@pytest.mark.parametrize(
    "bad", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"]
)
async def test_other_connections_work_when_a_peer_sends_no_bookkeeper_frames(
    connect: Connect, bad: bytes
) -> None:
    good_reader, good_writer = await connect()
    reader, writer = await connect()
    writer.write(bad)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    good_writer.write(encode_add_request(entry_of(1, 0), MASTER_KEY))
    assert await answer(good_reader) == AddResponse(0, 1, 0)


async def test_adds_before_a_bad_frame_are_stored(
    connect: Connect,
) -> None:
    _, writer = await connect()
    writer.write(encode_add_request(entry_of(1, 0), MASTER_KEY) + b"\0\0\0\4\2\x63\0\0")
    await writer.drain()
    reader, writer = await connect()
    async with asyncio.timeout(60):
        while True:
            writer.write(encode_read_request(1, 0))
            found = await answer(reader)
            assert isinstance(found, ReadResponse)
            if found.rc == 0:
                break


async def test_connection_stops_reading_when_its_peer_reads_no_answers(
    server: BookieServer, connect: Connect
) -> None:
    reader, writer = await connect()
    writer.write(encode_add_request(entry_of(1, 0, b"x" * 500_000), MASTER_KEY))
    assert await answer(reader) == AddResponse(0, 1, 0)
    requests = 300  # 150 MB of answers
    writer.write(encode_read_request(1, 0) * requests)
    async with asyncio.timeout(60):
        while not server.blocked:  # noqa: ASYNC110 - the other side is a socket
            await asyncio.sleep(0.001)
    assert server.reads_in_progress < 50
    other_reader, other_writer = await connect()
    other_writer.write(encode_read_request(1, 0))
    assert isinstance(await answer(other_reader), ReadResponse)
    for _ in range(requests):
        found = await answer(reader)
        assert isinstance(found, ReadResponse)
        assert found.rc == 0
    async with asyncio.timeout(60):
        while server.blocked:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_blocked_connection_is_not_counted_after_its_peer_leaves(
    server: BookieServer, connect: Connect
) -> None:
    reader, writer = await connect()
    writer.write(encode_add_request(entry_of(1, 0, b"x" * 500_000), MASTER_KEY))
    assert await answer(reader) == AddResponse(0, 1, 0)
    writer.write(encode_read_request(1, 0) * 500)
    async with asyncio.timeout(60):
        while not server.blocked:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        writer.transport.abort()
        while server.blocked or server.reads_in_progress:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_server_answers_many_adds_at_once(connect: Connect) -> None:
    reader, writer = await connect()
    total = 3000
    writer.write(
        b"".join(encode_add_request(entry_of(2, entry, b"y" * 900), MASTER_KEY) for entry in range(total))
    )
    answers = [await answer(reader) for _ in range(total)]
    adds = [found for found in answers if isinstance(found, AddResponse)]
    assert {found.rc for found in adds} == {0}
    assert sorted(found.entry_id for found in adds) == list(range(total))
    writer.write(encode_batch_read_request(2, 0, 77, 100, 1 << 20))
    batch = await answer(reader)
    assert isinstance(batch, BatchReadResponse)
    assert (batch.request_id, len(batch.entries)) == (77, 100)


async def test_fencing_batch_read_fences_its_ledger(connect: Connect) -> None:
    reader, writer = await connect()
    frame = bytearray(encode_batch_read_request(3, 0, 1, 10, 1000) + MASTER_KEY)
    frame[3] += len(MASTER_KEY)
    frame[7] = 1
    writer.write(frame)
    assert await answer(reader) == BatchReadResponse(2, 3, 0, 1, [])
    writer.write(encode_add_request(entry_of(3, 0), MASTER_KEY))
    assert await answer(reader) == AddResponse(104, 3, 0)
    writer.write(encode_fence_request(3, b"?" * 20))
    assert await answer(reader) == ReadResponse(102, 3, -1, b"")


async def test_stop_answers_outstanding_requests(server: BookieServer, connect: Connect) -> None:
    reader, writer = await connect()
    writer.write(b"".join(encode_add_request(entry_of(4, entry), MASTER_KEY) for entry in range(200)))
    async with asyncio.timeout(60):
        while not server.adds_in_progress:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await server.close()
        answered = await reader.read()
    assert len(answered) % 28 == 0
    assert len(answered) // 28 >= 1
    again = Bookie.open(server.bookie.settings, asyncio.get_running_loop().call_soon_threadsafe)
    found: list[int] = []
    for number in range(len(answered) // 28):
        entry = int.from_bytes(answered[number * 28 + 20 : number * 28 + 28], "big")
        again.read(4, entry, lambda rc, _: found.append(rc))
    async with asyncio.timeout(60):
        while len(found) < len(answered) // 28:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert set(found) == {0}
    again.close()
