"""LedgerOffloads: copies closed ledgers of one managed ledger to other storage, then takes them out of the bookies.

The order, with what a crash after each step leaves and who finds it:

    1  the list notes the offload's id        nothing; the next offload of the ledger deletes by this id first
    2  the objects are written                the same
    3  the copy is compared                   the same
    4  the list says `complete`               the ledger is in both
    5  the deletion lag passes                the same
    6  the list says that the bookies lose it, and marks the ledger for deletion
    7  the ledger is deleted                  the next opening deletes by the mark (`LedgerListStore`)
    8  the list without the mark

So at every moment the list names each object that may exist, and each entry is in the bookies or in a copy that is complete.
Before objects are deleted by an id, a write of the list has stored that their copy is not complete.
A broker that has lost the topic during a copy may write an object after the next owner has deleted by its id. When the copy
or its completion fails, the broker reads the list as soon as that answers, and deletes the objects unless the list names the
copy; after a crash there, `scanOffloadedLedgers` alone finds them.
"""

from __future__ import annotations

import enum
import logging
from typing import Final

from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.ledger_list import LedgerInfo, OffloadContext, OffloadedLedger
from broker.managed_ledger.offload.rules import ledgers_to_drop, ledgers_to_offload
from broker.managed_ledger.offload.tier import Tier
from broker.managed_ledger.trimming import Trimming
from foundation.model.errors import BrokerError, NotAllowed
from foundation.model.position import EARLIEST, Position

log = logging.getLogger("magnetar")
_EXCEPTION: Final = "org.apache.bookkeeper.mledger.ManagedLedgerException"
"""Begins errors that clients print as they are."""


class OffloadStatus(enum.StrEnum):
    """Pulsar's words for the state of a long process."""

    NOT_RUN = "NOT_RUN"
    """None ran since the topic was opened."""
    RUNNING = "RUNNING"
    """One is under way."""
    SUCCESS = "SUCCESS"
    """The last one copied all that it was asked for."""
    ERROR = "ERROR"
    """The last one failed."""


class OffloadRunning(BrokerError):
    """An offload of the topic is under way."""

    status = 409


