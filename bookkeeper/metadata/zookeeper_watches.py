"""ZookeeperWatches: watches that stay, made of ZooKeeper's, each of which tells of one change.

A watch of ZooKeeper's is set by a read. When it has told of a change it is set again first, and only then the watcher is
told: a change between the two is seen by the watcher's own read. A broken connection ends all watches and tells each of
them, so a watcher reads again after every break.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

from kazoo.exceptions import NoNodeError

from bookkeeper.metadata.metadata_store import Stop
from bookkeeper.metadata.zookeeper_requests import ZookeeperRequests
from foundation.model.errors import MetadataError

log = logging.getLogger(__name__)

_RETRY_S = 1.0
"""Seconds after a refused read until the next one."""


class ZookeeperWatches:
    """All watches of one session, and of those that replace it."""

    def __init__(self, requests: ZookeeperRequests) -> None:
        self._requests = requests
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        """Of the watches that have told of a change; there may be many thousands of others."""
        self._closed = False

    async def add(self, path: str, changed: Callable[[], None]) -> Stop:
        """Watches a node's value, and whether there is one. Raises MetadataError."""
        return await self._open(_Watch(self, path, changed, of_names=False))

    async def add_children(self, path: str, changed: Callable[[], None]) -> Stop:
        """Watches the names below a node. Raises MetadataError."""
        return await self._open(_Watch(self, path, changed, of_names=True))

    async def close(self) -> None:
        """Ends all watches."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _open(self, watch: _Watch) -> Stop:
        await self.set(watch)
        return watch.stop

    async def set(self, watch: _Watch) -> None:
        """Sets ZooKeeper's watch by a read. Raises MetadataError."""
        client, path, fired = self._requests.client, watch.path, watch.fired
        if watch.of_names:
            answer = await self._requests.ask(lambda: client.get_children_async(path, watch=fired))
            if not answer.refused(NoNodeError):
                answer.value_or_raise()
                return
            # A watch of names needs the node, so watch for the node itself.
        (await self._requests.ask(lambda: client.exists_async(path, watch=fired))).value_or_raise()

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
    """One watcher. Has a task only after a change."""

    __slots__ = ("_changed", "_due", "_follows", "_stopped", "_watches", "of_names", "path")

    def __init__(
        self, watches: ZookeeperWatches, path: str, changed: Callable[[], None], *, of_names: bool
    ) -> None:
        self._watches = watches
        self.path = path
        """The node."""
        self.of_names = of_names
        """Watches the names below the node; otherwise its value."""
        self._changed = changed
        self._due = self._follows = self._stopped = False

    def fired(self, _event: object) -> None:
        """Called in a thread of kazoo's."""
        if not self._stopped:
            self._watches.call_soon(self._begin)

    def stop(self) -> None:
        """Tells the watcher nothing any more."""
        self._stopped = True

    def _begin(self) -> None:
        self._due = True
        if not self._follows and not self._stopped:
            self._follows = True
            self._watches.spawn(self._follow())

    async def _follow(self) -> None:
        refused = False
        while self._due and not self._stopped:
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
            if not self._stopped:
                self._changed()
        self._follows = False
