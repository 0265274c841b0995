"""LogRecord: one log in the metadata store: its list of ledgers, and when each of them begins, ends and goes.

The list is written before a ledger is used and before one is removed ("deleting"), so a crash between two
steps leaves something that the next open can finish, and never a ledger that nothing refers to. Writes
that belong together are asked for together and waited for once. Only one call at a time; the log sees to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from broker.ledger_client.ledgers import Ledgers
from broker.ledger_client.own_ledger import OwnLedger
from broker.managed_ledger.ledger_info import LogInfo, encode_log, log_key
from broker.managed_ledger.ledger_list import LedgerInfo, LedgerList
from broker.metadata.metadata_store import ABSENT, MetadataStore
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
        """Write the list, and the end of every ledger that has one by now. Raises MetadataError;
        BadVersion means that another broker has the log."""
        await self._write_together([*self._seals(), self._save()])

    async def start_current(self) -> OwnLedger:
        """Make the current ledger writable: as `save`, and the ledger's own metadata. Raises NotEnoughBookies too."""
        await self._write_together([*self._seals(), self._save(with_current=True), self._create()])
        self.current_started = True
        return self._unsealed[self.ledgers.current.ledger_id]

    async def remove(self, ledger_ids: list[int]) -> None:
        """Remove ledgers that are no longer in the list."""
        self._deleting += ledger_ids
        if self._deleting:
            await self.save()
            await self.sweep()

    async def sweep(self) -> None:
        """Finish removals that are written down."""
        ledger_ids, self._deleting = self._deleting, []
        for ledger_id in ledger_ids:
            self._unsealed.pop(ledger_id, None)
        try:
            await self._write_together([self._client.delete(item) for item in ledger_ids])
        except BaseException:
            self._deleting += ledger_ids
            raise

    async def delete(self) -> None:
        """Remove the log: its ledgers, its cursors, itself."""
        self._deleting += [info.ledger_id for info in self.ledgers.infos()]
        await self._put(encode_log(LogInfo([], deleting=self._deleting, deleted=True)))
        await self.finish_delete()

    async def finish_delete(self) -> None:
        """What `delete` does after it has been written down that it is to happen."""
        names = await self._metadata.children(self._key)
        await self._write_together([self._metadata.delete(f"{self._key}/{name}") for name in names])
        await self.sweep()
        await self._metadata.delete(self._key)

    def _seals(self) -> list[Coroutine[None, None, None]]:
        return [
            self._seal(info)
            for info in self.ledgers.infos()
            if info.closed_at_ms is not None and info.ledger_id in self._unsealed
        ]

    async def _seal(self, info: LedgerInfo) -> None:
        await self._unsealed[info.ledger_id].close(info.entries - 1, info.size_bytes)
        self._unsealed.pop(info.ledger_id, None)

    async def _create(self) -> None:
        ledger_id = self.ledgers.current.ledger_id
        self._unsealed[ledger_id] = await self._client.create(ledger_id, self._custom())

    async def _save(self, with_current: bool = False) -> None:
        current = self.ledgers.current
        kept = [
            info
            for info in self.ledgers.infos()
            if info is not current or with_current or self.current_started or info.entries
        ]
        await self._put(encode_log(LogInfo(kept, self.properties, self.terminated, self._deleting)))

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
