"""Apache's bookie on a directory in which ours has written every state that it knows, and ours again behind it.

Ours goes first: entries, fences with and without entries, an explicit LAC, a deleted ledger with its tombstone, a ledger
index made anew, a ledger in limbo and the storage flags that say so, the inventory, a mark with its checksum. Both answer
the same.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from bookie_stub.base.record import explicit_lac_of
from bookie_stub.disk.ledger_index import FLAGS_KEY
from bookie_stub.disk.rocks import read_rows
from magnetar.commands.bookie_command import main
from protocol.bookie_frame import (
    AddResponse,
    ReadResponse,
    Response,
    encode_add_request,
    encode_fence_request,
    encode_read_request,
)
from protocol.bookkeeper_api_pb2 import EOK
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, encode
from protocol.ledger_path import ledger_path
from tests.bookie_stub.bookie_process import Process, answer
from tests.bookie_stub.conftest import MASTER_KEY, signed
from tests.bookie_stub.v3_client import V3Client
from tests.support.apache_bookie import ApacheBookie
from tests.support.java import ZooKeeper

OK, NO_LEDGER, NO_ENTRY, FENCED = 0, 1, 2, 104
PLAIN, FENCED_LEDGER, EMPTY, CONFIRMED, DELETED, FORGOTTEN, OPEN, APACHES = range(1, 9)
KEPT = (PLAIN, FENCED_LEDGER, CONFIRMED)
"""With ten entries each."""
ENTRIES = range(10)

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(600)]


class Pair:
    """Both bookies, by one name, on the same directories, one at a time."""

    def __init__(self, classes: str, folder: Path, zookeeper: str) -> None:
        self.apache = ApacheBookie(classes, folder, zookeeper)
        self.ours = Process(folder / "ours")
        self.folder = folder
        self.make: Callable[[int], None]
        """The node of a ledger that is on this bookie."""
        self.port = int(self.apache.address.rpartition(":")[2])
        self._settings = (
            f"bookiePort={self.port}",
            "advertisedAddress=127.0.0.1",
            f"journalDirectories={folder / 'journal'}",
            f"ledgerDirectories={folder / 'ledgers'}",
            f"indexDirectories={folder / 'index'}",
            f"metadataServiceUri=zk+hierarchical://{zookeeper}/ledgers",
            "journalPreAllocSizeMB=1",
            "gcWaitTime=1000000000",
        )

    def start_ours(self) -> None:
        self.ours.start(*self._settings)

    def stop_ours(self) -> None:
        assert self.ours.end(signal.SIGTERM)[0] == 0

    async def start_apache(self) -> None:
        """It listens before it serves."""
        await asyncio.to_thread(self.apache.start)
        async with asyncio.timeout(60):
            while True:
                try:
                    await self.read(PLAIN, 0)
                    return
                except (ConnectionError, asyncio.IncompleteReadError):
                    await asyncio.sleep(0.1)

    def rebuild(self) -> int:
        return main(["index", "rebuild", *[word for each in self._settings for word in ("--set", each)]])

    async def ask(self, request: bytes) -> Response:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        found = await asyncio.wait_for(answer(reader), 60)
        writer.close()
        return found

    async def add(self, ledger: int, entry: int) -> int:
        request = encode_add_request(signed(ledger, entry, b"%d" % ledger * 50), MASTER_KEY)
        added = await self.ask(request)
        assert isinstance(added, AddResponse)
        return added.rc

    async def read(self, ledger: int, entry: int) -> tuple[int, bytes]:
        found = await self.ask(encode_read_request(ledger, entry))
        assert isinstance(found, ReadResponse)
        return found.rc, bytes(found.entry)


@pytest.fixture
def pair(classes: str, zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Pair]:
    root = f"/both-{uuid.uuid4().hex[:12]}"
    client = KazooClient(hosts=zookeeper.address)
    client.start()
    client.ensure_path(root)
    pair = Pair(classes, tmp_path, zookeeper.address + root)
    pair.apache.format()

    def make(ledger: int) -> None:
        value = encode(LedgerMetadata((LedgerSegment((pair.apache.address,)),)))
        client.create(f"{root}/ledgers/{ledger_path(ledger)}", value, makepath=True)

    pair.make = make
    yield pair
    pair.apache.stop()
    if pair.ours.process is not None and pair.ours.process.poll() is None:
        pair.ours.process.kill()
        pair.ours.process.communicate()
    client.delete(root, recursive=True)
    client.stop()
    client.close()


async def test_apache_bookie_answers_the_same_on_our_files(pair: Pair) -> None:
    await write_every_state(pair)
    expected = await answers(pair)
    pair.stop_ours()
    rebuilding = pair.folder / "index/current/ledgers.rebuilding"
    rebuilding.touch()  # as an interrupted rebuild leaves it: ours would refuse, BookKeeper's passes it over
    await pair.start_apache()
    assert await answers(pair) == expected
    assert await pair.add(OPEN, 3) == OK
    await asyncio.to_thread(pair.make, APACHES)
    assert await pair.add(APACHES, 0) == OK
    assert (await pair.ask(encode_fence_request(APACHES, MASTER_KEY)))[0] == OK
    pair.apache.stop()
    rebuilding.unlink()
    pair.start_ours()
    assert await answers(pair) == expected
    assert await pair.read(OPEN, 3) == (OK, signed(OPEN, 3, b"%d" % OPEN * 50))
    assert (await pair.read(APACHES, 0))[0] == OK
    assert await pair.add(APACHES, 1) == FENCED
    assert await pair.add(DELETED, 0) == FENCED  # the tombstone; BookKeeper has none after a restart
    pair.stop_ours()


async def write_every_state(pair: Pair) -> None:
    pair.start_ours()
    for ledger in (*KEPT, EMPTY, FORGOTTEN):
        await asyncio.to_thread(pair.make, ledger)
    for ledger in (*KEPT, DELETED):
        for entry in ENTRIES:
            assert await pair.add(ledger, entry) == OK
    for ledger in (FENCED_LEDGER, EMPTY):
        assert (await pair.ask(encode_fence_request(ledger, MASTER_KEY)))[0] in (OK, NO_ENTRY)
    client = await V3Client.connect(pair.port)
    assert (await client.answer(client.write_lac(CONFIRMED, 7))).status == EOK
    client.close()
    url = pair.ours.addresses["http"] + "/api/v1/bookie/gc"
    request = urllib.request.Request(url, data=b"{}", method="PUT")
    await asyncio.to_thread(lambda: urllib.request.urlopen(request).read())
    async with asyncio.timeout(60):
        while (await pair.read(DELETED, 0))[0] != NO_LEDGER:  # noqa: ASYNC110 - another process deletes it
            await asyncio.sleep(0.05)
    pair.stop_ours()
    index = pair.folder / "index/current"
    shutil.rmtree(index / "ledgers")
    assert pair.rebuild() == 0
    pair.start_ours()
    await asyncio.to_thread(pair.make, OPEN)
    for entry in range(3):
        assert await pair.add(OPEN, entry) == OK
    pair.stop_ours()
    assert (pair.folder / "ledgers/current/inventory").exists()
    assert not (pair.folder / "ledgers/current/nothingLost").exists()
    assert (index / "deleted").exists()
    with read_rows(index / "ledgers") as rows:
        found = dict(rows)
    assert int.from_bytes(found[FLAGS_KEY.to_bytes(8, "big", signed=True)], "big") == 3
    assert found[FORGOTTEN.to_bytes(8, "big")].endswith(b"\x28\x01")  # limbo
    pair.start_ours()


async def answers(pair: Pair) -> dict[str, object]:
    """Returns the answers of either bookie."""
    found: dict[str, object] = {}
    for ledger in KEPT:
        found[f"entries of {ledger}"] = [await pair.read(ledger, entry) for entry in ENTRIES]
    for ledger in (*KEPT, OPEN):
        found[f"behind the end of {ledger}"] = (await pair.read(ledger, 99))[0]
    found["open"] = [await pair.read(OPEN, entry) for entry in range(3)]
    found["fences"] = [await pair.add(ledger, 50) for ledger in (*KEPT, EMPTY, FORGOTTEN)]
    found["empty"] = (await pair.read(EMPTY, 0))[0]
    found["forgotten is absent"] = (await pair.read(FORGOTTEN, 0))[0] in (OK, NO_LEDGER, NO_ENTRY)
    found["deleted"] = (await pair.read(DELETED, 0))[0]
    client = await V3Client.connect(pair.port)
    found["LAC"] = explicit_lac_of((await client.answer(client.read_lac(CONFIRMED))).readLacResponse.lacBody)
    client.close()
    assert found["fences"] == [FENCED] * 5
    assert found["LAC"] == 7
    assert found["forgotten is absent"] is False
    return found
