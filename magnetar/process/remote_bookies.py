"""Connects a broker to its bookies over TCP: those that `bookieAddress` names, or those registered in ZooKeeper.

Bookies may start later than the broker, as in a compose file: the broker waits for as many as an entry is written to, and
the connections log why they cannot be made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from bookkeeper.client.bookkeeper import BookKeeperLedgerClient
from bookkeeper.client.ledger_client import LedgerClient
from bookkeeper.ensembles.bookies import BookieClient, Bookies, BookieSet, OneBookie, Unreachable
from bookkeeper.metadata.metadata_store import MetadataStore
from broker.compose.background_tasks import BackgroundTasks
from broker.compose.ledger_settings import QuarantineSettings
from broker.compose.tls_contexts import bookie_certificates
from broker.config.rules import REGISTERED
from foundation.loop import clock
from foundation.loop.turn import Turn
from foundation.settings.computed import receive_sizes
from foundation.settings.settings import Settings
from protocol.frame import FRAME_PADDING_BYTES

if TYPE_CHECKING:
    from bookkeeper.metadata.available_bookies import AvailableBookies, RegisteredBookie

log = logging.getLogger(__name__)

_RETRY_S = 0.2
_SAY_AFTER_S = 2.0
"""Wait after which one line says what the start waits for; connections to running bookies take less."""
Connect = Callable[[str], BookKeeperLedgerClient]
"""Begins a connection to host:port and keeps it up."""


async def connect_to_bookies(settings: Settings, turn: Turn, metadata: MetadataStore) -> Bookies:
    """Connects to enough bookies to write an entry: as many as the write quorum.

    A cancelled call leaves no connection. Raises MetadataError when ZooKeeper refuses to list bookies, and
    SettingsError for files of TLS or sizes of reads that cannot be used.
    """

    connect = partial(
        BookKeeperLedgerClient,
        turn=turn,
        frame_bytes_max=settings.int("maxMessageSize") + FRAME_PADDING_BYTES,
        timeout_s=settings.int("bookkeeperClientTimeoutInSeconds"),
        tls=bookie_certificates(settings),
        receive_sizes=receive_sizes(
            settings, "byteBufAllocatorSizeMin", "byteBufAllocatorSizeInitial", "byteBufAllocatorSizeMax"
        ),
    )
    addresses = settings.list("bookieAddress")
    ports = settings.list("bookieHttpPort")
    enough = settings.int("managedLedgerDefaultWriteQuorum")
    if addresses == (REGISTERED,):
        registered = RegisteredBookies(connect, QuarantineSettings.of(settings), ports[0] if ports else None)
        await registered.follow(metadata)
        return await _with_enough(
            registered,
            enough,
            "registered in the ZooKeeper of metadataStoreUrl",
            "start bookies that register there",
        )
    http = _http_addresses(addresses, ports)
    if len(addresses) == 1:
        return await _with_one(addresses[0], connect, http)
    several = BookieSet(
        addresses,
        connect,
        now_ns=clock.monotonic_ns,
        quarantine=QuarantineSettings.of(settings),
        http=http,
    )
    return await _with_enough(several, enough, "out of bookieAddress", "start them")


def _http_addresses(addresses: Sequence[str], ports: Sequence[str]) -> dict[str, str]:
    """Returns host:port of the HTTP servers by bookie; one port holds for all bookies."""
    if not ports:
        return {}
    each = [*ports] * len(addresses) if len(ports) == 1 else ports
    return {name: _at_port(name, port) for name, port in zip(addresses, each, strict=True)}


def _at_port(address: str, port: str) -> str:
    return f"{address.rpartition(':')[0]}:{port}"


class RegisteredBookies:
    """`Bookies` that keeps a BookieSet equal to the list in ZooKeeper.

    Bookies are known by their ids, as ledger metadata has them. Each one's address is read in ZooKeeper and may change.
    """

    sole: LedgerClient | None = None
    """Always None: the list in ZooKeeper may grow, so no bookie may be treated as the only one."""

    def __init__(self, connect: Connect, quarantine: QuarantineSettings, http_port: str | None) -> None:
        """No bookie is known before `follow`. `http_port` holds for those that register no HTTP server."""
        self._connect = connect
        self._http_port = http_port
        self._registered: Mapping[str, RegisteredBookie] = {}
        """By id, the bookies that are registered now."""
        self._connected_to: dict[str, str] = {}
        """The address that each bookie's connection is for, also of bookies that are registered no more."""
        self._tasks = BackgroundTasks()
        self._available: AvailableBookies | None = None
        self._set = BookieSet((), self._connect_by_id, now_ns=clock.monotonic_ns, quarantine=quarantine)
        # The set's own methods, so that a read costs no call more than with a fixed set.
        self.client: Callable[[str], LedgerClient] = self._set.client
        """The bookie with this name in ledger metadata."""
        self.choose = self._set.choose
        """Names of `count` different bookies for new entries."""
        self.failed = self._set.failed
        """Notes that the bookie did not take an entry."""
        self.reachable_clients: Callable[[], Collection[LedgerClient]] = self._set.reachable_clients
        """Bookies for new entries that there is a connection to."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the bookies for new entries, connected or not."""
        return self._set.names

    @property
    def known(self) -> Sequence[str]:
        """The bookies that are connected or registered, read-only ones included."""
        return tuple(dict.fromkeys((*self._set.known, *sorted(self._registered))))

    def http_address(self, name: str) -> str | None:
        """Returns the registered HTTP address of a bookie, else the set port at its host."""
        bookie = self._registered.get(name)
        if bookie is not None and bookie.http is not None:
            return bookie.http
        address = self._connected_to.get(name, "")
        return _at_port(address, self._http_port) if self._http_port and ":" in address else None

    def read_only(self, name: str) -> bool | None:
        """Returns True if the bookie has registered as one that refuses new entries; None where none registers."""
        bookie = self._registered.get(name)
        return None if bookie is None else bookie.read_only

    async def follow(self, metadata: MetadataStore) -> None:
        """Begins to watch ZooKeeper, which must have the broker's metadata. Raises MetadataError when it refuses."""
        from bookkeeper.metadata.available_bookies import AvailableBookies
        from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore

        assert isinstance(metadata, ZookeeperMetadataStore)
        self._available = AvailableBookies(metadata.requests, self._changed)
        self._changed(await self._available.open())

    async def close(self) -> None:
        """Stops watching, then closes every connection."""
        if self._available is not None:
            await self._available.close()
        await self._set.close()
        await self._tasks.close()

    def _connect_by_id(self, bookie_id: str) -> BookieClient:
        # An old ledger may name a bookie that is not registered. Its id is its address unless its owner chose another
        # id; then there is no way to it until it registers.
        bookie = self._registered.get(bookie_id)
        address = bookie_id if bookie is None else bookie.address
        self._connected_to[bookie_id] = address
        return self._connect(address) if ":" in address else Unreachable()

    def _changed(self, registered: Mapping[str, RegisteredBookie]) -> None:
        self._registered = registered
        for bookie_id, bookie in registered.items():
            if self._connected_to.get(bookie_id, bookie.address) != bookie.address:
                replaced = self._set.renew(bookie_id)
                if replaced is not None:
                    self._tasks.spawn(replaced.close(), f"connection to bookie {bookie_id}")
        self._set.set_addresses(sorted([name for name, bookie in registered.items() if not bookie.read_only]))


