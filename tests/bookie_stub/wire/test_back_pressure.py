"""Peers that read fewer answers than they request: memory stays bounded, other peers are served."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bookie_stub.base.record import KEY
from bookie_stub.compose.bookie import Bookie
from bookie_stub.wire.connection import ADD_COST_BYTES
from bookie_stub.wire.server import OUTSTANDING_BYTES_MAX, BookieServer
from protocol.bookie_frame import (
    AddResponse,
    encode_add_request,
    encode_batch_read_request,
    encode_read_request,
)
from protocol.bookie_frame_v3 import encode_message
from protocol.bookkeeper_api_pb2 import EOK, READ_ENTRY
from tests.bookie_stub.bookie_process import Process, answer
from tests.bookie_stub.conftest import MASTER_KEY, FaultyFileSystem, entry_of
from tests.bookie_stub.v3_client import V3Client
from tests.support.bookie_settings import for_directory

MIB = 1 << 20


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path / "data")
    process.start("dbStorage_writeCacheMaxSizeMb=64", "journalPreAllocSizeMB=1")
    yield process
    assert process.end(signal.SIGTERM)[0] == 0


def pause_reading(writer: asyncio.StreamWriter) -> None:
    """Reads nothing more from the connection until `resume_reading`, so that the peer's answers pile up."""
    transport = writer.transport
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()


def resume_reading(writer: asyncio.StreamWriter) -> None:
    transport = writer.transport
    assert isinstance(transport, asyncio.Transport)
    transport.resume_reading()


def peak_bytes(process: Process) -> int:
    assert process.process is not None
    for line in Path(f"/proc/{process.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    pytest.skip("the system does not say how much memory a process had at most")


def read_v3(number: int) -> bytes:
    request = V3Client.request_of(READ_ENTRY, number)
    request.readRequest.ledgerId, request.readRequest.entryId = 1, number % 8
    return encode_message(request)


@pytest.mark.parametrize("kind", ["v2", "v2 batch", "v3"])
async def test_slow_reader_costs_a_bounded_amount_of_memory(process: Process, kind: str) -> None:
    """The reader requests 8 GiB and reads no answer."""
    reader, writer = await process.connect()
    for entry in range(8):
        writer.write(encode_add_request(entry_of(1, entry, bytes(4 * MIB)), MASTER_KEY))
        assert await answer(reader) == AddResponse(0, 1, entry)
    before = peak_bytes(process)
    _, slow_writer = await process.connect()
    slow_writer.transport.set_write_buffer_limits(high=10**9)
    pause_reading(slow_writer)
    for number in range(2000):
        if kind == "v2":
            slow_writer.write(encode_read_request(1, number % 8))
        elif kind == "v2 batch":
            slow_writer.write(encode_batch_read_request(1, number % 8, number, 100, 5 * MIB))
        else:
            slow_writer.write(read_v3(number))
    async with asyncio.timeout(60):
        while b"READ_ENTRY_BLOCKED 1" not in await metrics(process):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
    for number in range(50):
        writer.write(encode_read_request(1, number % 8))
        found = await asyncio.wait_for(answer(reader), 60)
        assert found[0] == 0
    assert peak_bytes(process) - before < 4 * OUTSTANDING_BYTES_MAX
    slow_writer.transport.abort()
    writer.close()


async def metrics(process: Process) -> bytes:
    host, port = process.addresses["http"].removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    text = await reader.read()
    writer.close()
    return text


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[BookieServer]:
    post = asyncio.get_running_loop().call_soon_threadsafe
    bookie = Bookie.open(for_directory(tmp_path, port=0, frame_bytes_max=MIB), post)
    server = BookieServer(bookie, outstanding_bytes_max=MIB)
    await server.start()
    yield server
    await server.close()


async def test_small_adds_are_charged_with_their_memory(tmp_path: Path) -> None:
    """20,000 of them are 0.6 MB of entries, and 3 MB more that hold them."""
    post = asyncio.get_running_loop().call_soon_threadsafe
    file_system = FaultyFileSystem()
    bookie = Bookie.open(for_directory(tmp_path, port=0), post, file_system=file_system)
    server = BookieServer(bookie, outstanding_bytes_max=MIB)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    file_system.may_sync.clear()
    try:
        for entry in range(20_000):
            writer.write(encode_add_request(KEY.pack(1, entry) + bytes(8), MASTER_KEY))
        async with asyncio.timeout(60):
            while not server.blocked:  # noqa: ASYNC110 - the other side is a socket
                await asyncio.sleep(0.001)
        (connection,) = server._connections
        assert MIB / (28 + ADD_COST_BYTES) < connection.adds < 20_000
    finally:
        file_system.may_sync.set()
    for entry in range(20_000):
        assert await asyncio.wait_for(answer(reader), 60) == AddResponse(0, 1, entry)
    assert (server.blocked, connection.adds, connection._adding_bytes) == (0, 0, 0)
    writer.close()
    await server.close()


async def test_woken_long_polls_wait_until_the_connection_is_unblocked(server: BookieServer) -> None:
    client, writer = await V3Client.connect(server.port), await V3Client.connect(server.port)
    await writer.answer(writer.add(1, 0, bytes(900_000)))
    polls = [client.long_poll(1, -1) for _ in range(200)]
    await client.answer(client.read_lac(2))  # behind the polls
    pause_reading(client.writer)
    assert (await writer.answer(writer.add(1, 1))).status == EOK
    async with asyncio.timeout(60):
        while not server.blocked:  # noqa: ASYNC110 - the other side is a socket
            await asyncio.sleep(0.001)
    assert (await writer.answer(writer.read(1, 1))).status == EOK
    transports = [connection._transport for connection in server._connections]
    unsent = [transport.get_write_buffer_size() for transport in transports if transport is not None]
    assert max(unsent) < 10 * MIB  # of 180
    resume_reading(client.writer)
    for poll in polls:
        assert len((await client.answer(poll)).readResponse.body) == len(entry_of(1, 0, bytes(900_000)))
    client.close()
    writer.close()


async def test_woken_long_polls_end_when_their_peer_leaves(server: BookieServer) -> None:
    client, writer = await V3Client.connect(server.port), await V3Client.connect(server.port)
    await writer.answer(writer.add(1, 0, bytes(900_000)))
    for _ in range(200):
        client.long_poll(1, -1)
    await client.answer(client.read_lac(2))
    pause_reading(client.writer)
    await writer.answer(writer.add(1, 1))
    async with asyncio.timeout(60):
        while not server.blocked:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        client.writer.transport.abort()
        while server.blocked or server.reads_in_progress:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    writer.close()
