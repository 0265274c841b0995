"""LiveTopic: the moving parts of one topic, with rates between two readings of it.

A page that shows a topic gets this each second, so all lists are bounded; counts of what is left out stand beside them.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import Final

from broker.console.samples import Rates
from broker.console.traffic import LEVELS, counts_of
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.service.consumer import Consumer
from broker.service.producer import Producer
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.non_persistent_topic import NonPersistentSubscription, NonPersistentTopic
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic
from foundation.model.position import Position
from foundation.value import Json

PRODUCERS_MAX: Final = 100
"""Producers that are listed."""
CONSUMERS_MAX: Final = 100
"""Consumers of a subscription that are listed."""
CURSORS_MAX: Final = 200
"""Subscriptions that are listed."""
HOLES_MAX: Final = 200
"""Acknowledged ranges after the mark-delete position that are listed for a subscription."""
ALL_CONSUMERS_MAX: Final = 1_000
"""Consumers that are listed over all subscriptions: writing them takes some ms of the loop, each second."""
ALL_HOLES_MAX: Final = 4_000
"""Acknowledged ranges that are listed over all subscriptions."""


class LiveTopic:
    """Looks at one topic again and again."""

    def __init__(self, name: str, now_ns: Callable[[], int], wall_ms: Callable[[], int]) -> None:
        """`now_ns` is the monotonic clock."""
        self._name = name
        self._now_ns = now_ns
        self._wall_ms = wall_ms
        self._looked_ns = 0
        self._seconds = 0.0
        self._traffic = Rates()
        # Counters of producers, consumers and subscriptions at the last reading.
        self._before: dict[Hashable, tuple[int, int]] = {}
        # Consumers and holes that this look may still list.
        self._consumers_left = self._holes_left = 0
        self._after: dict[Hashable, tuple[int, int]] = {}

    def look(self, topic: Topic) -> dict[str, Json]:
        """Returns the topic as it is now; rates are None at the first reading."""
        now_ns = self._now_ns()
        self._seconds = (now_ns - self._looked_ns) / 1e9 if self._looked_ns else 0.0
        self._looked_ns = now_ns
        self._consumers_left, self._holes_left = ALL_CONSUMERS_MAX, ALL_HOLES_MAX
        shown: dict[str, Json] = {
            "topic": self._name,
            "atMs": self._wall_ms(),
            "windowSeconds": self._seconds or None,
            **self._traffic.rates(now_ns, counts_of(topic)),
            **{name: LEVELS[name](topic) for name in ("backlog", "storageBytes", "cachedBytes")},
            "cachedEntries": topic.ledger.cache.entries if isinstance(topic, PersistentTopic) else 0,
            "hitRatioTotal": LEVELS["hitRatio"](topic),
            "lastConfirmed": _place(topic.ledger.last_confirmed)
            if isinstance(topic, PersistentTopic)
            else None,
            "producers": [
                self._producer(one) for one in islice(topic.access.producers.values(), PRODUCERS_MAX)
            ],
            "producersMore": max(0, len(topic.access.producers) - PRODUCERS_MAX),
            "cursors": [self._cursor(one) for one in islice(_subscriptions(topic), CURSORS_MAX)],
            "cursorsMore": max(0, len(topic.subscriptions) - CURSORS_MAX),
        }
        self._before, self._after = self._after, {}
        return shown

    def _rates(self, key: Hashable, messages: int, size: int) -> tuple[float | None, float | None]:
        """Returns messages and bytes per second since the last reading of `key`; None at the first one."""
        self._after[key] = messages, size
        before = self._before.get(key)
        if before is None or self._seconds <= 0:
            return None, None
        return max(0, messages - before[0]) / self._seconds, max(0, size - before[1]) / self._seconds

    def _producer(self, producer: Producer) -> Json:
        messages, size = self._rates(producer, producer.messages_in, producer.bytes_in)
        return {
            "name": producer.name,
            "id": producer.producer_id,
            "messagesIn": messages,
            "bytesIn": size,
            "accessMode": "".join(word.capitalize() for word in producer.access_mode.name.split("_")),
            "address": producer.address,
            "client": producer.client_version,
            "connectedSince": _time(producer.connected_at_ms),
        }

    def _cursor(self, subscription: Subscription | NonPersistentSubscription) -> Json:
        consumers = subscription.consumers
        shown = [self._consumer(one) for one in consumers[: min(CONSUMERS_MAX, self._consumers_left)]]
        self._consumers_left -= len(shown)
        messages = sum([one.messages_out for one in consumers])
        size = sum([one.bytes_out for one in consumers])
        found: dict[str, Json] = {
            "name": subscription.name,
            "kind": subscription.kind.label,
            "unacked": sum([one.unacked for one in consumers]),
            "consumers": shown,
            "consumersMore": len(consumers) - len(shown),
        }
        if isinstance(subscription, Subscription):
            messages += subscription.retired_messages_out
            size += subscription.retired_bytes_out
            found |= _stored(subscription)
            holes, found["holesMore"] = holes_of(subscription.cursor, min(HOLES_MAX, self._holes_left))
            self._holes_left -= len(holes)
            found["holes"] = holes
        found["messagesOut"], found["bytesOut"] = self._rates(subscription.name, messages, size)
        return found

    def _consumer(self, consumer: Consumer) -> Json:
        messages, size = self._rates(consumer, consumer.messages_out, consumer.bytes_out)
        return {
            "name": consumer.name,
            "id": consumer.consumer_id,
            "permits": consumer.permits,
            "unacked": consumer.unacked,
            "blocked": consumer.blocked,
            "messagesOut": messages,
            "bytesOut": size,
            "messagesRedelivered": consumer.messages_redelivered,
            "address": consumer.port.address,
            "client": consumer.options.client_version,
            "connectedSince": _time(consumer.options.connected_at_ms),
        }


def _subscriptions(topic: Topic) -> Iterator[Subscription | NonPersistentSubscription]:
    if isinstance(topic, PersistentTopic | NonPersistentTopic):
        yield from topic.subscriptions.values()


def _stored(subscription: Subscription) -> dict[str, Json]:
    """Returns the numbers that a subscription has because its acknowledgements are kept."""
    cursor = subscription.cursor
    return {
        # No consumer has come since the topic was opened, so the type is not known.
        "kind": "None" if subscription.dispatcher is None else subscription.kind.label,
        "durable": subscription.durable,
        "markDelete": _place(cursor.mark_delete_position),
        "read": _place(cursor.read_position),
        "backlog": cursor.backlog,
        "redelivery": subscription.waiting_for_redelivery,
        "delayed": subscription.delayed,
        "hitRatio": cursor.reader.reads.hit_ratio,
    }


def holes_of(cursor: ManagedCursor, most: int = HOLES_MAX) -> tuple[list[Json], int]:
    """Returns the first `most` acknowledged ranges after the mark-delete position, and the number of all others."""
    ranges = cursor.acks.beyond
    shown: list[Json] = [[*one] for one in islice(ranges.ranges(), most)]
    return shown, ranges.count_ranges() - len(shown)


def _place(position: Position) -> Json:
    return {"ledgerId": position.ledger_id, "entryId": position.entry_id}


def _time(ms: int) -> str:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")
