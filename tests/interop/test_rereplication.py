"""Three bookies, ours and Apache's mixed; one is killed, and each AutoRecovery in turn makes its copies again."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from kazoo.client import KazooClient

from bookie_stub.config.rules import load_bookie_settings
from bookie_stub.config.settings import BookieSettings
from bookkeeper.client.digest import DEFAULT_DIGEST, digest_of
from bookkeeper.ensembles.ensemble_writer import EnsembleWriter
from bookkeeper.ensembles.own_ledger import OwnLedger, read_metadata
from bookkeeper.ensembles.placement import write_set
from bookkeeper.repair.fragments import bookies_needed
from bookkeeper.repair.replicas import read_entry
from bookkeeper.repair.zookeeper_locks import ZookeeperElection
from magnetar.process.rereplication import ClusterConnections, joined
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, LedgerState
from protocol.underreplication import ELECTION, LOCKS
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
            "zkTimeout": "10000",
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
    async def cluster(self) -> AsyncIterator[ClusterConnections]:
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


async def write(cluster: ClusterConnections, ledgers: Sequence[Written]) -> None:
    for ledger in ledgers:
        metadata = LedgerMetadata(
            (LedgerSegment(ledger.members),), ensemble_size=len(ledger.members), write_quorum=2, ack_quorum=2
        )
        own = await OwnLedger.create(cluster.store, ledger.ledger_id, metadata, lambda *_: None)
        await add(cluster, own[0], ledger.entries)
        if ledger.closed:
            sizes = [len(payload(ledger.ledger_id, entry_id)) for entry_id in range(ledger.entries)]
            await own[0].close(ledger.entries - 1, sum(sizes))


async def add(cluster: ClusterConnections, own: OwnLedger, count: int) -> None:
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
            (entry_id,),
            [parts],
            master_key=DEFAULT_DIGEST.master_key,
            recovery=False,
            done=partial(settle, answer),
        )
        answers.append(answer)
    assert await asyncio.gather(*answers) == [0] * count


def settle(answer: asyncio.Future[int], rc: int, _entry_id: int) -> None:
    answer.set_result(rc)


async def ledger_of(cluster: ClusterConnections, ledger_id: int) -> LedgerMetadata:
    found = await read_metadata(cluster.store, ledger_id)
    assert found is not None
    return found[0]


async def check_copies(cluster: ClusterConnections, ledger: Written, lost: str) -> None:
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


def magnetar(bookies: Bookies, *words: str, **more: str) -> subprocess.Popen[bytes]:
    settings = {
        **bookies.settings,
        "prometheusStatsHttpPort": "0",
        "openLedgerRereplicationGracePeriod": "500",
        "rwRereplicateBackoffMs": "200",
        **more,
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


async def all_registered(cluster: ClusterConnections, count: int) -> bool:
    return len(cluster.bookies.reachable_clients()) == count


async def is_replicated(cluster: ClusterConnections, ledgers: Sequence[Written], lost: str) -> bool:
    """The lost bookie is noticed, every ledger was looked at, and no mark is left."""
    if lost in await cluster.registered():
        return False
    for ledger in ledgers:
        if lost in bookies_needed(await ledger_of(cluster, ledger.ledger_id)):
            return False
    return not [ledger_id async for ledger_id in cluster.marks.ledgers()]


async def has_no_locks(cluster: ClusterConnections) -> bool:
    return not await cluster.store.children(LOCKS)


async def test_mark_of_apaches_auditor_is_worked_off_by_our_worker(
    bookies: Bookies, ended: list[subprocess.Popen[bytes]]
) -> None:
    """Apache's auditor marks while no bookie is spare, and our worker copies."""
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
        third.spawn()
        third.wait_ready()
        ended.append(magnetar(bookies, "autorecovery"))
        await until(partial(is_replicated, cluster, ledgers, lost), f"no ledger needs {lost}")
        await check_copies(cluster, ledgers[0], lost)
        assert not [ledger_id async for ledger_id in cluster.marks.ledgers()]


