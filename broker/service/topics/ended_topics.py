"""EndedTopics: frees the memory of closed topics without Python's garbage collector.

The parts of a topic refer to it, and it to them. An old topic is in the collector's oldest generation, which is looked
through after some hundred million new objects: the memory of topics that fall asleep or are deleted would stay in use. So
the references are cut some time after the close, when work that still went on with the topic has ended. Until then a topic
takes 4.7 KB.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic import Topic
from foundation.units import NS_PER_SECOND

KEPT_NS: Final = 120 * NS_PER_SECOND
"""Time for which a closed topic stays whole: four times as long as a read or a request lasts at most."""
UNUSED_MAX: Final = 5_000
"""Topics without a user that stay whole, 23 MiB. Where a thousand in a second are opened for what is due and closed again,
those of KEPT_NS would be 540 MiB."""
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
        self.on_add: Callable[[Topic], None] = _ignore
        """Told of each topic that is added, while its counters are whole; `EndedSums` sets it."""
        # In the order of their closes, with the time of each.
        self._topics: OrderedDict[PersistentTopic, int] = OrderedDict()
        self._unused: deque[tuple[PersistentTopic, int]] = deque()

    def add(self, topic: Topic) -> None:
        """Takes a topic that was closed."""
        if isinstance(topic, PersistentTopic):
            self._topics[topic] = self._now_ns()
        self.on_add(topic)

    def had_no_user(self, topic: PersistentTopic) -> None:
        """Counts the topic, if it was closed, among the last UNUSED_MAX ones that stay whole for the rounds alone.

        For a topic that the broker has opened for what is due, and that nobody else has asked for.
        """
        closed_ns = self._topics.pop(topic, None)
        if closed_ns is not None:
            self._unused.append((topic, closed_ns))

    def take_apart(self) -> Iterator[None]:
        """Takes the parts of the topics that were closed some time ago; yields after each."""
        topics, unused, until_ns = self._topics, self._unused, self._now_ns() - KEPT_NS
        while unused and (unused[0][1] <= until_ns or len(unused) > UNUSED_MAX):
            _take_apart(unused.popleft()[0])
            yield
        while topics:
            topic, closed_ns = topics.popitem(last=False)
            if closed_ns > until_ns:
                topics[topic] = closed_ns
                topics.move_to_end(topic, last=False)
                return
            _take_apart(topic)
            yield


def _ignore(_topic: Topic) -> None:
    """Stands for `EndedTopics.on_add` in a broker without metrics."""


def _take_apart(topic: PersistentTopic) -> None:
    topic.ledger.cursors.by_name.clear()
    for part in _PARTS:
        with suppress(AttributeError):
            delattr(topic, part)
