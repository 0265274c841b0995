"""Topics that a simulated broker lets fall asleep at random."""

from __future__ import annotations

from broker.service.lifecycle.dormancy import stays_open
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic_registry import TopicRegistry


def may_sleep(registry: TopicRegistry) -> list[PersistentTopic]:
    """Returns the open topics that nothing keeps awake but clients, which come back and wake them."""
    return [
        topic
        for topic in registry.topics.values()
        if isinstance(topic, PersistentTopic) and not stays_open(topic, frozenset())
    ]
