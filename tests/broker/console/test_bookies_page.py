"""The console's page of bookies: real processes over TCP, one that is killed, one that hangs, and texts of metrics."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from bookkeeper.client.bookkeeper import BookKeeperLedgerClient
from bookkeeper.client.memory import MemoryLedgerClient
from bookkeeper.ensembles.bookies import BookieSet, OneBookie
from broker.compose.ledger_settings import QuarantineSettings
from broker.console import bookies as page_module
from broker.console.bookie_http import NoAnswer, fetch_text
from broker.console.bookie_metrics import metrics_of
from broker.console.bookies import LINGER_NS, NO_HTTP, SILENT, BookiesPage
from foundation.loop import clock
from foundation.loop.turn import Turn
from tests.bookkeeper.client.test_contract import Caller
from tests.support.bookies import BookieProcess, BookieProcesses
from tests.vectors.broker_process import BrokerProcess

FRAME_BYTES_MAX = 1 << 20


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No bookie counts as silent because the machine is busy."""
    monkeypatch.setattr(page_module, "ASK_S", 60)
    monkeypatch.setattr(page_module, "ANSWER_S", 60)


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieProcesses]:
    with BookieProcesses(tmp_path_factory.mktemp("bookies"), 3) as started:
        yield started


class Scene:
    """A page over the processes, with a clock that the test holds."""

    def __init__(self, processes: list[BookieProcess], *, with_http: bool = True) -> None:
        self.now_ns = 1
        self.http = {one.address: one.http.removeprefix("http://") for one in processes}
        self.bookies = BookieSet(
            [one.address for one in processes],
            self._connect,
            now_ns=clock.monotonic_ns,
            quarantine=QuarantineSettings(),
            http=self.http if with_http else {},
        )
        self.page = BookiesPage(self.bookies, clock.monotonic_ns)

    def _connect(self, address: str) -> BookKeeperLedgerClient:
        turn = Turn(asyncio.get_running_loop().call_soon, clock.monotonic_ns)
        return BookKeeperLedgerClient(address, turn=turn, frame_bytes_max=FRAME_BYTES_MAX)

    async def connected(self, address: str) -> Caller:
        client = self.bookies.client(address)
        assert isinstance(client, BookKeeperLedgerClient)
        await client.connected()
        return Caller(client)

    async def shown(self) -> dict[str, Any]:
        """The answer by bookie."""
        answer: Any = await self.page.shown()
        return {one["id"]: one for one in answer["bookies"]}


@pytest.fixture
async def scene(processes: BookieProcesses) -> AsyncIterator[Scene]:
    made = Scene(processes.bookies[:2])
    yield made
    made.page.close()
    await made.bookies.close()


async def test_bookies_over_tcp_show_disks_journal_cache_and_times(scene: Scene, tmp_path: Path) -> None:
    first, second = scene.bookies.names
    callers = [await scene.connected(name) for name in (first, second)]
    before = await scene.shown()
    assert before[first]["requests"] == {"write": None, "read": None}
    for caller in callers:
        for entry in range(20):
            assert await caller.add(7, entry, b"payload") == 0
        assert (await caller.read(7, 3))[0] == 0
    shown = await scene.shown()
    for name in (first, second):
        one = shown[name]
        assert (one["kind"], one["connected"], one["state"], one["notes"]) == ("tcp", True, "writable", [])
        (disk,) = one["disks"]
        # The bookies' folders and this one are on the same disk.
        assert disk["usedBytes"] + disk["freeBytes"] == shutil.disk_usage(tmp_path).total
        assert (disk["path"], disk["writable"], one["writableDirectories"]) == (None, True, [1, 1])
        assert 0 < one["journal"]["p50Ms"] <= one["journal"]["p99Ms"]
        assert one["readCache"]["evictedBeforeUse"] == 0
        write = one["requests"]["write"]
        assert write["samples"] == 20
        assert 0 < write["p50Ms"] <= write["p99Ms"]
        assert one["requests"]["read"]["samples"] == 1


async def test_killed_bookie_is_shown_beside_the_others(tmp_path: Path, processes: BookieProcesses) -> None:
    killed = BookieProcess(tmp_path / "killed", {})
    killed.spawn()
    killed.wait_ready()
    scene = Scene([processes.bookies[0], killed])
    await scene.connected(killed.address)
    assert (await scene.shown())[killed.address]["connected"]
    killed.kill()
    shown = await scene.shown()
    one = shown[killed.address]
    assert (one["state"], one["disks"], one["journal"], one["readCache"]) == ("unknown", None, None, None)
    assert "did not tell its disks" in one["notes"][0]
    assert "Journal and read cache are not known: http://127.0.0.1:" in one["notes"][1]
    assert shown[processes.bookies[0].address]["disks"]
    await scene.bookies.close()


