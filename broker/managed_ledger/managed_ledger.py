"""ManagedLedger: one topic's log: the ledger that is written, the list of all, the cache and the cursors.

Adds go straight to the current ledger; confirmed runs come back in order and are readable from then on:
last confirmed position, cache and listener move together. When a ledger is full, too old or has failed, adds
queue up until the next one is in the metadata store. Nothing confirmed is lost by a failure: the failed
ledger is closed at its last confirmed entry and writing goes on in a new one as soon as that can be stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import StrEnum
from operator import attrgetter
from typing import Final

from broker.ledger_client.ledger_handle import LedgerHandle
from broker.ledger_client.own_ledger import OwnLedger
from broker.ledger_client.result_codes import FENCED, error_of
from broker.managed_ledger.ground import EntryStamp, Ground, LedgerListener
from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.log_cursors import LogCursors
from broker.managed_ledger.log_record import LogRecord
from broker.managed_ledger.opening import INDEX, open_log
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.model.entry import Buffer, Entry
from broker.model.errors import (
    BadVersion,
    BrokerError,
    LedgerFenced,
    NotEnoughBookies,
    PersistenceError,
    ServiceNotReady,
    TopicTerminated,
)
from broker.model.position import Position

__all__ = ["EntryStamp", "Ground", "LedgerListener", "LogState", "ManagedLedger"]

_NEVER: Final = 2**62
_messages = attrgetter("messages")


class LogState(StrEnum):
    OPEN = "open"
    ROLLING = "rolling"
    """Adds queue up until a new ledger is begun."""
    FENCED = "fenced"
    """Another broker has taken the log over: nothing can be written any more."""
    TERMINATED = "terminated"
    CLOSED = "closed"


_REFUSALS: Final[dict[LogState, type[BrokerError]]] = {
    LogState.FENCED: LedgerFenced,
    LogState.TERMINATED: TopicTerminated,
    LogState.CLOSED: ServiceNotReady,
}


class ManagedLedger(LogCursors):
    """Opened with `ManagedLedger.open`; assign `listener` before the first add."""

    __slots__ = (
        "_closing",
        "_drained",
        "_entries_max",
        "_handle",
        "_now_ns",
        "_roll_at_ns",
        "_size_max",
        "_stamp",
        "_stamp_entry",
        "_started_ns",
        "_waiting",
        "listener",
        "state",
    )

    listener: LedgerListener

    def __init__(
        self, name: str, ground: Ground, settings: ManagedLedgerSettings, record: LogRecord, stamp: EntryStamp
    ) -> None:
        super().__init__(name, ground, settings, record)
        self.state = LogState.OPEN if record.terminated is None else LogState.TERMINATED
        self._stamp = stamp
        self._stamp_entry = stamp.stamp
        self._now_ns = ground.now_ns
        self._handle: LedgerHandle | None = None
        """The ledger that takes adds; None while there is none, see `state`."""
        self._closing: LedgerHandle | None = None
        """A ledger that takes no more adds and has some under way."""
        self._drained: asyncio.Event | None = None
        self._waiting: deque[tuple[Buffer, int, object]] = deque()
        """(body, messages, context) for the next ledger; bounded by what the caller lets be in flight."""
        self._entries_max = self._size_max = self._roll_at_ns = _NEVER
        self._started_ns = 0

    @classmethod
    async def open(
        cls, name: str, ground: Ground, settings: ManagedLedgerSettings, *, stamp: EntryStamp
    ) -> ManagedLedger:
        """Load the log, or make a new one. Raises MetadataError or PersistenceError; may be tried again."""
        record = await open_log(name, ground, settings, stamp)
        log = cls(name, ground, settings, record, stamp)
        if not record.is_new:
            await log.load_cursors()
        return log

    @property
    def current_ledger_id(self) -> int:
        return self.ledgers.current.ledger_id

    @property
    def properties(self) -> dict[str, str]:
        """Kept in the metadata store with the next write of the log's record; `index` is the log's own."""
        return self.record.properties

    async def set_property(self, name: str, value: str) -> None:
        """Durable when this returns. Raises MetadataError."""
        self.properties[name] = value
        async with self.one_change:
            await self.record.save()

    def ledger_infos(self) -> list[LedgerInfo]:
        """The ledgers in order, the current one last. To look at only."""
        return self.ledgers.infos()

    # Adding

    def add(self, body: Buffer, messages: int, context: object) -> None:
        """Append an entry; the listener hears of the outcome, with `context`.

        Raises ServiceNotReady, TopicTerminated or LedgerFenced when the log takes no adds.
        """
        handle = self._handle
        if handle is None:
            self._add_later(body, messages, context)
            return
        now_ns = self._now_ns()
        handle.add(self._stamp_entry(messages), body, messages, context, now_ns)
        if (
            handle.next_entry_id >= self._entries_max
            or handle.length >= self._size_max
            or now_ns >= self._roll_at_ns
        ):
            self._roll_when_old_enough(handle, now_ns)

    def _add_later(self, body: Buffer, messages: int, context: object) -> None:
        refusal = _REFUSALS.get(self.state)
        if refusal is not None:
            raise refusal(f"{self.name} is {self.state.value}")
        self._waiting.append((body, messages, context))
        if self.state is LogState.OPEN:
            self.state = LogState.ROLLING
            self.background.spawn(self._roll())

    def _roll_when_old_enough(self, handle: LedgerHandle, now_ns: int) -> None:
        """The ledger is full or has reached its time. A full one that is too young is written on."""
        allowed_ns = self._started_ns + self.settings.rollover_ns_min
        if now_ns < min(allowed_ns, self._roll_at_ns):
            self._entries_max = self._size_max = _NEVER
            self._roll_at_ns = min(allowed_ns, self._roll_at_ns)
        else:
            self._stop_adding(handle)

    def _stop_adding(self, handle: LedgerHandle) -> None:
        """Let the ledger finish what is under way, then go on in a new one."""
        self._handle = None
        self._closing = handle
        if self.state is LogState.OPEN:
            self.state = LogState.ROLLING
        if not handle.pending:
            self._ledger_drained()

    def roll_if_due(self, now_ns: int) -> None:
        """Close a ledger that has entries and has reached its maximum age, though nobody adds. To be called
        about once a minute."""
        handle = self._handle
        if handle is not None and handle.next_entry_id and now_ns >= self._roll_at_ns:
            self._stop_adding(handle)

    # What the ledger handle reports

    def entries_confirmed(
        self,
        handle: LedgerHandle,
        entries: list[Entry],
        contexts: list[object],
        asked_ns: list[int],
        now_ns: int,
    ) -> None:
        current = self.ledgers.current
        assert current.ledger_id == handle.ledger_id
        last_id = entries[-1].entry_id
        current.size_bytes += self.stats.added(entries, asked_ns, now_ns)
        current.entries = last_id + 1
        self.last_confirmed = Position(handle.ledger_id, last_id)
        self.readers.added(entries, now_ns)
        self.listener.entries_added(entries, contexts, now_ns)
        if handle is self._closing and not handle.pending:
            self._ledger_drained()

    def ledger_failing(self, handle: LedgerHandle, rc: int) -> None:
        if rc in FENCED and self.state in (LogState.OPEN, LogState.ROLLING):
            self.state = LogState.FENCED
        if handle is self._handle:
            self._stop_adding(handle)

    def adds_failed(
        self, handle: LedgerHandle, entries: list[Entry], contexts: list[object], rc: int
    ) -> None:
        self._stamp.rollback(sum(map(_messages, entries)))
        self.stats.add_errors += len(entries)
        error = error_of(rc, f"adding entry {handle.ledger_id}:{entries[0].entry_id}")
        if not isinstance(error, LedgerFenced | NotEnoughBookies):
            # That a ledger or an entry is missing is not the producer's business.
            error = PersistenceError(str(error))
        self.listener.add_failed(contexts, error)
        # Those that wait came later, and must not be stored before those that failed come again.
        self._fail_waiting(error)
        self._ledger_drained()

    def _ledger_drained(self) -> None:
        self._closing = None
        if self._drained is not None:
            self._drained.set()
        if self.state is LogState.ROLLING:
            self.background.spawn(self._roll())

    def _fail_waiting(self, error: BrokerError) -> None:
        if self._waiting:
            contexts = [context for _, _, context in self._waiting]
            self._waiting.clear()
            self.stats.add_errors += len(contexts)
            self.listener.add_failed(contexts, error)

    # Ledgers one after the other

    async def _roll(self) -> None:
        """Close the ledger before, begin the next, add what has waited.

        The first ledger after an opening trims nothing: readers that the restart cut off are on their way back.
        """
        async with self.one_change:
            if not self._is_rolling():
                return
            first = not self.record.current_started
            try:
                await self._retire_current()
                ledger = await self.record.start_current()
            except BrokerError as error:
                taken_over = isinstance(error, BadVersion | LedgerFenced)
                self.state = LogState.FENCED if taken_over else LogState.OPEN
                self._fail_waiting(PersistenceError(f"{self.name}: no new ledger: {error}"))
                return
            if not self._is_rolling():  # Closed or terminated meanwhile.
                return
            self._begin_handle(ledger)
        while self._waiting and self._handle is not None:
            self.add(*self._waiting.popleft())
        if not first:
            self.trim(self.ground.wall_ms())

    def _is_rolling(self) -> bool:
        return self.state is LogState.ROLLING

    async def _retire_current(self) -> None:
        """Give the current ledger its end, if it was begun, and reserve the next one's id."""
        current = self.ledgers.current
        if self.record.current_started and current.closed_at_ms is None:
            current.closed_at_ms = self.ground.wall_ms()
            self.properties[INDEX] = str(self._stamp.index)
        if current.closed_at_ms is not None and not self.is_terminated:
            following = await self.ground.ids.next(above=current.ledger_id)
            self.ledgers.append(LedgerInfo(following))
            self.record.current_started = False
            self.forget_empty(current)
            self.last_confirmed = self.ledgers.last()

    def _begin_handle(self, ledger: OwnLedger) -> None:
        settings, ledgers = self.settings, self.ground.ledgers
        self._handle = LedgerHandle(
            ledger.ledger_id, ledgers.writer(ledger), self.ground.turn, self, ledgers.digest
        )
        self._started_ns = self._now_ns()
        self._entries_max = settings.entries_per_ledger_max
        self._size_max = settings.ledger_bytes_max
        older = settings.rollover_ns_max
        self._roll_at_ns = self._started_ns + older if older > 0 else _NEVER
        self.state = LogState.OPEN

    # Ends

    async def terminate(self) -> Position:
        """Take no more adds, for ever; answers the last entry. Raises MetadataError, and may then be tried
        again (adds stay refused until then)."""
        if self.record.terminated is not None:
            return self.record.terminated
        self._refuse_unless_usable()
        await self._stop(LogState.TERMINATED)
        async with self.one_change:
            self._end_current()
            self.record.terminated = self.last_confirmed
            try:
                await self.record.save()
            except BrokerError:
                self.record.terminated = None
                raise
        return self.last_confirmed

    def _refuse_unless_usable(self) -> None:
        if self.state in (LogState.FENCED, LogState.CLOSED):
            raise _REFUSALS[self.state](f"{self.name} is {self.state.value}")

    def _end_current(self) -> None:
        current = self.ledgers.current
        if self.record.current_started and current.closed_at_ms is None:
            current.closed_at_ms = self.ground.wall_ms()
            self.properties[INDEX] = str(self._stamp.index)

    async def _stop(self, state: LogState) -> None:
        """Take no more adds and wait for those under way; those that wait for a ledger fail."""
        self.state = state
        if self._handle is not None:
            self._stop_adding(self._handle)
        if self._closing is not None:
            self._drained = asyncio.Event()
            await self._drained.wait()
        self._fail_waiting(_REFUSALS[state](f"{self.name} is {state.value}"))

    async def close(self) -> None:
        """Wait for adds under way, close the ledger, write what the cursors have, give the cache back.

        Raises the first MetadataError; the log is closed all the same, and the next open recovers it.
        """
        if self.state is LogState.CLOSED:
            return
        fenced = self.state is LogState.FENCED
        await self._stop(LogState.CLOSED)
        problems: list[BaseException | None] = []
        if not fenced:
            problems.append(await self._save_end())
        cursors = list(self.cursors.values())
        problems += await asyncio.gather(*(cursor.close() for cursor in cursors), return_exceptions=True)
        await self.background.drain()
        self.ground.caches.remove(self.name)
        for problem in problems:
            if problem is not None and not fenced:
                raise problem

    async def _save_end(self) -> BrokerError | None:
        async with self.one_change:
            started = self.record.current_started
            self._end_current()
            try:
                if started:
                    await self.record.save()
            except BrokerError as error:
                return error
        return None

    async def delete(self) -> None:
        """Remove ledgers, cursors and metadata. Raises MetadataError; the next open then finishes it, if it
        had been written down at all."""
        if self.state is not LogState.CLOSED:
            await self._stop(LogState.CLOSED)
        for cursor in list(self.cursors.values()):
            cursor.abandon()
        self.cursors.clear()
        async with self.one_change:
            await self.record.delete()
        await self.background.drain()
        self.ground.caches.remove(self.name)
