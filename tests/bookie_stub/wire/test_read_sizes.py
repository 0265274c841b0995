"""`byteBufAllocatorSize…`: how many bytes a read of the bookie's connections, and of its clients', takes at most."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from bookie_stub.compose.bookie import Bookie
from bookie_stub.wire import sized_connection as served
from bookie_stub.wire.connection import RECEIVED_BYTES, ServedConnection
from bookie_stub.wire.server import BookieServer
from bookkeeper.client import sized_connection as asking
from bookkeeper.client.bookie_connection import BookieConnection
from bookkeeper.client.bookkeeper import BookKeeperLedgerClient
from foundation.loop.turn import Turn
from tests.bookie_stub.conftest import MASTER_KEY
from tests.support.bookie_settings import for_directory

SIZES = (1024, 4096, 65_536)
LARGE = 1 << 20


async def add_and_read(tmp_path: Path, sizes: tuple[int, int, int] | None) -> None:
    """Adds a large entry over TCP, and reads it."""
    loop = asyncio.get_running_loop()
    bookie = Bookie.open(
        for_directory(tmp_path, port=0, receive_sizes=sizes, read_cache_bytes=0), loop.call_soon_threadsafe
    )
    server = BookieServer(bookie)
    await server.start()
    turn = Turn(loop.call_soon, time.monotonic_ns)
    client = BookKeeperLedgerClient(
        f"127.0.0.1:{server.port}", turn=turn, frame_bytes_max=5_253_120, receive_sizes=sizes
    )
    await client.connected()
    payload = bytes(range(256)) * (LARGE // 256)
    for entry in range(3):
        added: asyncio.Future[int] = loop.create_future()
        stored = (7).to_bytes(8, "big") + entry.to_bytes(8, "big") + payload
        client.add(
            7,
            [entry],
            [(stored, b"", b"")],
            master_key=MASTER_KEY,
            recovery=False,
            done=lambda rc, _, added=added: added.set_result(rc),  # type: ignore[misc]
        )
        assert await added == 0
    answered: asyncio.Future[tuple[int, bytes]] = loop.create_future()
    client.read(7, 1, lambda rc, found: answered.set_result((rc, found)))
    rc, found = await answered
    assert (rc, bytes(found)[16:]) == (0, payload)
    await client.close()
    await server.close()


@pytest.mark.parametrize("side", [served.SizedServedConnection, asking.SizedBookieConnection])
async def test_reads_begin_small_and_grow_to_the_largest_size(
    tmp_path: Path,
    side: type[served.SizedServedConnection] | type[asking.SizedBookieConnection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offered: list[int] = []
    real = side.get_buffer

    def get_buffer(self: object, sizehint: int) -> memoryview:
        found = real(self, sizehint)  # type: ignore[arg-type]
        offered.append(len(found))
        return found

    monkeypatch.setattr(side, "get_buffer", get_buffer)
    await add_and_read(tmp_path, SIZES)
    assert offered[0] == SIZES[1]
    # The heads of large adds are read alone, into a few bytes of their own.
    assert max(offered) == SIZES[2]


async def test_reads_of_a_bookie_and_its_clients_have_one_size_without_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered: set[int] = set()
    kinds: set[type] = set()
    free, cut = ServedConnection.get_buffer, BookieConnection.data_received

    def get_buffer(self: ServedConnection, sizehint: int) -> memoryview:
        kinds.add(type(self))
        found = free(self, sizehint)
        if self._large is None or not self._large.active:
            offered.add(len(found))
        return found

    def data_received(self: BookieConnection, data: bytes) -> None:
        kinds.add(type(self))
        cut(self, data)

    monkeypatch.setattr(ServedConnection, "get_buffer", get_buffer)
    monkeypatch.setattr(BookieConnection, "data_received", data_received)
    await add_and_read(tmp_path, None)
    assert (offered, kinds) == ({RECEIVED_BYTES}, {ServedConnection, BookieConnection})
