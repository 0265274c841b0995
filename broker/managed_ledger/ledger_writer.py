"""LedgerWriter: adds entries to a managed ledger, in one BookKeeper ledger after the other.

    add -> LedgerHandle -> bookie ... confirmed, once per turn -> stats, cache, listener

An add has a run of entries, often of one. Adds go straight to the current ledger; confirmed entries come back in order,
and from then on they are readable: last confirmed position, cache and listener move together. When a ledger is full, too
old or has failed, adds wait until the next one is in the metadata store.

The law: nothing confirmed is lost by a failure, and order is kept. The failed ledger is closed at its last
confirmed entry, everything after the failed add fails too, and writing goes on in a new ledger as soon as
that can be stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Final

from bookkeeper.client.result_codes import FENCED, error_of
from bookkeeper.ensembles.ledger_handle import Added, LedgerHandle
from bookkeeper.ensembles.own_ledger import OwnLedger
from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.opening import last_of
from broker.managed_ledger.reading_cursors import ReadingCursors
from broker.managed_ledger.trimming import Trimming
from foundation.model.entry import Buffer, Entry
from foundation.model.errors import (
    BadVersion,
    BrokerError,
    LedgerFenced,
    NotEnoughBookies,
    PersistenceError,
    ServiceNotReady,
    TopicTerminated,
)
from foundation.model.position import Position
from protocol.broker_entry_metadata import EntryStamp

_NEVER: Final = 2**62
"""A limit that no count of entries or bytes reaches, nor a clock in nanoseconds (2**62 ns are 146 years)."""
_messages = attrgetter("messages")


class ManagedLedgerState(StrEnum):
    """State of one managed ledger's writer.

    OPEN and ROLLING alternate; after a failed roll the writer is OPEN, and the next add tries again. Either may turn
    into FENCED, TERMINATED or CLOSED, and these never turn back: adds are possible again only through a new writer,
    which the next `ManagedLedger.open` makes. FENCED and TERMINATED may still become CLOSED.
    """

    OPEN = "open"
    """Adds go to the current ledger, or begin one."""
    ROLLING = "rolling"
    """Adds wait until a new ledger has begun."""
    FENCED = "fenced"
    """Another broker has taken the managed ledger over: this one can write nothing any more."""
    TERMINATED = "terminated"
    """No entry will ever be added any more; reading goes on."""
    CLOSED = "closed"
    """This broker has closed or deleted the managed ledger; the next open makes another writer."""


_REFUSALS: Final[dict[ManagedLedgerState, type[BrokerError]]] = {
    ManagedLedgerState.FENCED: LedgerFenced,
    ManagedLedgerState.TERMINATED: TopicTerminated,
    ManagedLedgerState.CLOSED: ServiceNotReady,
}


class LedgerWriter:
    """Writes one managed ledger; assign `listener` of its context before the first add."""

    __slots__ = (
        "_closing",
        "_context",
        "_drained",
        "_entries_max",
        "_handle",
        "_has_begun",
        "_now_ns",
        "_reading_cursors",
        "_roll_at_ns",
        "_size_max",
        "_stamp",
        "_started_ns",
        "_trimming",
        "_waiting",
        "state",
    )

    def __init__(
        self, context: LedgerContext, stamp: EntryStamp, reading_cursors: ReadingCursors, trimming: Trimming
    ) -> None:
        self.state = ManagedLedgerState.TERMINATED if context.is_terminated else ManagedLedgerState.OPEN
        """Changed by this class alone; `ManagedLedgerState` has the order of the states."""
        self._context = context
        self._reading_cursors = reading_cursors
        self._trimming = trimming
        self._stamp = stamp
        # Bound once, because `add` runs per message.
        self._now_ns = context.environment.now_ns
        self._handle: LedgerHandle | None = None
        """The ledger that takes adds; None while there is none, see `state`."""
        self._has_begun = False
        """A ledger took adds since the opening."""
        self._closing: LedgerHandle | None = None
        """A ledger that takes no more adds and has some in flight."""
        self._drained: asyncio.Event | None = None
        self._waiting: deque[tuple[Sequence[Buffer], int, object]] | None = None
        """(bodies, messages, context) for the next ledger; the caller bounds how many adds are in flight. None without any:
        an empty one is 760 bytes."""
        self._entries_max = self._size_max = self._roll_at_ns = _NEVER
        self._started_ns = 0

    # Adding

    def add(self, bodies: Sequence[Buffer], messages: int, context: object) -> None:
        """Appends entries, at least one; the listener receives their outcome, with `context`.

        `messages`: in each of them. Raises ServiceNotReady, TopicTerminated or LedgerFenced, and adds nothing, when the
        managed ledger takes no adds; while earlier ones are in flight, the listener is told so after their outcome.
        """
        handle = self._handle
        if handle is None:
            self._add_later(bodies, messages, context)
            return
        count = len(bodies)
        if count > 1 and (
            handle.next_entry_id + count > self._entries_max
            or handle.length + sum(map(len, bodies)) + count * self._stamp.bytes_max > self._size_max
        ):
            # The ledger may be full after any of them, so they go one by one.
            for place in range(count):
                if self._handle is None:
                    # In front: a roll adds runs that have waited, and others wait after this one.
                    self._queue().appendleft((bodies[place:], messages, context))
                    return
                self.add(bodies[place : place + 1], messages, context)
            return
        now_ns = self._now_ns()
        # The bytes of the client go on as they are: only the metadata block in front of them is new.
        handle.add(self._stamp.stamp(messages, count), bodies, messages, context, now_ns)
        if (
            # Compared after the add: the entry that fills the ledger still belongs to it.
            handle.next_entry_id >= self._entries_max
            or handle.length >= self._size_max
            or now_ns >= self._roll_at_ns
        ):
            self._roll_when_old_enough(handle, now_ns)

    def _add_later(self, bodies: Sequence[Buffer], messages: int, context: object) -> None:
        # With adds in flight a refusal waits for their outcome. Told at once, it would close producers before the receipts
        # of entries that are stored, and clients would send these again.
        if self._closing is None:
            self._refuse_in(*_REFUSALS)
        # Queued before the roll is spawned, because a roll adds what waits.
        self._queue().append((bodies, messages, context))
        if self.state is ManagedLedgerState.OPEN:
            self.state = ManagedLedgerState.ROLLING
            self._context.background.spawn(self._roll())

    def _queue(self) -> deque[tuple[Sequence[Buffer], int, object]]:
        if self._waiting is None:
            self._waiting = deque()
        return self._waiting

    def _refuse_in(self, *states: ManagedLedgerState) -> None:
        if self.state in states:
            raise _REFUSALS[self.state](f"{self._context.name} is {self.state.value}")

    def _roll_when_old_enough(self, handle: LedgerHandle, now_ns: int) -> None:
        """Rolls, unless the ledger is full but younger than the minimum age."""
        allowed_ns = self._started_ns + self._context.settings.rollover_ns_min
        if now_ns < min(allowed_ns, self._roll_at_ns):
            # Leave one comparison per add until the minimum age is reached, instead of coming here with each add.
            self._entries_max = self._size_max = _NEVER
            self._roll_at_ns = min(allowed_ns, self._roll_at_ns)
        else:
            self._stop_adding(handle)

    def roll_if_due(self, now_ns: int) -> None:
        """Closes a ledger that has entries and has reached its maximum age.

        To be called about once a minute. Without this a topic that gets no more messages would keep its last
        ledger open for ever.
        """
        handle = self._handle
        if handle is not None and handle.next_entry_id and now_ns >= self._roll_at_ns:
            self._stop_adding(handle)

    def _stop_adding(self, handle: LedgerHandle) -> None:
        """Finishes the adds in flight, then goes on in a new ledger."""
        self._handle = None
        self._closing = handle
        if self.state is ManagedLedgerState.OPEN:
            self.state = ManagedLedgerState.ROLLING
        # With adds in flight the end of the ledger is not known yet; the last of them calls `_ledger_drained`.
        if not handle.pending:
            self._ledger_drained()

    # Called by the ledger handle

    def entries_confirmed(
        self,
        handle: LedgerHandle,
        entries: list[Entry],
        added: list[Added],
        now_ns: int,
    ) -> None:
        """Makes confirmed entries readable and reports them."""
        context = self._context
        current = context.ledgers.current
        assert current.ledger_id == handle.ledger_id
        last_id = entries[-1].entry_id
        current.size_bytes += context.counters().added(entries, added, now_ns)
        current.entries = last_id + 1
        # First the position, then the cache, then the listener: it wakes dispatchers, which look at the other two.
        context.last_confirmed = Position(handle.ledger_id, last_id)
        self._reading_cursors.added(entries, now_ns)
        context.note_change()
        listener = context.listener
        assert listener is not None
        listener.entries_added(entries, added, now_ns)
        if handle is self._closing and not handle.pending:
            self._ledger_drained()

    def ledger_failing(self, handle: LedgerHandle, rc: int) -> None:
        """Sends no more to this ledger: an add was refused.

        Fencing means that another broker has taken the managed ledger over.
        """
        # TERMINATED and CLOSED stay: both refuse adds already, and neither may turn into another state.
        if rc in FENCED and self.state in (ManagedLedgerState.OPEN, ManagedLedgerState.ROLLING):
            self.state = ManagedLedgerState.FENCED
        if handle is self._handle:
            self._stop_adding(handle)

    def adds_failed(self, handle: LedgerHandle, entries: list[Entry], added: list[Added], rc: int) -> None:
        """Reports the refused add and all later ones as failed."""
        # The index counts stored messages (PIP-70), so take off those that were not stored.
        self._stamp.rollback(sum(map(_messages, entries)))
        self._context.counters().add_errors += len(entries)
        self._context.note_change()
        error = error_of(rc, f"adding entry {handle.ledger_id}:{entries[0].entry_id}")
        if not isinstance(error, LedgerFenced | NotEnoughBookies):
            # A missing ledger or entry is a fault of the storage; a producer must not read it as its own.
            error = PersistenceError(str(error))
        self._tell_failed(added, error)
        # Adds that wait came later. Stored now, they would stand before the failed ones, which clients send again.
        self._fail_waiting(error)
        self._ledger_drained()

    def _ledger_drained(self) -> None:
        self._closing = None
        if self._drained is not None:
            self._drained.set()
        if self.state is ManagedLedgerState.ROLLING:
            self._context.background.spawn(self._roll())

    def _fail_waiting(self, error: BrokerError) -> None:
        if self._waiting:
            added = [(context, len(bodies), 0) for bodies, _, context in self._waiting]
            self._waiting = None
            self._context.counters().add_errors += sum(count for _, count, _ in added)
            self._context.note_change()
            self._tell_failed(added, error)

    def _tell_failed(self, added: list[Added], error: BrokerError) -> None:
        listener = self._context.listener
        assert listener is not None
        listener.add_failed(added, error)

    # From one ledger to the next

    async def _roll(self) -> None:
        """Closes the previous ledger, begins the next, and adds the entries that waited.

        The first ledger after an opening trims nothing: readers that the restart cut off will return.
        """
        context = self._context
        async with context.store.lock:
            # The state may have changed while this waited for the lock, and while it waits for the store below.
            if not self._is_rolling():
                return
            # Not the store's `current_started`: it is also true for a beginning without an answer, and false after a
            # beginning that was refused.
            first = not self._has_begun
            try:
                await self._retire_current()
                ledger = await context.store.start_current(context.settings.copies)
            except BrokerError as error:
                taken_over = isinstance(error, BadVersion | LedgerFenced)
                # OPEN without a handle: the next add tries again, so a full disk is no lasting failure.
                self.state = ManagedLedgerState.FENCED if taken_over else ManagedLedgerState.OPEN
                self._fail_waiting(PersistenceError(f"{context.name}: no new ledger: {error}"))
                return
            if not self._is_rolling():  # Closed or terminated meanwhile.
                return
            self._begin_handle(ledger)
        # An add may fill the new ledger at once; the rest then waits for the one after it.
        while self._waiting and self._handle is not None:
            self.add(*self._waiting.popleft())
        self._waiting = self._waiting or None
        if not first:
            self._trimming.trim(context.environment.wall_ms())

    def _is_rolling(self) -> bool:
        return self.state is ManagedLedgerState.ROLLING

    async def _retire_current(self) -> None:
        """Ends the current ledger, if it was begun; reserves the next id."""
        context = self._context
        self.end_current()
        current = context.ledgers.current
        if current.closed_at_ms is not None and not context.is_terminated:
            # An id only: the ledger begins with the next write of the list (first rule of the take-over).
            following = await context.environment.ids.next(above=current.ledger_id)
            context.ledgers.append(LedgerInfo(following))
            context.store.current_started = False
            self._trimming.remove_if_empty(current)
            # Without any entry the position names the current ledger, which is another one now.
            context.last_confirmed = context.ledgers.last()

    def _begin_handle(self, ledger: OwnLedger) -> None:
        settings, environment = self._context.settings, self._context.environment
        ledgers = environment.ledgers
        self._handle = LedgerHandle(
            ledger.ledger_id, ledgers.writer(ledger), environment.turn, self, ledgers.digest
        )
        self._has_begun = True
        self._started_ns = self._now_ns()
        self._entries_max = settings.entries_per_ledger_max
        self._size_max = settings.ledger_bytes_max
        older = settings.rollover_ns_max
        self._roll_at_ns = self._started_ns + older if older > 0 else _NEVER
        self.state = ManagedLedgerState.OPEN

    # Ends

    def refuse_unless_usable(self) -> None:
        """Raises LedgerFenced or ServiceNotReady when this broker can change nothing any more."""
        self._refuse_in(ManagedLedgerState.FENCED, ManagedLedgerState.CLOSED)

    def end_current(self) -> None:
        """Gives the current ledger, if begun, its end in the list; the next write of the list stores it."""
        context = self._context
        current, store = context.ledgers.current, context.store
        if store.current_started and current.closed_at_ms is None:
            current.closed_at_ms = context.environment.wall_ms()
            # Stored at a ledger's end alone: after a crash the open takes it from the last entry instead.
            store.properties = {**store.properties, **last_of(self._stamp)}

    async def stop(self, state: ManagedLedgerState) -> None:
        """Refuses further adds and waits for those in flight; adds that wait for a ledger fail."""
        # Before the wait, so that adds which come meanwhile are refused.
        self.state = state
        if self._handle is not None:
            self._stop_adding(self._handle)
        # Still set only while adds are in flight: a ledger without any has drained inside `_stop_adding`.
        if self._closing is not None:
            self._drained = asyncio.Event()
            await self._drained.wait()
        self._fail_waiting(_REFUSALS[state](f"{self._context.name} is {state.value}"))
