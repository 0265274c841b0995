"""A stored state of Apache's bookie: decode every file with our readers, then serve it with our bookie.

Each check is one pass or failure: the journals record for record, the entry logs, both indexes, the answers
of the recorded bookie ledger by ledger, and a replay of the journals alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bookie_stub.base.record import KEY, LENGTH_BYTES
from bookie_stub.compose.bookie import Bookie
from bookie_stub.disk.entry_log import LogScan, log_ids, read_header, read_ledgers_map
from bookie_stub.disk.ledger_index import LedgerIndex
from bookie_stub.disk.rocks import Rocks, read_rows
from bookie_stub.journal.journal_file import JournalMark
from bookie_stub.journal.journal_reader import JournalReader
from bookie_stub.ledgers.ledger import Ledger
from bookie_stub.ledgers.replay import JournalReplay
from bookie_stub.tools.index_rebuild import rebuild
from tests.support.bookie_settings import for_directory
from tests.vectors.result import Result

Row = dict[str, Any]
"""A line of a recorded list: JSON as it stands."""
_SPECIAL = {-0x1000: "master_key", -0x2000: "fence", -0x8000: "explicit_lac"}
_ERRORS = {1: "ENOLEDGER", 2: "ENOENTRY", 102: "EUA", 104: "EFENCED", 0: "OK"}


def run(folder: Path) -> Result:
    result = Result()
    manifest = json.loads((folder / "manifest.json").read_text())
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        with tarfile.open(folder / "state.tar.gz") as archive:
            archive.extractall(root, filter="data")
        checks: list[tuple[str, Callable[[], str | None]]] = [
            ("journal", lambda: _journals(root, _rows(folder / "journal.jsonl"))),
            ("journal alone", lambda: _journal_alone(root, manifest)),
            ("entry logs", lambda: _entry_logs(root, _rows(folder / "entrylogs.jsonl"))),
            ("location index", lambda: _locations(root, _rows(folder / "index-locations.jsonl"))),
            ("ledger index", lambda: _ledgers(root, _rows(folder / "index-ledgers.jsonl"))),
        ]
        for name, check in checks:
            _note(result, f"{folder.name} {name}", check())
        _note(result, f"{folder.name} rebuilt index", _rebuilt(root, _rows(folder / "index-locations.jsonl")))
        for name, difference in asyncio.run(_served(root, manifest, _rows(folder / "answers.jsonl"))):
            _note(result, f"{folder.name} {name}", difference)
    return result


def _note(result: Result, name: str, difference: str | None) -> None:
    if difference is None:
        result.passed += 1
    else:
        result.failed += 1
        result.messages.append(f"{name}: {difference}")


def _rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _first_difference(found: list[Row], recorded: list[Row]) -> str | None:
    for index in range(max(len(found), len(recorded))):
        ours = found[index] if index < len(found) else None
        theirs = recorded[index] if index < len(recorded) else None
        if ours != theirs:
            return f"row {index}: {ours} instead of {theirs}"
    return None


def _journals(root: Path, recorded: list[Row]) -> str | None:
    found: list[Row] = []
    for path in sorted((root / "journal/current").glob("*.txn")):
        reader = JournalReader(path)
        for record in reader:
            ledger, entry = KEY.unpack_from(record, LENGTH_BYTES)
            kind = _SPECIAL.get(entry, "entry")
            size = len(record) - LENGTH_BYTES
            found.append(
                {"file": path.name, "kind": kind, "offset": reader.end, "ledger": ledger, "size": size}
            )
        found.append({"file": path.name, "kind": "end", "offset": reader.end, "ledger": None, "size": None})
    wanted = [
        {key: row.get(key) for key in ("file", "kind", "offset", "ledger", "size")}
        for row in recorded
        if row["kind"] not in ("header", "padding")
    ]
    return _first_difference(found, wanted)


def _journal_alone(root: Path, manifest: Row) -> str | None:
    """The journals hold every entry of the manifest, also those of the deleted ledger."""
    ledgers: dict[int, Ledger] = {}
    replay = JournalReplay(ledgers, 1 << 30, lambda *_: None, lambda _: False)
    replay.replay_journal(root / "journal/current", JournalMark(0, 0), skip_invalid=False)
    for ledger in manifest["ledgers"]:
        number = ledger["ledger"]
        known = ledgers.get(number)
        if known is None or known.fenced != ledger["fenced"]:
            return f"ledger {number}: not there, or its fence is lost"
        if known.master_key not in (bytes.fromhex(ledger["master_key"]), bytes(20)):
            return f"ledger {number}: master key {known.master_key.hex()}"
        for entry in ledger["entries"]:
            record = replay.cache.get(number, entry["entry"])
            if record is None or not _payload_fits(record[LENGTH_BYTES:], entry):
                return f"entry {number}:{entry['entry']} is not there or another one"
    return None


def _payload_fits(stored: bytes, entry: Row) -> bool:
    payload = stored[len(stored) - entry["length"] :] if entry["length"] else b""
    wanted: str = entry["sha256"]
    return hashlib.sha256(payload).hexdigest() == wanted


def _entry_logs(root: Path, recorded: list[Row]) -> str | None:
    directory = root / "ledgers/current"
    found: list[Row] = []
    maps: dict[str, dict[int, int]] = {}
    for log_id in log_ids(directory):
        path = directory / f"{log_id:x}.log"
        header = read_header(path)
        if header is None:
            continue
        found += [
            {
                "file": path.name,
                "offset": entry.offset,
                "ledger": entry.ledger_id,
                "entry": entry.entry_id,
                "size": entry.size,
            }
            for entry in LogScan(path)
        ]
        ledgers = read_ledgers_map(path)
        if ledgers is not None:
            maps[path.name] = ledgers
    wanted = [
        {key: row[key] for key in ("file", "offset", "ledger", "entry", "size")}
        for row in recorded
        if row["kind"] == "entry"
    ]
    recorded_maps = {row["file"]: dict(row["map"]) for row in recorded if row["kind"] == "ledgers_map"}
    if maps != recorded_maps:
        return f"ledgers maps: {maps} instead of {recorded_maps}"
    return _first_difference(found, wanted)


def _locations(root: Path, recorded: list[Row]) -> str | None:
    rocks = _copy_of_index(root, "locations")
    found = [{"key": key.hex(), "value": value.hex()} for key, value in rocks.items_from(b"")]
    rocks.close()
    return _first_difference(found, [{"key": row["key"], "value": row["value"]} for row in recorded])


def _ledgers(root: Path, recorded: list[Row]) -> str | None:
    _copy_of_index(root, "ledgers").close()
    index = LedgerIndex(root / "copy/ledgers")
    loaded, _ = index.load()
    index.close()
    found: list[Row] = [
        {"ledger": number, "fenced": data.fenced, "key": data.master_key.hex(), "lac": data.explicit_lac}
        for number, data in loaded.items()
    ]
    wanted: list[Row] = [
        {
            "ledger": row["ledger"],
            "fenced": row["fenced"],
            "key": row["master_key"],
            "lac": bytes.fromhex(row["explicit_lac"]) if "explicit_lac" in row else None,
        }
        for row in recorded
    ]
    return _first_difference(found, wanted)


def _copy_of_index(root: Path, name: str) -> Rocks:
    """Opening a database changes its files."""
    shutil.copytree(root / "index/current" / name, root / "copy" / name)
    return Rocks(root / "copy" / name, buffer_bytes=1 << 20)


def _rebuilt(root: Path, recorded: list[Row]) -> str | None:
    """The location index made anew from the logs, with the ledger index as it is; in a copy."""
    with tempfile.TemporaryDirectory() as directory:
        index = Path(directory)
        shutil.copytree(root / "index/current", index, dirs_exist_ok=True)
        journals = [root / "journal/current"]
        logs = root / "ledgers/current"
        rebuild(
            logs,
            index,
            journals,
            ledgers_too=False,
            share=(0, 1),
            entry_bytes_max=5 << 20,
            closed=None,
            say=lambda _: None,
        )
        with read_rows(index / "locations") as rows:
            found = [{"key": key.hex(), "value": value.hex()} for key, value in rows]
    return _first_difference(found, [{"key": row["key"], "value": row["value"]} for row in recorded])


async def _served(root: Path, manifest: Row, answers: list[Row]) -> list[tuple[str, str | None]]:
    settings = for_directory(root, index_directories=(root / "index",))
    bookie = Bookie.open(settings, asyncio.get_running_loop().call_soon_threadsafe)
    keys = {ledger["ledger"]: bytes.fromhex(ledger["master_key"]) for ledger in manifest["ledgers"]}
    try:
        return [
            (row["name"], await _ledger_served(bookie, row, keys[row["ledger"]]))
            for row in answers
            if row["ledger"] in keys
        ]
    finally:
        bookie.close()


async def _ledger_served(bookie: Bookie, row: Row, key: bytes) -> str | None:
    ledger = row["ledger"]
    for _ in range(2):  # a second time: reads before it must not change what is answered
        for asked, *expected in row["reads"]:
            rc, entry = await _read(bookie, ledger, asked)
            got = [_ERRORS.get(rc, rc)]
            if rc == 0:
                _, number, lac = (int.from_bytes(entry[at : at + 8], "big", signed=True) for at in (0, 8, 16))
                got += [number, lac, len(entry), hashlib.sha256(entry).hexdigest()]
            if got != expected:
                return f"read of {asked}: {got} instead of {expected}"
    if difference := await _lac_served(bookie, row):
        return difference
    last = max((read[0] for read in row["reads"]), default=0)
    for name, used in (("add_wrong_key", b"!" * 20), ("add_right_key", key)):
        if name == "add_wrong_key" and row["reads"][0][1] == "ENOLEDGER":
            continue  # the recorded bookie was asked in the other order: the first key becomes the ledger's
        rc = await _add(bookie, ledger, last + 100, used)
        if _ERRORS.get(rc) != row[name]:
            return f"{name}: {_ERRORS.get(rc, rc)} instead of {row[name]}"
    return None


async def _read(bookie: Bookie, ledger: int, entry: int) -> tuple[int, bytes]:
    answered: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
    bookie.read(ledger, entry, lambda rc, found: answered.set_result((rc, found)))
    return await asyncio.wait_for(answered, 60)


async def _lac_served(bookie: Bookie, row: Row) -> str | None:
    """READ_LAC, which calls an unknown ledger a missing entry."""
    answered: asyncio.Future[tuple[int, bytes, bytes]] = asyncio.get_running_loop().create_future()
    bookie.last_confirmed.read_bodies(row["ledger"], lambda *found: answered.set_result(found))
    rc, explicit, entry = await asyncio.wait_for(answered, 60)
    name = _ERRORS.get(2 if rc == 1 else rc, str(rc))
    number = int.from_bytes(entry[8:16], "big", signed=True)
    last_entry = [number, len(entry), hashlib.sha256(entry).hexdigest()] if entry else None
    found = (name, explicit.hex(), last_entry)
    recorded = (row["read_lac"][0], row["read_lac_lac_body"], row["read_lac_last_entry"])
    return None if found == recorded else f"read_lac: {found} instead of {recorded}"


async def _add(bookie: Bookie, ledger: int, entry: int, key: bytes) -> int:
    answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    body = KEY.pack(ledger, entry) + KEY.pack(entry - 1, 0)
    record = len(body).to_bytes(4, "big") + body
    bookie.adds.add(ledger, entry, record, key, False, lambda rc, _: answered.set_result(rc))
    return await asyncio.wait_for(answered, 60)
