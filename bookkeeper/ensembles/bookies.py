"""The bookies that a broker knows: a connection to each, and the choice of bookies for new entries.

The laws:

1. A writer's bookies are chosen in turn among those that are reachable, so that each gets its share; groups and racks go
   before the turn (`racks.py`).
2. A bookie that failed several times within an interval goes into quarantine: it is chosen only where the others are
   too few. A bookie that accepts connections and fails adds would otherwise cost every new ledger an ensemble change.
3. Reads do not choose. An entry is where its ledger's metadata says, also on a bookie that takes no new entries.

BookKeeper's names: BookieWatcher for choice and quarantine (with an EnsemblePlacementPolicy, which is law 1),
BookieClient and PerChannelBookieClient for the connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from bookkeeper.client.ledger_client import (
    AddDone,
    BatchReadDone,
    DeleteDone,
    EntryParts,
    LedgerClient,
    ReadDone,
)
from bookkeeper.client.result_codes import UNREACHABLE
from bookkeeper.ensembles.racks import Placement
from bookkeeper.ensembles.settings import QuarantineRules
from foundation.model.errors import NotEnoughBookies
from foundation.units import NS_PER_SECOND
from protocol.bookie_frame import LAST_ENTRY, RC_OK

log = logging.getLogger(__name__)
NO_ADDRESSES: Final[Mapping[str, str]] = MappingProxyType({})
"""Of HTTP servers, where none is known."""


class BookieClient(LedgerClient, Protocol):
    """A bookie over a connection that may break."""

    @property
    def reachable(self) -> bool:
        """True while there is a connection at this moment."""
        ...


class Bookies(Protocol):
    """The bookies of a broker, as ledgers see them.

    Ledger metadata names each by its address, or by its id where bookies register.
    """

    @property
    def sole(self) -> LedgerClient | None:
        """The only bookie there is; None where there may be several."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """Names of the bookies for new entries, connected or not."""
        ...

    @property
    def known(self) -> Sequence[str]:
        """Names of all bookies that are known: those of `names`, then those that have or serve older entries."""
        ...

    def http_address(self, name: str) -> str | None:
        """Returns host:port of the bookie's HTTP server; None where it is not known."""
        ...

    def read_only(self, name: str) -> bool | None:
        """Returns True if the bookie has registered as one that refuses new entries; None where none registers."""
        ...

    def client(self, address: str) -> LedgerClient:
        """Returns the bookie with this name in ledger metadata. Begins a connection when there is none."""
        ...

    def reachable_clients(self) -> Collection[LedgerClient]:
        """Returns the connected bookies for new entries."""
        ...

    def choose(
        self,
        count: int,
        *,
        avoid: Collection[str] = (),
        count_min: int | None = None,
        place: Placement | None = None,
    ) -> tuple[str, ...]:
        """Returns the names of `count` different bookies for new entries, none of them in `avoid`.

        Returns fewer, down to `count_min`, where there are no more. `place`: demands of groups and racks. Raises
        NotEnoughBookies.
        """
        ...

    def failed(self, address: str) -> None:
        """Notes that the bookie did not take an entry, which counts towards the bookie's quarantine."""
        ...

    async def close(self) -> None:
        """Closes every connection."""
        ...


