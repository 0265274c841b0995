"""Dispatcher: the frame of both dispatchers, which wakes once per turn, reads on, and reports the end of the topic.

Law: dispatch is level-triggered. New entries, permits, acknowledgements, finished reads, joining and leaving consumers
all just call `wake`. At the end of the loop turn `run_once` looks at the whole situation and acts, so the order in
which the events arrived has no influence.

    Subscription -> SingleActiveDispatcher (Exclusive, Failover) | SharedDispatcher (Shared, Key_Shared)
    wake -> Turn.dispatch -> run_once -> ManagedCursor.take -> Consumer.deliver
                                      -> ManagedCursor.request, when the cache has nothing -> wake
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from broker.service.subscriptions.dispatch.read_retry import ReadRetry
from foundation.loop.clock import CallLater
from foundation.units import NS_PER_SECOND

if TYPE_CHECKING:
    from broker.managed_ledger.managed_cursor import ManagedCursor
    from broker.service.consumer import Consumer
    from broker.service.limits.dispatch_limit import DispatchLimits
    from broker.service.limits.unacked_limit import UnackedLimit
    from broker.service.settings import ServiceSettings
    from broker.service.subscriptions.delayed_delivery import DelayedDelivery
    from broker.service.subscriptions.dispatch.entry_reads import EntryReads
    from foundation.loop.turn import Turn
    from foundation.model.entry import Entry


class DispatchContext(NamedTuple):
    """Objects and values that a dispatcher needs; its subscription builds this."""

    cursor: ManagedCursor
    """Entries are read from here; acknowledgements arrive there."""
    topic_name: str
    """Full name, `domain://tenant/namespace/topic`."""
    partition: int
    """Index of the topic among the partitions, -1 for a topic without partitions."""
    settings: ServiceSettings
    """Values at the start; `Dispatcher.reconfigure` brings later ones."""
    turn: Turn
    """Runs `run_once` at the end of the loop turn."""
    call_later: CallLater
    """Starts timers: delays of reads, and the Failover delay."""
    mark_delivered: Callable[[list[Entry]], object]
    """Tells the entry cache that these entries were delivered, which lowers their expected reads (PIP-430)."""
    delays: DelayedDelivery
    """Messages of the topic that wait for their delivery time."""
    broker_unacked: UnackedLimit | None = None
    """The broker's limit of unacknowledged messages; None without one."""


class Dispatcher:
    """Base of the two dispatchers: one `run_once` per wake, one storage read at a time."""

    __slots__ = (
        "_call_later",
        "_retry",
        "_timer_runs",
        "_turn",
        "_woken",
        "closed",
        "consumers",
        "cursor",
        "limits",
        "mark_delivered",
        "reads",
        "settings",
        "successor",
    )

    def __init__(self, context: DispatchContext) -> None:
        self.cursor = context.cursor
        """The subscription's cursor; a successor reads from the same one."""
        self.reads: EntryReads = context.cursor
        """The source of the next entries: the cursor, or its compacted view."""
        self.settings = context.settings
        """Current values, renewed by `reconfigure`."""
        self.consumers: list[Consumer] = []
        """Connected consumers; the subclass keeps its own order."""
        self.mark_delivered = context.mark_delivered
        """Lowers the expected reads of delivered entries in the entry cache."""
        self.closed = False
        """True when this dispatcher delivers nothing any more."""
        self.successor: Dispatcher | None = None
        """The dispatcher that replaced this one. A read that this one started wakes the successor when it ends;
        otherwise the successor, which finds the cursor busy reading, would wait for ever."""
        self.limits: DispatchLimits | None = None
        """Delivery rates of broker, topic and subscription; None without any. Set by the subscription."""
        self._call_later = context.call_later
        self._timer_runs = False
        self._turn = context.turn
        self._woken = False
        self._retry = ReadRetry(context.call_later, self)

    def retire(self, successor: Dispatcher) -> None:
        """Stops delivering and forwards every later wake to `successor`.

        The subscription calls this when a consumer joins after the last one left: the new consumer may bring
        another subscription type.
        """
        self.closed = True
        self.successor = successor
        # No cycle through the retry: a dispatcher is retired each time that consumers come back.
        self._retry.dispatcher = successor

    def close(self) -> None:
        """Delivers nothing any more: the subscription is closed."""
        self.closed = True
        self._retry.dispatcher = None

    def reconfigure(self, settings: ServiceSettings) -> None:
        """Takes new settings and wakes: a limit may be higher now."""
        self.settings = settings
        self.wake()

    def wake(self) -> None:
        """Runs `run_once` at the end of this loop turn; further calls in the same turn change nothing."""
        if self.successor is not None:
            self.successor.wake()
        elif not self._woken:
            self._woken = True
            self._turn.dispatch(self._run)

    def _run(self, now_ns: int) -> None:
        # Cleared first: a wake during `run_once` must lead to another look.
        self._woken = False
        if not self.closed:
            self.run_once(now_ns)

    def run_once(self, now_ns: int) -> None:
        """Delivers what can be delivered now. Called by the turn alone."""
        raise NotImplementedError

    # Delivery rates

    def _limits_in_force(self) -> DispatchLimits | None:
        """Returns the rates to keep to in this run; None without any, or for a subscription that has caught up."""
        settings = self.settings
        if not settings.throttle_caught_up and self.cursor.backlog <= settings.caught_up_entries:
            return None
        return self.limits

    def _allowed(self, limits: DispatchLimits, now_ns: int) -> tuple[int, int]:
        """Returns messages and bytes that may be delivered now; (0, 0) = wait, and a timer wakes this dispatcher."""
        messages, size = limits.available(now_ns)
        if messages > 0 and size > 0:
            return messages, size
        # One timer, however many wakes come meanwhile; at its end the whole situation is looked at again.
        if not self._timer_runs:
            self._timer_runs = True
            self._call_later(limits.wait_ns(now_ns) / NS_PER_SECOND, self._tokens_returned)
        return 0, 0

    def _tokens_returned(self) -> None:
        self._timer_runs = False
        self.wake()

    def acknowledged(self) -> None:
        """Reports the end of a terminated topic after its last acknowledgement."""
        if self.cursor.context.is_terminated and self.cursor.backlog == 0:
            self._report_end()

    def _finds_nothing_more(self) -> bool:
        """Returns True when another look would end at once: the next entry wakes this dispatcher.

        On a terminated topic that look reports the end.
        """
        return not self.reads.has_more() and not self.cursor.context.is_terminated

    def _read_on(self, entries_max: int) -> None:
        """Starts a storage read, or reports that the topic has ended."""
        cursor, reads = self.cursor, self.reads
        if reads.has_more():
            # A read of the retired predecessor counts as `reading` too; its end wakes this dispatcher (`successor`).
            if not reads.reading and not self._retry.waiting:
                reads.request(entries_max, self.settings.read_bytes_max, self._read_done)
        elif cursor.context.is_terminated and cursor.backlog == 0:
            self._report_end()

    def _read_done(self) -> None:
        if self.reads.last_error is None:
            self._retry.succeeded()
            self.wake()
        else:
            # No wake: the dispatcher would read again at once. The end of the delay wakes it.
            self._retry.failed()

    def _report_end(self) -> None:
        for consumer in self.consumers:
            if not consumer.end_told:
                consumer.end_told = True
                consumer.port.reached_end_of_topic()
