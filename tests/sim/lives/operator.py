"""An operator's audits of the running cluster: quarantine, back again, export, deletion; the process dies in between."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from aiohttp import web

from bookkeeper.metadata.metadata_store import MetadataStore
from broker.admin.cluster.ledgers import close_unneeded
from broker.admin.cluster.ledgers import delete as delete_route
from broker.admin.service_view import BROKER
from foundation.model.errors import BrokerError
from magnetar.audit import quarantine
from magnetar.audit.facts import AuditFinding, gather, judge
from magnetar.clients.client import CommandError
from protocol.ledger_metadata import LedgerState, decode, ledger_key
from tests.sim.lives.store import walk
from tests.sim.metadata import SimMetadataStore
from tests.sim.network import Client

if TYPE_CHECKING:
    from tests.sim.lives.history import History

BETWEEN_LOOKS_S = 5.0
_LEDGER = re.compile(r"/ledgers/(\d+)")
_FIRST = re.compile(r"first=(\d+)")


class Operator:
    """One process of `magnetar admin audit` after the other."""

    def __init__(self, history: History, client: Client) -> None:
        self.client = client
        self._history = history
        self._store: MetadataStore = SimMetadataStore(history.state, client)

    async def run(self) -> None:
        """Audits again and again; ends with the process."""
        history = self._history
        while not self.client.crashed:
            try:
                await self.round()
            except (BrokerError, CommandError) as error:
                history.note(f"{self.client.name}: {error}")
            await asyncio.sleep(history.rng.uniform(1.0, 8.0))

    async def round(self) -> list[AuditFinding]:
        """One audit with all that follows; returns its findings."""
        history = self._history
        found = await self.look()
        for one in filter(quarantine.may_enter, found):
            text = await quarantine.put_in(self._store, one)
            history.note(f"{self.client.name}: {one.kind} {one.subject} {text}")
            if text in ("put into quarantine", "moved into quarantine"):
                history.check_leak(one)
                history.counts.quarantined += 1
        inside = await quarantine.listed(self._store)
        if inside and not history.is_calm and history.rng.random() < 0.3:
            subject, _ = history.rng.choice(inside)
            await quarantine.put_back(self._store, subject)
            history.note(f"{self.client.name}: {subject} is back")
            history.counts.put_back += 1
        elif inside:
            if history.is_calm or history.rng.random() < 0.7:
                for subject in filter(str.isdecimal, (subject for subject, _ in inside)):
                    await self._close(int(subject))
                history.counts.exported += await quarantine.export(self._store, history.folder, self._ask)
            for line in await quarantine.delete(self._store, history.folder, self._ask):
                history.note(f"{self.client.name}: {line}")
                history.counts.leaks_deleted += line.endswith(" deleted")
        return found

    async def look(self) -> list[AuditFinding]:
        """Returns the findings that two walks agree on."""
        first = set(judge(gather(await walk(self._store))))
        if not first:
            return []
        await asyncio.sleep(BETWEEN_LOOKS_S)
        return sorted(first & set(judge(gather(await walk(self._store)))))

    def _ask(self, method: str, path: str) -> object:
        """Asks the broker that runs now: its own route for a deletion, and the bookies' files for entries."""
        found = _LEDGER.search(path)
        assert found is not None
        ledger_id = int(found[1])
        if method == "DELETE":
            return self._delete(ledger_id)
        first = _FIRST.search(path)
        assert first is not None
        return self._entries(ledger_id, int(first[1]))

    async def _close(self, ledger_id: int) -> None:
        """Closes a ledger that its writer left open, as the broker's route for entries does before it reads."""
        value, broker = self._history.state.value_of(ledger_key(ledger_id)), self._history.broker
        if value is not None and broker is not None and decode(value).state is not LedgerState.CLOSED:
            await close_unneeded(broker.environment, ledger_id, decode(value))

    async def _delete(self, ledger_id: int) -> None:
        broker = self._history.broker
        if broker is None:
            raise CommandError("no broker answers")
        view = SimpleNamespace(environment=broker.environment)
        request = SimpleNamespace(app={BROKER: view}, match_info={"ledger": str(ledger_id)})
        await delete_route(cast("web.Request", request))

    def _entries(self, ledger_id: int, first: int) -> object:
        value = self._history.state.value_of(ledger_key(ledger_id))
        if value is None:
            raise CommandError(f"ledger {ledger_id} has no metadata")
        metadata = decode(value)
        if metadata.state is not LedgerState.CLOSED:
            raise CommandError(f"ledger {ledger_id} is not closed")
        bodies = [
            self._history.copy_of(ledger_id, entry) for entry in range(first, metadata.last_entry_id + 1)
        ]
        return {"last": metadata.last_entry_id, "entries": [base64.b64encode(one).decode() for one in bodies]}


def exported(folder: Path, subject: str) -> str:
    """Returns the export of a leak as text; empty without one."""
    path = quarantine.export_path(folder, subject)
    if not path.is_file():
        return ""
    content = json.loads(path.read_text(encoding="utf-8"))
    return " ".join(
        base64.b64decode(one).decode(errors="replace")
        for one in content.get("entries") or [content.get("value", "")]
    )
