"""Runs of adds are stored, refused, held and answered as a whole, with the results of single adds."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path

import pytest

from bookie_stub.compose.bookie import Bookie
from bookie_stub.journal.entry_run import EntryRun
from bookie_stub.wire.server import BookieServer
from protocol.bookie_frame import (
    FLAG_HIGH_PRIORITY,
    FLAG_RECOVERY_ADD,
    AddResponse,
    ReadResponse,
    Response,
    decode_response,
    encode_add_request,
    encode_fence_request,
    encode_read_request,
)
from tests.bookie_stub.conftest import MASTER_KEY, Bench, FaultyFileSystem, entry_of, record_of
from tests.bookie_stub.files import crash
from tests.support.bookie_settings import for_directory

OK, IO_ERROR, UNAUTHORIZED, FENCED, READ_ONLY, TOO_MANY = 0, 101, 102, 104, 105, 106


def start_run(
    bench: Bench, ledger: int, entries: Iterable[int], payload: bytes = b"payload", *, key: bytes = MASTER_KEY
) -> asyncio.Future[int]:
    """Payloads are told apart by the entry's place in the run behind them."""
    assert bench.bookie is not None
    ids: Sequence[int] = entries if isinstance(entries, range) else tuple(entries)
    records = [record_of(ledger, entry, payload + b" %d" % place) for place, entry in enumerate(ids)]
    answered: asyncio.Future[int] = bench.loop.create_future()
    starts = tuple(accumulate(map(len, records[:-1]), initial=0))
    done = lambda rc, _: answered.set_result(rc)  # noqa: E731 - as in the bench
    bench.bookie.adds.add_run(EntryRun(ledger, ids, b"".join(records), starts, key, False, done))
    return answered


async def add_run(
    bench: Bench, ledger: int, entries: Iterable[int], payload: bytes = b"payload", *, key: bytes = MASTER_KEY
) -> int:
    return await asyncio.wait_for(start_run(bench, ledger, entries, payload, key=key), 60)


# The bookie.


async def test_run_survives_a_crash(bench: Bench, tmp_path: Path) -> None:
    bench.open()
    for _ in range(2):  # the long way, then the short one
        assert await add_run(bench, 1, range(50)) == OK
    assert await add_run(bench, 1, range(50, 90)) == OK
    after = crash(bench, tmp_path)
    assert await after.read(1, 49) == (OK, b"payload 49")
    assert await after.read(1, -1) == (OK, b"payload 39")
    after.close()


async def test_run_keeps_the_later_of_two_versions(bench: Bench) -> None:
    bench.open()
    await add_run(bench, 1, range(10), b"old")
    await bench.checkpoint()
    assert await bench.read(1, 5) == (OK, b"old 5")  # in the read cache now
    assert await add_run(bench, 1, (5, 11, 5, 3), b"new") == OK
    await bench.checkpoint()
    assert await bench.read(1, 5) == (OK, b"new 2")
    assert await bench.read(1, 3) == (OK, b"new 3")
    assert await bench.read(1, 4) == (OK, b"old 4")
    assert await bench.read(1, -1) == (OK, b"new 1")


async def test_run_is_answered_io_error_as_a_whole_when_its_group_fails(bench: Bench, tmp_path: Path) -> None:
    bench.open()
    assert await add_run(bench, 1, range(10), b"before") == OK
    bench.file_system.fails["sync_data"] = errno.EIO
    assert await add_run(bench, 1, range(10, 20)) == IO_ERROR
    bench.file_system.fails.clear()
    assert await add_run(bench, 1, range(20, 30), b"after") == OK
    assert bench.bookie is not None
    assert bench.bookie.stats.add_entries().failed.count == 10
    after = crash(bench, tmp_path)
    assert await after.read(1, 9) == (OK, b"before 9")
    assert await after.read(1, 29) == (OK, b"after 9")
    after.close()


async def test_run_is_refused_as_a_whole_when_its_ledger_is_fenced(bench: Bench) -> None:
    bookie = bench.open()
    await add_run(bench, 1, range(10))
    fenced = bench.fence(1)
    fencing = asyncio.ensure_future(fenced)
    await asyncio.sleep(0)  # asked for, and not yet durable
    assert await add_run(bench, 1, range(10, 20)) == FENCED
    await fencing
    assert bookie.stats.adds_refused == 10
    assert await bench.read(1, 10) == (2, b"")


async def test_run_is_refused_when_its_key_is_another_one(bench: Bench) -> None:
    bench.open()
    await add_run(bench, 1, range(10))
    assert await add_run(bench, 1, range(10, 20), key=b"?" * 20) == UNAUTHORIZED
    assert await bench.read(1, -1) == (OK, b"payload 9")


