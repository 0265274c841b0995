"""`python -m bookie_stub` as a process: it starts, serves, stops in order, and survives kill -9."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from bookie_stub.base.record import explicit_lac_of
from protocol.bookie_frame import (
    AddResponse,
    ReadResponse,
    encode_add_request,
    encode_fence_request,
    encode_read_request,
)
from protocol.bookkeeper_api_pb2 import ENOENTRY, EOK
from tests.bookie_stub.bookie_process import ROOT, Process, answer
from tests.bookie_stub.conftest import MASTER_KEY, entry_of
from tests.bookie_stub.v3_client import V3Client

ROUNDS = 6


def payload_of(ledger: int, entry: int) -> bytes:
    return b"%d:%d " % (ledger, entry) * (1 + entry * 7 % 150)


async def test_process_serves_and_stops_cleanly(process: Process) -> None:
    process.start()
    reader, writer = await process.connect()
    writer.write(encode_add_request(entry_of(1, 0), MASTER_KEY))
    assert await answer(reader) == AddResponse(0, 1, 0)
    url = process.addresses["http"]
    text = await asyncio.to_thread(lambda: urllib.request.urlopen(url + "/metrics").read().decode())
    assert 'bookkeeper_server_ADD_ENTRY_count{success="true"} 2' in text  # the key record is counted too
    assert await asyncio.to_thread(lambda: urllib.request.urlopen(url + "/heartbeat").read()) == b"OK\n"
    code, errors = process.end(signal.SIGTERM)
    assert (code, "stopped" in errors) == (0, True)
    writer.close()
    process.start()
    reader, writer = await process.connect()
    writer.write(encode_read_request(1, -1))
    assert await answer(reader) == ReadResponse(0, 1, -1, entry_of(1, 0))
    writer.close()


def test_process_exits_with_2_when_a_setting_is_bad(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bookie_stub", "--data", str(tmp_path), "--set", "bookiePort=many"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "bookiePort=many" in done.stderr


def test_process_warns_when_the_journal_is_not_synced(process: Process) -> None:
    process.start("journalSyncData=false")
    _, errors = process.end(signal.SIGTERM)
    assert "journalSyncData=false: entries are acknowledged before they are on disk" in errors


async def test_process_loses_nothing_acknowledged_when_killed_at_random(process: Process) -> None:
    """Adds from two connections, fences and explicit LACs from a third, kills, restarts.

    Acknowledged entries are whole and there, fences hold, LACs have not gone back.
    """
    rng = random.Random(os.environ.get("MAGNETAR_SEED", "1"))
    acknowledged: set[tuple[int, int]] = set()
    fenced: set[int] = set()
    confirmed: dict[int, int] = {}
    # Small files, so that kills also meet checkpoints, new logs, new journals and the removal of old ones.
    small = (
        "dbStorage_writeCacheMaxSizeMb=1",
        "logSizeLimit=300000",
        "journalMaxSizeMB=1",
        "flushInterval=20",
    )
    for round_number in range(ROUNDS):
        process.start(*small, "journalPreAllocSizeMB=1", "journalMaxBackups=0")
        await _check(process, acknowledged, fenced, confirmed)
        work = [
            asyncio.ensure_future(_add(process, round_number * 10 + worker, acknowledged, fenced, rng))
            for worker in range(2)
        ]
        work.append(
            asyncio.ensure_future(_confirm(process, 200_000 + round_number * 1000, fenced, confirmed))
        )
        await asyncio.sleep(rng.uniform(0.05, 0.5))
        process.end(signal.SIGKILL)
        await asyncio.gather(*work)
    process.start(*small)
    await _check(process, acknowledged, fenced, confirmed)
    assert process.end(signal.SIGTERM)[0] == 0
    process.start(*small)
    await _check(process, acknowledged, fenced, confirmed)
    assert len(acknowledged) > 100
    assert fenced
    assert confirmed


async def _add(
    process: Process, ledger: int, acknowledged: set[tuple[int, int]], fenced: set[int], rng: random.Random
) -> None:
    """Until the process is gone.

    Halfway through the ledger is fenced, sometimes a ledger without entries too.
    """
    reader, writer = await process.connect()

    async def note_answers() -> None:
        while True:
            found = await answer(reader)
            if isinstance(found, AddResponse):
                if found.rc == 0:
                    acknowledged.add((found.ledger_id, found.entry_id))
            elif found[0] in (0, 2):
                fenced.add(found[1])

    notes = asyncio.ensure_future(note_answers())
    entry = 0
    try:
        while not notes.done() and not writer.is_closing():
            for _ in range(rng.randrange(1, 40)):
                frame = encode_add_request(entry_of(ledger, entry, payload_of(ledger, entry)), MASTER_KEY)
                writer.write(frame)
                entry += 1
            if rng.random() < 0.02:
                writer.write(encode_fence_request(ledger, MASTER_KEY))
                writer.write(encode_fence_request(100_000 + ledger, MASTER_KEY))
                ledger += 1000
                entry = 0
            await writer.drain()
            await asyncio.sleep(0.001)
    except ConnectionError:
        pass
    await asyncio.gather(notes, return_exceptions=True)
    writer.close()


async def _confirm(process: Process, ledger: int, fenced: set[int], confirmed: dict[int, int]) -> None:
    """Over v3, on ledgers without entries: each gets a few explicit LACs and then a fence."""
    client = await V3Client.connect(int(process.addresses["bookie"].split(":")[1]))
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            for number in range(5):
                if (await client.answer(client.write_lac(ledger, number))).status == EOK:
                    confirmed[ledger] = number
            if (await client.answer(client.fence(ledger))).status == ENOENTRY:
                fenced.add(ledger)
            ledger += 1
    client.close()


async def _check(
    process: Process,
    acknowledged: set[tuple[int, int]],
    fenced: set[int],
    confirmed: dict[int, int],
) -> None:
    reader, writer = await process.connect()
    wanted = sorted(acknowledged)
    for start in range(0, len(wanted), 100):
        some = wanted[start : start + 100]
        writer.write(b"".join(encode_read_request(*key) for key in some))
        for _ in some:
            found = await asyncio.wait_for(answer(reader), 60)
            assert isinstance(found, ReadResponse)
            key = (found.ledger_id, found.entry_id)
            assert found.rc == 0, key
            assert found.entry == entry_of(*key, payload_of(*key)), key
    for ledger in fenced:
        writer.write(encode_add_request(entry_of(ledger, 10**6), MASTER_KEY))
        assert await asyncio.wait_for(answer(reader), 60) == AddResponse(104, ledger, 10**6)
    writer.close()
    client = await V3Client.connect(int(process.addresses["bookie"].split(":")[1]))
    for ledger, number in confirmed.items():
        lac = (await client.answer(client.read_lac(ledger))).readLacResponse
        assert lac.status == EOK
        assert explicit_lac_of(lac.lacBody) >= number, ledger
    client.close()


def start_anew(directory: Path, *settings: str) -> tuple[int, str]:
    """A process that is to end by itself: its exit code and the last line of its log."""
    words = ["--data", str(directory), "--set", "bindAddress=127.0.0.1"]
    for setting in settings:
        words += ["--set", setting]
    done = subprocess.run(
        [sys.executable, "-m", "bookie_stub", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stderr.splitlines()[-1]


ANY_PORT = ("bookiePort=0", "prometheusStatsHttpPort=0")


def test_second_process_is_refused_on_the_same_directory(process: Process) -> None:
    process.start()
    code, text = start_anew(process.directory, *ANY_PORT)
    assert code == 1
    assert "is open in another bookie" in text
    assert str(process.directory) in text
    assert process.end(signal.SIGTERM)[0] == 0


@pytest.mark.parametrize("key", ["bookiePort", "prometheusStatsHttpPort"])
def test_process_exits_with_1_when_its_port_is_in_use(process: Process, tmp_path: Path, key: str) -> None:
    process.start()
    name = {"bookiePort": "bookie", "prometheusStatsHttpPort": "http"}[key]
    port = process.addresses[name].rsplit(":", 1)[1]
    code, text = start_anew(tmp_path / "other", *ANY_PORT, f"{key}={port}")
    assert code == 1
    assert f"{key}={port}: the port is in use" in text


def test_failed_start_leaves_no_lock(process: Process, tmp_path: Path) -> None:
    process.start()
    port = process.addresses["bookie"].rsplit(":", 1)[1]
    other = tmp_path / "other"
    assert start_anew(other, ANY_PORT[1], f"bookiePort={port}")[0] == 1
    assert process.end(signal.SIGTERM)[0] == 0
    process.directory = other
    process.start()
    assert process.end(signal.SIGTERM)[0] == 0


def test_process_exits_with_1_when_its_disk_is_read_only(process: Process, tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system cannot be mounted")
    try:
        process.directory = place / "data"
        process.start("journalPreAllocSizeMB=1")
        assert process.end(signal.SIGTERM)[0] == 0
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        code, text = start_anew(place / "data", *ANY_PORT)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
    assert code == 1
    assert "Read-only file system" in text
    assert str(place) in text
