"""Ledgers: making, writing, reading, recovering and deleting them, on one bookie or on many.

The one object of the ledger client that the rooms above know. A ledger's metadata says where its entries are; it is
loaded when somebody first reads the ledger, and kept, since a closed ledger does not change and an open one is our own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Protocol

from broker.errors import BrokerError, NoSuchLedger
from broker.ledger_client.bookies import Bookies
from broker.ledger_client.digest import Digest, digest_of
from broker.ledger_client.ensemble_reader import CallLater, EnsembleReader, RunRead
from broker.ledger_client.ensemble_writer import CallSoon, EnsembleWriter
from broker.ledger_client.ledger_client import EntryAdds
from broker.ledger_client.ledger_metadata import LedgerMetadata, Segment, ledger_key
from broker.ledger_client.own_ledger import OwnLedger, RecoveringLedger, read_metadata
from broker.ledger_client.recovery import recover
from broker.ledger_client.settings import LedgerSettings
from broker.metadata.metadata_store import MetadataStore


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
        if known is not None:
            self._reader.read(ledger_id, known.metadata, first, last, bytes_max, done)
            return

        def loaded(error: BrokerError | None) -> None:
            if error is None:
                self.read(ledger_id, first, last, bytes_max, done)
            else:
                done([], error)

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
            self._known[ledger_id] = _Closed(found[0])
        except BrokerError as problem:
            error = problem
        for loaded in self._loading.pop(ledger_id):
            loaded(error)

    # Ends

    async def recover(self, ledger_id: int) -> LedgerMetadata | None:
        """Fence and close a ledger that another writer left open; answers its metadata, None when there is no such
        ledger. One that is closed is left as it is. Raises PersistenceError or MetadataError, and may then be
        tried again."""
        taken = await RecoveringLedger.take_over(self._store, ledger_id)
        if isinstance(taken, RecoveringLedger):
            taken = await recover(taken, self.bookies, call_soon=self._call_soon, spawn=self._spawn)
        if taken is not None:
            self._known[ledger_id] = _Closed(taken)
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