async def test_run_is_refused_by_a_read_only_bookie(bench: Bench) -> None:
    bench.open()
    await add_run(bench, 1, range(10))
    bench.reopen(read_only=True)
    assert await add_run(bench, 1, range(10, 20)) == READ_ONLY


async def test_runs_are_held_in_order_when_the_write_caches_are_full(bench: Bench) -> None:
    bookie = bench.open(write_cache_bytes=40_000)
    answered: list[int] = []
    runs = [start_run(bench, 1, range(first, first + 20), b"x" * 50) for first in range(0, 1000, 20)]

    def note(number: int, _done: asyncio.Future[int]) -> None:
        answered.append(number)

    for number, run in enumerate(runs):
        run.add_done_callback(partial(note, number))
    assert set(await asyncio.gather(*runs)) == {OK}
    assert answered == sorted(answered)
    assert bookie.stats.adds_held > 20
    got = 0
    while got < 1000:
        got += len((await bench.batch(1, got, 1000))[1])


async def test_later_add_waits_behind_the_held_ones(bench: Bench) -> None:
    """Held adds go on in slices; what comes between two of them writes an entry again, and is the last."""
    bookie = bench.open(write_cache_bytes=400_000)
    bench.file_system.fails["create"] = errno.ENOSPC
    runs = [start_run(bench, 1, range(first, first + 100)) for first in range(0, 12_000, 100)]
    await bench.until(lambda: bookie.stats.adds_held > 2000)
    bench.file_system.fails.clear()
    async with asyncio.timeout(60):
        while bookie.state.write_caches.full:  # noqa: ASYNC110 - each turn of the loop counts
            await asyncio.sleep(0)  # the first slice is to be seen before the next ones
    assert not runs[-1].done()
    again = bench.start_add(1, 11_999, b"again")
    assert set(await asyncio.gather(*runs, again)) == {OK}
    assert await bench.read(1, 11_999) == (OK, b"again")


async def test_held_run_is_checked_again_before_it_is_stored(bench: Bench) -> None:
    bookie = bench.open(write_cache_bytes=10_000)
    bench.file_system.fails["create"] = errno.ENOSPC  # no entry log: the first checkpoint cannot end
    runs = [start_run(bench, 1, range(first, first + 20), b"x" * 50) for first in range(0, 200, 20)]
    fenced = asyncio.ensure_future(bench.fence(1))
    await bench.until(lambda: bookie.stats.adds_held > 0)
    await fenced
    bench.file_system.fails.clear()
    answers = await asyncio.gather(*runs)
    assert answers == sorted(answers)
    assert set(answers) == {OK, FENCED}


async def test_held_run_is_answered_too_many_requests_after_its_limit(bench: Bench) -> None:
    bookie = bench.open(write_cache_bytes=4000, throttle_s_max=0.05)
    bench.file_system.fails["create"] = errno.ENOSPC
    runs = [start_run(bench, 1, range(first, first + 10)) for first in range(0, 100, 10)]
    answers = await asyncio.gather(*runs)
    assert set(answers) == {OK, TOO_MANY}
    assert bookie.stats.adds_rejected == 10 * answers.count(TOO_MANY)
    bench.file_system.fails.clear()


async def test_close_refuses_held_runs(bench: Bench) -> None:
    bookie = bench.open(write_cache_bytes=4000)
    bench.file_system.fails["create"] = errno.ENOSPC
    runs = [start_run(bench, 1, range(first, first + 10)) for first in range(0, 100, 10)]
    await bench.until(lambda: bookie.stats.adds_held > 0)
    bench.file_system.fails.clear()
    bench.close()
    assert set(await asyncio.gather(*runs)) == {OK, IO_ERROR}


async def test_run_wakes_a_watcher_of_the_lac_once(bench: Bench) -> None:
    bookie = bench.open()
    await add_run(bench, 1, range(3))
    found: list[int] = []
    bookie.last_confirmed.find(1, lambda _, lac: found.append(lac))
    woken: list[int] = []
    bookie.last_confirmed.watch(1, 1, lambda: woken.append(bookie.state.ledgers.by_id[1].lac))
    assert await add_run(bench, 1, (3, 9, 4)) == OK  # each entry's LAC is its id less one
    assert found == [1]
    assert woken == [8]


# Over the wire.


@pytest.fixture
async def disk() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
async def server(tmp_path: Path, disk: FaultyFileSystem) -> AsyncIterator[BookieServer]:
    post = asyncio.get_running_loop().call_soon_threadsafe
    server = BookieServer(Bookie.open(for_directory(tmp_path, port=0), post, file_system=disk))
    await server.start()
    yield server
    disk.fails.clear()
    await server.close()


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answer(self) -> Response:
        async with asyncio.timeout(60):
            length = int.from_bytes(await self.reader.readexactly(4), "big")
            return decode_response(await self.reader.readexactly(length))

    async def answers(self, count: int) -> list[Response]:
        return [await self.answer() for _ in range(count)]


