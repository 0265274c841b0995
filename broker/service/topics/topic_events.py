"""TopicEvents: tells watchers which topics of a namespace are created and deleted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from foundation.model.topic_name import TopicName

TopicEvent = Callable[[TopicName, bool], None]
"""(topic, True = created, False = deleted)"""


class TopicEvents:
    """The watchers of one broker."""

    def __init__(self) -> None:
        """Has none."""
        self.watchers: dict[str, dict[TopicEvent, None]] = {}
        """Those of each namespace; dicts as ordered sets."""

    def watch(self, namespace: str, watcher: TopicEvent) -> Callable[[], None]:
        """Calls `watcher` for each topic created or deleted in the namespace; returns a function that ends this."""
        self.watchers.setdefault(namespace, {})[watcher] = None
        return partial(self._end, namespace, watcher)

    def announce(self, name: TopicName, *, exists: bool) -> None:
        """Tells that a topic has been created or deleted; clients do not see the one with policies."""
        if name.has_policy_events:
            return
        for watcher in list(self.watchers.get(name.namespace, ())):
            watcher(name, exists)

    def _end(self, namespace: str, watcher: TopicEvent) -> None:
        del self.watchers[namespace][watcher]
        if not self.watchers[namespace]:
            del self.watchers[namespace]
