"""DelayedDelivery: holds entries of one topic back until the time that their producer asked for.

Shared and Key_Shared dispatchers pass each run of entries through `hold_back`. Delayed entries go into the topic's
`DelayedEntries` and consume no permits. A timer takes out what is due and tells every such dispatcher, which delivers
the positions that it has passed. Exclusive and Failover subscriptions and readers deliver at once, as in Pulsar.

    SharedDispatcher -> hold_back -> DelayedEntries.hold, BucketLedgers.store
    timer            -> take_due  -> SharedDispatcher.due -> Redelivery

Pulsar's rules of time: a message is due when its time is not later than the clock, or, unless
`isDelayedDeliveryDeliverAtTimeStrict`, than the clock plus one tick. The timer fires at the next delivery time, and at
most once per tick.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

from broker.managed_ledger.delayed.delayed_entries import DelayedEntries
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.service.entry_facts import facts_of
from broker.service.policies.values import DelayedDeliveryPolicies
from broker.service.settings import ServiceSettings
from foundation.loop.clock import CallLater
from foundation.model.entry import Buffer, Entry
from foundation.model.errors import NotAllowed
from foundation.model.position import Position, PositionKey
from foundation.model.range_set import RangeSet
from foundation.units import NS_PER_MS, NS_PER_SECOND
from protocol.errors import ProtocolError
from protocol.message_metadata import read_facts

DUE_PER_RUN: Final = 1000
"""Entries taken out before other work of the loop gets its share: about a millisecond."""

LOOK_AGAIN_MS: Final = 10_000
"""Longest wait of the timer. A wall clock that jumps forward, and a cursor that moves on, are noticed after it."""


class Waiter(Protocol):
    """A dispatcher that leaves held entries out while it reads on."""

    def leave_out(self, held: RangeSet) -> None:
        """Leaves these out from now on, whatever is added to them later."""
        ...

    def due(self, keys: list[PositionKey]) -> None:
        """Receives positions whose time has come, of any cursor of the topic."""
        ...


class DelayedDelivery:
    """The delayed entries of one topic, their timer, and the dispatchers that wait for them."""

    __slots__ = (
        "_armed_ns",
        "_call_later",
        "_closed",
        "_cutoff_max_ms",
        "_ledger",
        "_pruned",
        "_ran_ns",
        "_timer",
        "_unknown_through",
        "_waiters",
        "asked",
        "clock_went_back",
        "policy",
        "settings",
    )

    def __init__(
        self,
        ledger: ManagedLedger,
        settings: ServiceSettings,
        policy: DelayedDeliveryPolicies,
        call_later: CallLater,
    ) -> None:
        """`settings` and `policy` are those of now; the topic renews them."""
        self.settings = settings
        """The broker's settings: strictness and look-ahead, for which there is no policy."""
        self.policy = policy
        """The policy in force."""
        self.asked = False
        """True once a producer has asked for a delay since the topic was opened; before that no entry of a ledger
        written since needs a look."""
        self.clock_went_back = False
        """True once an entry was held whose time had been over before: it may have been delivered already."""
        self._ledger = ledger
        self._call_later = call_later
        self._waiters: tuple[Waiter, ...] = ()
        last = ledger.last_confirmed
        # Entries of former lifetimes must be looked at: which of them are delayed was known to another process.
        self._unknown_through = last.ledger_id if last.entry_id >= 0 else -1
        self._armed_ns: int | None = None
        self._timer = 0
        """Number of the timer that counts; earlier ones do nothing when they fire."""
        self._ran_ns = 0
        self._cutoff_max_ms = 0
        self._pruned: Position | None = None
        self._closed = False
        if len(self.entries):
            self._arm(0)

    @property
    def entries(self) -> DelayedEntries:
        """Entries that wait."""
        return self._ledger.delayed

    @property
    def held(self) -> RangeSet:
        """Positions that cursors leave out."""
        return self._ledger.delayed.held

    @property
    def _tick_ms(self) -> int:
        # Policies may say 0 or less; a timer without a pace would never rest.
        return max(self.policy.tick_ms, 1)

    def add_waiter(self, waiter: Waiter) -> None:
        """Tells a dispatcher of held and of due entries from now on."""
        self._waiters = (*self._waiters, waiter)
        waiter.leave_out(self.held)

    def remove_waiter(self, waiter: Waiter) -> None:
        """Stops telling it."""
        self._waiters = tuple(one for one in self._waiters if one is not waiter)

    def close(self) -> None:
        """Ends the timer; the topic is closed."""
        self._closed = True

    # Publishing

    def accept(self, body: Buffer) -> None:
        """Notes a message that may have a delivery time. NotAllowed when its delay is longer than the policy allows."""
        try:
            facts = read_facts(body)
        except ProtocolError:
            # It is stored unchanged; `hold_back` finds no delivery time in it either.
            return
        # Other numbers have the bytes of the field's tag too, such as the sequence id 152. Taken for a delay, one would let
        # every dispatcher read the metadata of each message from there on.
        if not facts.deliver_at_ms:
            return
        self.asked = True
        policy = self.policy
        delay_ms = facts.deliver_at_ms - facts.publish_time_ms
        # Both times are the client's, as in Pulsar, so a client with a wrong clock is not refused.
        if policy.active and 0 < policy.delay_max_ms < delay_ms:
            raise NotAllowed(
                f"Exceeds max allowed delivery delay of {policy.delay_max_ms} milliseconds: {delay_ms}"
            )

    # Dispatching

    def looks_in(self, ledger_id: int) -> bool:
        """Returns True when entries of the ledger must pass `hold_back`."""
        return self.asked or ledger_id <= self._unknown_through

    def hold_back(self, entries: list[Entry]) -> tuple[list[Entry], list[Entry]]:
        """Divides a run into (entries to deliver, entries held back)."""
        if not self.policy.active:
            return entries, []
        now_ms = self._ledger.environment.wall_ms()
        cutoff_ms = now_ms if self.settings.delayed_strict else now_ms + self._tick_ms
        times = [_deliver_at_ms(entry) for entry in entries]
        late = [entry for entry, at_ms in zip(entries, times, strict=True) if at_ms > cutoff_ms]
        delayed = self._own_entries()
        if len(late) < len(entries):
            # As in Pulsar: messages that need no delay show that there is no fixed one.
            delayed.fixed_delay = False
        if not late:
            return entries, []
        late_times = [at_ms for at_ms in times if at_ms > cutoff_ms]
        for entry, at_ms in zip(late, late_times, strict=True):
            full = delayed.hold(entry.ledger_id, entry.entry_id, at_ms, self._tick_ms)
            if full is not None:
                self._ledger.delayed_buckets.store(full)
        first_ms = min(late_times)
        self.clock_went_back = self.clock_went_back or first_ms <= self._cutoff_max_ms
        self._arm(first_ms)
        if len(late) == len(entries):
            return [], late
        return [entry for entry, at_ms in zip(entries, times, strict=True) if at_ms <= cutoff_ms], late

    def _own_entries(self) -> DelayedEntries:
        """Returns the index to be filled; dispatchers that wait learn of one that is made."""
        before = self._ledger.delayed
        entries = self._ledger.own_delayed()
        if entries is not before:
            for waiter in self._waiters:
                waiter.leave_out(entries.held)
        return entries

    def pauses(self, read_position: Position) -> bool:
        """Returns True when reading on would only find entries that are due later than all that wait.

        That is so with a fixed delay. `delayedDeliveryFixedDelayDetectionLookahead` says from how many on it counts.
        """
        entries = self.entries
        limit = self.settings.delayed_look_ahead
        return 0 < limit <= len(entries) and entries.fixed_delay and read_position > entries.last

    # Timer

    def _arm(self, due_ms: int) -> None:
        """Looks when the time has come, a tick after the last look at the earliest."""
        environment = self._ledger.environment
        now_ns = environment.now_ns()
        # One more: the timer may be a little early, and the look would then find nothing for another tick.
        wait_ms = min(max(due_ms - environment.wall_ms() + 1, 0), LOOK_AGAIN_MS)
        tick_ns = self._tick_ms * NS_PER_MS
        # The pace goes by the monotonic clock: a wall clock that jumps back must not stop the looks.
        at_ns = max(now_ns + wait_ms * NS_PER_MS, self._ran_ns + tick_ns)
        if self._armed_ns is None or at_ns < self._armed_ns:
            self._armed_ns = at_ns
            self._timer += 1
            self._call_later((at_ns - now_ns) / NS_PER_SECOND, partial(self._fired, self._timer))

    def _fired(self, timer: int) -> None:
        if timer == self._timer and not self._closed:
            self._armed_ns = None
            self._look()

    def _look(self) -> None:
        """Takes out what is due and tells the dispatchers."""
        environment = self._ledger.environment
        cutoff_ms = environment.wall_ms()
        if not self.settings.delayed_strict:
            cutoff_ms += self._tick_ms
        self._cutoff_max_ms = max(self._cutoff_max_ms, cutoff_ms)
        due = self.entries.take_due(cutoff_ms, DUE_PER_RUN)
        # Also without any: a dispatcher that pauses has to look again when the index was pruned.
        for waiter in self._waiters:
            waiter.due(due)
        self._prune()
        next_ms = self.entries.next_due_ms
        if next_ms is None:
            return
        if next_ms <= cutoff_ms:
            # More is due: go on in the next turn, so that other connections are served in between.
            self._timer += 1
            self._call_later(0, partial(self._fired, self._timer))
            self._armed_ns = environment.now_ns()
        else:
            self._ran_ns = environment.now_ns()
            self._arm(next_ms)

    def _prune(self) -> None:
        """Drops entries that every cursor has acknowledged, and stored buckets without entries."""
        ledger = self._ledger
        slowest = min(
            (cursor.mark_delete_position for cursor in ledger.cursors.by_name.values()),
            default=ledger.last_confirmed,
        )
        if slowest != self._pruned:
            self._pruned = slowest
            self.entries.forget(slowest)
        if emptied := self.entries.remove_empty():
            ledger.delayed_buckets.remove(emptied)


def _deliver_at_ms(entry: Entry) -> int:
    """Returns the delivery time, 0 for an entry without one or with unreadable metadata."""
    facts = entry.facts or facts_of(entry)
    return 0 if facts is None else facts.deliver_at_ms
