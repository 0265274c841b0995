"""FollowedLedger: the log of a source that another broker writes, as the shadows on this broker read it.

    the list's watch   -> the stored list: ledgers that began, ended or were removed
    every POLL_S       -> the bookies: how far the open ledger has been confirmed (`find_open_end`)
                       -> last confirmed, the shadows' dispatchers

It stores nothing and fences nothing. Its entry cache is this broker's own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Final

from bookkeeper.ensembles.open_end import OpenEnd, find_open_end
from bookkeeper.ensembles.own_ledger import read_metadata
from bookkeeper.metadata.metadata_store import Stop, Versioned
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.ledger_list import LedgerInfo, LedgerList, OffloadContext
from broker.managed_ledger.ledger_list_store import LedgerListStore
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.managed_ledger_info import ManagedLedgerInfo, managed_ledger_key
from broker.managed_ledger.records.pulsar_records import decode_ledger_list
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.managed_ledger.shadows.followed_reads import FollowedReads
from foundation.model.errors import BrokerError, NoSuchLedger
from foundation.model.position import EARLIEST, Position
from protocol.broker_entry_metadata import EntryStamp

log = logging.getLogger("magnetar")

POLL_S: Final = 0.1
"""Time until a message of the source is read at the latest, when its broker is another one."""
NO_LEDGER_YET: Final = -1
"""Stands for the current ledger of a source that never had one."""


async def _nothing() -> None:
    """Stands for `before_growth` of a source without transactions."""


class FollowedLedger:
    """Follows one source as long as a shadow reads it."""

    def __init__(
        self, name: str, environment: ManagedLedgerEnvironment, settings: ManagedLedgerSettings
    ) -> None:
        self._name, self._environment, self._settings = name, environment, settings
        self._changed = asyncio.Event()
        self._is_behind = False
        self._stop: Stop | None = None
        self._task: asyncio.Task[None] | None = None
        self._told: tuple[Position, bool] | None = None
        """The last position, and whether it is the end for ever, of which the shadows were told last."""
        self.ledger: ManagedLedger
        """The log; set by `open`."""
        self.before_growth: Callable[[], Awaitable[None]] = _nothing
        """Awaited before the shadows are told of new entries. Raises BrokerError to be asked again."""
        self.ended = False
        """True once nothing follows any more."""

    async def open(self) -> None:
        """Reads the list and begins to follow. Raises BrokerError, NoSuchLedger for a source that is not stored."""
        environment = self._environment
        self._stop = await environment.metadata.watch(managed_ledger_key(self._name), self._changed.set)
        try:
            found = await self._read_list()
            if found is None:
                raise NoSuchLedger(f"{self._name} is not stored")
            info, version = found
            ledgers = LedgerList([], LedgerInfo(NO_LEDGER_YET))
            store = LedgerListStore(
                self._name, environment.metadata, environment.ledgers, ledgers, info, version
            )
            context = LedgerContext(self._name, environment, self._settings, store)
            # Nothing is ever stamped: it has no adds.
            stamp = EntryStamp(timestamp=False, index=False, now_ms=environment.wall_ms)
            reads = FollowedReads(context, self._is_listed)
            self.ledger = ManagedLedger(context, stamp, storage_reads=reads)
            # Its owner alone removes ledgers.
            self.ledger.trimming.held_at = EARLIEST
            self._take(info)
            await self._find_end()
        except BaseException:
            self._stop()
            raise

    def begin(self, left: Callable[[], Coroutine[object, object, None]]) -> None:
        """Follows from now on, if it does not yet, until no shadow reads it or the source is deleted; then calls `left`."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._follow(left))

    async def _read_list(self) -> tuple[ManagedLedgerInfo, int] | None:
        found: Versioned | None = await self._environment.metadata.get(managed_ledger_key(self._name))
        if found is None:
            return None
        info = decode_ledger_list(found.value)
        return None if info.deleted else (info, found.version)

    async def _is_listed(self, ledger_id: int, offload: OffloadContext | None) -> bool:
        # The watch may have been silent: what was read elsewhere is looked for again.
        self._changed.set()
        await self._environment.metadata.sync()
        found = await self._read_list()
        ledgers = () if found is None else found[0].ledgers
        return any(one.ledger_id == ledger_id and one.offload == offload for one in ledgers)

    async def _follow(self, left: Callable[[], Coroutine[object, object, None]]) -> None:
        there = True
        while there:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._changed.wait()
            if not self.ledger.shadows:
                break
            try:
                there = await self._look()
            except BrokerError as error:
                log.info("%s cannot be followed now: %s", self._name, error)
        # Before the wait: a shadow that opens meanwhile must not be tied to it.
        self.ended = True
        await left()
        self.close()

    async def _look(self) -> bool:
        """Takes what is new; returns False once the source is deleted."""
        if self._changed.is_set() or self._is_behind:
            self._changed.clear()
            # Before the read: one that fails is tried again, though the watch is silent.
            self._is_behind = True
            found = await self._read_list()
            self._is_behind = False
            if found is None:
                return False
            self._take(found[0])
        await self._find_end()
        grown = self.ledger.last_confirmed, self.ledger.is_terminated
        if grown != self._told:
            await self.before_growth()
            self._told = grown
            self.ledger.grown()
        return True

    def _take(self, info: ManagedLedgerInfo) -> None:
        """Makes the list in memory equal to the stored one; the end of an open ledger stays."""
        ledgers, context = self.ledger.ledgers, self.ledger.context
        for stored in info.ledgers:
            known = ledgers.get(stored.ledger_id)
            if known is None and stored.ledger_id > ledgers.current.ledger_id:
                known = LedgerInfo(stored.ledger_id)
                ledgers.append(known)
            if known is None:
                continue
            # The bookies may have lost the ledger to the copy.
            known.offload = stored.offload
            if stored.closed_at_ms is not None:
                known.entries, known.size_bytes = stored.entries, stored.size_bytes
                known.closed_at_ms = stored.closed_at_ms
        listed = {stored.ledger_id for stored in info.ledgers}
        for known in ledgers.infos()[:-1]:
            if known.ledger_id not in listed:
                ledgers.remove(known.ledger_id)
                context.cache.invalidate_ledger(known.ledger_id)
                self.ledger.storage_reads.invalidate_ledger(known.ledger_id)
        self.ledger.store.terminated = info.terminated
        context.last_confirmed = ledgers.last()

    async def _find_end(self) -> None:
        current = self.ledger.ledgers.current
        if current.closed_at_ms is not None or current.ledger_id == NO_LEDGER_YET:
            return
        environment = self._environment
        found = await read_metadata(environment.metadata, current.ledger_id)
        if found is None:
            return  # Removed; the list tells so soon.
        known = OpenEnd(current.entries - 1, current.size_bytes)
        end = await find_open_end(current.ledger_id, found[0], environment.ledgers.bookies, known)
        current.entries, current.size_bytes = end.last_entry + 1, end.length
        self.ledger.context.last_confirmed = self.ledger.ledgers.last()

    def close(self) -> None:
        """Ends the following, and forgets the cached entries."""
        self.ended = True
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        if self._stop is not None:
            self._stop()
            self._stop = None
            self._environment.caches.remove(self._name)
