"""The TCP client over a connection that breaks: each request is answered once, and the client reconnects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from bookkeeper.client.bookie_connection import BookieConnection
from bookkeeper.client.bookkeeper import OUTSTANDING_BYTES_MAX, BookKeeperLedgerClient
from bookkeeper.client.digest import master_key, seal
from foundation.loop.turn import Turn
from protocol.bookie_frame import (
    AddRequest,
    ReadRequest,
    Request,
    decode_request,
    encode_add_response,
    encode_read_response,
)
from tests.support.ports import free_port

UNREACHABLE, TOO_MANY = -8, 106


class ScriptedBookie:
    """A peer whose answers a test chooses: `answer(request)` returns the bytes, or None for silence."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer: Callable[[Request], bytes | None] = lambda _: None
        self.writers: list[asyncio.StreamWriter] = []
        self.server: asyncio.Server | None = None
        # It stops and starts again on the same port, which nothing else may take meanwhile.
        self.port = free_port()

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        while length := await reader.read(4):
            packet = await reader.readexactly(int.from_bytes(length, "big"))
            request = decode_request(packet)
            self.requests.append(request)
            answer = self.answer(request)
            if answer is not None:
                writer.write(answer)
        writer.close()

    def drop(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    async def stop(self) -> None:
        assert self.server is not None
        self.server.close()
        self.drop()


def positive(request: Request) -> bytes | None:
    if isinstance(request, AddRequest):
        return encode_add_response(2, 0, request.ledger_id, request.entry_id)
    assert isinstance(request, ReadRequest)
    return encode_read_response(2, 2, request.ledger_id, request.entry_id)


@pytest.fixture
async def peer() -> AsyncIterator[ScriptedBookie]:
    peer = ScriptedBookie()
    await peer.start()
    yield peer
    await peer.stop()


@pytest.fixture
async def client(peer: ScriptedBookie) -> AsyncIterator[BookKeeperLedgerClient]:
    client = make(peer.port)
    await client.connected()
    yield client
    await client.close()


def make(
    port: int,
    host: str = "127.0.0.1",
    *,
    timeout_s: float = 30.0,
    outstanding_bytes_max: int = OUTSTANDING_BYTES_MAX,
) -> BookKeeperLedgerClient:
    turn = Turn(asyncio.get_running_loop().call_soon, time.monotonic_ns)
    return BookKeeperLedgerClient(
        f"{host}:{port}",
        turn=turn,
        frame_bytes_max=1 << 20,
        timeout_s=timeout_s,
        outstanding_bytes_max=outstanding_bytes_max,
    )


def add(client: BookKeeperLedgerClient, entry: int, size: int = 10) -> asyncio.Future[int]:
    answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    parts = seal(1, entry, entry - 1, size, b"", bytes(size))
    client.add(
        1,
        (entry,),
        [parts],
        master_key=master_key(b""),
        recovery=False,
        done=lambda rc, _: answered.set_result(rc),
    )
    return answered


def add_run(client: BookKeeperLedgerClient, entry_ids: Sequence[int]) -> asyncio.Future[int]:
    """A run of entries, of which every third is longer."""
    answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    entries = [seal(1, entry, entry - 1, 1, b"", bytes(9 - entry % 3)) for entry in entry_ids]

    def done(rc: int, first: int) -> None:
        assert first == entry_ids[0]
        answered.set_result(rc)

    client.add(1, entry_ids, entries, master_key=master_key(b""), recovery=True, done=done)
    return answered


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the other side is a socket
            await asyncio.sleep(0.001)


async def until_added(client: BookKeeperLedgerClient, entry: int) -> None:
    async with asyncio.timeout(60):
        while await add(client, entry) != 0:  # noqa: ASYNC110 - it connects again in its own time
            await asyncio.sleep(0.01)


async def test_dropped_connection_fails_every_outstanding_request(
    peer: ScriptedBookie, client: BookKeeperLedgerClient
) -> None:
    loop = asyncio.get_running_loop()
    adds = [add(client, entry) for entry in (0, 1, 1, 2)]
    read, last, batch, fence = (loop.create_future() for _ in range(4))
    client.read(1, 0, lambda rc, _: read.set_result(rc))
    client.read(1, -1, lambda rc, _: last.set_result(rc))
    client.batch_read(1, 0, 10, 1000, lambda rc, _: batch.set_result(rc))
    client.fence(1, master_key(b""), lambda rc, _: fence.set_result(rc))
    await until(lambda: len(peer.requests) == 7)  # the fence waits for the read of the last entry
    peer.drop()
    assert set(await asyncio.gather(*adds, read, last, batch, fence)) == {UNREACHABLE}


@pytest.mark.parametrize(("host", "port"), [("bookie..example", 3181), ("127.0.0.1", 99999)])
async def test_impossible_address_fails_requests_at_once(host: str, port: int) -> None:
    """A ledger's metadata may name such an address."""
    client = make(port, host)
    assert await asyncio.wait_for(add(client, 0), 60) == UNREACHABLE
    with pytest.raises(ConnectionError, match=f"{host}:{port}"):
        await client.connected()
    await client.close()


async def test_client_reconnects_after_the_bookie_restarts(
    peer: ScriptedBookie, client: BookKeeperLedgerClient
) -> None:
    peer.answer = positive
    assert await add(client, 0) == 0
    await peer.stop()
    assert await add(client, 1) == UNREACHABLE
    await peer.start()
    await until_added(client, 2)


async def test_client_reconnects_when_a_connection_ends_before_it_is_used(
    peer: ScriptedBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    connect, attempts = loop.create_connection, 0

    async def lose_the_first(factory: Callable[[], BookieConnection], host: str, port: int) -> object:
        nonlocal attempts
        attempts += 1
        transport, connection = await connect(factory, host, port)
        if attempts == 1:
            transport.abort()
            await until(lambda: not connection.is_open)
        return transport, connection

    monkeypatch.setattr(loop, "create_connection", lose_the_first)
    peer.answer = positive
    client = make(peer.port)
    assert await asyncio.wait_for(add(client, 0), 60) == UNREACHABLE
    await until_added(client, 1)
    assert attempts == 2
    await client.close()


async def test_requests_fail_when_no_bookie_listens() -> None:
    client = make(1)
    waiting = add(client, 0)
    assert await waiting == UNREACHABLE
    with pytest.raises(ConnectionError):
        await client.connected()
    assert await add(client, 1) == UNREACHABLE
    await client.close()


async def test_silent_bookie_is_dropped_after_the_timeout(peer: ScriptedBookie) -> None:
    client = make(peer.port, timeout_s=0.5)
    await client.connected()
    assert await asyncio.wait_for(add(client, 0), 60) == UNREACHABLE
    await client.close()


async def test_bookie_that_answers_only_reads_is_dropped(peer: ScriptedBookie) -> None:
    peer.answer = lambda request: positive(request) if isinstance(request, ReadRequest) else None
    client = make(peer.port, timeout_s=0.5)
    await client.connected()
    waiting = add(client, 0)

    def read_on(*_: object) -> None:
        if not waiting.done():
            client.read(7, 1, read_on)

    read_on()
    assert await asyncio.wait_for(waiting, 60) == UNREACHABLE
    await client.close()


async def test_adds_beyond_the_outstanding_bytes_are_refused(peer: ScriptedBookie) -> None:
    client = make(peer.port, outstanding_bytes_max=5000)
    await client.connected()
    adds = [add(client, entry, 2000) for entry in range(3)]
    assert await adds[2] == TOO_MANY
    peer.answer = positive
    peer.drop()
    assert await asyncio.gather(*adds[:2]) == [UNREACHABLE] * 2
    await until_added(client, 3)
    await client.close()


async def test_fence_waits_for_a_plain_read_of_the_same_entry(
    peer: ScriptedBookie, client: BookKeeperLedgerClient
) -> None:
    loop = asyncio.get_running_loop()
    last, fence = loop.create_future(), loop.create_future()
    client.read(7, -1, lambda rc, _: last.set_result(rc))
    client.fence(7, master_key(b""), lambda rc, _: fence.set_result(rc))
    await until(lambda: len(peer.requests) == 1)
    peer.writers[0].write(encode_read_response(2, 2, 7, -1))
    await until(lambda: len(peer.requests) == 2)
    assert last.done()
    assert not fence.done()
    assert isinstance(peer.requests[1], ReadRequest)
    assert peer.requests[1].flags == 1
    peer.writers[0].write(encode_read_response(2, 2, 7, -1))
    assert await fence == 2


@pytest.mark.parametrize(
    "junk", [b"\0\0\0\0", b"\x7f\xff\xff\xff", encode_add_response(2, 0, 5, 5), b"\0\0\0\5\2\x09\0\0\0"]
)
async def test_unexpected_answer_drops_the_connection(
    peer: ScriptedBookie, client: BookKeeperLedgerClient, junk: bytes
) -> None:
    waiting = add(client, 0)
    await until(lambda: len(peer.requests) == 1)
    peer.writers[0].write(junk)
    assert await waiting == UNREACHABLE


async def test_run_ends_with_its_last_answer_in_whatever_order_they_come(
    peer: ScriptedBookie, client: BookKeeperLedgerClient
) -> None:
    first, second, single = add_run(client, range(4)), add_run(client, (9, 7, 5)), add(client, 6)
    await until(lambda: len(peer.requests) == 8)
    (writer,) = peer.writers

    def answer(*entries: int, rc: int = 0) -> bytes:
        return b"".join([encode_add_response(2, rc, 1, entry) for entry in entries])

    cut = answer(3, 1, 5, 6, 9)
    writer.write(cut[:70])
    await writer.drain()
    writer.write(cut[70:] + answer(2, rc=105) + answer(7))
    assert await second == 0
    assert await single == 0
    assert not first.done()
    writer.write(answer(0))
    assert await first == 105
    # The table is empty: the same entry may be added again, as any.
    again = add_run(client, (3,))
    await until(lambda: len(peer.requests) == 9)
    writer.write(answer(3))
    assert await again == 0


async def test_second_answer_to_an_entry_of_a_run_drops_the_connection(
    peer: ScriptedBookie, client: BookKeeperLedgerClient
) -> None:
    """Counted alone, it would stand for an entry that the bookie has not stored."""
    run = add_run(client, range(3))
    await until(lambda: len(peer.requests) == 3)
    peer.writers[0].write(encode_add_response(2, 0, 1, 0) + encode_add_response(2, 0, 1, 1))
    peer.writers[0].write(encode_add_response(2, 0, 1, 1))
    assert await run == UNREACHABLE


async def test_runs_are_failed_with_the_connection_and_refused_beyond_the_outstanding_bytes(
    peer: ScriptedBookie,
) -> None:
    client = make(peer.port, timeout_s=0.5, outstanding_bytes_max=200)
    await client.connected()
    run = add_run(client, range(3))
    assert await add_run(client, range(3, 6)) == TOO_MANY
    # The silent bookie is dropped after the timeout, and its bytes are free again.
    assert await asyncio.wait_for(run, 60) == UNREACHABLE
    peer.answer = positive
    await until_added(client, 3)
    assert await add_run(client, range(3)) == 0
    await client.close()
    assert await add_run(client, range(3)) == UNREACHABLE


async def test_close_fails_every_outstanding_request(peer: ScriptedBookie) -> None:
    client = make(peer.port)
    await client.connected()
    waiting = add(client, 0)
    await client.close()
    assert await waiting == UNREACHABLE
