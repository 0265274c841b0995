"""Entry logs of a bookie process cut and removed, its index rebuilt, and every acknowledged entry asked for by v2.

Whatever was done to the files: an acknowledged entry is the one that was added, or an error, and never absent.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from bookie_stub.disk.entry_log import LogScan, file_name, log_ids
from magnetar.commands.bookie_command import main
from protocol.bookie_frame import AddResponse, ReadResponse, encode_add_request, encode_read_request
from tests.bookie_stub.bookie_process import Process, answer
from tests.bookie_stub.conftest import MASTER_KEY, signed
from tests.bookie_stub.files import cut

OK, NO_LEDGER, NO_ENTRY = 0, 1, 2
LEDGERS, ENTRIES = range(1, 7), 60
SMALL = ("logSizeLimit=30000", "flushInterval=20", "journalMaxSizeMB=1", "journalPreAllocSizeMB=1")


def payload_of(ledger: int, entry: int) -> bytes:
    return b"%d:%d " % (ledger, entry) * 40


class Recorded(NamedTuple):
    killed: Path
    """The files after a kill, with every entry in the logs; and without the journals that are not needed any more."""
    stopped: Path
    """The files after a stop."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("lost-logs")
    process = Process(folder / "data")
    process.start(*SMALL, "journalMaxBackups=0")
    asyncio.run(add_all(process))
    process.end(signal.SIGKILL)
    shutil.copytree(folder / "data", folder / "killed")
    process.start(*SMALL)
    assert process.end(signal.SIGTERM)[0] == 0
    return Recorded(folder / "killed", folder / "data")


async def add_all(process: Process) -> None:
    """Adds until every entry is acknowledged and in an entry log."""
    reader, writer = await process.connect()
    for entry in range(ENTRIES):
        for ledger in LEDGERS:
            request = encode_add_request(signed(ledger, entry, payload_of(ledger, entry)), MASTER_KEY)
            writer.write(request)
        for _ in LEDGERS:
            found = await answer(reader)
            assert isinstance(found, AddResponse)
            assert found.rc == OK
    logs = process.directory
    async with asyncio.timeout(60):
        while entries_in_logs(logs) < ENTRIES * len(LEDGERS):  # noqa: ASYNC110 - another process writes them
            await asyncio.sleep(0.05)
    mark = next(logs.rglob("lastMark"))
    moved = mark.stat().st_mtime_ns
    async with asyncio.timeout(60):  # one entry more, so that the mark has passed all of the others
        writer.write(encode_add_request(signed(LEDGERS[0], ENTRIES, b"last"), MASTER_KEY))
        assert (await answer(reader))[0] == OK
        while mark.stat().st_mtime_ns == moved:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)
    writer.close()


def entries_in_logs(directory: Path) -> int:
    found = {
        (entry.ledger_id, entry.entry_id)
        for path in directory.rglob("[0-9a-f].log")
        for entry in LogScan(path)
    }
    return len(found)


def damage(logs: Path, what: str) -> int:
    """Returns how many entries it takes."""
    ids = log_ids(logs)
    log_id = ids[-1] if "last" in what else ids[1]
    path = logs / file_name(log_id)
    entries = list(LogScan(path))
    if "removed" in what:
        path.unlink()
        return len(entries)
    kept = len(entries) // 2
    cut(path, entries[kept].offset + (7 if "in a record" in what else 0))
    return len(entries) - kept


DAMAGES = (
    "a log removed",
    "the last log removed",
    "a log cut between records",
    "a log cut in a record",
    "the last log cut between records",
)


@pytest.mark.parametrize(
    ("end", "index"),
    [
        ("killed", "index kept"),
        pytest.param("killed", "index gone", marks=pytest.mark.slow),
        pytest.param("stopped", "index gone", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("what", DAMAGES)
async def test_rebuild_answers_no_acknowledged_entry_as_absent_when_logs_are_lost(
    recorded: Recorded, process: Process, what: str, end: str, index: str
) -> None:
    shutil.copytree(getattr(recorded, end), process.directory)
    (logs,) = {path.parent for path in process.directory.rglob("lastId")}
    lost = damage(logs, what)
    assert lost > 0
    for path in process.directory.rglob("*.txn"):  # what the mark has passed would bring them back
        path.unlink()
    (logs / "lastMark").unlink()
    next(process.directory.rglob("durable")).unlink()
    if index == "index gone":
        shutil.rmtree(next(process.directory.rglob("locations")))
    assert main(["check", "--data", str(process.directory)]) == 1
    assert main(["index", "rebuild", "--data", str(process.directory)]) == 0
    process.start(*SMALL)
    codes = await ask_for_all(process)
    assert codes[NO_LEDGER] == codes[NO_ENTRY] == 0, codes
    assert codes.total() - codes[OK] <= lost
    if index == "index kept":
        assert main(["check", "--data", str(process.directory)]) == 1


async def ask_for_all(process: Process) -> Counter[int]:
    """Returns how often each result code was answered."""
    codes: Counter[int] = Counter()
    reader, writer = await process.connect()
    for ledger in LEDGERS:
        for entry in range(ENTRIES):
            writer.write(encode_read_request(ledger, entry))
            found = await answer(reader)
            assert isinstance(found, ReadResponse)
            codes[found.rc] += 1
            assert found.rc != OK or bytes(found.entry) == signed(ledger, entry, payload_of(ledger, entry))
    writer.close()
    return codes


async def test_rebuild_restores_lost_entries_from_kept_journals(recorded: Recorded, process: Process) -> None:
    shutil.copytree(recorded.killed, process.directory)
    (logs,) = {path.parent for path in process.directory.rglob("lastId")}
    for log_id in log_ids(logs):
        (logs / file_name(log_id)).unlink()
    assert main(["index", "rebuild", "--data", str(process.directory)]) == 0
    process.start(*SMALL)
    assert await ask_for_all(process) == Counter({OK: ENTRIES * len(LEDGERS)})
