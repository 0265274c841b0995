"""EndedTopics: frees the memory of closed topics without Python's garbage collector.

The parts of a topic refer to it, and it to them. An old topic is in the collector's oldest generation, which is looked
through after some hundred million new objects: the memory of topics that fall asleep or are deleted would stay in use. So
the references are cut some time after the close, when work that still went on with the topic has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic
from foundation.units import NS_PER_SECOND

KEPT_NS: Final = 120 * NS_PER_SECOND
"""Time for which a closed topic stays whole: four times as long as a read or a request lasts at most."""
_PARTS: Final = (
    "_writer",
    "delays",
    "known_compaction",
    "known_expiry",
    "known_transactions",
    "ledger",
    "quotas",
    "rates",
    "subscribing",
    "subscriptions",
)


class EndedTopics:
    """The closed topics of a broker that are still whole."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """Has none. `now_ns`: the monotonic clock."""
        self._now_ns = now_ns
        self._topics: deque[tuple[int, PersistentTopic]] = deque()

    def add(self, topic: Topic) -> None:
        """Takes a topic that was closed."""
        if isinstance(topic, PersistentTopic):
            self._topics.append((self._now_ns(), topic))

    def take_apart(self) -> Iterator[None]:
        """Takes the parts of the topics that were closed some time ago; yields after each."""
        topics, until_ns = self._topics, self._now_ns() - KEPT_NS
        while topics and topics[0][0] <= until_ns:
            _take_apart(topics.popleft()[1])
            yield


def _take_apart(topic: PersistentTopic) -> None:
    topic.ledger.cursors.by_name.clear()
    for part in _PARTS:
        with suppress(AttributeError):
            delattr(topic, part)
