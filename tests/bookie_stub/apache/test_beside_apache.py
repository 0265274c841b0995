"""The same troubles for a bookie of ours and one of Apache's: full disks, ledgers that others have taken over.

Maven fetches Apache's bookie. Small tmpfs stand for the disks; mounting them needs root, so elsewhere those tests are
skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from kazoo.client import KazooClient

from protocol.bookie_frame import (
    FLAG_HIGH_PRIORITY,
    FLAG_RECOVERY_ADD,
    AddResponse,
    ReadResponse,
    Response,
    encode_add_request,
    encode_fence_request,
    encode_read_request,
)
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, LedgerState, encode
from protocol.ledger_path import ledger_path
from tests.bookie_stub.bookie_process import Process, answer
from tests.bookie_stub.conftest import MASTER_KEY, entry_of
from tests.support.apache_bookie import ApacheBookie
from tests.support.java import ZooKeeper
from tests.support.ports import free_port

pytestmark = [pytest.mark.peer, pytest.mark.slow]

OK, NO_LEDGER, NO_ENTRY, FENCED, READ_ONLY = 0, 1, 2, 104, 105
WAIT_S: Final = 60.0

Settings = Mapping[str, object]


class Ours:
    name = "ours"

    def __init__(self, _classes: str, folder: Path, zookeeper: str, settings: Settings) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._process = Process(folder / "data")
        self._settings = {
            "bookiePort": self.address.rpartition(":")[2],
            "advertisedAddress": "127.0.0.1",
            "metadataServiceUri": f"zk+hierarchical://{zookeeper}/ledgers",
            **settings,
        }

    def start(self) -> None:
        self._process.start(*(f"{key}={value}" for key, value in self._settings.items()))

    def stop(self) -> None:
        if self._process.process is not None:
            self._process.process.kill()
            self._process.process.communicate()


class Apaches(ApacheBookie):
    name = "apache"

    def __init__(self, classes: str, folder: Path, zookeeper: str, settings: Settings) -> None:
        super().__init__(classes, folder, zookeeper)
        self._formatted = False
        self._settings = {"diskUsageThreshold": 0.99, "diskUsageWarnThreshold": 0.98, **settings}

    def start(self) -> None:
        if not self._formatted:
            self.format()
            self._formatted = True
        super().start()

    def _config(self) -> str:
        kept = [
            line for line in super()._config().splitlines() if line.partition("=")[0] not in self._settings
        ]
        return "\n".join([*kept, *(f"{key}={value}" for key, value in self._settings.items()), ""])


Bookies = Callable[[Settings], Ours | Apaches]


@pytest.fixture
def nodes(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[KazooClient]:
    """Of a cluster of its own; a client whose paths begin there."""
    root = f"/{tmp_path.name}"
    client = KazooClient(hosts=zookeeper.address)
    client.start()
    client.ensure_path(root)
    client.chroot = root
    yield client
    client.stop()
    client.close()


@pytest.fixture(params=[Ours, Apaches], ids=["ours", "apache"])
def begin(
    request: pytest.FixtureRequest, classes: str, tmp_path: Path, zookeeper: ZooKeeper, nodes: KazooClient
) -> Iterator[Bookies]:
    """Starts the one bookie of the cluster."""
    with ExitStack() as running:

        def start(settings: Settings) -> Ours | Apaches:
            cluster = f"{zookeeper.address}{nodes.chroot}"
            bookie: Ours | Apaches = request.param(classes, tmp_path, cluster, settings)
            running.callback(bookie.stop)
            bookie.start()
            return bookie

        yield start


class Client:
    """Asks one thing after the other over v2."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def ask(self, request: bytes) -> Response:
        host, port = self._address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        found = await asyncio.wait_for(answer(reader), WAIT_S)
        writer.close()
        return found

    async def until_served(self) -> None:
        """Apache's bookie registers before it takes requests, and closes connections until then."""
        async with asyncio.timeout(WAIT_S):
            while True:
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    await self.read(999, 0)
                    return
                await asyncio.sleep(0.02)

    async def add(self, ledger: int, entry: int, flags: int = 0) -> int:
        found = await self.ask(encode_add_request(entry_of(ledger, entry), MASTER_KEY, flags))
        assert isinstance(found, AddResponse)
        return found.rc

    async def read(self, ledger: int, entry: int) -> int:
        found = await self.ask(encode_read_request(ledger, entry))
        assert isinstance(found, ReadResponse)
        return found.rc


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