async def test_mark_of_ours_is_worked_off_by_apaches_worker(
    bookies: Bookies, ended: list[subprocess.Popen[bytes]]
) -> None:
    """The test has the oldest vote, so Apache's auditor waits behind it and marks nothing."""
    first, second, third = bookies.ours
    lost = first.address
    ledgers = [Written(31, (second.address, lost), ENTRIES)]
    async with bookies.cluster() as cluster:
        await until(partial(all_registered, cluster, 3), "three bookies are registered")
        await write(cluster, ledgers)
        await cluster.marks.prepare(0)
        election = ZookeeperElection(cluster.store.requests, "the test")
        await until(election.is_elected, "the test is elected")
        third.spawn()
        third.wait_ready()
        bookies.kill(lost)
        await until(partial(is_gone, cluster, lost), "the session of the lost bookie has ended")
        ended.append(apache_recovery(bookies))
        await until(partial(has_votes, cluster, 2), "Apache's auditor stands for election")
        assert await election.is_elected()
        assert not await is_marked(cluster, 31)
        await cluster.marks.add(31, [lost], 1_700_000_000_000)
        await until(partial(is_replicated, cluster, ledgers, lost), f"no ledger needs {lost}")
        await check_copies(cluster, ledgers[0], lost)


async def is_gone(cluster: ClusterConnections, bookie: str) -> bool:
    return bookie not in await cluster.registered()


async def has_votes(cluster: ClusterConnections, count: int) -> bool:
    return len(await cluster.store.children(ELECTION)) == count


async def test_bookie_copies_in_its_own_process_and_is_decommissioned_by_command(
    bookies: Bookies, ended: list[subprocess.Popen[bytes]]
) -> None:
    """`magnetar bookie` with autoRecoveryDaemonEnabled works, while the commands mark, list and wait."""
    first, second, _ = bookies.ours
    lost = first.address
    ledgers = [Written(41, (second.address, lost), ENTRIES), Written(42, (lost, bookies.apache.address), 7)]
    async with bookies.cluster() as cluster:
        await until(partial(all_registered, cluster, 3), "three bookies are registered")
        await write(cluster, ledgers)
        refused = await ended_command(bookies, "decommission", "--bookie-id", lost)
        assert (refused.returncode, "is registered: stop it first" in refused.stderr) == (1, True)
        await command(bookies, "autorecoverystatus", "disable")
        assert await command(bookies, "lostbookierecoverydelay", "7") == "7\n"
        assert await command(bookies, "lostbookierecoverydelay") == "7\n"
        assert await cluster.marks.delay_s(0) == 7
        bookies.kill(lost)
        await until(partial(is_gone, cluster, lost), "the session of the lost bookie has ended")
        await command(bookies, "recover", "--ledger", "41")
        listed = await command(bookies, "listunderreplicated", "--missing-replica", lost)
        assert [json.loads(line)["ledgerId"] for line in listed.splitlines()] == [41]
        assert await command(bookies, "autorecoverystatus", "enable") == "enabled\n"
        port = str(free_port())
        beside = {"bookiePort": port, "bookieId": f"127.0.0.1:{port}", "autoRecoveryDaemonEnabled": "true"}
        data = ("--data", str(bookies.folder / "beside"), "--ready-file", str(bookies.folder / "beside.json"))
        ended.append(magnetar(bookies, *data, **beside))
        assert "no ledger needs" in await command(bookies, "decommission", "--bookie-id", lost)
        for ledger in ledgers:
            await check_copies(cluster, ledger, lost)
        assert lost not in await cluster.store.children("/ledgers/cookies")
        http = json.loads((bookies.folder / "beside.json").read_text())["http"]
        scrape = await asyncio.to_thread(read_url, f"{http}/metrics")
        written = re.search(r"^replication_replication_worker_NUM_ENTRIES_WRITTEN ([0-9.]+)$", scrape, re.M)
        assert written is not None
        assert float(written[1]) >= ENTRIES
        assert "bookie_SERVER_STATUS" in scrape


