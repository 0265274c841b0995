"""Cold reads through the socket: golden numbers, many readers beside a writer, and a reader that reads no answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from bookie_stub.compose.bookie import Bookie
from bookie_stub.disk.read_cache import POLICIES
from bookie_stub.wire.server import BookieServer
from protocol.bookie_frame import (
    AddResponse,
    BatchReadResponse,
    ReadResponse,
    Response,
    decode_response,
    encode_add_request,
    encode_batch_read_request,
    encode_read_request,
)
from tests.bookie_stub.conftest import MASTER_KEY, entry_of
from tests.support.bookie_settings import for_directory

MIB = 1 << 20
ENTRY_BYTES = 4120


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> Response:
        async with asyncio.timeout(60):
            length = int.from_bytes(await self.reader.readexactly(4), "big")
            return decode_response(await self.reader.readexactly(length))

    async def read(self, ledger: int, entry: int) -> ReadResponse:
        self.writer.write(encode_read_request(ledger, entry))
        found = await self.answer()
        assert isinstance(found, ReadResponse)
        return found

    async def add_all(self, ledger: int, count: int, payload_bytes: int) -> None:
        for first in range(0, count, 100):
            entries = range(first, min(first + 100, count))
            for entry in entries:
                self.writer.write(
                    encode_add_request(entry_of(ledger, entry, b"x" * payload_bytes), MASTER_KEY)
                )
            assert {await self.answer() for _ in entries} == {
                AddResponse(0, ledger, entry) for entry in entries
            }


class Service:
    """A bookie behind a socket on a free port."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.server: BookieServer | None = None
        self.clients: list[Client] = []

    async def start(self, **settings: object) -> BookieServer:
        post = asyncio.get_running_loop().call_soon_threadsafe
        bookie = Bookie.open(for_directory(self.directory, port=0, **settings), post)
        self.server = BookieServer(bookie, outstanding_bytes_max=2 * MIB)
        await self.server.start()
        return self.server

    async def restart(self, **settings: object) -> BookieServer:
        """So that nothing is in memory."""
        await self.close()
        return await self.start(**settings)

    async def client(self) -> Client:
        assert self.server is not None
        self.clients.append(Client(*await asyncio.open_connection("127.0.0.1", self.server.port)))
        return self.clients[-1]

    async def close(self) -> None:
        for client in self.clients:
            client.writer.close()
        self.clients.clear()
        if self.server is not None:
            await self.server.close()
            self.server = None


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    service = Service(tmp_path)
    yield service
    await service.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the other side is a socket
            await asyncio.sleep(0.001)


async def test_golden_read_cache_misses_over_the_wire(service: Service) -> None:
    """Four clients, a ledger each, one entry in turn: 8 misses of 2,048 reads with a limit of 2 MiB."""
    await service.start(write_cache_bytes=64 * MIB)
    writer = await service.client()
    for ledger in range(4):
        await writer.add_all(ledger, 1024, ENTRY_BYTES - 36)
    server = await service.restart(
        read_cache_bytes=16 * MIB, readahead_entries=1024, readahead_bytes=2 * MIB, read_cache_policy="ring"
    )
    readers = [await service.client() for _ in range(4)]
    for entry in range(512):
        found = await asyncio.gather(*(reader.read(ledger, entry) for ledger, reader in enumerate(readers)))
        assert [len(each.entry) for each in found] == [ENTRY_BYTES] * 4
    stats = server.bookie.stats
    assert (stats.read_cache_misses, stats.read_cache_hits) == (8, 2040)


@pytest.mark.parametrize("policy", POLICIES)
async def test_cold_readers_beside_a_writer_get_the_written_entries(service: Service, policy: str) -> None:
    """Readers that pipeline single reads and batches through a cache that is too small, while adds go on."""
    await service.start(write_cache_bytes=16 * MIB)
    first = await service.client()
    for ledger in range(1, 7):
        await first.add_all(ledger, 300, 1000)
    server = await service.restart(
        read_cache_bytes=MIB,
        readahead_entries=200,
        read_cache_policy=policy,
        read_threads=2,
        write_cache_bytes=MIB,
    )

    async def read_singly(ledger: int) -> None:
        client = await service.client()
        for start in range(0, 300, 50):
            for entry in range(start, start + 50):
                client.writer.write(encode_read_request(ledger, entry))
            answers = {await client.answer() for _ in range(50)}
            assert answers == {
                ReadResponse(0, ledger, entry, entry_of(ledger, entry, b"x" * 1000))
                for entry in range(start, start + 50)
            }

    async def read_in_batches(ledger: int) -> None:
        client = await service.client()
        for start in range(0, 300, 30):
            client.writer.write(encode_batch_read_request(ledger, start, start, 30, 5 * MIB))
            answer = await client.answer()
            assert isinstance(answer, BatchReadResponse)
            assert answer.entries == [
                entry_of(ledger, entry, b"x" * 1000) for entry in range(start, start + 30)
            ]

    writer = await service.client()
    await asyncio.gather(
        *(read_singly(ledger) for ledger in (1, 2, 3)),
        *(read_in_batches(ledger) for ledger in (4, 5, 6)),
        writer.add_all(9, 2000, 1000),
    )
    assert server.bookie.stats.read_entries.ok.count == 6 * 300
    assert server.bookie.stats.checkpoints > 0
    assert server.bookie.state.read_cache.size <= MIB


async def test_cold_reader_that_reads_no_answers_costs_bounded_memory(service: Service) -> None:
    """The reader requests 300 MB in batches; the bookie soon stops reading the logs for it."""
    await service.start(write_cache_bytes=64 * MIB)
    writer = await service.client()
    await writer.add_all(1, 30, 200_000)
    await writer.add_all(2, 10, 100)
    server = await service.restart(read_cache_bytes=4 * MIB)
    sleeper = await service.client()
    for number in range(60):
        sleeper.writer.write(encode_batch_read_request(1, 0, number, 25, 5 * MIB))
    bookie = server.bookie
    await until(lambda: server.blocked == 1)
    other = await service.client()
    for entry in range(10):
        assert (await other.read(2, entry)).rc == 0
    assert server.blocked == 1
    assert bookie.stats.read_bytes < 100e6
    assert bookie.state.read_cache.size <= 4 * MIB
    for _ in range(60):
        answer = await sleeper.answer()
        assert isinstance(answer, BatchReadResponse)
        assert len(answer.entries) == 25
    await until(lambda: server.blocked == 0)
