"""The bookies that take adds, as they register in ZooKeeper, and every change of them.

    <root>/ledgers/available/<bookie id>     ephemeral; says how to reach the bookie

A bookie is listed while its session lives, so one that died stays listed for as long as its session's timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from google.protobuf.message import DecodeError
from kazoo.exceptions import NoNodeError

from broker.metadata.zookeeper_session import Answer, ZookeeperSession
from protocol.bookkeeper_metadata_pb2 import BookieServiceInfoFormat

log = logging.getLogger(__name__)

PROTOCOL = "bookie-rpc"
READ_ONLY = "readonly"
"""The folder of those that take no adds stands among the bookies."""

Bookies = Mapping[str, str]
"""host:port by bookie id."""


class AvailableBookies:
    def __init__(self, session: ZookeeperSession, changed: Callable[[Bookies], None]) -> None:
        """`changed` is called on the loop with all bookies, after `open` whenever they are others than before."""
        self._session = session
        self._changed = changed
        self._path = f"{session.url.root}/ledgers/available"
        self._loop = asyncio.get_running_loop()
        self._stale = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self.bookies: Bookies = {}

    async def open(self) -> Bookies:
        """Those that are there now; changes are told from here on. MetadataError where ZooKeeper refuses."""
        self.bookies = await self._look()
        self._looking = asyncio.create_task(self._follow(), name="available bookies")
        return self.bookies

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            await self._stale.wait()
            self._stale.clear()
            bookies = await self._look()
            if bookies != self.bookies:
                self.bookies = bookies
                log.info("bookies that take adds: %s", ", ".join(sorted(bookies)) or "none")
                self._changed(bookies)

    async def _look(self) -> Bookies:
        client = self._session.client
        found = await self._session.ask(lambda: client.get_children_async(self._path, watch=self._fired))
        if found.refused(NoNodeError):  # No bookie was ever there; the watch waits for the first.
            await self._session.ask(lambda: client.exists_async(self._path, watch=self._fired))
            return {}
        names = found.value_or_raise()
        assert isinstance(names, list)
        ids = [name for name in names if name != READ_ONLY]
        answers = await asyncio.gather(*map(self._ask_info, ids))
        return {
            bookie_id: address
            for bookie_id, answer in zip(ids, answers, strict=True)
            if not answer.refused(NoNodeError)
            and (address := _address_of(bookie_id, answer.value_or_raise()))
        }

    async def _ask_info(self, bookie_id: str) -> Answer:
        """With a watch: a bookie that starts again elsewhere may keep its id."""
        path = f"{self._path}/{bookie_id}"
        return await self._session.ask(lambda: self._session.client.get_async(path, watch=self._fired))

    def _fired(self, _event: object) -> None:
        """In a thread of kazoo's; also when the connection breaks, which ends every watch."""
        self._loop.call_soon_threadsafe(self._stale.set)


def _address_of(bookie_id: str, node: object) -> str | None:
    """A node without bytes is of an old bookie, whose id is its address. None for one that cannot be read."""
    assert isinstance(node, tuple)
    value: bytes = node[0]
    if not value:
        return bookie_id
    try:
        endpoints = BookieServiceInfoFormat.FromString(value).endpoints
    except DecodeError:
        log.warning("the node of bookie %s cannot be read", bookie_id)
        return None
    return next((f"{end.host}:{end.port}" for end in endpoints if end.protocol == PROTOCOL), None)