async def test_autorecovery_goes_on_after_its_session_has_expired(
    bookies: Bookies, ended: list[subprocess.Popen[bytes]]
) -> None:
    """The article's AutoRecovery ends with its session; ours stands for election again and copies as before."""
    first, second, third = bookies.ours
    lost = first.address
    ledgers = [Written(51, (second.address, lost), ENTRIES)]
    async with bookies.cluster() as cluster:
        await until(partial(all_registered, cluster, 3), "three bookies are registered")
        await write(cluster, ledgers)
        process = magnetar(bookies, "autorecovery")
        ended.append(process)
        await until(partial(has_votes, cluster, 1), "the process stands for election")
        process.send_signal(signal.SIGSTOP)
        await until(partial(has_votes, cluster, 0), "its session has expired")
        process.send_signal(signal.SIGCONT)
        await until(partial(has_votes, cluster, 1), "it stands for election again")
        third.spawn()
        third.wait_ready()
        bookies.kill(lost)
        await until(partial(is_replicated, cluster, ledgers, lost), f"no ledger needs {lost}")
        await check_copies(cluster, ledgers[0], lost)
        assert process.poll() is None


async def elected(ports: Sequence[int]) -> list[int]:
    """The ports of the processes that say they are the auditor."""
    found = []
    for port in ports:
        with suppress(OSError):
            text = await asyncio.to_thread(_scrape, port)
            found += [port] if "\nmagnetar_auditor_elected 1" in text.replace(".0\n", "\n") else []
    return found


def _scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return str(answer.read().decode())


async def test_one_of_three_processes_is_the_auditor_and_another_one_after_its_end(
    bookies: Bookies, ended: list[subprocess.Popen[bytes]]
) -> None:
    ports = [free_port() for _ in range(3)]
    async with bookies.cluster() as cluster:
        ended += [magnetar(bookies, "autorecovery", prometheusStatsHttpPort=str(port)) for port in ports]
        await until(partial(has_votes, cluster, 3), "three processes stand for election")

        async def one_more(former: int) -> bool:
            now = await elected(ports)
            assert len(now) <= 1, now
            return bool(now) and now != [former]

        await until(partial(one_more, 0), "one of them is the auditor")
        (first,) = await elected(ports)
        ended[ports.index(first)].kill()
        await until(partial(one_more, first), "another one is the auditor")


async def test_commands_refuse_a_path_without_bookies_and_an_unknown_bookie(bookies: Bookies) -> None:
    """They said "no ledger needs …" and "disabled" there, at which an administrator deletes the bookie's data."""
    async with bookies.cluster() as cluster:
        await until(partial(all_registered, cluster, 3), "three bookies are registered")
    unknown = await ended_command(bookies, "decommission", "--bookie-id", "127.0.0.1:1")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "127.0.0.1:1 has no cookie, and no ledger needs it" in unknown.stderr
    bookies.uri = bookies.uri.replace("/ledgers", "/wrong/ledgers")
    commands = [
        ["decommission", "--bookie-id", bookies.ours[0].address],
        ["listunderreplicated"],
        ["recover"],
    ]
    switches = [["autorecoverystatus", "disable"], ["lostbookierecoverydelay", "7"]]
    for words in [*commands, *switches]:
        done = await ended_command(bookies, *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert "no bookie is known at zk:" in done.stderr
        assert "kazoo" not in done.stderr, "the log of the connection stands around the answer"


def read_url(url: str) -> str:
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        text: str = answer.read().decode()
        return text


async def ended_command(bookies: Bookies, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "magnetar", "bookie", *words]
    command += ["--set", f"metadataServiceUri={bookies.uri}"]
    return await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=WAIT_S
    )


async def command(bookies: Bookies, *words: str) -> str:
    done = await ended_command(bookies, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def is_marked(cluster: ClusterConnections, ledger_id: int) -> bool:
    return await cluster.marks.get(ledger_id) is not None
