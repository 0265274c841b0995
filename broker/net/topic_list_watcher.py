"""TopicListWatchers: tell clients which topics of a namespace come and go (PIP-145).

    TopicEvents -> the changes of a namespace -> one list for each pattern -> WATCH_TOPIC_UPDATE to each of its watchers

In a cluster `StoredChanges` announces what other brokers create and delete.

Watchers with the same namespace and pattern share one list, as the instances of an application do: a list of 100,000 names
takes 8 MB and its encoding, which they share too, 4 MB; its hash takes a millisecond. All work is done in slices from the
end of the turn on. Changes that come meanwhile go into the next update, so many creations are one update for each watcher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from broker.service.topics.topic_events import TopicEvents
from broker.service.topics.topic_list_hash import TopicListHash
from broker.service.topics.topic_lists import TopicsPattern
from foundation.loop.clock import CallLater
from foundation.loop.slices import Slice
from foundation.loop.turn import Turn
from foundation.model.topic_name import TopicName
from protocol import answers

NAMES_PER_UPDATE: Final = 1_000
"""Names in one WATCH_TOPIC_UPDATE; more come in several."""


class WatchedList:
    """The topics of a namespace that match one pattern, and their watchers."""

    __slots__ = ("_pattern", "topics", "unfollow", "watchers")

    def __init__(self, pattern: TopicsPattern, topics: TopicListHash, unfollow: Callable[[], None]) -> None:
        """`topics` match the pattern now; `unfollow` is called when the last watcher leaves."""
        self.topics = topics
        """Topics that match now."""
        self.watchers: dict[TopicListWatcher, None] = {}
        """Those that are told; a dict as an ordered set."""
        self.unfollow = unfollow
        """Ends the news of topics that other brokers create and delete."""
        self._pattern = pattern

    def note(self, name: TopicName, exists: bool) -> bool:
        """Adds or removes a topic. Returns True when the list is another one now."""
        topic = str(name)
        # Non-persistent topics are never watched: the first list has none either.
        if not name.is_persistent or not self._pattern.matches(topic):
            return False
        # A topic can be created while the first list is read, and is in it then.
        if exists == (topic in self.topics):
            return False
        if exists:
            self.topics.add(topic)
        else:
            self.topics.discard(topic)
        return True


class TopicListWatcher:
    """One watcher of a client."""

    __slots__ = ("_leave", "_send", "namespace", "topics", "watcher_id")

    def __init__(
        self,
        watcher_id: int,
        namespace: str,
        topics: TopicListHash,
        send: Callable[[bytes], None],
        leave: Callable[[TopicListWatcher], None],
    ) -> None:
        """`send` queues a frame for the client; `leave` ends the watch."""
        self.watcher_id = watcher_id
        """Number that the client gave."""
        self.namespace = namespace
        """The watched `tenant/namespace`."""
        self.topics = topics
        """Topics that match now; other watchers have the same list."""
        self._send = send
        self._leave: Callable[[TopicListWatcher], None] | None = leave

    def tell(self, new: list[str], deleted: list[str], topics_hash: str) -> None:
        """Sends an update."""
        if self._leave is not None:
            self._send(answers.watch_topic_update(self.watcher_id, new, deleted, topics_hash))

    def stop(self) -> None:
        """Ends the watch; a second call changes nothing."""
        if self._leave is not None:
            leave, self._leave = self._leave, None
            leave(self)


class TopicListWatchers:
    """All watchers of a broker."""

    def __init__(
        self, events: TopicEvents, turn: Turn, call_later: CallLater, now_ns: Callable[[], int]
    ) -> None:
        """Has none."""
        self._events, self._turn, self._call_later, self._now_ns = events, turn, call_later, now_ns
        self._namespaces: dict[str, _Namespace] = {}

    def find(self, namespace: str, pattern: str) -> WatchedList | None:
        """Returns the list of other watchers with the same pattern."""
        watched = self._namespaces.get(namespace)
        return None if watched is None else watched.lists.get(pattern)

    def add(
        self,
        watcher_id: int,
        send: Callable[[bytes], None],
        namespace: str,
        pattern: str,
        fresh: WatchedList,
    ) -> TopicListWatcher:
        """Adds a watcher to the list of its pattern, which is `fresh` where there is none."""
        watched = self._namespaces.get(namespace)
        if watched is None:
            watched = self._namespaces[namespace] = _Namespace(self._events.watch, namespace, self._begin)
        found = watched.lists.setdefault(pattern, fresh)
        watcher = TopicListWatcher(
            watcher_id, namespace, found.topics, send, partial(self._leave, namespace, pattern)
        )
        found.watchers[watcher] = None
        return watcher

    def _leave(self, namespace: str, pattern: str, watcher: TopicListWatcher) -> None:
        watched = self._namespaces[namespace]
        watchers = watched.lists[pattern].watchers
        del watchers[watcher]
        if not watchers:
            watched.lists.pop(pattern).unfollow()
        if not watched.lists:
            watched.unwatch()
            del self._namespaces[namespace]

    def _begin(self, work: Iterator[None]) -> None:
        self._turn.dispatch(lambda _: self._go_on(work))

    def _go_on(self, work: Iterator[None]) -> None:
        part = Slice(self._now_ns)
        for _ in work:
            if part.is_over():
                self._call_later(0, partial(self._go_on, work))
                return


class _Namespace:
    """The lists of one namespace, and the changes that they do not have yet."""

    __slots__ = ("_begin", "_busy", "_changes", "lists", "unwatch")

    def __init__(
        self,
        watch: Callable[[str, Callable[[TopicName, bool], None]], Callable[[], None]],
        namespace: str,
        begin: Callable[[Iterator[None]], None],
    ) -> None:
        self.lists: dict[str, WatchedList] = {}
        self._begin = begin
        self._busy = False
        self._changes: list[tuple[TopicName, bool]] = []
        self.unwatch = watch(namespace, self._changed)

    def _changed(self, name: TopicName, exists: bool) -> None:
        self._changes.append((name, exists))
        if not self._busy:
            self._busy = True
            self._begin(self._work())

    def _work(self) -> Iterator[None]:
        """Brings the changes into the lists and tells their watchers; yields where others may be served."""
        while self._changes:
            changes, self._changes = self._changes, []
            for watched in [*self.lists.values()]:
                # The last change of a name counts.
                noted: dict[str, bool] = {}
                for name, exists in changes:
                    if watched.note(name, exists):
                        noted[str(name)] = exists
                    yield
                if noted:
                    yield from _tell(watched, noted)
        self._busy = False


def _tell(watched: WatchedList, noted: dict[str, bool]) -> Iterator[None]:
    topics_hash, watchers, names = watched.topics.hash(), [*watched.watchers], [*noted]
    for start in range(0, len(names), NAMES_PER_UPDATE):
        part = names[start : start + NAMES_PER_UPDATE]
        new = [name for name in part if noted[name]]
        deleted = [name for name in part if not noted[name]]
        for watcher in watchers:
            watcher.tell(new, deleted, topics_hash)
            yield
