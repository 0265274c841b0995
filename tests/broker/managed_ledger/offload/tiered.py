"""A managed ledger whose closed ledgers are copied to files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from broker.managed_ledger.ledger_list import FILES, OffloadPlace
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.offload.ledger_offloads import OffloadStatus
from broker.managed_ledger.settings import OffloadRules
from broker.offload.ledger_tier import LedgerTier
from foundation.objects.file_objects import FileObjects
from foundation.objects.object_storage import ObjectStorageError
from tests.broker.managed_ledger.ledger_fakes import World, fill, until

ENTRIES = 5


class Objects(FileObjects):
    """Files that can be away, or wait in the middle of a write."""

    away = False
    hold: asyncio.Event | None = None
    held_from = 1
    hold_reads: asyncio.Event | None = None
    writes = 0
    gets: list[tuple[str, int, int]]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.gets = []

    async def put(self, key: str, chunks: AsyncIterator[bytes], attributes: Mapping[str, str]) -> None:
        self._check(key)
        self.writes += 1
        if self.hold is not None and self.writes >= self.held_from:
            await self.hold.wait()
        await super().put(key, chunks, attributes)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        self._check(key)
        self.gets.append((key, start, length))
        if self.hold_reads is not None:
            await self.hold_reads.wait()
        return await super().get_range(key, start, length)

    async def get(self, key: str) -> bytes:
        self._check(key)
        return await super().get(key)

    async def delete(self, key: str) -> None:
        self._check(key)
        await super().delete(key)

    def _check(self, key: str) -> None:
        if self.away:
            raise ObjectStorageError(f"{key}: the storage is away")


class Tiered:
    """A world whose environment has a tier on files."""

    def __init__(self, folder: Path, world: World | None = None) -> None:
        self.folder = folder
        self.world = world or World()
        self.objects = Objects(folder)
        self.tier = LedgerTier(self.world.metadata, 1, lambda _: self.objects)
        object.__setattr__(self.world.environment, "open_tier", lambda: self.tier)
        self.rules = OffloadRules(OffloadPlace(FILES, endpoint="file:///x"), read_bytes=60)

    async def open(self, count: int = 3 * ENTRIES + 2, **rules: object) -> ManagedLedger:
        """Opens a managed ledger with `count` entries, in ledgers of `ENTRIES`."""
        given = OffloadRules(**{**self.rules._asdict(), **rules})
        ledger = await self.world.open(entries_per_ledger_max=ENTRIES, offload=given)
        for _ in range(count):
            await fill(ledger, 1)
        # So that reads go to storage.
        for info in ledger.ledgers.infos():
            ledger.cache.invalidate_ledger(info.ledger_id)
        return ledger

    async def offload(self, ledger: ManagedLedger) -> None:
        offloads = ledger.own_offloads()
        offloads.start(ledger.last_confirmed)
        await until(lambda: offloads.status is not OffloadStatus.RUNNING)

    async def forget_bookies(self, ledger: ManagedLedger) -> None:
        """Lets the lag pass."""
        self.world.wall += 10**9
        ledger.check_offloads(self.world.wall)
        await ledger.context.background.drain()

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*"))

    def named(self, ledger: ManagedLedger) -> list[str]:
        """The objects that the list names."""
        stems = [
            f"{one.offload.uuid}-ledger-{one.ledger_id}" for one in ledger.ledgers.infos() if one.offload
        ]
        return sorted(stems + [f"{stem}-index" for stem in stems])
