"""The v3 wire over real sockets: entries, last add confirmed, long polls, lists and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bookie_stub.base.record import KEY
from bookie_stub.compose.bookie import Bookie
from bookie_stub.wire import v3_requests
from bookie_stub.wire.server import BookieServer
from protocol.bookie_frame import RC_NO_LEDGER, encode_read_request
from protocol.bookie_frame_v3 import encode_message
from protocol.bookkeeper_api_pb2 import (
    EBADREQ,
    EBADVERSION,
    EFENCED,
    EIO,
    ENOENTRY,
    ENOLEDGER,
    EOK,
    ETOOMANYREQUESTS,
    EUA,
    FORCE_LEDGER,
    GET_BOOKIE_INFO,
    READ_LAC,
    START_TLS,
    WRITE_LAC,
    OperationType,
)
from protocol.entry_runs import encode_entry_runs
from tests.bookie_stub.conftest import MASTER_KEY, Bench, FaultyFileSystem, entry_of
from tests.bookie_stub.v3_client import V3Client, explicit_lac
from tests.support.bookie_settings import for_directory


class Setup:
    def __init__(self, server: BookieServer, file_system: FaultyFileSystem) -> None:
        self.server = server
        self.file_system = file_system
        self._clients: list[V3Client] = []

    async def client(self) -> V3Client:
        client = await V3Client.connect(self.server.port)
        self._clients.append(client)
        return client

    async def with_entries(self, ledger: int, count: int) -> V3Client:
        client = await self.client()
        for entry in range(count):
            assert (await client.answer(client.add(ledger, entry))).status == EOK
        return client

    async def until_waiting(self, client: V3Client) -> None:
        """Until what was sent before is taken: frames of a connection are taken in order."""
        await client.answer(client.send(client.request(START_TLS)))

    async def checkpoint(self) -> None:
        bookie = self.server.bookie
        bookie.checkpoints.start()
        async with asyncio.timeout(60):
            while bookie.checkpoints.running:  # noqa: ASYNC110 - it happens in another thread
                await asyncio.sleep(0.001)

    def close(self) -> None:
        for client in self._clients:
            client.close()


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    file_system = FaultyFileSystem()
    post = asyncio.get_running_loop().call_soon_threadsafe
    settings = for_directory(tmp_path, port=0, frame_bytes_max=1 << 20)
    server = BookieServer(Bookie.open(settings, post, file_system=file_system))
    await server.start()
    setup = Setup(server, file_system)
    yield setup
    setup.close()
    file_system.fails.clear()
    await server.close()


# Last add confirmed.


async def test_v3_read_carries_the_lac_of_the_last_entry(setup: Setup) -> None:
    """The last entry may be out of memory, and another one may have come since."""
    client = await setup.with_entries(1, 5)
    await setup.checkpoint()
    assert (await client.answer(client.read(1, 0))).readResponse.maxLAC == 3
    await client.answer(client.add(1, 5))
    assert (await client.answer(client.read(1, 0))).readResponse.maxLAC == 4
    found = (await client.answer(client.read(1, -1))).readResponse
    assert (found.entryId, found.body, found.maxLAC) == (-1, entry_of(1, 5), 4)


async def test_explicit_lac_never_decreases(setup: Setup) -> None:
    client = await setup.with_entries(1, 5)
    assert (await client.answer(client.write_lac(1, 4))).writeLacResponse.status == EOK
    assert (await client.answer(client.write_lac(1, 2))).writeLacResponse.status == EOK
    found = (await client.answer(client.read_lac(1))).readLacResponse
    assert (found.lacBody, found.lastEntryBody) == (explicit_lac(1, 4), entry_of(1, 4))
    assert (await client.answer(client.read(1, 0))).readResponse.maxLAC == 4
    await client.answer(client.fence(1))
    assert (await client.answer(client.write_lac(1, 5))).status == EOK


async def test_read_lac_works_for_a_ledger_without_entries(setup: Setup) -> None:
    client = await setup.client()
    assert (await client.answer(client.write_lac(7, 0))).status == EOK
    found = (await client.answer(client.read_lac(7))).readLacResponse
    assert (found.status, found.lacBody, found.HasField("lastEntryBody")) == (EOK, explicit_lac(7, 0), False)
    assert (await client.answer(client.read(7, 0))).status == ENOENTRY
    assert (await client.answer(client.read_lac(8))).readLacResponse.status == ENOENTRY


@pytest.mark.parametrize(
    ("key", "body", "status"),
    [
        (b"?" * 20, explicit_lac(1, 9), EUA),
        (b"short", explicit_lac(1, 9), EUA),
        (MASTER_KEY, explicit_lac(1, 8), EBADREQ),
        (MASTER_KEY, explicit_lac(2, 9), EBADREQ),
        (MASTER_KEY, b"short", EBADREQ),
    ],
)
async def test_explicit_lac_is_refused_when_its_body_does_not_fit(
    setup: Setup, key: bytes, body: bytes, status: int
) -> None:
    client = await setup.with_entries(1, 2)
    assert (await client.answer(client.write_lac(1, 9, key=key, body=body))).status == status
    assert not (await client.answer(client.read_lac(1))).readLacResponse.lacBody


# Long polls.


async def test_long_poll_is_answered_before_the_add_that_wakes_it(setup: Setup) -> None:
    client = await setup.with_entries(1, 3)
    poll = client.long_poll(1, 1)
    await setup.until_waiting(client)
    setup.file_system.may_sync.clear()
    add = client.add(1, 3)
    try:
        first = await client.first_answer()
    finally:
        setup.file_system.may_sync.set()
    assert first.header.txnId == poll
    part = first.readResponse
    assert (part.status, part.entryId, part.body, part.maxLAC) == (EOK, 2, entry_of(1, 2), 2)
    assert part.lacUpdateTimestamp > 1_700_000_000_000
    assert (await client.answer(add)).status == EOK


async def test_long_poll_waits_until_the_lac_passes_previous_lac(setup: Setup) -> None:
    """Not every move of the LAC is news: the reader may have heard of it from another bookie."""
    client = await setup.with_entries(1, 3)
    poll = client.long_poll(1, 3)
    await setup.until_waiting(client)
    for entry in (3, 4):
        first = await client.answer(client.add(1, entry))
        assert first.status == EOK
    assert poll not in client._early
    await client.answer(client.add(1, 5))
    found = (await client.answer(poll)).readResponse
    assert (found.entryId, found.maxLAC) == (4, 4)


async def test_explicit_lac_wakes_a_long_poll(setup: Setup) -> None:
    client = await setup.with_entries(1, 3)
    poll = client.long_poll(1, 1)
    await setup.until_waiting(client)
    client.write_lac(1, 2)
    assert (await client.answer(poll)).readResponse.body == entry_of(1, 2)


async def test_long_poll_waits_on_a_ledger_without_entries_after_a_restart(bench: Bench) -> None:
    """The ledger has only an explicit LAC; the first entry with a higher one wakes the poll."""
    bookie = bench.open()
    answered = bench.loop.create_future()
    bookie.records.write_lac(7, MASTER_KEY, KEY.pack(7, -1), lambda rc, _: answered.set_result(rc))
    assert await answered == 0
    confirmed = bench.reopen().last_confirmed
    found = bench.loop.create_future()
    confirmed.find(7, lambda *answer: found.set_result(answer))
    assert await found == (0, -1)
    woken: list[bool] = []
    confirmed.watch(7, 0, lambda: woken.append(True))
    for entry in range(2):
        assert await bench.add(7, entry) == 0
    assert not woken
    assert await bench.add(7, 2) == 0
    assert woken == [True]


@pytest.mark.parametrize("piggyback", [True, False])
async def test_fence_ends_a_long_poll(setup: Setup, piggyback: bool) -> None:
    client = await setup.with_entries(1, 3)
    poll = client.long_poll(1, 1, piggyback=piggyback)
    await setup.until_waiting(client)
    client.fence(1)
    found = (await client.answer(poll)).readResponse
    assert (found.status, found.entryId, found.maxLAC) == (EOK, -1, 1)
    assert found.body == (b"" if piggyback else entry_of(1, 2))


async def test_long_poll_ends_after_its_time(setup: Setup) -> None:
    client = await setup.with_entries(1, 3)
    found = (await client.answer(client.long_poll(1, 1, timeout_ms=20))).readResponse
    assert (found.status, found.entryId, found.maxLAC, found.HasField("body")) == (EOK, -1, 1, False)
    found = (await client.answer(client.long_poll(1, 1, timeout_ms=20, piggyback=False))).readResponse
    assert (found.body, found.maxLAC) == (entry_of(1, 2), 1)


async def test_deletion_ends_a_long_poll(setup: Setup) -> None:
    client = await setup.with_entries(1, 3)
    poll = client.long_poll(1, 1)
    await setup.until_waiting(client)
    setup.server.bookie.delete_ledger(1)
    assert (await client.answer(poll)).status == ENOLEDGER


@pytest.mark.parametrize("entries", [0, 3])
async def test_lac_of_a_ledger_deleted_during_the_lookup_is_no_ledger(bench: Bench, entries: int) -> None:
    """After a restart the index alone knows the last entry, or that there is none. Nothing would end the watch."""
    bench.open()
    for entry in range(entries):
        assert await bench.add(7, entry) == 0
    await bench.fence(7)
    bookie = bench.reopen()
    found = bench.loop.create_future()
    bookie.last_confirmed.find(7, lambda *answer: found.set_result(answer))
    bookie.delete_ledger(7)
    assert await asyncio.wait_for(found, 60) == (RC_NO_LEDGER, -1)


async def test_long_poll_wakes_on_a_flushed_ledger(setup: Setup) -> None:
    """The bookie first reads the LAC from the disk."""
    client = await setup.with_entries(1, 3)
    await setup.checkpoint()
    poll = client.long_poll(1, 1)
    await client.answer(client.read(1, -1))  # behind it in the same thread
    await client.answer(client.add(1, 3))
    assert (await client.answer(poll)).readResponse.body == entry_of(1, 2)


async def test_long_poll_answers_the_lac_alone_when_another_bookie_has_the_entry(setup: Setup) -> None:
    client = await setup.client()
    await client.answer(client.add(1, 0))
    await client.answer(client.add(1, 4))  # entries 1 to 3 went elsewhere
    found = (await client.answer(client.long_poll(1, 0))).readResponse
    assert (found.status, found.entryId, found.maxLAC, found.HasField("body")) == (EOK, -1, 3, False)


async def test_long_polls_end_when_their_connection_closes(setup: Setup) -> None:
    client = await setup.with_entries(1, 3)
    for _ in range(20):
        client.long_poll(1, 1)
    await setup.until_waiting(client)
    ledger = setup.server.bookie.state.ledgers.by_id[1]
    assert len(ledger.watchers) == 20
    client.writer.transport.abort()
    async with asyncio.timeout(60):
        while ledger.watchers:  # noqa: ASYNC110 - the other side is a socket
            await asyncio.sleep(0.001)
    other = await setup.client()
    assert (await other.answer(other.add(1, 3))).status == EOK


async def test_long_poll_is_refused_above_the_limit_of_a_connection(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(v3_requests, "LONG_POLLS_MAX", 3)
    client = await setup.with_entries(1, 3)
    polls = [client.long_poll(1, 1) for _ in range(4)]
    assert (await client.answer(polls.pop())).status == ETOOMANYREQUESTS
    client.add(1, 3)
    assert {(await client.answer(poll)).status for poll in polls} == {EOK}
    assert (await client.answer(client.long_poll(1, 1))).status == EOK


# Lists, syncs, information.


async def test_list_of_entries_merges_logs_and_write_cache(setup: Setup) -> None:
    client = await setup.client()
    for ledger in (1, 2, 3):
        for entry in (0, 1, 2, 5 * ledger):
            await client.answer(client.add(ledger, entry))
    await setup.checkpoint()
    await client.answer(client.add(2, 2, b"again"))
    await client.answer(client.add(2, 7))
    for ledger, entries in ((1, [0, 1, 2, 5]), (2, [0, 1, 2, 7, 10])):
        found = (await client.answer(client.list_entries(ledger))).getListOfEntriesOfLedgerResponse
        assert found.status == EOK
        assert found.availabilityOfEntriesOfLedger == encode_entry_runs(entries)
    assert (await client.answer(client.list_entries(4))).status == ENOLEDGER


async def test_each_add_of_a_v3_run_gets_its_answer(setup: Setup) -> None:
    """Some adds are no part of a run, and a fence comes between two of them."""
    client = await setup.client()
    txns = [client.add(1, entry) for entry in range(200)]
    other, mine = client.add(2, 0), client.add(1, 200, recovery=True)
    wrong = client.add(1, 201, body=entry_of(1, 999))
    late = [client.add(1, entry) for entry in range(202, 300)]
    fence = client.fence(1)
    refused = [client.add(1, entry) for entry in range(300, 400)]
    answers = [(await client.answer(txn)).addResponse for txn in [*txns, mine, *late]]
    assert [found.entryId for found in answers] == [*range(201), *range(202, 300)]
    assert {(found.status, found.ledgerId) for found in answers} == {(EOK, 1)}
    assert (await client.answer(other)).addResponse.ledgerId == 2
    assert (await client.answer(wrong)).status == EBADREQ
    assert (await client.answer(fence)).status == EOK
    assert {(await client.answer(txn)).addResponse.status for txn in refused} == {EFENCED}
    assert (await client.answer(client.read(1, 150))).readResponse.body == entry_of(1, 150)
    await setup.checkpoint()
    assert (await client.answer(client.read(1, 299))).readResponse.body == entry_of(1, 299)
    assert (await client.answer(client.read(1, 300))).status == ENOENTRY


async def test_force_is_answered_after_the_sync_of_earlier_adds(setup: Setup) -> None:
    client = await setup.client()
    assert (await client.answer(client.force(1))).forceLedgerResponse.status == EOK
    setup.file_system.fails["sync_data"] = 5
    add, force = client.add(1, 0, write_flags=1), client.force(1)
    assert (await client.answer(add)).status == EIO
    assert (await client.answer(force)).status == EIO


async def test_bookie_info_has_the_requested_fields_only(setup: Setup) -> None:
    client = await setup.client()
    for requested, total, free in ((1, True, False), (2, False, True), (3, True, True), (0, False, False)):
        request = client.request(GET_BOOKIE_INFO)
        request.getBookieInfoRequest.requested = requested
        found = (await client.answer(client.send(request))).getBookieInfoResponse
        assert (found.HasField("totalDiskCapacity"), found.HasField("freeDiskSpace")) == (total, free)
        assert not total or found.totalDiskCapacity > 1 << 20


# What is refused.


async def test_v3_add_is_refused_when_its_ids_differ_from_the_entry(setup: Setup) -> None:
    client = await setup.with_entries(1, 1)
    assert (await client.answer(client.add(1, 5, body=entry_of(1, 6)))).addResponse.status == EBADREQ
    assert (await client.answer(client.add(1, 5, body=entry_of(2, 5)))).addResponse.status == EBADREQ
    assert (await client.answer(client.add(1, 5, body=b"short"))).addResponse.status == EBADREQ
    assert (await client.answer(client.read(1, 6))).status == ENOENTRY
    assert (await client.answer(client.read(2, 5))).status == ENOLEDGER


async def test_v3_requests_are_refused_without_a_valid_key(setup: Setup) -> None:
    client = await setup.client()
    assert (await client.answer(client.add(1, 0, key=b"short"))).status == EUA
    assert (await client.answer(client.fence(1, key=b""))).status == EUA
    assert (await client.answer(client.read(1, 0))).status == ENOLEDGER


async def test_fence_of_an_unknown_ledger_refuses_its_first_add(setup: Setup) -> None:
    client = await setup.client()
    assert (await client.answer(client.fence(9))).status == ENOENTRY
    assert (await client.answer(client.add(9, 0))).addResponse.status == EFENCED
    assert (await client.answer(client.add(9, 0, recovery=True))).status == EOK
    found = (await client.answer(client.fence(9))).readResponse
    assert (found.body, found.HasField("maxLAC")) == (entry_of(9, 0), False)


@pytest.mark.parametrize(
    ("operation", "part"),
    [
        (READ_LAC, "readLacResponse"),
        (WRITE_LAC, "writeLacResponse"),
        (FORCE_LEDGER, "forceLedgerResponse"),
        (GET_BOOKIE_INFO, "getBookieInfoResponse"),
    ],
)
async def test_v3_request_of_another_version_is_answered_bad_version(
    setup: Setup, operation: OperationType.ValueType, part: str
) -> None:
    client = await setup.client()
    request = client.request(operation)
    request.header.version = 2  # type: ignore[assignment]  # no version that v3 knows
    answer = await client.answer(client.send(request))
    assert (answer.status, getattr(answer, part).status) == (EBADVERSION, EBADVERSION)
    assert (await client.answer(client.read(1, 0))).status == ENOLEDGER


async def test_connection_switches_from_v3_to_v2_for_good(setup: Setup) -> None:
    client = await setup.with_entries(1, 1)
    client.writer.write(encode_read_request(1, 0))
    assert (await client.reader.readexactly(28))[4:8] == bytes((2, 2, 0, 0))
    await client.reader.readexactly(len(entry_of(1, 0)))
    client.read(1, 0)
    assert await client.closed()


@pytest.mark.parametrize("bad", ["0a060803104d1805", "ff" * 30, "", "0a06"])
async def test_bytes_that_are_no_request_close_their_connection_only(setup: Setup, bad: str) -> None:
    good = await setup.with_entries(1, 1)
    client = await setup.client()
    packet = bytes.fromhex(bad)
    client.writer.write(len(packet).to_bytes(4, "big") + packet)
    assert await client.closed()
    assert (await good.answer(good.read(1, 0))).status == EOK


async def test_oversize_frame_closes_its_connection_only(setup: Setup) -> None:
    good = await setup.with_entries(1, 1)
    client = await setup.client()
    largest = setup.server.frame_bytes_max
    some = largest // 2
    overhead = len(encode_message(client.add_request(1, 1, b"x" * some))) - some
    assert (await client.answer(client.add(1, 1, b"x" * (largest - overhead)))).status == EOK
    client.add(1, 2, b"x" * (largest - overhead + 1))
    assert await client.closed()
    assert (await good.answer(good.read(1, 1))).status == EOK
    assert (await good.answer(good.read(1, 2))).status == ENOENTRY
