"""Distribution: decides which consumer of a shared subscription gets which entry, and which entries must wait.

The dispatcher runs one loop for both subscription types and asks its distribution where they differ: `InTurns` deals
entries round robin (Shared), `ByKey` in `by_key.py` keeps all messages of a key with one consumer (Key_Shared).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from broker.model.entry import Entry
from broker.service.consumer import Consumer, SubscribeOptions
from broker.service.redelivery_queue import Key
from broker.service.settings import ServiceSettings

if TYPE_CHECKING:
    from broker.service.consumer_set import ConsumerSet
    from broker.service.shared_delivery import SharedDelivery


class Distribution(Protocol):
    """The part of a shared dispatcher that differs between Shared and Key_Shared."""

    settings: ServiceSettings
    """Current values, renewed by the dispatcher."""

    passes_over: bool
    """True when entries behind one that cannot be sent may be sent before it.

    The entries that `send` returns then wait for redelivery one by one; otherwise they are the end of the run, and
    the cursor takes them back."""

    def check(self, options: SubscribeOptions) -> None:
        """Raises ConsumerBusy when such a consumer cannot join the present ones."""
        ...

    def add(self, consumer: Consumer) -> None:
        """Includes a consumer, which joins the set next. ConsumerAssignError when its key hashes do not fit."""
        ...

    def remove(self, consumer: Consumer) -> None:
        """Excludes a consumer, which leaves the set next."""
        ...

    def rearranged(self) -> None:
        """The set of consumers has changed: find out anew which pending messages are with another owner."""
        ...

    def hash_of(self, entry: Entry) -> int:
        """Returns the key hash under which the entry waits for redelivery; 0 when keys do not matter."""
        ...

    def settled(self, consumer: Consumer, key: Key) -> bool:
        """A message of the consumer is pending no longer. Returns True when another consumer waited for that."""
        ...

    def redelivery_filter(self) -> Callable[[Key, int], bool] | None:
        """Returns a test, for one look at the queue, of (position, hash): can it be sent now? None = all can."""
        ...

    def may_read_on(self) -> bool:
        """Returns False when too many positions wait for redelivery."""
        ...

    def send(self, entries: list[Entry], *, again: bool) -> list[Entry]:
        """Sends what can be sent and returns the rest. `again` marks entries of the redelivery queue."""
        ...


class InTurns:
    """Shared: consumers of the best priority with permits get entries in turns."""

    __slots__ = ("_consumers", "_delivery", "_next", "settings")

    passes_over = False
    """Entries stay in order while no consumer can take one."""

    def __init__(self, settings: ServiceSettings, consumers: ConsumerSet, delivery: SharedDelivery) -> None:
        self.settings = settings
        """Current values, renewed by the dispatcher."""
        self._consumers = consumers.consumers
        self._delivery = delivery
        self._next = 0

    def check(self, options: SubscribeOptions) -> None:
        """Every Shared consumer can join every other."""

    def add(self, consumer: Consumer) -> None:
        """The turns go by the set of consumers itself."""

    def remove(self, consumer: Consumer) -> None:
        """The turns go by the set of consumers itself."""

    def rearranged(self) -> None:
        """Keys have no owners here."""

    def hash_of(self, entry: Entry) -> int:
        """Always 0."""
        return 0

    def settled(self, consumer: Consumer, key: Key) -> bool:
        """No consumer waits for another one's acknowledgements."""
        return False

    def redelivery_filter(self) -> None:
        """Any consumer can take any entry."""
        return

    def may_read_on(self) -> bool:
        """Reading waits for permits alone."""
        return True

    def send(self, entries: list[Entry], *, again: bool) -> list[Entry]:
        """Deals the entries in shares of `dispatcherMaxRoundRobinBatchSize`; the rest is the end of the run."""
        at = 0
        while at < len(entries):
            consumer = self._next_consumer()
            if consumer is None:
                break
            limit = self.settings.round_robin_entries_max
            # A run that fits is passed on as it is: a copy per consumer and turn would be an allocation too many.
            share = entries[at : at + limit] if at or len(entries) > limit else entries
            at += self._delivery.send(consumer, share)
        return entries[at:]

    def _next_consumer(self) -> Consumer | None:
        """Returns the next consumer in turn that can take a message.

        A lower priority is used only while no consumer of a better one can.
        """
        consumers = self._consumers
        count = len(consumers)
        if count == 1:
            return consumers[0] if consumers[0].may_receive() else None
        chosen: Consumer | None = None
        for step in range(count):
            index = (self._next + step) % count
            consumer = consumers[index]
            if chosen is not None and consumer.options.priority >= chosen.options.priority:
                continue
            if consumer.may_receive():
                chosen = consumer
                place = index
        if chosen is not None:
            self._next = place + 1
        return chosen
