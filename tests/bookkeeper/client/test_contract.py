"""The contract of LedgerClient, kept by all three: in memory, embedded bookie, bookie over TCP."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from bookie_stub.compose.bookie import Bookie
from bookie_stub.wire.server import BookieServer
from bookkeeper.client.bookkeeper import BookKeeperLedgerClient
from bookkeeper.client.digest import check, last_add_confirmed, master_key, seal
from bookkeeper.client.embedded import EmbeddedLedgerClient
from bookkeeper.client.ledger_client import LedgerClient
from bookkeeper.client.memory import MemoryLedgerClient
from bookkeeper.ensembles.bookies import OneBookie
from bookkeeper.ensembles.ledger_ids import LedgerIds, LedgerIdsUnused
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from foundation.loop.turn import Turn
from tests.support.bookie_settings import for_directory

KEY = master_key(b"")
OTHER_KEY = master_key(b"other")
OK, NO_LEDGER, NO_ENTRY, UNAUTHORIZED, FENCED = 0, 1, 2, 102, 104


class Caller:
    """The client's calls as coroutines, checking that no completion comes inside the call."""

    def __init__(self, client: LedgerClient) -> None:
        self.client = client
        self.loop = asyncio.get_running_loop()

    def start_add(
        self, ledger: int, entry: int, payload: bytes, *, key: bytes = KEY, recovery: bool = False
    ) -> asyncio.Future[int]:
        answered: asyncio.Future[int] = self.loop.create_future()
        inside = True

        def done(rc: int, entry_id: int) -> None:
            assert not inside, "completed inside the call"
            assert entry_id == entry
            answered.set_result(rc)

        header, body = payload[:3], memoryview(payload)[3:]
        parts = seal(ledger, entry, entry - 1, len(payload), header, body)
        self.client.add(ledger, (entry,), [parts], master_key=key, recovery=recovery, done=done)
        inside = False
        return answered

    async def add(
        self, ledger: int, entry: int, payload: bytes, *, key: bytes = KEY, recovery: bool = False
    ) -> int:
        return await self.start_add(ledger, entry, payload, key=key, recovery=recovery)

    async def add_run(self, ledger: int, stored: Mapping[int, bytes], *, key: bytes = KEY) -> int:
        answered: asyncio.Future[int] = self.loop.create_future()
        inside = True

        def done(rc: int, first: int) -> None:
            assert not inside, "completed inside the call"
            assert first == next(iter(stored))
            answered.set_result(rc)

        entries = [(entry, b"", b"") for entry in stored.values()]
        self.client.add(ledger, tuple(stored), entries, master_key=key, recovery=True, done=done)
        inside = False
        return await answered

    async def read(self, ledger: int, entry: int) -> tuple[int, bytes]:
        answered: asyncio.Future[tuple[int, bytes]] = self.loop.create_future()
        inside = True

        def done(rc: int, stored: bytes) -> None:
            assert not inside, "completed inside the call"
            answered.set_result((rc, stored))

        self.client.read(ledger, entry, done)
        inside = False
        return await answered

    async def payload(self, ledger: int, entry: int) -> bytes:
        rc, stored = await self.read(ledger, entry)
        assert rc == OK
        return bytes(check(ledger, entry, stored))

    async def batch(
        self, ledger: int, first: int, count: int, size: int = 5 << 20
    ) -> tuple[int, list[bytes]]:
        answered: asyncio.Future[tuple[int, list[bytes]]] = self.loop.create_future()
        inside = True

        def done(rc: int, entries: list[bytes]) -> None:
            assert not inside, "completed inside the call"
            answered.set_result((rc, entries))

        self.client.batch_read(ledger, first, count, size, done)
        inside = False
        return await answered

    async def fence(self, ledger: int, key: bytes = KEY) -> tuple[int, bytes]:
        answered: asyncio.Future[tuple[int, bytes]] = self.loop.create_future()
        self.client.fence(ledger, key, lambda rc, stored: answered.set_result((rc, stored)))
        return await answered


@pytest.fixture(params=["memory", "embedded", "embedded-flushed", "tcp", "tcp-sized"])
async def caller(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Caller]:
    loop = asyncio.get_running_loop()
    if request.param == "memory":
        memory = MemoryLedgerClient(loop.call_soon)
        yield Caller(memory)
        await memory.close()
        return
    # A cache of a few entries: most reads go to the entry logs.
    cache = {"write_cache_bytes": 4096} if request.param == "embedded-flushed" else {}
    sizes = (64, 256, 2048) if request.param == "tcp-sized" else None
    bookie = Bookie.open(
        for_directory(tmp_path, port=0, receive_sizes=sizes, **cache), loop.call_soon_threadsafe
    )
    if not request.param.startswith("tcp"):
        embedded = EmbeddedLedgerClient(bookie)
        yield Caller(embedded)
        await embedded.close()
        return
    server = BookieServer(bookie)
    await server.start()
    turn = Turn(loop.call_soon, time.monotonic_ns)
    remote = BookKeeperLedgerClient(
        f"127.0.0.1:{server.port}", turn=turn, frame_bytes_max=5_253_120, receive_sizes=sizes
    )
    yield Caller(remote)
    await remote.close()
    await server.close()


