"""CacheCounts: publishes the cache's counts per topic and interval to a topic, for live views.

One message holds up to `TOPICS_PER_MESSAGE` topics, as JSON:
    {"at_ms": 1700000060000, "interval_s": 60, "broker": "b:8080",
     "topics": [{"topic": "persistent://public/default/t", "hits": 900, "misses": 80, "coalesced": 20}]}
The numbers are entries since the message before; the counters are those of the metrics. Topics that were not read, and
the topic itself, are left out. A message that cannot be stored is lost with a warning; no later one has its numbers.
`magnetar pipeline live` reads the topic. In a cluster all brokers publish to it, those that do not own it through its owner.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Final

from broker.service.ports import SinglePort
from broker.service.producer import Producer
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic_ownership import Addresses
from broker.service.topics.topic_registry import TopicRegistry
from foundation.loop.slices import in_slices
from foundation.model.errors import BrokerError
from foundation.model.topic_name import TopicName
from protocol.frame import message_body
from protocol.pulsar_api_pb2 import MessageMetadata

log = logging.getLogger("magnetar")

TOPICS_PER_MESSAGE: Final = 1000
"""Topics in one message; more topics make more messages."""
PRODUCER: Final = "magnetar-cache-counts"
"""Name of the producer of the messages."""
PublishElsewhere = Callable[[Addresses, TopicName, str, str], Awaitable[None]]
"""(owner, topic, name of the producer, text) -> the text is stored."""
Counts = tuple[int, int, int]
"""Hits, misses and coalesced reads."""


class CountsPort(SinglePort):
    """The port of a producer inside the broker: it ignores receipts and logs refusals."""

    def receipt(
        self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int, size: int
    ) -> None:
        """Does nothing: the next message does not depend on the receipt."""

    def refused(self, sequence_id: int, highest_sequence_id: int, size: int, error: BrokerError) -> None:
        """Logs the loss of the message."""
        log.warning("the cache's counts are lost for this interval: %s", error)

    def pause(self) -> None:
        """Does nothing: one message per interval is no load to slow down."""

    def go_on(self) -> None:
        """Does nothing, for the same reason as `pause`."""

    def ready(self, topic_epoch: int | None) -> None:
        """Does nothing: a producer with shared access is ready at once."""

    def failed(self, error: BrokerError) -> None:
        """Does nothing: only a producer that waits for exclusive access can fail."""

    def closed_by_broker(self) -> None:
        """Does nothing: each message has a producer of its own."""


class CacheCounts:
    """Publishes the growth of the counters of all topics, at each `tick`."""

    def __init__(
        self,
        registry: TopicRegistry,
        name: TopicName,
        broker: str,
        interval_s: int,
        *,
        spawn: Callable[[Coroutine[object, object, None], str], object],
        wall_ms: Callable[[], int],
        publish_elsewhere: PublishElsewhere | None = None,
    ) -> None:
        """`name`: the topic to publish to; `broker` and `interval_s` are copied into the messages.

        `publish_elsewhere` is None for a broker alone on its store.
        """
        self._registry = registry
        self._name = name
        self._broker = broker
        self._interval_s = interval_s
        self._spawn = spawn
        self._wall_ms = wall_ms
        self._publish_elsewhere = publish_elsewhere
        self._last: dict[str, Counts] = {}
        """Of the topics that were read since they were opened."""
        self._looking = False
        self._sequence_id = wall_ms()
        """Begins with the time, so that it rises over restarts: deduplication drops a message with a lower one."""

    def tick(self) -> None:
        """Publishes the growth since the last call. The owner's timer calls it every `interval_s`.

        A call while the one before looks at many thousands of topics does nothing: the next one has both growths.
        """
        if not self._looking:
            self._looking = True
            self._spawn(self._look(), "cache counts")

    async def _look(self) -> None:
        try:
            rows = [row async for row in self._changes()]
        finally:
            self._looking = False
        for start in range(0, len(rows), TOPICS_PER_MESSAGE):
            await self._publish(rows[start : start + TOPICS_PER_MESSAGE])

    async def _changes(self) -> AsyncIterator[dict[str, object]]:
        """Yields a row for each topic that was read. The counters of a topic begin again at 0 when it is unloaded."""
        counted: dict[str, Counts] = {}
        async for topic in in_slices(list(self._registry.topics.values()), self._registry.now_ns):
            # One that was closed meanwhile may have been taken apart.
            if not isinstance(topic, PersistentTopic) or topic.closed or topic.name == self._name:
                continue
            reads = topic.ledger.reads
            now = (reads.hit_entries, reads.miss_entries, reads.coalesced_entries)
            if not any(now):
                continue
            name = str(topic.name)
            counted[name] = now
            last = self._last.get(name, (0, 0, 0))
            # Any of them, not the tuple as a whole: the counters of a topic that was opened again may have passed the
            # first of the old ones already, and the difference of another would be negative.
            if any(new < old for new, old in zip(now, last, strict=True)):
                last = (0, 0, 0)
            if now != last:
                hits, misses, coalesced = (new - old for new, old in zip(now, last, strict=True))
                yield {"topic": name, "hits": hits, "misses": misses, "coalesced": coalesced}
        self._last = counted

    async def _publish(self, rows: list[dict[str, object]]) -> None:
        value = {
            "at_ms": self._wall_ms(),
            "interval_s": self._interval_s,
            "broker": self._broker,
            "topics": rows,
        }
        text, producer = json.dumps(value, separators=(",", ":")), PRODUCER
        try:
            if self._publish_elsewhere is not None:
                ownership = self._registry.ownership
                # One name for each broker: deduplication drops numbers that are lower than the last one of a name.
                producer = f"{PRODUCER}-{ownership.owner.broker_id}"
                owner = await ownership.located(self._name)
                if owner != ownership.owner:
                    await self._publish_elsewhere(owner, self._name, producer, text)
                    return
            await self._publish_here(producer, text)
        except BrokerError as error:
            log.warning("the cache's counts are lost for this interval: %s", error)

    async def _publish_here(self, name: str, text: str) -> None:
        topic = await self._registry.get(self._name, create=True)
        assert isinstance(topic, PersistentTopic)
        producer = Producer(topic, CountsPort(), producer_id=0, name=name)
        self._sequence_id += 1
        metadata = MessageMetadata(
            producer_name=name, sequence_id=self._sequence_id, publish_time=self._wall_ms()
        )
        body = message_body(metadata, text.encode())
        producer.publish(self._sequence_id, self._sequence_id, 1, [body], len(body), False, False)
