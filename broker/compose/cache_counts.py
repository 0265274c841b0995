"""Publishes what the cache has counted: per topic and interval, to a topic of this broker, for live views.

One message holds up to `TOPICS_PER_MESSAGE` topics, as JSON:
    {"at_ms": 1700000060000, "interval_s": 60, "broker": "b:8080",
     "topics": [{"topic": "persistent://public/default/t", "hits": 900, "misses": 80, "coalesced": 20}]}
The numbers are entries since the message before, those of the metrics. Topics that were not read are left out, and so
is the topic itself. A message that cannot be stored is lost and said so; its numbers are in no later one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Coroutine, Iterator
from itertools import islice
from typing import Final

from broker.model.errors import BrokerError
from broker.model.topic_name import TopicName
from broker.service.persistent_topic import PersistentTopic
from broker.service.producer import Producer
from broker.service.topic_registry import TopicRegistry
from protocol.frame import message_body
from protocol.pulsar_api_pb2 import MessageMetadata

log = logging.getLogger("magnetar")

TOPICS_PER_MESSAGE: Final = 1000
PRODUCER: Final = "magnetar-cache-counts"
Counts = tuple[int, int, int]
"""hits, misses, coalesced"""


class CountsPort:
    """The producer's side: nobody waits for a receipt."""

    def receipt(
        self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int, size: int
    ) -> None: ...

    def refused(self, sequence_id: int, size: int, error: BrokerError) -> None:
        log.warning("the cache's counts are not stored: %s", error)

    def ready(self, topic_epoch: int | None) -> None: ...

    def failed(self, error: BrokerError) -> None: ...

    def closed_by_broker(self) -> None: ...


class CacheCounts:
    def __init__(
        self,
        registry: TopicRegistry,
        name: TopicName,
        broker: str,
        interval_s: int,
        *,
        spawn: Callable[[Coroutine[object, object, None], str], object],
        wall_ms: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._name = name
        self._broker = broker
        self._interval_s = interval_s
        self._spawn = spawn
        self._wall_ms = wall_ms
        self._last: dict[str, Counts] = {}
        self._sequence_id = wall_ms()
        """Rises over restarts, so that deduplication lets every message through."""

    def tick(self) -> None:
        """Publish what has been counted since the last call. For the owner's timer."""
        rows = iter(list(self._changes()))
        while some := list(islice(rows, TOPICS_PER_MESSAGE)):
            self._spawn(self._publish(some), "cache counts")

    def _changes(self) -> Iterator[dict[str, object]]:
        """A topic that was unloaded begins again at nothing."""
        counted: dict[str, Counts] = {}
        for topic in self._registry.topics.values():
            if not isinstance(topic, PersistentTopic) or topic.name == self._name:
                continue
            name, reads = str(topic.name), topic.ledger.cache.reads
            now = (reads.hit_entries, reads.miss_entries, reads.coalesced_entries)
            counted[name] = now
            last = self._last.get(name, (0, 0, 0))
            if now < last:
                last = (0, 0, 0)
            if now != last:
                hits, misses, coalesced = (new - old for new, old in zip(now, last, strict=True))
                yield {"topic": name, "hits": hits, "misses": misses, "coalesced": coalesced}
        self._last = counted

    async def _publish(self, rows: list[dict[str, object]]) -> None:
        try:
            topic = await self._registry.get(self._name, create=True)
            assert isinstance(topic, PersistentTopic)
            producer = Producer(topic, CountsPort(), producer_id=0, name=PRODUCER)
            value = {
                "at_ms": self._wall_ms(),
                "interval_s": self._interval_s,
                "broker": self._broker,
                "topics": rows,
            }
            self._sequence_id += 1
            metadata = MessageMetadata(
                producer_name=PRODUCER, sequence_id=self._sequence_id, publish_time=self._wall_ms()
            )
            body = message_body(metadata, json.dumps(value, separators=(",", ":")).encode())
            producer.publish(self._sequence_id, self._sequence_id, 1, body, chunk=False)
        except BrokerError as error:
            log.warning("the cache's counts are not stored: %s", error)