@pytest.fixture
async def connection(server: BookieServer) -> AsyncIterator[Connection]:
    connection = Connection(*await asyncio.open_connection("127.0.0.1", server.port))
    connection.writer.write(encode_read_request(77, 0))  # v2 from the first packet on
    await connection.answer()
    yield connection
    connection.writer.close()


def frames(ledger: int, entries: Iterable[int], *, key: bytes = MASTER_KEY, flags: int = 0) -> bytes:
    return b"".join([encode_add_request(entry_of(ledger, entry), key, flags) for entry in entries])


async def test_adds_are_answered_in_their_order(connection: Connection) -> None:
    rng = random.Random(5)
    asked: list[tuple[int, int]] = []
    data = b""
    for _ in range(300):
        ledger, entry = rng.randrange(3), rng.randrange(1000)
        payload = rng.choice((b"", b"x" * 40, b"y" * 40, rng.randbytes(rng.randrange(60))))
        count = rng.choice((1, 1, 2, 20))
        asked += [(ledger, entry + number) for number in range(count)]
        entries = [entry_of(ledger, entry + number, payload) for number in range(count)]
        data += b"".join([encode_add_request(one, MASTER_KEY) for one in entries])
    while data:
        size = rng.choice((3, 400, 9000))
        connection.writer.write(data[:size])
        data = data[size:]
        await asyncio.sleep(0)
    answers = await connection.answers(len(asked))
    assert answers == [AddResponse(OK, *add) for add in asked]


async def test_fence_applies_between_the_runs_around_it(connection: Connection) -> None:
    connection.writer.write(
        frames(1, range(20))
        + encode_fence_request(1, MASTER_KEY)
        + frames(1, range(20, 40))
        + frames(1, (40, 41), flags=FLAG_RECOVERY_ADD)
    )
    answers = await connection.answers(43)
    assert [found for found in answers if found[0] == OK and isinstance(found, AddResponse)] == [
        AddResponse(OK, 1, entry) for entry in (*range(20), 40, 41)
    ]
    refused = [found for found in answers if found[0] == FENCED]
    assert refused == [AddResponse(FENCED, 1, entry) for entry in range(20, 40)]
    connection.writer.write(encode_read_request(1, 20))
    assert await connection.answer() == ReadResponse(2, 1, 20, b"")


@pytest.mark.parametrize("flags", [FLAG_RECOVERY_ADD, FLAG_RECOVERY_ADD | FLAG_HIGH_PRIORITY])
async def test_run_of_recovery_adds_is_stored_in_a_fenced_ledger(connection: Connection, flags: int) -> None:
    connection.writer.write(encode_fence_request(1, MASTER_KEY) + frames(1, range(300), flags=flags))
    answers = await connection.answers(301)
    assert [found for found in answers if isinstance(found, AddResponse)] == [
        AddResponse(OK, 1, entry) for entry in range(300)
    ]
    assert await read(connection, 1, 299) == ReadResponse(OK, 1, 299, entry_of(1, 299))


async def test_read_only_bookie_takes_recovery_adds_of_high_priority_alone(
    server: BookieServer, connection: Connection
) -> None:
    server.bookie.availability.directories_changed([True])
    server.bookie.adds.availability_changed()
    connection.writer.write(frames(1, range(40), flags=FLAG_RECOVERY_ADD))
    assert await connection.answers(40) == [AddResponse(READ_ONLY, 1, entry) for entry in range(40)]
    connection.writer.write(frames(1, range(40), flags=FLAG_RECOVERY_ADD | FLAG_HIGH_PRIORITY))
    assert await connection.answers(40) == [AddResponse(OK, 1, entry) for entry in range(40)]


async def test_run_ends_when_the_key_changes(connection: Connection) -> None:
    connection.writer.write(frames(1, range(20)) + frames(1, range(20, 40), key=b"?" * 20))
    answers = await connection.answers(40)
    assert sorted(answers) == [
        *[AddResponse(OK, 1, entry) for entry in range(20)],
        *[AddResponse(UNAUTHORIZED, 1, entry) for entry in range(20, 40)],
    ]


