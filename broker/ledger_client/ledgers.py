"""Ledgers: making, writing, reading, recovering and deleting them, on one bookie or on many.

The one object of the ledger client that the rooms above know. A ledger's metadata says where its entries are. It is
loaded when somebody reads the ledger, and kept while there is room: an open ledger is our own, and of a closed one only
the members change, when a tool copies what a dead bookie had. So a read that failed everywhere looks once whether they did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Protocol

from broker.errors import BrokerError, NoSuchLedger
from broker.ledger_client.bookies import Bookies
from broker.ledger_client.digest import Digest, digest_of
from broker.ledger_client.ensemble_reader import CallLater, EnsembleReader, RunRead
from broker.ledger_client.ensemble_writer import CallSoon, EnsembleWriter
from broker.ledger_client.ledger_client import EntryAdds
from broker.ledger_client.ledger_metadata import LedgerMetadata, LedgerState, Segment, ledger_key
from broker.ledger_client.own_ledger import OwnLedger, RecoveringLedger, read_metadata
from broker.ledger_client.recovery import recover
from broker.ledger_client.settings import LedgerSettings
from broker.metadata.metadata_store import MetadataStore
from broker.model.entry import Entry

KNOWN_MAX = 20_000
"""Closed ledgers whose metadata is kept: some 20 MB."""


class Known(Protocol):
    """Whose metadata can be had without waiting."""

    metadata: LedgerMetadata


class _Closed:
    __slots__ = ("metadata",)

    def __init__(self, metadata: LedgerMetadata) -> None:
        # What readers need, for as long as the log exists: not what tools want to know.
        self.metadata = replace(metadata, custom={})


class Ledgers:
    def __init__(
        self,
        metadata: MetadataStore,
        bookies: Bookies,
        settings: LedgerSettings,
        *,
        call_soon: CallSoon,
        call_later: CallLater,
        creator_token: int = 0,
    ) -> None:
        """`call_soon` and `call_later` as the loop's. `creator_token`: a number that no other broker has, by which
        ledgers made here are known again; 0 = none."""
        self.bookies = bookies
        self.settings = settings
        self.digest: Digest = digest_of(settings.digest_type, settings.password)
        """Of new ledgers."""
        self._store = metadata
        self._call_soon = call_soon
        self._creator_token = creator_token
        self._reader = EnsembleReader(
            bookies, call_later, sticky=settings.sticky_reads, speculative_s=settings.speculative_read_s
        )
        self._known: dict[int, Known] = {}
        self._loading: dict[int, list[Callable[[BrokerError | None], None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # Writing

    async def create(self, ledger_id: int, custom: dict[str, bytes]) -> OwnLedger:
        """A new, empty ledger. Raises NotEnoughBookies, or MetadataError (BadVersion when it exists)."""
        settings = self.settings
        least = settings.write_quorum if settings.opportunistic_striping else settings.ensemble_size
        members = self.bookies.choose(settings.ensemble_size, count_min=least)
        metadata = LedgerMetadata(
            (Segment(members),),
            ensemble_size=len(members),
            write_quorum=settings.write_quorum,
            ack_quorum=settings.ack_quorum,
            digest_type=settings.digest_type,
            password=settings.password,
            custom=custom,
            creator_token=self._creator_token,
        )
        own = self._known[ledger_id] = await OwnLedger.create(self._store, ledger_id, metadata)
        return own

    def writer(self, ledger: OwnLedger) -> EntryAdds:
        """Where the entries of a ledger that `create` made go, from entry 0 on. One per ledger."""
        sole = self.bookies.sole
        if sole is not None:  # As it is: a wrapper would cost a call per entry and add nothing.
            return sole
        return EnsembleWriter(ledger, self.bookies, call_soon=self._call_soon, spawn=self._spawn)

    # Reading

    def read(self, ledger_id: int, first: int, last: int, bytes_max: int, done: RunRead) -> None:
        """Some entries from `first` on, none behind `last` and about `bytes_max` bytes; called once, never inside this
        call. The error is NoSuchLedger or NoSuchEntry only where every bookie that might have it says so."""
        known = self._known.get(ledger_id)
        if known is None:

            def loaded(error: BrokerError | None) -> None:
                if error is None:
                    self._read_by(self._known[ledger_id].metadata, ledger_id, first, last, bytes_max, done)
                else:
                    done([], error)

            self._load_then(ledger_id, loaded)
            return
        metadata = known.metadata
        if metadata.state is LedgerState.CLOSED:
            done = partial(self._read_or_look_again, metadata, ledger_id, first, last, bytes_max, done)
        self._read_by(metadata, ledger_id, first, last, bytes_max, done)

    def _read_by(
        self, metadata: LedgerMetadata, ledger_id: int, first: int, last: int, bytes_max: int, done: RunRead
    ) -> None:
        self._reader.read(ledger_id, metadata, first, last, bytes_max, done)

    def _read_or_look_again(
        self,
        metadata: LedgerMetadata,
        ledger_id: int,
        first: int,
        last: int,
        bytes_max: int,
        done: RunRead,
        entries: list[Entry],
        error: BrokerError | None,
    ) -> None:
        """By metadata that may be old: nobody had the entry, or nobody could say."""
        if error is None:
            done(entries, error)
            return
        refused = error

        def loaded(problem: BrokerError | None) -> None:
            found = self._known.get(ledger_id)
            if problem is None and found is not None and found.metadata.segments != metadata.segments:
                self._read_by(found.metadata, ledger_id, first, last, bytes_max, done)
            else:
                done([], refused)

        self._load_then(ledger_id, loaded)

    def _load_then(self, ledger_id: int, loaded: Callable[[BrokerError | None], None]) -> None:
        waiting = self._loading.setdefault(ledger_id, [])
        waiting.append(loaded)
        if len(waiting) == 1:
            self._spawn(self._load(ledger_id))

    async def _load(self, ledger_id: int) -> None:
        error: BrokerError | None = None
        try:
            found = await read_metadata(self._store, ledger_id)
            if found is None:
                raise NoSuchLedger(f"ledger {ledger_id} has no metadata")
            self._keep(ledger_id, found[0])
        except BrokerError as problem:
            error = problem
        for loaded in self._loading.pop(ledger_id):
            loaded(error)

    def _keep(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """In the place of the closed ledger that has been known for longest, when there are many."""
        self._known.pop(ledger_id, None)
        self._known[ledger_id] = _Closed(metadata)
        if len(self._known) > KNOWN_MAX:
            closed = (each for each, one in self._known.items() if one.metadata.state is LedgerState.CLOSED)
            oldest = next(closed, None)
            if oldest is not None:
                del self._known[oldest]
                self._reader.forget(oldest)

    # Ends

    async def recover(self, ledger_id: int) -> LedgerMetadata | None:
        """Fence and close a ledger that another writer left open; answers its metadata, None when there is no such
        ledger. One that is closed is left as it is. Raises PersistenceError or MetadataError, and may then be
        tried again."""
        taken = await RecoveringLedger.take_over(self._store, ledger_id)
        if isinstance(taken, RecoveringLedger):
            taken = await recover(taken, self.bookies, call_soon=self._call_soon, spawn=self._spawn)
        if taken is not None:
            self._keep(ledger_id, taken)
        return taken

    async def delete(self, ledger_id: int) -> None:
        """Its space may be reclaimed. A missing ledger is no error. Raises MetadataError."""
        await self._store.delete(ledger_key(ledger_id))
        self._known.pop(ledger_id, None)
        self._reader.forget(ledger_id)
        if self.bookies.sole is not None:
            self.bookies.sole.delete(ledger_id)

    async def close(self) -> None:
        """What is outstanding is answered with an I/O error."""
        await self.bookies.close()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
