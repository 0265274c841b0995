"""InTurns: sends entries of a Shared subscription to its consumers, round robin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.service.consumer import Consumer
from broker.service.subscriptions.dispatch.shared_delivery import SharedDelivery
from foundation.model.entry import Entry

if TYPE_CHECKING:
    from broker.service.subscriptions.dispatch.consumer_set import ConsumerSet
    from broker.service.subscriptions.dispatch.dispatcher import DispatchContext
    from broker.service.subscriptions.dispatch.redelivery import Redeliverer


class InTurns(SharedDelivery):
    """Deals entries to consumers of the best priority with permits; any of them can take any entry."""

    __slots__ = ("_next",)

    def __init__(self, context: DispatchContext, consumers: ConsumerSet, redelivery: Redeliverer) -> None:
        super().__init__(context, consumers, redelivery)
        self._next = 0

    def deal(self, entries: list[Entry]) -> list[Entry]:
        """Deals the entries in shares of `dispatcherMaxRoundRobinBatchSize`; the rest is the end of the run."""
        at = 0
        while at < len(entries):
            consumer = self._next_consumer()
            if consumer is None:
                break
            limit = self._consumers.settings.round_robin_entries_max
            # A run that fits is passed on as it is: a copy per consumer and turn would be an allocation too many.
            share = entries[at : at + limit] if at or len(entries) > limit else entries
            at += self.send(consumer, share)
        return entries[at:]

    def _next_consumer(self) -> Consumer | None:
        """Returns the next consumer in turn that can take a message.

        A lower priority is used only while no consumer of a better one can.
        """
        consumers = self._consumers.consumers
        count = len(consumers)
        if count == 1:
            return consumers[0] if consumers[0].may_receive() else None
        chosen: Consumer | None = None
        for step in range(count):
            index = (self._next + step) % count
            consumer = consumers[index]
            # Of equal priority the first in turn stays, so `>=`; the look goes on for a better priority.
            if chosen is not None and consumer.options.priority >= chosen.options.priority:
                continue
            if consumer.may_receive():
                chosen = consumer
                place = index
        if chosen is not None:
            self._next = place + 1
        return chosen