class OneBookie:
    """`Bookies` with one bookie for new entries. It is embedded, in memory, or the only one configured."""

    def __init__(
        self,
        address: str,
        client: LedgerClient,
        connect: Callable[[str], LedgerClient] | None = None,
        http: Mapping[str, str] = NO_ADDRESSES,
    ) -> None:
        """`connect` begins a connection to another bookie.

        An earlier ledger may name one; with None there can be none. `http` has the addresses of HTTP servers by name.
        """
        self._http = http
        self._address = address
        self.sole: LedgerClient | None = client
        """The only bookie; never None here."""
        self._client = client
        self._connect = connect
        self._others: dict[str, LedgerClient] = {}

    @property
    def names(self) -> Sequence[str]:
        """The one bookie."""
        return (self._address,)

    @property
    def known(self) -> Sequence[str]:
        """The one bookie, and those that earlier ledgers have named."""
        return (self._address, *self._others)

    def http_address(self, name: str) -> str | None:
        """Returns host:port of the bookie's HTTP server; None where it is not known."""
        return self._http.get(name)

    def read_only(self, _name: str) -> bool | None:
        """Returns True if the bookie has registered as one that refuses new entries; None where none registers."""
        return None

    def client(self, address: str) -> LedgerClient:
        """Warns at the first use of another bookie than the one."""
        # The one bookie must not stand in for every address: a recovery would take the answers of one bookie for those
        # of all, and cut off entries that only the others have.
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
        """Returns the one bookie, also when its connection is down: nothing else could be chosen."""
        return (self._client,)

    def choose(
        self,
        count: int,
        *,
        avoid: Collection[str] = (),
        count_min: int | None = None,
        place: Placement | None = None,
    ) -> tuple[str, ...]:
        """Returns the one bookie. Raises NotEnoughBookies."""
        if avoid or (count if count_min is None else count_min) > 1:
            raise NotEnoughBookies(f"{count} bookies wanted, there is only {self._address}")
        return (self._address,)

    def failed(self, address: str) -> None:
        """Does nothing: there is no other bookie to prefer."""

    async def close(self) -> None:
        """Closes the connections in turn."""
        for client in (self._client, *self._others.values()):
            await client.close()