class LedgerOffloads:
    """The offloads of one managed ledger: one at a time, in the background."""

    __slots__ = (
        "_context",
        "_stopping",
        "_trimming",
        "asked",
        "failed_at_ms",
        "last_error",
        "last_ledger_id",
        "status",
        "succeeded_at_ms",
    )

    def __init__(self, context: LedgerContext, trimming: Trimming) -> None:
        """`trimming`: keeps the ledger that is being copied."""
        self._context = context
        self._trimming = trimming
        self._stopping = False
        self.status = OffloadStatus.NOT_RUN
        """Of the last run."""
        self.asked = False
        """The last run was asked for, and not begun by a threshold."""
        self.last_error = ""
        """Of the last run, where it failed."""
        self.last_ledger_id = 0
        """The ledger that was copied last; this and the next two are for statistics, 0 = never."""
        self.succeeded_at_ms = 0
        """When that was, ms since 1970."""
        self.failed_at_ms = 0
        """When a copy failed last."""

    @property
    def is_running(self) -> bool:
        """True while a run is under way."""
        return self.status is OffloadStatus.RUNNING

    @property
    def first_unoffloaded(self) -> Position:
        """The first entry that is in no complete copy, once a run has succeeded."""
        if self.status is not OffloadStatus.SUCCESS:
            return EARLIEST
        found = (Position(one.ledger_id, 0) for one in self._context.ledgers.infos() if not one.is_offloaded)
        # Of a terminated topic the last ledger is closed, and offloaded too.
        last = self._context.last_confirmed
        return next(found, Position(last.ledger_id, last.entry_id + 1))

    def start(self, before: Position) -> None:
        """Begins to copy all closed ledgers whose entries are before the position.

        Raises OffloadRunning while a run is under way.
        """
        if self.is_running:
            raise OffloadRunning("Offload already in progress")
        if self._context.settings.offload.place.driver and before > self._context.last_confirmed:
            # Accepted and failed, as in Pulsar.
            self.status, self.asked = OffloadStatus.ERROR, True
            self.last_error = (
                f"{_EXCEPTION}$InvalidCursorPositionException: Invalid position for offload: {before}"
            )
            return
        ids = [
            info.ledger_id
            for info in self._context.ledgers.infos()
            if info.closed_at_ms is not None and info.ledger_id < before.ledger_id and not info.is_offloaded
        ]
        self._begin(ids, asked=True)

    def check(self, now_ms: int) -> None:
        """Begins what is due: copies by the thresholds, and deletions in the bookies after the lag."""
        context = self._context
        rules = context.settings.offload
        if ledgers_to_drop(context.ledgers.infos(), rules, now_ms) and not context.store.lock.locked():
            context.background.spawn(self._drop())
        if rules.place.driver and not self.is_running:
            ids = ledgers_to_offload(context.ledgers.infos(), rules, now_ms)
            if ids:
                self._begin(ids, asked=False)

    def stop(self) -> None:
        """Ends a run soon: the managed ledger closes, and waits for it."""
        self._stopping = True

    def _begin(self, ids: list[int], *, asked: bool) -> None:
        self.status, self.asked, self.last_error = OffloadStatus.RUNNING, asked, ""
        self._context.background.spawn(self._run(ids))

    async def _run(self, ids: list[int]) -> None:
        context = self._context
        try:
            if not context.settings.offload.place.driver:
                # Pulsar's words, which clients print.
                raise NotAllowed(f"{_EXCEPTION}: [NullLedgerOffloader] does not support offload")
            tier = context.environment.open_tier()
            for ledger_id in ids:
                self._trimming.copying = ledger_id
                await self._copy(tier, ledger_id)
        except BrokerError as error:
            log.warning("! offload of %s: %s", context.name, error)
            self.status, self.last_error = OffloadStatus.ERROR, str(error)
            self.failed_at_ms = context.environment.wall_ms()
        except BaseException:
            self.status, self.last_error = OffloadStatus.ERROR, "it ended by a defect; the log has it"
            raise
        else:
            self.status = OffloadStatus.SUCCESS
        finally:
            self._trimming.copying = -1

    async def _copy(self, tier: Tier, ledger_id: int) -> None:
        context = self._context
        environment, rules = context.environment, context.settings.offload
        info = context.ledgers.get(ledger_id)
        if info is None or info.is_offloaded:  # Trimmed since.
            return
        if info.offload is not None:
            # Begun and not completed, by this broker or one before: whatever of it is there goes first. Where the answer to
            # `complete` was lost, the stored list calls the copy complete, and another broker may go by it. So the list is
            # written before the deletion.
            await self._note(info, info.offload)
            await tier.delete(context.name, OffloadedLedger(ledger_id, info.offload.uuid, info.offload.place))
        begun = OffloadContext(tier.new_id(rules.place), rules.place)
        await self._note(info, begun)
        own = OffloadedLedger(ledger_id, begun.uuid, begun.place)
        try:
            await tier.copy(context.name, info, begun, rules, environment.ledgers, self._goes_on)
        except BrokerError:
            await self._clean_up(tier, own)
            raise
        try:
            await self._note(info, begun._replace(complete=True, at_ms=environment.wall_ms()))
        except BaseException:
            # Whatever it was: the next owner may have replaced the copy in the list, and deleted by its id too early.
            tier.settle(context.name, own)
            raise
        self.last_ledger_id, self.succeeded_at_ms = ledger_id, environment.wall_ms()
        context.note_change()

    async def _clean_up(self, tier: Tier, copy: OffloadedLedger) -> None:
        """Deletes the objects of a copy that has failed.

        Another broker may have the topic, and have deleted by the same id before the last object was written. Then no
        list names that object any more.
        """
        try:
            await tier.delete(self._context.name, copy)
        except BrokerError as error:
            log.warning("! offload of %s: %s", self._context.name, error)
            tier.settle(self._context.name, copy)

    def _goes_on(self) -> bool:
        return not self._stopping

    async def _note(self, info: LedgerInfo, offload: OffloadContext) -> None:
        """Stores the offload of a ledger, which trimming keeps meanwhile."""
        store = self._context.store
        async with store.lock:
            before, info.offload = info.offload, offload
            try:
                await store.save()
            except BrokerError:
                # An uncertain write may have been carried out; the id noted there is found by the next opening.
                info.offload = before
                raise

    async def _drop(self) -> None:
        """Takes ledgers whose lag is over out of the bookies."""
        context = self._context
        store = context.store
        async with store.lock:
            now_ms = context.environment.wall_ms()
            due = ledgers_to_drop(context.ledgers.infos(), context.settings.offload, now_ms)
            for info in due:
                assert info.offload is not None
                info.offload = info.offload._replace(bookkeeper_deleted=True)
            store.mark_deleting([info.ledger_id for info in due])
            try:
                await store.delete_marked()
            except BrokerError as error:
                # The marks stay, so the next round or opening goes on. Reads go to the copy already.
                log.warning("! offloaded ledgers of %s stay in the bookies for now: %s", context.name, error)
