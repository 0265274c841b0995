"""LogRecord: one log in the metadata store: its list of ledgers, and when each of them begins, ends and goes.

A ledger begins together with the list that names it, in one write to the store: who opens the log either finds it
there, and fences it, or has made sure by a write of its own that it never begins. It ends in its own metadata first,
then in the list, so the end in a list needs no second look. It goes from the list first ("deleting"), then from the
store. So a crash between two steps leaves something that the next open can finish, and never a ledger that nothing
refers to. Only one call at a time; the log sees to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine

from broker.ledger_client.ledgers import Ledgers
from broker.ledger_client.own_ledger import OwnLedger
from broker.managed_ledger.ledger_info import LogInfo, encode_log, log_key
from broker.managed_ledger.ledger_list import LedgerList
from broker.metadata.metadata_store import ABSENT, MetadataStore, Put
from broker.model.errors import BadVersion
from broker.model.position import Position


class LogRecord:
    def __init__(
        self,
        name: str,
        metadata: MetadataStore,
        client: Ledgers,
        ledgers: LedgerList,
        info: LogInfo,
        version: int,
    ) -> None:
        """`version`: of what the store has under the log's key, or ABSENT."""
        self.ledgers = ledgers
        self.properties = info.properties
        self.terminated: Position | None = info.terminated
        self.current_started = False
        """The current ledger is in the metadata store, so it may have entries."""
        self._key = log_key(name)
        self._name = name
        self._metadata = metadata
        self._client = client
        self._version = version
        self.is_new = version == ABSENT
        """The store had nothing of this log when it was opened."""
        self._deleting = list(info.deleting)
        self._unsealed: dict[int, OwnLedger] = {}
        """Ledgers whose own metadata says open."""

    async def save(self) -> None:
        """Write the end of every ledger that has one by now, then the list. Raises MetadataError;
        BadVersion means that another broker has the log."""
        await self._seal()
        await self._put(self._encoded())

    async def start_current(self) -> OwnLedger:
        """Make the current ledger writable: as `save`, and the ledger's own metadata. Raises NotEnoughBookies too."""
        await self._seal()
        ledger_id = self.ledgers.current.ledger_id
        list_put = Put(self._key, self._encoded(with_current=True), self._version)
        own, (self._version,) = await self._client.create_beside(ledger_id, self._custom(), (list_put,))
        self._unsealed[ledger_id] = own
        self.current_started = True
        return own

    def forget(self, ledger_ids: list[int]) -> None:
        """Ledgers that have just left the list: from its next write on they are to be removed."""
        self._deleting += ledger_ids

    async def remove_forgotten(self) -> None:
        """Write that down, and do it. Raises MetadataError; the next call or the next open then goes on."""
        if self._deleting:
            written_down = list(self._deleting)
            await self.save()
            await self._remove(written_down)

    async def _remove(self, ledger_ids: list[int]) -> None:
        await self._write_together([self._client.delete(item) for item in ledger_ids])
        self._deleting = [item for item in self._deleting if item not in ledger_ids]
        for ledger_id in ledger_ids:
            self._unsealed.pop(ledger_id, None)

    async def delete(self) -> None:
        """Remove the log: its ledgers, its cursors, itself."""
        self._deleting += [info.ledger_id for info in self.ledgers.infos()]
        await self._put(encode_log(LogInfo([], deleting=self._deleting, deleted=True)))
        await self.finish_delete()

    async def finish_delete(self) -> None:
        """What `delete` does after it has been written down that it is to happen."""
        names = await self._metadata.children(self._key)
        await self._write_together([self._metadata.delete(f"{self._key}/{name}") for name in names])
        await self._remove(self._deleting)
        # Somebody else may have finished it, and made the log anew.
        with contextlib.suppress(BadVersion):
            await self._metadata.delete(self._key, self._version)

    async def _seal(self) -> None:
        for ledger_id, own in list(self._unsealed.items()):
            info = self.ledgers.get(ledger_id)
            if info is not None and info.closed_at_ms is not None:
                await own.close(info.entries - 1, info.size_bytes)
                self._unsealed.pop(ledger_id, None)

    def _encoded(self, with_current: bool = False) -> bytes:
        current = self.ledgers.current
        kept = [
            info
            for info in self.ledgers.infos()
            if info is not current or with_current or self.current_started or info.entries
        ]
        return encode_log(LogInfo(kept, self.properties, self.terminated, self._deleting))

    async def _put(self, value: bytes) -> None:
        self._version = await self._metadata.put(self._key, value, self._version)

    def _custom(self) -> dict[str, bytes]:
        return {
            "application": b"pulsar",
            "component": b"managed-ledger",
            "pulsar/managed-ledger": self._name.encode(),
        }

    async def _write_together(self, writes: list[Coroutine[None, None, None]]) -> None:
        if len(writes) == 1:
            await writes[0]
            return
        for outcome in await asyncio.gather(*writes, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