async def test_bookie_that_hangs_does_not_hang_the_page(
    monkeypatch: pytest.MonkeyPatch, processes: BookieProcesses
) -> None:
    hanging, other = processes.bookies[2], processes.bookies[0]
    scene = Scene([hanging, other])
    await scene.connected(hanging.address)
    os.kill(hanging.pid, signal.SIGSTOP)
    try:
        monkeypatch.setattr(page_module, "ASK_S", 0.2)
        shown = await scene.shown()
        assert SILENT in shown[hanging.address]["notes"]
        # One question is out at a time, and the page comes without those that are late.
        monkeypatch.setattr(page_module, "ASK_S", 600)
        monkeypatch.setattr(page_module, "ANSWER_S", 0.2)
        for _ in range(3):
            assert (await scene.shown())[hanging.address]["notes"] == [SILENT]
        questions = [task for task in asyncio.all_tasks() if hanging.address in task.get_name()]
        assert len(questions) == 1
    finally:
        os.kill(hanging.pid, signal.SIGCONT)
    await questions[0]
    monkeypatch.setattr(page_module, "ANSWER_S", 60)
    shown = await scene.shown()
    assert [one["notes"] for one in shown.values()] == [[], []]
    await scene.bookies.close()


async def test_unknown_http_address_is_said_with_the_remedy(processes: BookieProcesses) -> None:
    scene = Scene(processes.bookies[:1], with_http=False)
    (one,) = (await scene.shown()).values()
    assert one["disks"]
    assert (one["state"], one["journal"], one["readCache"]) == ("unknown", None, None)
    assert one["notes"] == [NO_HTTP]
    await scene.bookies.close()


async def test_requests_are_measured_while_a_page_asks_alone(processes: BookieProcesses) -> None:
    name = processes.bookies[0].address
    scene = Scene(processes.bookies[:1])
    now_ns = 0
    page = BookiesPage(scene.bookies, lambda: now_ns)
    caller = await scene.connected(name)

    async def written() -> object:
        answer: Any = await page.shown()
        return answer["bookies"][0]["requests"]["write"]

    # Out before the measurement begins: its time is not known.
    early = caller.start_add(8, 0, b"x")
    await asyncio.sleep(0)
    assert await written() is None
    assert await early == 0
    await caller.add(8, 1, b"x")
    assert await written() == {"p50Ms": 0.0, "p99Ms": 0.0, "samples": 1}
    now_ns = LINGER_NS + 1
    page.expire()
    await caller.add(8, 2, b"x")
    assert await written() is None
    await scene.bookies.close()


@pytest.mark.one_broker("asks for the page of the bookie inside the process")
async def test_bookie_of_this_process_is_shown_behind_faults(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, test_faults=True) as broker:
        async with (
            ClientSession(broker.addresses.admin) as session,
            session.get("/admin/v2/magnetar/console/bookies") as answer,
        ):
            (one,) = (await answer.json())["bookies"]
    assert (one["kind"], one["state"], one["notes"]) == ("embedded", "writable", [])
    assert one["disks"][0]["path"].startswith(str(tmp_path))


async def test_bookie_in_memory_says_that_it_keeps_nothing() -> None:
    page = BookiesPage(
        OneBookie("memory", MemoryLedgerClient(asyncio.get_running_loop().call_soon)), clock.monotonic_ns
    )
    answer: Any = await page.shown()
    (one,) = answer["bookies"]
    assert (one["kind"], one["connected"], one["disks"]) == ("memory", True, None)
    assert len(one["notes"]) == 1


APACHE = """\
# TYPE bookie_journal_JOURNAL_SYNC summary
bookie_journal_JOURNAL_SYNC{success="false",quantile="0.5", journalIndex="0"} NaN
bookie_journal_JOURNAL_SYNC{success="true",quantile="0.5", journalIndex="0"} 1.5
bookie_journal_JOURNAL_SYNC{success="true",quantile="0.99", journalIndex="0"} 8.25
bookie_journal_JOURNAL_SYNC{success="true",quantile="0.5", journalIndex="1"} 2.0
bookie_journal_JOURNAL_SYNC{success="true",quantile="0.99", journalIndex="1"} NaN
bookie_journal_JOURNAL_SYNC_count{success="true", journalIndex="0"} 12
bookie_read_cache_hits{indexDir="/a/index/current",ledgerDir="/a/current"} 3
bookie_read_cache_hits{indexDir="/b/index/current",ledgerDir="/b/current"} 4
bookie_read_cache_misses{indexDir="/a/index/current",ledgerDir="/a/current"} 5
bookie_ledger_num_dirs 2
bookie_ledger_writable_dirs 1
bookie_SERVER_STATUS 0
"""
"""Lines in the form of BookKeeper 4.17.2, with other numbers."""


def test_metrics_of_apache_are_read() -> None:
    found = metrics_of(APACHE)
    assert (found.journal_p50_ms, found.journal_p99_ms) == (2.0, 8.25)
    assert (found.hits, found.misses, found.evicted_unserved) == (7, 5, None)
    assert (found.read_only, found.directories, found.writable_directories) == (True, 2, 1)


def test_text_without_metrics_has_no_number() -> None:
    found = metrics_of("<html>bookie_SERVER_STATUS 1\nbookie_SERVER_STATUS x\n")
    assert found.read_only is None
    assert found.hits is None


async def test_page_of_another_server_is_refused_with_its_reason() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        match request.path:
            case "/redirect":
                raise web.HTTPFound("http://127.0.0.1:1/")
            case "/refusal":
                return web.Response(status=421, text="set advertisedAddress")
        return web.Response(body=b" " * (3 << 20))

    app = web.Application()
    app.router.add_get("/{path}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"127.0.0.1:{runner.addresses[0][1]}"
    for path, reason in (
        ("/redirect", "answers 302"),
        ("/refusal", "set advertised"),
        ("/long", "more than"),
    ):
        with pytest.raises(NoAnswer, match=reason):
            await fetch_text(address, path, 60)
    await runner.cleanup()
