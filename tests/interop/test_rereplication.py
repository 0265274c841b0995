"""Three bookies, ours and Apache's mixed; one is killed, and each AutoRecovery in turn makes its copies again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from kazoo.client import KazooClient

from autorecovery.fragments import bookies_needed
from autorecovery.replicas import read_entry
from bookie_stub.config.rules import load_bookie_settings
from bookie_stub.config.settings import BookieSettings
from broker.ledger_client.digest import DEFAULT_DIGEST, digest_of
from broker.ledger_client.ensemble_writer import EnsembleWriter
from broker.ledger_client.own_ledger import OwnLedger, read_metadata
from broker.ledger_client.placement import write_set
from magnetar.process.rereplication import Cluster, joined
from protocol.ledger_metadata import LedgerMetadata, LedgerState, Segment
from protocol.underreplication import LOCKS
from tests.support.apache_bookie import ApacheBookie
from tests.support.bookies import ROOT, BookieProcess
from tests.support.java import ZooKeeper
from tests.support.ports import free_port

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600)]

WAIT_S: Final = 120.0
ENTRIES: Final = 120


class Bookies:
    """Two bookies of ours and one of Apache's, in a ZooKeeper folder of their own."""

    def __init__(self, classes: str, folder: Path, zookeeper: str) -> None:
        self.folder = folder
        self.uri = f"zk+hierarchical://{zookeeper}/ledgers"
        self.settings = {
            "metadataServiceUri": self.uri,
            "advertisedAddress": "127.0.0.1",
            "zkTimeout": "3000",
            "autoRecoveryDaemonEnabled": "false",
        }
        self.ours = [BookieProcess(folder / f"ours-{number}", self.settings) for number in range(3)]
        (folder / "apache").mkdir()
        self.apache = ApacheBookie(classes, folder / "apache", zookeeper)

    def start(self, count: int) -> None:
        self.apache.format()
        self.apache.start()
        for bookie in self.ours[:count]:
            bookie.spawn()
        for bookie in self.ours[:count]:
            bookie.wait_ready()

    def stop(self) -> None:
        for bookie in self.ours:
            bookie.kill()
        self.apache.kill()

    def kill(self, address: str) -> None:
        if address == self.apache.address:
            self.apache.kill()
        for bookie in self.ours:
            if bookie.address == address:
                bookie.kill()

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[Cluster]:
        overrides = [f"{key}={value}" for key, value in self.settings.items()]
        settings = load_bookie_settings(None, environ={}, overrides=overrides)
        async with joined(BookieSettings.of(settings)) as cluster:
            yield cluster


@pytest.fixture
def bookies(classes: str, tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Bookies]:
    root = f"{zookeeper.address}/{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        bookies = Bookies(classes, tmp_path, root)
        stack.callback(bookies.stop)
        make_root(zookeeper.address, root)
        bookies.start(2)
        yield bookies


def make_root(servers: str, root: str) -> None:
    client = KazooClient(hosts=servers)
    client.start()
    client.ensure_path(root.removeprefix(servers))
    client.stop()
    client.close()


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not await condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.1)


def payload(ledger_id: int, entry_id: int) -> bytes:
    return f"{ledger_id}:{entry_id}:".encode() * 20


@dataclass
class Written:
    """A ledger that the test has made."""

    ledger_id: int
    members: tuple[str, ...]
    entries: int
    closed: bool = True


async def write(cluster: Cluster, ledgers: Sequence[Written]) -> None:
    for ledger in ledgers:
        metadata = LedgerMetadata(
            (Segment(ledger.members),), ensemble_size=len(ledger.members), write_quorum=2, ack_quorum=2
        )
        own = await OwnLedger.create(cluster.store, ledger.ledger_id, metadata, lambda *_: None)
        await add(cluster, own[0], ledger.entries)
        if ledger.closed:
            sizes = [len(payload(ledger.ledger_id, entry_id)) for entry_id in range(ledger.entries)]
            await own[0].close(ledger.entries - 1, sum(sizes))


async def add(cluster: Cluster, own: OwnLedger, count: int) -> None:
    loop = asyncio.get_running_loop()
    writer = EnsembleWriter(own, cluster.bookies, call_soon=loop.call_soon, spawn=loop.create_task)
    answers: list[asyncio.Future[int]] = []
    length = 0
    for entry_id in range(count):
        answer: asyncio.Future[int] = loop.create_future()
        body = payload(own.ledger_id, entry_id)
        length += len(body)
        parts = DEFAULT_DIGEST.seal(own.ledger_id, entry_id, entry_id - 1, length, b"", body)
        writer.add(
            own.ledger_id,
            entry_id,
            parts,
            master_key=DEFAULT_DIGEST.master_key,
            recovery=False,
            done=partial(settle, answer),
        )
        answers.append(answer)
    assert await asyncio.gather(*answers) == [0] * count


def settle(answer: asyncio.Future[int], rc: int, _entry_id: int) -> None:
    answer.set_result(rc)


async def ledger_of(cluster: Cluster, ledger_id: int) -> LedgerMetadata:
    found = await read_metadata(cluster.store, ledger_id)
    assert found is not None
    return found[0]


async def check_copies(cluster: Cluster, ledger: Written, lost: str) -> None:
    """Every entry can be read from every bookie of its write set, and none of these is the lost one."""
    metadata = await ledger_of(cluster, ledger.ledger_id)
    assert metadata.state is LedgerState.CLOSED
    assert metadata.last_entry_id == ledger.entries - 1
    digest = digest_of(metadata.digest_type, metadata.password)
    for entry_id in range(ledger.entries):
        segment, _ = metadata.segment_of(entry_id)
        for position in write_set(entry_id, len(segment.members), metadata.write_quorum):
            bookie = segment.members[position]
            assert bookie != lost
            stored = await read_entry(cluster.bookies, bookie, ledger.ledger_id, entry_id, digest)
            assert stored is not None, f"{bookie} lacks {ledger.ledger_id}:{entry_id}"
            assert bytes(digest.check(ledger.ledger_id, entry_id, stored)) == payload(
                ledger.ledger_id, entry_id
            )


