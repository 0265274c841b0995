"""Quarantine: takes leaks out of use so that they can be put back, exports them, and deletes them last.

    quarantine   a node is moved below `/admin/quarantine`; a ledger gets a record there and stays as it is
    put back     the node is moved back; the record of the ledger is removed
    export       one file per leak: a node's value, or every entry of a ledger, in JSON
    delete       only for a leak in quarantine whose export is in the folder and whole

Each move writes the copy first and removes the original by compare-and-set, so a crash leaves at least one of them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from bookkeeper.leaks.quarantine import LEDGERS, NODES, ledger_record_key, node_record_key
from bookkeeper.metadata.metadata_store import ABSENT, MetadataStore
from foundation.model.errors import BadVersion
from magnetar.audit.facts import AuditFinding
from magnetar.clients.client import CommandError
from protocol.ledger_metadata import ledger_key

KINDS: Final = ("orphan",)
"""Classes of ledgers that may go into quarantine; others need their owner, or are losses."""
NODE_KINDS: Final = (
    "cursor",
    "topic-policies",
    "schema",
    "schema-index",
    "schema-version",
    "partitioned-topic",
    "managed-ledger",
)
"""Classes of nodes that may go into quarantine: those of topics."""

Ask = Callable[[str, str], object]
"""Sends (method, path) to the broker's admin API and returns the JSON of its answer. Raises CommandError."""


def may_enter(found: AuditFinding) -> bool:
    """Returns True for a finding that may go into quarantine."""
    return found.kind in (KINDS if found.audit == "ledgers" else NODE_KINDS)


async def put_in(store: MetadataStore, found: AuditFinding) -> str:
    """Takes one finding out of use; returns a word for the line that reports it. Raises MetadataError."""
    about: dict[str, str | int] = {"since": time.time_ns() // 1_000_000, "reason": found.reason}
    if found.audit == "ledgers":
        key = ledger_record_key(int(found.subject))
        if await store.get(key) is not None:
            return "is in quarantine already"
        await store.put(key, _dump(about), ABSENT)
        return "put into quarantine"
    node = await store.get(found.subject)
    if node is None:
        return "is gone"
    if node.version != found.version:
        # Its topic may have been made anew since the look, and with it this node.
        return "was changed meanwhile and stays"
    about["value"] = base64.b64encode(node.value).decode()
    key = node_record_key(found.subject)
    # The copy first: a crash in between leaves both, and the next audit finds the original again.
    await store.put(key, _dump(about))
    try:
        await store.delete(found.subject, node.version)
    except BadVersion:
        await store.delete(key)
        return "was changed meanwhile and stays"
    return "moved into quarantine"


async def listed(store: MetadataStore) -> list[tuple[str, dict[str, object]]]:
    """Returns (subject, record) of everything in quarantine, sorted."""
    keys = [(name, f"{root}/{name}") for root in (LEDGERS, NODES) for name in await store.children(root)]
    found = [(unquote(name), await store.get(key)) for name, key in keys]
    return sorted((name, json.loads(value.value)) for name, value in found if value is not None)


async def put_back(store: MetadataStore, subject: str) -> None:
    """Takes a ledger or a node out of quarantine. CommandError for one that is not there, or whose place is taken."""
    key = record_key(subject)
    record = await store.get(key)
    if record is None:
        raise CommandError(f"{subject} is not in quarantine; --list shows what is")
    if not subject.isdecimal():
        value = base64.b64decode(json.loads(record.value)["value"])
        try:
            await store.put(subject, value, ABSENT)
        except BadVersion:
            found = await store.get(subject)
            # Equal after a crash between the two writes; then only the copy has to go.
            if found is None or found.value != value:
                raise CommandError(f"{subject} exists again with another value; it is not replaced") from None
    await store.delete(key)


async def drop_gone(store: MetadataStore) -> list[int]:
    """Removes the records of ledgers that do not exist any more, and returns their ids.

    A crash leaves such a record when it comes between the deletion of the ledger and that of the record; and a topic can
    delete a ledger while an audit looks. Neither export nor deletion could go on with it.
    """
    ids = [int(name) for name in await store.children(LEDGERS)]
    gone = [ledger_id for ledger_id in ids if await store.get(ledger_key(ledger_id)) is None]
    for ledger_id in gone:
        await store.delete(ledger_record_key(ledger_id))
    return gone


async def export(store: MetadataStore, folder: Path, ask: Ask) -> int:
    """Writes one file for each leak in quarantine and returns their number. CommandError, MetadataError, OSError."""
    await drop_gone(store)
    everything = await listed(store)
    for subject, record in everything:
        entries = await asyncio.to_thread(_entries, int(subject), ask) if subject.isdecimal() else None
        await asyncio.to_thread(
            _write, export_path(folder, subject), {**record, "subject": subject, "entries": entries}
        )
    return len(everything)


def _entries(ledger_id: int, ask: Ask) -> list[str]:
    found: list[str] = []
    while True:
        page = ask("GET", f"/admin/v2/magnetar/ledgers/{ledger_id}/entries?first={len(found)}")
        if not isinstance(page, dict) or not isinstance(page.get("entries"), list):
            raise CommandError(f"the broker's answer about ledger {ledger_id} is not understood")
        found += page["entries"]
        if len(found) > int(page["last"]):
            return found


async def delete(store: MetadataStore, folder: Path, ask: Ask) -> list[str]:
    """Deletes what is in quarantine and whole in the folder; returns a line for each leak."""
    lines = [f"{ledger_id} is gone" for ledger_id in await drop_gone(store)]
    for subject, record in await listed(store):
        refusal = await asyncio.to_thread(_differs, export_path(folder, subject), subject, record, ask)
        if refusal:
            lines.append(f"{subject} stays: {refusal}")
            continue
        if subject.isdecimal():
            await asyncio.to_thread(ask, "DELETE", f"/admin/v2/magnetar/ledgers/{subject}")
        else:
            await store.delete(record_key(subject))
        lines.append(f"{subject} deleted")
    return lines


def _differs(path: Path, subject: str, record: dict[str, object], ask: Ask) -> str:
    """Returns why the export does not allow the deletion; an empty text where it does."""
    try:
        copy = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return f"{path} is missing; export it first"
    except (OSError, ValueError) as error:
        return f"{path} cannot be read: {error}"
    if copy.get("since") != record.get("since") or copy.get("value") != record.get("value"):
        return f"{path} is of another quarantine; export it again"
    if subject.isdecimal() and copy.get("entries") != _entries(int(subject), ask):
        return f"{path} does not have the ledger's entries; export it again"
    return ""


def record_key(subject: str) -> str:
    """Returns the key of a ledger, given by its id, or of a node, given by its path."""
    return ledger_record_key(int(subject)) if subject.isdecimal() else node_record_key(subject)


def export_path(folder: Path, subject: str) -> Path:
    """Returns the file of a leak."""
    return folder / (
        f"ledger-{subject}.json" if subject.isdecimal() else f"node-{quote(subject, safe='')}.json"
    )


def _write(path: Path, content: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        # Before the name: the deletion believes a file of that name, also after a loss of power.
        os.fsync(file.fileno())
    part.replace(path)


def _dump(value: dict[str, str | int]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