async def _with_one(address: str, connect: Connect, http: Mapping[str, str]) -> Bookies:
    client = connect(address)
    told = False
    try:
        while not client.reachable:
            try:
                await client.connected()
            except ConnectionError:
                if not told:
                    log.warning(
                        "the start waits for bookieAddress=%s: start that bookie, or name another one",
                        address,
                    )
                told = True
                await asyncio.sleep(_RETRY_S)
    except BaseException:  # Cancelled: the caller has no object that it could close.
        await client.close()
        raise
    return OneBookie(address, client, connect, http)


async def _with_enough(bookies: Bookies, count: int, origin: str, remedy: str) -> Bookies:
    """Waits for so many connected bookies. `origin` and `remedy` are words for the line about a long wait."""
    say = asyncio.get_running_loop().call_later(_SAY_AFTER_S, _say_wait, bookies, count, origin, remedy)
    try:
        while len(bookies.reachable_clients()) < count:  # noqa: ASYNC110 - connections come and go
            await asyncio.sleep(_RETRY_S / 10)
    except BaseException:  # Cancelled: the caller has no object that it could close.
        await bookies.close()
        raise
    finally:
        say.cancel()
    return bookies


def _say_wait(bookies: Bookies, count: int, origin: str, remedy: str) -> None:
    names = ", ".join(bookies.known) or "none"
    log.warning(
        "the start waits for %d bookies (managedLedgerDefaultWriteQuorum) %s: %d of %s connected; %s, or set"
        " managedLedgerDefaultEnsembleSize to a smaller number",
        count,
        origin,
        len(bookies.reachable_clients()),
        names,
        remedy,
    )