class Unreachable:
    """A bookie without an address: every request fails. The I/O error comes in a later turn of the loop."""

    reachable = False
    """Always False: no request reaches this bookie."""

    def add(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        entries: Sequence[EntryParts],
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        """Fails."""
        asyncio.get_running_loop().call_soon(done, UNREACHABLE, entry_ids[0])

    def read(self, ledger_id: int, entry_id: int, done: ReadDone) -> None:
        """Fails."""
        asyncio.get_running_loop().call_soon(done, UNREACHABLE, b"")

    def batch_read(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, done: BatchReadDone
    ) -> None:
        """Fails."""
        asyncio.get_running_loop().call_soon(done, UNREACHABLE, [])

    def fence(self, ledger_id: int, master_key: bytes, done: ReadDone, entry_id: int = LAST_ENTRY) -> None:
        """Fails."""
        asyncio.get_running_loop().call_soon(done, UNREACHABLE, b"")

    def file_of(self, ledger_id: int, entry_id: int) -> str:
        """Returns "": nothing is known of the bookie."""
        return ""

    def delete(self, ledger_id: int, done: DeleteDone) -> None:
        """Answers only: no bookie has the ledger's entries."""
        done(RC_OK, ledger_id)

    async def close(self) -> None:
        """Does nothing: there is no connection."""


class BookieSet:
    """`Bookies` with several bookies for new entries, which may change."""

    sole: LedgerClient | None = None
    """Always None: even a set of one may grow."""

    def __init__(
        self,
        addresses: Iterable[str],
        connect: Callable[[str], BookieClient],
        *,
        now_ns: Callable[[], int],
        quarantine: QuarantineRules,
        http: Mapping[str, str] = NO_ADDRESSES,
    ) -> None:
        """`connect` begins a connection and keeps it up.

        It is called once per address, old ledgers' bookies included.

        `now_ns`: a monotonic clock, for the quarantine. `http` has the addresses of HTTP servers by name.
        """
        self._http = http
        self._connect = connect
        self._now_ns = now_ns
        self._quarantine = quarantine
        self._clients: dict[str, BookieClient] = {}
        self._errors: dict[str, deque[int]] = {}
        """By bookie, the times of its last failures: as many as lead to quarantine."""
        self._quarantined: dict[str, int] = {}
        """By bookie, the time at which its quarantine ends."""
        self._next = 0
        self._addresses: tuple[str, ...] = ()
        self.set_addresses(addresses)

    @property
    def names(self) -> Sequence[str]:
        """The bookies as `set_addresses` named them."""
        return self._addresses

    @property
    def known(self) -> Sequence[str]:
        """The bookies for new entries, then others that have been connected to."""
        return tuple(dict.fromkeys((*self._addresses, *self._clients)))

    def http_address(self, name: str) -> str | None:
        """Returns host:port of the bookie's HTTP server; None where it is not known."""
        return self._http.get(name)

    def read_only(self, _name: str) -> bool | None:
        """Returns True if the bookie has registered as one that refuses new entries; None where none registers."""
        return None

    def set_addresses(self, addresses: Iterable[str]) -> None:
        """Makes these the bookies for new entries. Connections to others stay open for the entries they have."""
        self._addresses = tuple(dict.fromkeys(addresses))
        for address in self._addresses:
            self.client(address)

    def client(self, address: str) -> BookieClient:
        """Connects at the first use of a name."""
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = self._connect(address)
        return client

    def renew(self, address: str) -> BookieClient | None:
        """Connects again to a bookie that has moved. Returns its old client, which the caller closes."""
        before = self._clients.pop(address, None)
        self.client(address)
        return before

    def reachable(self) -> list[str]:
        """Returns the names of connected bookies for new entries."""
        return [address for address in self._addresses if self._clients[address].reachable]

    def reachable_clients(self) -> Collection[LedgerClient]:
        """Returns those of `reachable`."""
        return [self._clients[address] for address in self.reachable()]

    def choose(
        self,
        count: int,
        *,
        avoid: Collection[str] = (),
        count_min: int | None = None,
        place: Placement | None = None,
    ) -> tuple[str, ...]:
        """Chooses in turn, bookies in quarantine last, and by their racks before the turn."""
        start = self._next % len(self._addresses) if self._addresses else 0
        in_turn = (*self._addresses[start:], *self._addresses[:start])
        fit = [address for address in in_turn if address not in avoid and self._clients[address].reachable]
        if place is not None:
            fit = place.allowed(fit, count)
        # Python's sort is stable, so within both groups the bookies stay in turn.
        fit.sort(key=self._is_quarantined)
        if len(fit) < (count if count_min is None else count_min):
            raise NotEnoughBookies(
                f"{count} bookies wanted, {len(fit)} fit for it: of {', '.join(self._addresses) or 'none'},"
                f" reachable are {', '.join(self.reachable()) or 'none'}"
                + (f", and {', '.join(sorted(avoid))} may not be taken" if avoid else "")
                + (f"; groups {place.affinity}" if place is not None and place.affinity else "")
            )
        # By one and not by `count`: with E = 2 of 4 bookies a step of two would always give the same pairs.
        self._next += 1
        if place is None:
            return tuple(fit[:count])
        healthy = [address for address in fit if not self._is_quarantined(address)]
        return place.spread(healthy if len(healthy) >= count else fit, count)

    def failed(self, address: str) -> None:
        """Begins a quarantine after enough failures in the interval, and logs it."""
        rules = self._quarantine
        now_ns = self._now_ns()
        # As many times as the threshold: the first of a full deque says how long the last failures took.
        errors = self._errors.setdefault(address, deque(maxlen=max(rules.errors, 1)))
        errors.append(now_ns)
        soon_enough = now_ns - errors[0] <= rules.interval_s * NS_PER_SECOND
        if rules.quarantine_s and len(errors) == errors.maxlen and soon_enough:
            # Or the first failure after the quarantine would begin the next one.
            errors.clear()
            self._quarantined[address] = now_ns + rules.quarantine_s * NS_PER_SECOND
            log.warning("bookie %s is in quarantine for %d s", address, rules.quarantine_s)

    async def close(self) -> None:
        """Closes the connections in turn."""
        for client in self._clients.values():
            await client.close()

    def _is_quarantined(self, address: str) -> bool:
        until_ns = self._quarantined.get(address)
        if until_ns is not None and self._now_ns() >= until_ns:
            del self._quarantined[address]
            until_ns = None
        return until_ns is not None