async def test_failed_sync_answers_every_add_of_a_run(connection: Connection, disk: FaultyFileSystem) -> None:
    disk.fails["sync_data"] = errno.EIO
    connection.writer.write(frames(1, range(200)))
    assert await connection.answers(200) == [AddResponse(IO_ERROR, 1, entry) for entry in range(200)]
    disk.fails.clear()
    connection.writer.write(frames(1, range(200)))
    assert await connection.answers(200) == [AddResponse(OK, 1, entry) for entry in range(200)]


async def test_adds_in_progress_counts_each_add_of_a_run(
    server: BookieServer, connection: Connection
) -> None:
    connection.writer.write(frames(1, range(200)))
    async with asyncio.timeout(60):
        while server.adds_in_progress < 2:  # noqa: ASYNC110 - the other side is a socket
            await asyncio.sleep(0)
    await connection.answers(200)
    assert server.adds_in_progress == 0


LARGE = b"large" * 20_000


async def read(connection: Connection, ledger: int, entry: int) -> Response:
    connection.writer.write(encode_read_request(ledger, entry))
    return await connection.answer()


@pytest.mark.parametrize("piece", [1, 27, 28, 29, 5000, 70_000, 1 << 20])
async def test_large_adds_are_stored_when_received_in_pieces_of_any_size(
    connection: Connection, server: BookieServer, piece: int
) -> None:
    small = frames(1, (100,))
    large = b"".join([encode_add_request(entry_of(1, entry, LARGE), MASTER_KEY) for entry in range(4)])
    recovery = encode_add_request(entry_of(1, 4, LARGE), MASTER_KEY, FLAG_RECOVERY_ADD)
    data = large + small + large + encode_read_request(1, 2) + large[: len(large) // 4] + recovery + small
    for start in range(0, len(data), piece if piece > 1000 else len(data) // 3):
        part = data[start : start + (piece if piece > 1000 else len(data) // 3)]
        # The first bytes of a part come in small pieces, so that heads are cut anywhere.
        for at in range(0, min(60, len(part)), piece):
            connection.writer.write(part[at : min(at + piece, 60)])
            await asyncio.sleep(0.001)
        connection.writer.write(part[60:])
    answers = await connection.answers(13)
    assert ReadResponse(OK, 1, 2, entry_of(1, 2, LARGE)) in answers
    answers.remove(ReadResponse(OK, 1, 2, entry_of(1, 2, LARGE)))
    entries = [*range(4), 100, *range(4), 0, 4, 100]
    assert answers == [AddResponse(OK, 1, entry) for entry in entries]
    for entry in range(5):
        assert await read(connection, 1, entry) == ReadResponse(OK, 1, entry, entry_of(1, entry, LARGE))
    server.bookie.checkpoints.start()
    async with asyncio.timeout(60):
        while server.bookie.checkpoints.running:  # noqa: ASYNC110 - each turn of the loop counts
            await asyncio.sleep(0)
    for entry in range(5):
        assert await read(connection, 1, entry) == ReadResponse(OK, 1, entry, entry_of(1, entry, LARGE))


async def test_large_add_is_refused_behind_a_fence(connection: Connection) -> None:
    large = [encode_add_request(entry_of(1, entry, LARGE), MASTER_KEY) for entry in range(4)]
    connection.writer.write(large[0] + large[1])
    await connection.answers(2)
    connection.writer.write(encode_fence_request(1, MASTER_KEY))
    await connection.answer()
    connection.writer.write(large[2] + large[3])
    assert await connection.answers(2) == [AddResponse(FENCED, 1, 2), AddResponse(FENCED, 1, 3)]


async def test_connection_closes_when_a_frame_behind_large_adds_is_too_long(
    connection: Connection,
) -> None:
    connection.writer.write(encode_add_request(entry_of(1, 0, LARGE), MASTER_KEY))
    await connection.answer()
    connection.writer.write(b"\x7f\xff\xff\xff" + frames(1, (1,))[4:28])
    async with asyncio.timeout(60):
        assert await connection.reader.read() == b""


async def test_other_connections_work_when_a_peer_leaves_inside_a_large_add(
    connection: Connection, server: BookieServer
) -> None:
    other = Connection(*await asyncio.open_connection("127.0.0.1", server.port))
    large = encode_add_request(entry_of(2, 0, LARGE), MASTER_KEY)
    other.writer.write(large + large[:50_000])
    assert await other.answer() == AddResponse(OK, 2, 0)
    other.writer.close()
    connection.writer.write(encode_add_request(entry_of(1, 0, LARGE), MASTER_KEY) * 3)
    assert await connection.answers(3) == [AddResponse(OK, 1, 0)] * 3
    assert await read(connection, 1, 0) == ReadResponse(OK, 1, 0, entry_of(1, 0, LARGE))
    assert await read(connection, 2, 0) == ReadResponse(OK, 2, 0, entry_of(2, 0, LARGE))