async def test_read_returns_the_added_entry(caller: Caller) -> None:
    payloads = [bytes([entry]) * (entry * 37) for entry in range(20)]
    answers = [caller.start_add(7, entry, payload) for entry, payload in enumerate(payloads)]
    assert await asyncio.gather(*answers) == [OK] * 20
    assert [await caller.payload(7, entry) for entry in range(20)] == payloads


async def test_adds_of_one_ledger_complete_in_order(caller: Caller) -> None:
    order: list[int] = []
    answers = [caller.start_add(1, entry, b"x" * 50) for entry in range(300)]

    def note(entry: int, _done: asyncio.Future[int]) -> None:
        order.append(entry)

    for entry, answer in enumerate(answers):
        answer.add_done_callback(partial(note, entry))
    assert await asyncio.gather(*answers) == [OK] * 300
    assert order == sorted(order)


async def test_missing_entry_and_missing_ledger_have_their_own_codes(caller: Caller) -> None:
    assert await caller.read(5, 0) == (NO_LEDGER, b"")
    assert await caller.batch(5, 0, 10) == (NO_LEDGER, [])
    assert await caller.add(5, 0, b"one") == OK
    assert await caller.read(5, 1) == (NO_ENTRY, b"")
    assert await caller.batch(5, 1, 10) == (NO_ENTRY, [])


async def test_read_of_the_last_entry_returns_the_highest(caller: Caller) -> None:
    for entry in (0, 1, 5, 3):
        assert await caller.add(2, entry, f"entry {entry}".encode()) == OK
    rc, stored = await caller.read(2, -1)
    assert (rc, bytes(check(2, 5, stored)), last_add_confirmed(stored)) == (OK, b"entry 5", 4)


async def test_entries_are_readable_when_added_in_any_order(caller: Caller) -> None:
    ids = list(range(60))
    random.Random(4).shuffle(ids)
    for entry in ids:
        assert await caller.add(3, entry, b"%d" % entry * 20) == OK
    rc, entries = await caller.batch(3, 0, 0)
    assert rc == OK
    assert [bytes(check(3, entry, stored)) for entry, stored in enumerate(entries)] == [
        b"%d" % entry * 20 for entry in range(len(entries))
    ]


async def test_read_returns_the_last_added_version_of_an_entry(caller: Caller) -> None:
    for version in range(3):
        for entry in range(40):
            assert await caller.add(9, entry, b"version %d of %d" % (version, entry)) == OK
    found: list[bytes] = []
    while len(found) < 40:
        rc, entries = await caller.batch(9, len(found), 40)
        assert rc == OK
        found += entries
    payloads = [bytes(check(9, entry, stored)) for entry, stored in enumerate(found)]
    assert payloads == [b"version 2 of %d" % entry for entry in range(40)]


async def test_batch_read_keeps_to_count_and_bytes(caller: Caller) -> None:
    for entry in range(10):
        assert await caller.add(4, entry, b"x" * (300 - 36)) == OK
    assert await caller.batch(4, 20, 5) == (NO_ENTRY, [])
    for count, size, expected in (
        (3, 5 << 20, 3),
        (100, 36 + 304 * 4, 4),
        (100, 36 + 304 * 4 - 1, 3),
        (0, 36 + 304 * 2, 2),
        (100, 0, 1),
        (100, -5, 1),
    ):
        got = 0
        while got < expected:  # a client may answer in pieces where part of the entries is on disk
            rc, entries = await caller.batch(4, got, count - got if count else 0, size - got * 304)
            assert rc == OK
            assert entries
            got += len(entries)
        assert got == expected


async def test_batch_read_stops_at_a_gap(caller: Caller) -> None:
    for entry in (0, 1, 2, 4, 5):
        assert await caller.add(6, entry, b"payload") == OK
    got = 0
    while got < 3:
        rc, entries = await caller.batch(6, got, 100)
        assert rc == OK
        got += len(entries)
    assert got == 3
    assert (await caller.batch(6, 3, 100))[0] == NO_ENTRY


