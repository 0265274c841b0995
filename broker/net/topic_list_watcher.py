"""TopicListWatcher: tells a client which topics of a namespace come and go (PIP-145)."""

from __future__ import annotations

from collections.abc import Callable

from broker.service.topics.topic_list_hash import TopicListHash
from broker.service.topics.topic_lists import TopicsPattern
from broker.service.topics.topic_registry import TopicRegistry
from foundation.model.topic_name import TopicName
from protocol import answers


class TopicListWatcher:
    """Sends WATCH_TOPIC_UPDATE for created and deleted topics that match a pattern."""

    __slots__ = ("_pattern", "_send", "_unwatch", "namespace", "topics", "watcher_id")

    def __init__(
        self,
        registry: TopicRegistry,
        send: Callable[[bytes], None],
        *,
        watcher_id: int,
        namespace: str,
        pattern: TopicsPattern,
        topics: list[str],
    ) -> None:
        """`topics` match the pattern now; `send` queues a frame for the client."""
        self.watcher_id = watcher_id
        """Number that the client gave."""
        self.topics = TopicListHash(topics)
        """Topics that match now."""
        self._send = send
        self.namespace = namespace
        """The watched `tenant/namespace`."""
        self._pattern = pattern
        self._unwatch: Callable[[], None] | None = registry.events.watch(namespace, self._changed)

    def note(self, name: TopicName, exists: bool) -> bool:
        """Adds or removes a topic without a report. Returns True when the list is another one now."""
        topic = str(name)
        # Non-persistent topics are never watched: the first list has none either.
        if name.namespace != self.namespace or not name.is_persistent or not self._pattern.matches(topic):
            return False
        # A topic can be created while the first list is read, and is in it then.
        if exists == (topic in self.topics):
            return False
        if exists:
            self.topics.add(topic)
        else:
            self.topics.discard(topic)
        return True

    def _changed(self, name: TopicName, exists: bool) -> None:
        if self.note(name, exists):
            new, deleted = ([str(name)], []) if exists else ([], [str(name)])
            self._send(answers.watch_topic_update(self.watcher_id, new, deleted, self.topics.hash()))

    def stop(self) -> None:
        """Ends the watch; a second call changes nothing."""
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
