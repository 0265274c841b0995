"""ZookeeperWatches: watches that stay, made of ZooKeeper's, each of which tells of one change.

A watch of ZooKeeper's is set by a read. When it has told of a change it is set again first, and only then the watcher is
told: a change between the two is seen by the watcher's own read. A broken connection ends all watches and tells each of
them, so a watcher reads again after every break.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from kazoo.exceptions import NoNodeError

from bookkeeper.metadata.metadata_store import Stop
from bookkeeper.metadata.zookeeper_requests import ZookeeperRequests
from foundation.model.errors import MetadataError

log = logging.getLogger(__name__)

_RETRY_S = 1.0
"""Seconds after a refused read until the next one."""

_Fired = Callable[[object], None]


class ZookeeperWatches:
    """All watches of one session, and of those that replace it."""

    def __init__(self, requests: ZookeeperRequests) -> None:
        self._requests = requests
        self._watches: set[_Watch] = set()

    async def add(self, path: str, changed: Callable[[], None]) -> Stop:
        """Watches a node's value, and whether there is one. Raises MetadataError."""
        return await self._open(partial(self._look, path), changed)

    async def add_children(self, path: str, changed: Callable[[], None]) -> Stop:
        """Watches the names below a node. Raises MetadataError."""
        return await self._open(partial(self._list, path), changed)

    async def close(self) -> None:
        """Ends all watches."""
        watches = list(self._watches)
        for watch in watches:
            watch.stop()
        await asyncio.gather(*(watch.ended for watch in watches), return_exceptions=True)

    async def _open(self, read: Callable[[_Fired], Awaitable[None]], changed: Callable[[], None]) -> Stop:
        watch = _Watch(read, changed)
        await read(watch.fired)
        watch.ended.add_done_callback(lambda _: self._watches.discard(watch))
        self._watches.add(watch)
        return watch.stop

    async def _look(self, path: str, fired: _Fired) -> None:
        client = self._requests.client
        (await self._requests.ask(lambda: client.exists_async(path, watch=fired))).value_or_raise()

    async def _list(self, path: str, fired: _Fired) -> None:
        client = self._requests.client
        answer = await self._requests.ask(lambda: client.get_children_async(path, watch=fired))
        if answer.refused(NoNodeError):
            # A watch of names needs the node, so watch for the node itself.
            await self._look(path, fired)
        else:
            answer.value_or_raise()


class _Watch:
    """One watcher."""

    def __init__(self, read: Callable[[_Fired], Awaitable[None]], changed: Callable[[], None]) -> None:
        self._read = read
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._has_fired = asyncio.Event()
        self._stopped = False
        self.ended = asyncio.create_task(self._follow(), name="watch of the metadata store")
        """Ends by cancellation."""

    def fired(self, _event: object) -> None:
        """Called in a thread of kazoo's."""
        # The loop may be closed after the last watch was stopped, and a call into a closed loop raises.
        if not self._stopped:
            self._loop.call_soon_threadsafe(self._has_fired.set)

    def stop(self) -> None:
        """Tells the watcher nothing any more."""
        self._stopped = True
        self.ended.cancel()

    async def _follow(self) -> None:
        refused = False
        while True:
            await self._has_fired.wait()
            self._has_fired.clear()  # Before the read, so that a change during it leads to the next one.
            try:
                await self._read(self.fired)
            except MetadataError as error:
                # A refused read sets no watch. Without the retry no later change would be noticed.
                if not refused:
                    log.warning(
                        "changes in the metadata store are not told, asking again each second: %s", error
                    )
                refused = True
                await asyncio.sleep(_RETRY_S)
                self._has_fired.set()
                continue
            refused = False
            self._changed()
