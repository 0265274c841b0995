"""EndedSums: the counters of topics that were closed, by namespace; sums over topics go on from them.

The counters of a topic begin at 0 with each opening. `rate()` takes a counter that fell for one that began again and counts
all of it anew, so a sum that loses the counters of one closed topic would show the traffic of all the others once more.

    a topic is closed -> EndedTopics.add -> EndedSums -> rows, which a scrape adds to the sums over topics
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import add, mul
from typing import Final

from broker.numbers.columns import Row
from broker.numbers.namespace_sums import NO_SHARE, NamespaceSums, share_of
from broker.numbers.readings import EVICTIONS, TOPICS
from broker.numbers.topic_families import OUT_TOTALS, TOPIC, TOTALS
from broker.numbers.topic_reader import TopicReader
from broker.service.topics.topic import Topic
from broker.service.topics.topic_registry import TopicRegistry

DELETED: Final = ""
"""Stands for all namespaces that were deleted: their counters stay in the sums of the broker."""
_SOURCES: Final = {family.source for family in (*TOPIC, *OUT_TOTALS, *TOTALS) if family.kind == "counter"}
# The evictions by both quotas are counters, the number of topics is not.
_COUNTERS: Final[Row] = (
    *(int(name in _SOURCES) for name in TOPICS.names),
    *(1,) * 2 * len(EVICTIONS.names),
    0,
)


class EndedSums:
    """The counters of closed topics since the broker's start."""

    def __init__(self, registry: TopicRegistry, reader: TopicReader, kept: NamespaceSums | None) -> None:
        """Counts the topics that are closed from now on. `kept`: sums in which such a topic has its share no longer."""
        self._namespaces, self._reader, self._kept = registry.namespaces, reader, kept
        self._rows: dict[str, Row] = {}
        self._walks: list[Walk] = []
        registry.ended.on_add = self._add

    def _add(self, topic: Topic) -> None:
        counted = tuple(map(mul, share_of(self._reader.read_topic(topic)), _COUNTERS))
        if any(counted):
            _add_to(self._rows, topic.name.namespace, counted)
            for walk in self._walks:
                walk.ended[topic] = counted
        if self._kept is not None:
            # In the same turn of the loop: nobody sees the topic in both sums.
            self._kept.renew(topic.name.ledger_name)

    def rows(self) -> Mapping[str, Row]:
        """Returns the counters by namespace, those of deleted namespaces together; shares as `NamespaceSums` has them."""
        for namespace in [*self._rows]:
            if namespace != DELETED and not self._namespaces.exists(namespace):
                _add_to(self._rows, DELETED, self._rows.pop(namespace))
        return self._rows

    @contextmanager
    def walk(self) -> Iterator[Walk]:
        """Gives a walk over all topics, of several turns of the loop, the counters that it adds to what it reads."""
        walk = Walk(dict(self.rows()))
        self._walks.append(walk)
        try:
            yield walk
        finally:
            self._walks.remove(walk)


class Walk:
    """The counters of the topics that had been closed before their turn in a walk came."""

    def __init__(self, rows: dict[str, Row]) -> None:
        """`rows`: those of the topics that were closed before the walk began."""
        self._rows = rows
        self.ended: dict[Topic, Row] = {}
        """Those that were closed since. The walk has read some of them, and has never heard of others."""

    def passed_over(self, topic: Topic) -> None:
        """Takes the counters of a topic that the walk finds closed."""
        if topic in self.ended:
            _add_to(self._rows, topic.name.namespace, self.ended.pop(topic))

    def rows(self) -> Mapping[str, Row]:
        """Returns the counters, as `EndedSums.rows` does."""
        return self._rows


def _add_to(rows: dict[str, Row], namespace: str, row: Row) -> None:
    rows[namespace] = tuple(map(add, rows.get(namespace, NO_SHARE), row))
