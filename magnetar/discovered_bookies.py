"""The bookies that ZooKeeper lists, by the ids under which ledgers know them; they come, go and move while a broker runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from broker import clock
from broker.ledger_client.bookies import BookieClient, BookieSet
from broker.ledger_client.settings import QuarantineSettings
from broker.metadata.available_bookies import AvailableBookies
from broker.metadata.zookeeper_session import ZookeeperSession


class DiscoveredBookies(BookieSet):
    def __init__(
        self,
        session: ZookeeperSession,
        connect_to: Callable[[str], BookieClient],
        quarantine: QuarantineSettings,
    ) -> None:
        """`connect_to` gets host:port. Knows no bookie before `open`."""
        self._connect_to = connect_to
        self._where: dict[str, str] = {}
        """host:port by bookie id, of all that were ever listed."""
        self._used: dict[str, str] = {}
        """Likewise, of those that we have a connection to."""
        self._closing: set[asyncio.Task[None]] = set()
        self._available = AvailableBookies(session, self._changed)
        super().__init__((), self._connect_by_id, now_ns=clock.monotonic_ns, quarantine=quarantine)

    async def open(self) -> None:
        """MetadataError where ZooKeeper refuses."""
        self._changed(await self._available.open())

    def _connect_by_id(self, bookie_id: str) -> BookieClient:
        # One that is not listed may be alive all the same, read-only; by default its id is its address.
        self._used[bookie_id] = self._where.get(bookie_id, bookie_id)
        return self._connect_to(self._used[bookie_id])

    def _changed(self, found: Mapping[str, str]) -> None:
        self._where.update(found)
        for bookie_id, address in found.items():
            if self._used.get(bookie_id, address) != address:
                closing = asyncio.create_task(self.forget(bookie_id).close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
        self.set_addresses(found)

    async def close(self) -> None:
        await self._available.close()
        await asyncio.gather(*self._closing)
        await super().close()
