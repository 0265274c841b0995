"""The bookies that a broker knows: a connection to each, and which of them are fit for new entries.

Whoever writes chooses from those that are reachable, in turn, so that every bookie gets its share. One that failed
several times within an interval goes into quarantine: it is chosen only where the others are too few. Reads do not
ask here; an entry is where the ledger's metadata says.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from broker.ledger_client.ledger_client import (
    AddDone,
    BatchReadDone,
    EntryParts,
    LedgerClient,
    ReadDone,
)
from broker.ledger_client.settings import QuarantineSettings
from broker.model.errors import NotEnoughBookies
from protocol.bookie_frame import LAST_ENTRY, RC_IO_ERROR

log = logging.getLogger(__name__)
NS_PER_SECOND = 1_000_000_000


class BookieClient(LedgerClient, Protocol):
    @property
    def reachable(self) -> bool:
        """Whether there is a connection at this moment."""
        ...


class Bookies(Protocol):
    """What ledgers need to know of bookies."""

    @property
    def sole(self) -> LedgerClient | None:
        """The only bookie there is, for whoever need not choose; None where there may be several."""
        ...

    def client(self, address: str) -> LedgerClient:
        """The bookie that ledger metadata calls so."""
        ...

    def reachable_clients(self) -> Collection[LedgerClient]:
        """Those that take new entries, as far as there is a connection."""
        ...

    def choose(
        self, count: int, *, avoid: Collection[str] = (), count_min: int | None = None
    ) -> tuple[str, ...]:
        """`count` different bookies for new entries, none of `avoid`; fewer, down to `count_min`, where there are no
        more. Raises NotEnoughBookies."""
        ...

    def failed(self, address: str) -> None:
        """The bookie did not take an entry."""
        ...

    async def close(self) -> None: ...


class OneBookie:
    """The only bookie for new entries: embedded, in memory, or the only one configured."""

    def __init__(
        self, address: str, client: LedgerClient, connect: Callable[[str], LedgerClient] | None = None
    ) -> None:
        """`connect` begins a connection to another bookie, that an earlier ledger names; None: there cannot be any."""
        self._address = address
        self.sole: LedgerClient | None = client
        self._client = client
        self._connect = connect
        self._others: dict[str, LedgerClient] = {}

    def client(self, address: str) -> LedgerClient:
        # Not this one for every address: a recovery would take the answers of one bookie for those of all, and cut
        # off what only the others have.
        if address == self._address:
            return self._client
        other = self._others.get(address)
        if other is None:
            log.warning(
                "a ledger is on bookie %s, and the bookie of this broker is %s", address, self._address
            )
            other = Unreachable() if self._connect is None else self._connect(address)
            self._others[address] = other
        return other

    def reachable_clients(self) -> Collection[LedgerClient]:
        return (self._client,)

    def choose(
        self, count: int, *, avoid: Collection[str] = (), count_min: int | None = None
    ) -> tuple[str, ...]:
        if avoid or (count if count_min is None else count_min) > 1:
            raise NotEnoughBookies(f"{count} bookies wanted, there is only {self._address}")
        return (self._address,)

    def failed(self, address: str) -> None:
        """There is no other to go to."""

    async def close(self) -> None:
        for client in (self._client, *self._others.values()):
            await client.close()


class Unreachable:
    """A bookie that there is no way to: every request fails with an I/O error."""

    reachable = False

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        parts: EntryParts,
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        asyncio.get_running_loop().call_soon(done, RC_IO_ERROR, entry_id)

    def read(self, ledger_id: int, entry_id: int, done: ReadDone) -> None:
        asyncio.get_running_loop().call_soon(done, RC_IO_ERROR, b"")

    def batch_read(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, done: BatchReadDone
    ) -> None:
        asyncio.get_running_loop().call_soon(done, RC_IO_ERROR, [])

    def fence(self, ledger_id: int, master_key: bytes, done: ReadDone, entry_id: int = LAST_ENTRY) -> None:
        asyncio.get_running_loop().call_soon(done, RC_IO_ERROR, b"")

    def delete(self, ledger_id: int) -> None:
        """Nothing that could be done."""

    async def close(self) -> None:
        """There is nothing open."""


class BookieSet:
    """Several bookies, known by their addresses."""

    sole: LedgerClient | None = None

    def __init__(
        self,
        addresses: Iterable[str],
        connect: Callable[[str], BookieClient],
        *,
        now_ns: Callable[[], int],
        quarantine: QuarantineSettings,
    ) -> None:
        """`connect` begins a connection and keeps it up; called once per address, also for one that only old
        ledgers name."""
        self._connect = connect
        self._now_ns = now_ns
        self._quarantine = quarantine
        self._clients: dict[str, BookieClient] = {}
        self._errors: dict[str, deque[int]] = {}
        self._quarantined: dict[str, int] = {}
        """Until when."""
        self._next = 0
        self._addresses: tuple[str, ...] = ()
        self.set_addresses(addresses)

    def set_addresses(self, addresses: Iterable[str]) -> None:
        """The bookies that take new entries from now on. Connections to others stay, for what they have."""
        self._addresses = tuple(dict.fromkeys(addresses))
        for address in self._addresses:
            self.client(address)

    def client(self, address: str) -> BookieClient:
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = self._connect(address)
        return client

    def renew(self, address: str) -> BookieClient | None:
        """Connect anew, because the bookie is elsewhere now; answers the connection before, for the caller to close."""
        before = self._clients.pop(address, None)
        self.client(address)
        return before

    def reachable(self) -> list[str]:
        return [address for address in self._addresses if self._clients[address].reachable]

    def reachable_clients(self) -> Collection[LedgerClient]:
        return [self._clients[address] for address in self.reachable()]

    def choose(
        self, count: int, *, avoid: Collection[str] = (), count_min: int | None = None
    ) -> tuple[str, ...]:
        start = self._next % len(self._addresses) if self._addresses else 0
        in_turn = (*self._addresses[start:], *self._addresses[:start])
        fit = [address for address in in_turn if address not in avoid and self._clients[address].reachable]
        # A stable sort: quarantined ones last, the others in turn.
        fit.sort(key=self._is_quarantined)
        if len(fit) < (count if count_min is None else count_min):
            raise NotEnoughBookies(
                f"{count} bookies wanted, {len(fit)} fit for it: of {', '.join(self._addresses) or 'none'},"
                f" reachable are {', '.join(self.reachable()) or 'none'}"
                + (f", and {', '.join(sorted(avoid))} may not be taken" if avoid else "")
            )
        self._next += 1
        return tuple(fit[:count])

    def failed(self, address: str) -> None:
        rules = self._quarantine
        now_ns = self._now_ns()
        errors = self._errors.setdefault(address, deque(maxlen=max(rules.errors, 1)))
        errors.append(now_ns)
        soon_enough = now_ns - errors[0] <= rules.interval_s * NS_PER_SECOND
        if rules.quarantine_s and len(errors) == errors.maxlen and soon_enough:
            errors.clear()
            self._quarantined[address] = now_ns + rules.quarantine_s * NS_PER_SECOND
            log.warning("bookie %s is in quarantine for %d s", address, rules.quarantine_s)

    def _is_quarantined(self, address: str) -> bool:
        until_ns = self._quarantined.get(address)
        if until_ns is not None and self._now_ns() >= until_ns:
            del self._quarantined[address]
            until_ns = None
        return until_ns is not None

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
