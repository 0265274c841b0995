"""ZookeeperWatches: watches that stay, made of ZooKeeper's, each of which tells of one change.

A watch of ZooKeeper's is set by a read. When it has told of a change it is set again first, and only then the watchers are
told: a change between the two is seen by a watcher's own read. A broken connection ends all watches and tells each of
them, so a watcher reads again after every break.

All watchers of a path share one watch. kazoo cannot take a watch back, so one without watchers stays until its next change,
and serves the path's next watcher: a path has one watch however often it is watched and left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

from kazoo.exceptions import NoNodeError

from bookkeeper.metadata.local_watches import LocalWatches
from bookkeeper.metadata.metadata_store import Stop
from bookkeeper.metadata.zookeeper_requests import ZookeeperRequests
from foundation.model.errors import MetadataError

log = logging.getLogger(__name__)

_RETRY_S = 1.0
"""Seconds after a refused read until the next one."""


async def watched_names(requests: ZookeeperRequests, path: str, fired: Callable[[object], None]) -> list[str]:
    """Returns the names below a node, none where there is no node, and watches them. Raises MetadataError.

    `fired` is called in a thread of kazoo's, also by a broken connection, which ends every watch.
    """
    client = requests.client
    while True:
        found = await requests.ask(lambda: client.get_children_async(path, watch=fired))
        if not found.refused(NoNodeError):
            names = found.value_or_raise()
            assert isinstance(names, list)
            return names
        # A watch of names needs the node, so watch for the node itself.
        made = await requests.ask(lambda: client.exists_async(path, watch=fired))
        if made.value_or_raise() is None:
            return []
        # Made meanwhile: a watch of its value tells of no name below it.


class ZookeeperWatches:
    """All watches of one session, and of those that replace it."""

    def __init__(self, requests: ZookeeperRequests) -> None:
        self._requests = requests
        self._loop = asyncio.get_running_loop()
        self._watchers = LocalWatches()
        self._set: dict[tuple[str, bool], _Watch] = {}
        """By path, and True for one of the names below it."""
        self._tasks: set[asyncio.Task[None]] = set()
        """Of the watches that have told of a change; there may be many thousands of others."""
        self._closed = False

    async def add(self, path: str, changed: Callable[[], None]) -> Stop:
        """Watches a node's value, and whether there is one. Raises MetadataError."""
        return await self._open(path, self._watchers.add(path, changed), of_names=False)

    async def add_children(self, path: str, changed: Callable[[], None]) -> Stop:
        """Watches the names below a node. Raises MetadataError."""
        return await self._open(path, self._watchers.add_children(path, changed), of_names=True)

    async def close(self) -> None:
        """Ends all watches."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _open(self, path: str, stop: Stop, *, of_names: bool) -> Stop:
        key = (path, of_names)
        watch = self._set.get(key)
        if watch is None:
            watch = self._set[key] = _Watch(self, path, of_names=of_names)
        try:
            await self.set(watch)
        except BaseException:
            # A cancelled caller, too, watches no more.
            stop()
            raise
        return stop

    async def set(self, watch: _Watch) -> None:
        """Sets ZooKeeper's watch by a read; one that is set stays as it is. Raises MetadataError."""
        if watch.of_names:
            await watched_names(self._requests, watch.path, watch.fired)
        else:
            client = self._requests.client
            answer = await self._requests.ask(lambda: client.exists_async(watch.path, watch=watch.fired))
            answer.value_or_raise()

    def is_needed(self, watch: _Watch) -> bool:
        """Returns True if a watch that has told of a change has watchers to tell; forgets it otherwise."""
        key = (watch.path, watch.of_names)
        # A forgotten one that a late read has set tells too, and its successor has the watchers.
        if self._set.get(key) is not watch:
            return False
        if not self._watchers.has(watch.path, names=watch.of_names):
            del self._set[key]
            return False
        return True

    def tell(self, watch: _Watch) -> None:
        """Tells the watchers."""
        self._watchers.tell_of(watch.path, names=watch.of_names)

    def call_soon(self, call: Callable[[], None]) -> None:
        """Calls on the loop, from a thread of kazoo's."""
        # The loop may be closed after the last watch was stopped, and a call into a closed loop raises.
        if not self._closed:
            self._loop.call_soon_threadsafe(call)

    def spawn(self, work: Coroutine[object, None, None]) -> None:
        """Runs the work until it ends or all watches do."""
        task = self._loop.create_task(work, name="watch of the metadata store")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Watch:
    """ZooKeeper's watch of one path. Has a task only after a change."""

    __slots__ = ("_due", "_follows", "_watches", "of_names", "path")

    def __init__(self, watches: ZookeeperWatches, path: str, *, of_names: bool) -> None:
        self._watches = watches
        self.path = path
        """The node."""
        self.of_names = of_names
        """Watches the names below the node; otherwise its value."""
        self._due = self._follows = False

    def fired(self, _event: object) -> None:
        """Called in a thread of kazoo's."""
        self._watches.call_soon(self._begin)

    def _begin(self) -> None:
        self._due = True
        if not self._follows and self._watches.is_needed(self):
            self._follows = True
            self._watches.spawn(self._follow())

    async def _follow(self) -> None:
        refused = False
        while self._due and self._watches.is_needed(self):
            self._due = False  # Before the read, so that a change during it leads to the next one.
            try:
                await self._watches.set(self)
            except MetadataError as error:
                # A refused read sets no watch. Without the retry no later change would be noticed.
                if not refused:
                    log.warning(
                        "changes in the metadata store are not told, asking again each second: %s", error
                    )
                refused = True
                await asyncio.sleep(_RETRY_S)
                self._due = True
                continue
            refused = False
            self._watches.tell(self)
        self._follows = False
