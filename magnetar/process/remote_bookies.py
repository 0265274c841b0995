"""A broker's bookies over TCP: those that `bookieAddress` names, or those that are registered in ZooKeeper.

Bookies may start later than the broker, as in a compose file; the clients say what is wrong and try on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broker.compose.background_tasks import BackgroundTasks
from broker.config.rules import REGISTERED
from broker.ledger_client.bookies import BookieClient, Bookies, BookieSet, OneBookie, Unreachable
from broker.ledger_client.bookkeeper import BookKeeperLedgerClient
from broker.ledger_client.settings import QuarantineSettings
from broker.loop import clock
from broker.loop.turn import Turn
from broker.metadata.metadata_store import MetadataStore
from protocol.frame import FRAME_PADDING_BYTES
from settings.settings import Settings

if TYPE_CHECKING:
    from broker.metadata.available_bookies import AvailableBookies

RETRY_S = 0.2
Connect = Callable[[str], BookKeeperLedgerClient]


async def connect_to_bookies(settings: Settings, turn: Turn, metadata: MetadataStore) -> Bookies:
    """Returns when as many answer as an entry is written to. A cancelled call leaves no connection behind."""

    def connect(address: str) -> BookKeeperLedgerClient:
        host, _, port = address.rpartition(":")
        return BookKeeperLedgerClient(
            host,
            int(port),
            turn=turn,
            frame_bytes_max=settings.int("maxMessageSize") + FRAME_PADDING_BYTES,
            timeout_s=settings.int("bookkeeperClientTimeoutInSeconds"),
        )

    addresses = settings.list("bookieAddress")
    enough = settings.int("managedLedgerDefaultWriteQuorum")
    if addresses == (REGISTERED,):
        registered = RegisteredBookies(connect, settings)
        await registered.follow(metadata)
        return await _with_enough(registered, enough)
    if len(addresses) == 1:
        return await _with_one(addresses[0], connect)
    several = BookieSet(
        addresses, connect, now_ns=clock.monotonic_ns, quarantine=QuarantineSettings.of(settings)
    )
    return await _with_enough(several, enough)


class RegisteredBookies(BookieSet):
    """Known by their bookie ids, as BookKeeper has it; where each is, is read in ZooKeeper and may change."""

    def __init__(self, connect: Connect, settings: Settings) -> None:
        self._connect_to = connect
        self._found: Mapping[str, str] = {}
        self._connected_to: dict[str, str] = {}
        """The address that each bookie's connection is for."""
        self._tasks = BackgroundTasks()
        self._available: AvailableBookies | None = None
        super().__init__(
            (), self._connect_by_id, now_ns=clock.monotonic_ns, quarantine=QuarantineSettings.of(settings)
        )

    def _connect_by_id(self, bookie_id: str) -> BookieClient:
        # One that is not there has the id for its address, unless its owner chose another.
        address = self._found.get(bookie_id, bookie_id)
        self._connected_to[bookie_id] = address
        return self._connect_to(address) if ":" in address else Unreachable()

    async def follow(self, metadata: MetadataStore) -> None:
        """Begin to watch ZooKeeper. MetadataError where it refuses."""
        from broker.metadata.available_bookies import AvailableBookies
        from broker.metadata.zookeeper_metadata_store import ZookeeperMetadataStore

        assert isinstance(metadata, ZookeeperMetadataStore)
        self._available = AvailableBookies(metadata.session, self._changed)
        self._changed(await self._available.open())

    def _changed(self, found: Mapping[str, str]) -> None:
        self._found = found
        for bookie_id, address in found.items():
            if self._connected_to.get(bookie_id, address) != address:
                replaced = self.renew(bookie_id)
                if replaced is not None:
                    self._tasks.spawn(replaced.close(), f"connection to bookie {bookie_id}")
        self.set_addresses(sorted(found))

    async def close(self) -> None:
        if self._available is not None:
            await self._available.close()
        await super().close()
        await self._tasks.close()


async def _with_one(address: str, connect: Connect) -> Bookies:
    client = connect(address)
    try:
        while not client.reachable:
            try:
                await client.connected()
            except ConnectionError:
                await asyncio.sleep(RETRY_S)
    except BaseException:
        await client.close()
        raise
    return OneBookie(address, client, connect)


async def _with_enough(bookies: BookieSet, count: int) -> Bookies:
    try:
        while len(bookies.reachable()) < count:  # noqa: ASYNC110 - connections come and go
            await asyncio.sleep(RETRY_S / 10)
    except BaseException:
        await bookies.close()
        raise
    return bookies