async def test_add_and_fence_are_refused_with_another_master_key(caller: Caller) -> None:
    assert await caller.add(8, 0, b"mine") == OK
    assert await caller.start_add(8, 1, b"not mine", key=OTHER_KEY) == UNAUTHORIZED
    assert await caller.start_add(8, 1, b"not mine", key=OTHER_KEY, recovery=True) == UNAUTHORIZED
    assert (await caller.fence(8, OTHER_KEY))[0] == UNAUTHORIZED
    assert await caller.add(8, 1, b"mine still") == OK
    assert await caller.payload(8, 1) == b"mine still"


async def test_fence_refuses_plain_adds_and_returns_the_last_entry(caller: Caller) -> None:
    for entry in range(3):
        assert await caller.add(10, entry, b"entry %d" % entry) == OK
    rc, stored = await caller.fence(10)
    assert (rc, bytes(check(10, 2, stored)), last_add_confirmed(stored)) == (OK, b"entry 2", 1)
    assert await caller.add(10, 3, b"too late") == FENCED
    assert (await caller.read(10, 3))[0] == NO_ENTRY
    assert await caller.add(10, 3, b"recovered", recovery=True) == OK
    assert await caller.payload(10, 3) == b"recovered"
    assert await caller.add(10, 4, b"too late") == FENCED
    assert (await caller.fence(10))[0] == OK


async def test_fence_works_on_an_unknown_ledger(caller: Caller) -> None:
    rc, stored = await caller.fence(11)
    assert rc in (NO_LEDGER, NO_ENTRY)
    assert stored == b""
    assert await caller.add(11, 0, b"too late") == FENCED


async def test_adds_in_flight_during_a_fence_are_stored_or_refused(caller: Caller) -> None:
    before = [caller.start_add(12, entry, b"before") for entry in range(5)]
    fence = asyncio.ensure_future(caller.fence(12))
    await asyncio.sleep(0)
    after = [caller.start_add(12, entry, b"after") for entry in range(5, 8)]
    rc, stored = await fence
    assert rc == OK
    bytes(check(12, 4, stored))
    assert await asyncio.gather(*before) == [OK] * 5
    assert await asyncio.gather(*after) == [FENCED] * 3


async def test_deleted_ledger_cannot_be_read(caller: Caller) -> None:
    """A bookie also refuses later adds to the ledger; the one in memory takes them."""
    assert await caller.add(13, 0, b"old") == OK
    assert await caller.add(13, 1, b"old") == OK
    deleted: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
    caller.client.delete(13, lambda *answer: deleted.set_result(answer))
    assert await deleted == (OK, 13)
    if isinstance(caller.client, BookKeeperLedgerClient):
        assert await caller.payload(13, 1) == b"old"
        return
    assert (await caller.read(13, 0))[0] == NO_LEDGER
    if isinstance(caller.client, EmbeddedLedgerClient):
        assert await caller.add(13, 2, b"late") == FENCED
        assert (await caller.read(13, 2))[0] == NO_LEDGER


async def test_many_large_entries_are_added_at_once(caller: Caller) -> None:
    rng = random.Random(1)
    sizes = [rng.choice((10, 1000, 70_000, 1_500_000)) for _ in range(40)]
    answers = [caller.start_add(14, entry, b"%03d" % entry * size) for entry, size in enumerate(sizes)]
    assert await asyncio.gather(*answers) == [OK] * 40
    reads = await asyncio.gather(*(caller.payload(14, entry) for entry in range(40)))
    assert [len(payload) for payload in reads] == [3 * size for size in sizes]
    assert all(payload.startswith(b"%03d" % entry) for entry, payload in enumerate(reads))


async def test_wiped_store_skips_ids_that_bookies_have(caller: Caller) -> None:
    for ledger in (0, 1, 1001):
        assert await caller.add(ledger, 0, b"payload") == OK
    ids = LedgerIdsUnused(LedgerIds(MemoryMetadataStore()), OneBookie("bookie:3181", caller.client))
    assert [await ids.next() for _ in range(2)] == [3002, 3003]


@pytest.mark.parametrize("sizes", [(500,), (1, 70_000)])
async def test_run_of_adds_stores_every_entry_or_says_why(caller: Caller, sizes: tuple[int, ...]) -> None:
    stored = {
        entry: b"".join(seal(7, entry, entry - 1, 1, b"", bytes([entry]) * sizes[entry % len(sizes)]))
        for entry in range(200, 0, -2)
    }
    await caller.fence(7)
    assert await caller.add_run(7, stored) == OK
    assert [await caller.read(7, entry) for entry in stored] == [(OK, entry) for entry in stored.values()]
    assert await caller.add_run(7, stored, key=OTHER_KEY) == UNAUTHORIZED