def magnetar(bookies: Bookies, *words: str) -> subprocess.Popen[bytes]:
    settings = {
        **bookies.settings,
        "prometheusStatsHttpPort": "0",
        "openLedgerRereplicationGracePeriod": "500",
        "rwRereplicateBackoffMs": "200",
    }
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with (bookies.folder / "magnetar.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "magnetar", "bookie", *words, *flags], cwd=ROOT, stdout=log, stderr=log
        )


def apache_recovery(bookies: Bookies) -> subprocess.Popen[bytes]:
    return bookies.apache.spawn(
        "org.apache.bookkeeper.replication.AutoRecoveryMain",
        "--conf",
        openLedgerRereplicationGracePeriod=500,
        bookiePort=free_port(),
    )


@pytest.fixture
def ended() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that end with the test."""
    running: list[subprocess.Popen[bytes]] = []
    yield running
    for process in running:
        process.kill()
        process.wait()


@pytest.mark.parametrize("recovery", ["ours", "apache"])
@pytest.mark.parametrize("victim", ["ours", "apache"])
async def test_autorecovery_copies_what_a_killed_bookie_held(
    bookies: Bookies, ended: list[subprocess.Popen[bytes]], recovery: str, victim: str
) -> None:
    first, second, third = bookies.ours
    lost = bookies.apache.address if victim == "apache" else first.address
    kept = first.address if victim == "apache" else bookies.apache.address
    ledgers = [
        Written(11, (lost, kept), ENTRIES),
        Written(12, (kept, lost, second.address), ENTRIES),
        Written(13, (lost, kept), 0),
        Written(14, (kept, lost), 5, closed=False),
        Written(15, (kept, second.address), ENTRIES),
    ]
    async with bookies.cluster() as cluster:
        await until(partial(all_registered, cluster, 3), "three bookies are registered")
        await write(cluster, ledgers)
        untouched = await ledger_of(cluster, 15)
        third.spawn()
        third.wait_ready()
        ended.append(magnetar(bookies, "autorecovery") if recovery == "ours" else apache_recovery(bookies))
        bookies.kill(lost)
        await until(partial(is_replicated, cluster, ledgers, lost), f"no ledger needs {lost}")
        await until(partial(has_no_locks, cluster), "no lock is left")
        for ledger in ledgers:
            await check_copies(cluster, ledger, lost)
        assert await ledger_of(cluster, 15) == untouched
    if victim == "ours":
        # Apache's shell reads metadata and entries by its own code.
        for ledger in ledgers[:2]:
            shown = bookies.apache.shell("readledger", "-ledgerid", str(ledger.ledger_id), "-msg")
            expected = [payload(ledger.ledger_id, entry_id).decode() for entry_id in range(ledger.entries)]
            assert [line for line in shown.splitlines() if line in expected] == expected, shown[-2000:]
            assert lost not in bookies.apache.shell("ledgermetadata", "-ledgerid", str(ledger.ledger_id))


async def all_registered(cluster: Cluster, count: int) -> bool:
    return len(cluster.bookies.reachable_clients()) == count


async def is_replicated(cluster: Cluster, ledgers: Sequence[Written], lost: str) -> bool:
    """The lost bookie is noticed, every ledger was looked at, and no mark is left."""
    if lost in await cluster.registered():
        return False
    for ledger in ledgers:
        if lost in bookies_needed(await ledger_of(cluster, ledger.ledger_id)):
            return False
    return not [ledger_id async for ledger_id in cluster.marks.ledgers()]


async def has_no_locks(cluster: Cluster) -> bool:
    return not await cluster.store.children(LOCKS)


async def test_marks_of_one_side_are_worked_off_by_the_other(
    bookies: Bookies, ended: list[subprocess.Popen[bytes]]
) -> None:
    """Apache's auditor marks while no bookie is spare; our shell, its shell and our worker read the mark."""
    first, second, third = bookies.ours
    lost, kept = first.address, bookies.apache.address
    ledgers = [Written(21, (lost, kept, second.address), ENTRIES)]
    async with bookies.cluster() as cluster:
        await until(partial(all_registered, cluster, 3), "three bookies are registered")
        await write(cluster, ledgers)
        apache = apache_recovery(bookies)
        ended.append(apache)
        bookies.kill(lost)
        await until(partial(is_marked, cluster, 21), "Apache's auditor marks the ledger")
        marked = await cluster.marks.get(21)
        assert marked is not None
        assert marked.mark.replicas == (lost,)
        assert marked.mark.marked_ms is not None
        apache.kill()
        apache.wait()
        await cluster.marks.add(22, [lost, kept], 1)
        listed = bookies.apache.shell("listunderreplicated", "-printmissingreplica")
        assert f"MissingReplica : {kept}" in listed, listed[-2000:]
        third.spawn()
        third.wait_ready()
        ended.append(magnetar(bookies, "autorecovery"))
        await until(partial(is_replicated, cluster, ledgers, lost), f"no ledger needs {lost}")
        await check_copies(cluster, ledgers[0], lost)
        assert not [ledger_id async for ledger_id in cluster.marks.ledgers()]


async def is_marked(cluster: Cluster, ledger_id: int) -> bool:
    return await cluster.marks.get(ledger_id) is not None