# Disks.

DISK_MIB: Final = 32
FULL: Final = 0.8
INDEX_MIB: Final = 2048
"""RocksDB reserves more than it writes."""
EVEN, ODD = 4, 7
"""Ledgers at home in the first directory and in the second one."""


class Disk:
    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        usage = shutil.disk_usage(self.path)
        ballast = int(usage.total * (FULL + 0.1)) - usage.used
        (self.path / "ballast").write_bytes(bytes(ballast))

    def free(self) -> None:
        (self.path / "ballast").unlink()


@contextmanager
def mounted(path: Path, mebibytes: int) -> Iterator[Path]:
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("no mount command here")
    path.mkdir()
    command = [mount, "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(path)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs: {done.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[Disk]]:
    with ExitStack() as mounts:
        paths = [mounts.enter_context(mounted(tmp_path / f"disk{number}", DISK_MIB)) for number in range(2)]
        mounts.enter_context(mounted(tmp_path / "index", INDEX_MIB))
        yield [Disk(path) for path in paths]


def on_disks(disks: list[Disk], *, any_full: bool) -> Settings:
    index = disks[0].path.parent / "index"
    return {
        "ledgerDirectories": ",".join(str(disk.path / "ledgers") for disk in disks),
        "indexDirectories": ",".join(str(index / str(number)) for number in range(len(disks))),
        "allowMultipleDirsUnderSameDiskPartition": "true",
        "diskUsageThreshold": FULL,
        "diskUsageWarnThreshold": FULL - 0.1,
        "diskCheckInterval": 100,
        "readOnlyModeOnAnyDiskFullEnabled": str(any_full).lower(),
    }


class Place:
    """Returns the nodes at which the cluster lists the bookie."""

    def __init__(self, nodes: KazooClient, address: str) -> None:
        self._nodes = nodes
        self._address = address

    def read_only(self) -> bool:
        return self._address in self._nodes.get_children("/ledgers/available/readonly")

    def writable(self) -> bool:
        return self._address in self._nodes.get_children("/ledgers/available") and not self.read_only()


async def test_bookie_is_read_only_when_one_disk_is_full(
    begin: Bookies, disks: list[Disk], nodes: KazooClient
) -> None:
    bookie = await asyncio.to_thread(begin, on_disks(disks, any_full=True))
    client, place = Client(bookie.address), Place(nodes, bookie.address)
    await until(place.writable)
    await client.until_served()
    assert [await client.add(ledger, 0) for ledger in (EVEN, ODD)] == [OK, OK]
    disks[0].fill()
    await until(place.read_only)
    assert [await client.add(ledger, 1) for ledger in (EVEN, ODD)] == [READ_ONLY, READ_ONLY]
    assert [await client.read(ledger, 0) for ledger in (EVEN, ODD)] == [OK, OK]
    fence = await client.ask(encode_fence_request(ODD, MASTER_KEY))
    assert isinstance(fence, ReadResponse)
    assert fence.rc == OK
    disks[0].free()
    await until(place.writable)
    assert [await client.add(ledger, 1) for ledger in (EVEN, ODD)] == [OK, FENCED]


async def test_bookie_stays_writable_when_one_disk_is_full_and_the_key_is_false(
    begin: Bookies, disks: list[Disk], nodes: KazooClient
) -> None:
    """Ledgers stay at home in their directories.

    Apache's bookie goes on to fill the full one, ours refuses its ledgers.
    """
    bookie = await asyncio.to_thread(begin, on_disks(disks, any_full=False))
    client, place = Client(bookie.address), Place(nodes, bookie.address)
    await until(place.writable)
    await client.until_served()
    assert [await client.add(ledger, 0) for ledger in (EVEN, ODD)] == [OK, OK]
    disks[0].fill()
    disks[1].fill()
    await until(place.read_only)
    assert [await client.add(ledger, 1) for ledger in (EVEN, ODD)] == [READ_ONLY, READ_ONLY]
    disks[1].free()
    await until(place.writable)
    assert await client.add(ODD, 1) == OK
    assert await client.add(EVEN, 1) == (READ_ONLY if bookie.name == "ours" else OK)
    assert await client.add(EVEN, 2, FLAG_RECOVERY_ADD | FLAG_HIGH_PRIORITY) == OK
    assert place.writable()
    disks[0].free()
    async with asyncio.timeout(WAIT_S):
        while await client.add(EVEN, 3) != OK:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


# Ledgers that others have taken over.

NOBODY, SOMEBODY = ("10.0.0.1:3181",), ("10.0.0.2:3181",)


def put(
    nodes: KazooClient, ledger: int, *ensembles: tuple[str, ...], state: LedgerState = LedgerState.CLOSED
) -> None:
    segments = tuple(LedgerSegment(members, 3 * number) for number, members in enumerate(ensembles))
    value = encode(LedgerMetadata(segments, state, length=7, last_entry_id=0))
    nodes.create(f"/ledgers/{ledger_path(ledger)}", value, makepath=True)


async def test_over_replicated_ledger_is_emptied(begin: Bookies, nodes: KazooClient) -> None:
    """Both refuse a writer from before.

    Apache's bookie refuses re-replication as well, and forgets both in a restart.
    """
    settings = {"gcWaitTime": 300, "gcOverreplicatedLedgerWaitTime": 300, "flushInterval": 100}
    bookie = await asyncio.to_thread(
        begin, {**settings, "minorCompactionInterval": 0, "majorCompactionInterval": 0}
    )
    client = Client(bookie.address)
    await client.until_served()
    here = (bookie.address,)
    put(nodes, 1, NOBODY, SOMEBODY)
    put(nodes, 2, NOBODY, here)
    put(nodes, 3, NOBODY, state=LedgerState.OPEN)
    put(nodes, 4, NOBODY)
    put(nodes, 5, here)
    lock = "/ledgers/underreplication/locks/urL000000000"
    for ledger in (1, 4):
        nodes.create(f"{lock}{ledger}", b"", makepath=True)
    for ledger in range(1, 6):
        assert await client.add(ledger, 0) == OK

    async def until_gone(ledger: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while await client.read(ledger, 0) == OK:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)

    nodes.delete(f"{lock}1")
    await until_gone(1)
    assert [await client.read(ledger, 0) for ledger in range(2, 6)] == [OK] * 4
    assert await client.add(1, 1) == FENCED
    by_re_replication = await client.add(1, 0, FLAG_RECOVERY_ADD | FLAG_HIGH_PRIORITY)
    assert by_re_replication == (OK if bookie.name == "ours" else FENCED)
    nodes.delete(f"{lock}4")
    await until_gone(4)
    assert await client.read(4, 0) == (NO_ENTRY if bookie.name == "ours" else NO_LEDGER)
    assert [await client.read(ledger, 0) for ledger in (2, 3, 5)] == [OK] * 3
    await until(lambda: not nodes.get_children("/ledgers/underreplication/locks"))
    await asyncio.to_thread(bookie.stop)
    await asyncio.to_thread(bookie.start)
    await client.until_served()
    assert await client.add(4, 1) == (FENCED if bookie.name == "ours" else OK), "a writer from before"
