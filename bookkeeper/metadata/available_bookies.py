"""AvailableBookies: the bookies as they register in ZooKeeper, and every change of them.

    <root>/ledgers/available/<bookie id>            ephemeral; its value has the bookie's addresses
    <root>/ledgers/available/readonly/<bookie id>   the same of a bookie that serves reads only

A bookie is listed while its session lives, so one that died stays listed until its session's timeout. BookKeeper's names:
ZKRegistrationClient and BookieWatcher.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kazoo.exceptions import NoNodeError

from bookkeeper.metadata.zookeeper_requests import ZookeeperAnswer, ZookeeperRequests
from bookkeeper.metadata.zookeeper_watches import watched_names
from foundation.model.errors import MetadataError
from protocol.bookie_service_info import endpoints_of

log = logging.getLogger(__name__)

_READ_ONLY = "readonly"
"""A folder beside the bookies' nodes: of bookies that serve reads only."""

_RETRY_S = 1.0
"""Seconds after a refused read of the list until the next one."""


class RegisteredBookie(NamedTuple):
    """One bookie as it registered."""

    address: str
    """host:port for clients of BookKeeper."""
    http: str | None
    """host:port of its HTTP server; None where it registered none."""
    read_only: bool
    """True while it refuses new entries."""


Bookies = Mapping[str, RegisteredBookie]
"""By bookie id."""


class AvailableBookies:
    """Watches the bookies' nodes from `open` to `close`."""

    def __init__(self, requests: ZookeeperRequests, changed: Callable[[Bookies], None]) -> None:
        """`changed` is called on the loop after each change, with all bookies."""
        self._requests = requests
        self._changed = changed
        self._path = f"{requests.url.root}/ledgers/available"
        self._loop = asyncio.get_running_loop()
        self._stale = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self.bookies: Bookies = {}
        """The bookies that the last read found."""

    async def open(self) -> Bookies:
        """Returns the bookies that are there now, and calls `changed` from here on. Raises MetadataError."""
        self.bookies = await self._read()
        # After the first read, which sets the watches that wake the task.
        self._following = asyncio.create_task(self._follow(), name="available bookies")
        return self.bookies

    async def close(self) -> None:
        """Stops watching."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def _follow(self) -> None:
        refused = False
        while True:
            await self._stale.wait()
            self._stale.clear()  # Before the read, so that a change during it leads to the next one.
            try:
                bookies = await self._read()
            except MetadataError as error:
                # A refused read sets no watch. Without the retry no later change of a bookie would be noticed.
                if not refused:
                    log.warning("bookies that take adds are not known, asking again each second: %s", error)
                refused = True
                await asyncio.sleep(_RETRY_S)
                self._stale.set()
                continue
            refused = False
            if bookies != self.bookies:
                self.bookies = bookies
                writable = sorted([name for name, bookie in bookies.items() if not bookie.read_only])
                log.info("bookies that take adds: %s", ", ".join(writable) or "none")
                self._changed(bookies)

    async def _read(self) -> Bookies:
        names = await watched_names(self._requests, self._path, self._fired)
        read_only = await watched_names(self._requests, f"{self._path}/{_READ_ONLY}", self._fired)
        # A bookie that changes sides is in both for a moment. It then counts as writable, as for BookKeeper's clients.
        nodes = {name: f"{_READ_ONLY}/{name}" for name in read_only}
        nodes |= {name: name for name in names if name != _READ_ONLY}
        answers = await asyncio.gather(*map(self._read_info, nodes.values()))
        found: dict[str, RegisteredBookie] = {}
        for (bookie_id, node), answer in zip(nodes.items(), answers, strict=True):
            # The node may be gone since the list was read. Its watch has fired then, and the next read has the rest.
            if not answer.refused(NoNodeError):
                bookie = _bookie(bookie_id, answer.value_or_raise(), read_only=node != bookie_id)
                if bookie is not None:
                    found[bookie_id] = bookie
        return found

    async def _read_info(self, node: str) -> ZookeeperAnswer:
        # With a watch of its own: a bookie that starts again at another address keeps its id, and the list is the same.
        path = f"{self._path}/{node}"
        return await self._requests.ask(lambda: self._requests.client.get_async(path, watch=self._fired))

    def _fired(self, _event: object) -> None:
        """Runs in a thread of kazoo's. A broken connection calls it too, because it ends every watch."""
        self._loop.call_soon_threadsafe(self._stale.set)


def _bookie(bookie_id: str, node: object, *, read_only: bool) -> RegisteredBookie | None:
    """Returns the bookie; None for a node that cannot be read or has no endpoint for clients."""
    assert isinstance(node, tuple)
    value: bytes = node[0]
    try:
        endpoints = endpoints_of(bookie_id, value)
    except ValueError as error:
        log.warning("bookie %s is not used: the value of its node in ZooKeeper is %s", bookie_id, error)
        return None
    return None if endpoints.rpc is None else RegisteredBookie(endpoints.rpc, endpoints.http, read_only)
