"""Ledgers: making, writing, reading, recovering and deleting them, on one bookie or on many.

The one object of the ledger client that the rooms above know. A ledger's metadata says where its entries are. It is
loaded when somebody reads the ledger, and kept while there is room. Those of others change, when their writer's ensemble
does or when a tool copies what a dead bookie had: a read that failed everywhere looks once whether they did.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial

from broker.ledger_client.bookies import Bookies
from broker.ledger_client.digest import Digest, digest_of
from broker.ledger_client.ensemble_reader import CallLater, EnsembleReader, RunRead
from broker.ledger_client.ensemble_writer import CallSoon, EnsembleWriter
from broker.ledger_client.ledger_client import EntryAdds
from broker.ledger_client.own_ledger import OwnLedger, RecoveringLedger, read_metadata
from broker.ledger_client.recovery import recover
from broker.ledger_client.settings import LedgerSettings
from broker.metadata.metadata_store import MetadataStore, Put
from broker.model.entry import Entry
from broker.model.errors import BrokerError, NoSuchLedger
from protocol.ledger_metadata import LedgerMetadata, Segment, ledger_key

log = logging.getLogger(__name__)

KNOWN_MAX = 20_000
"""Ledgers that are not written here and whose metadata is kept: some 20 MB."""

Loaded = Callable[[LedgerMetadata | BrokerError], None]


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
        self._own: dict[int, OwnLedger] = {}
        """Those that are written here: as many as there are, until they are closed."""
        self._kept: dict[int, LedgerMetadata] = {}
        """Of others, the one that was loaded first in front."""
        self._loading: dict[int, list[Loaded]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # Writing

    async def create(self, ledger_id: int, custom: dict[str, bytes]) -> OwnLedger:
        """A new, empty ledger. Raises NotEnoughBookies, or MetadataError (BadVersion when it exists)."""
        own, _ = await self.create_beside(ledger_id, custom, ())
        return own

    async def create_beside(
        self, ledger_id: int, custom: dict[str, bytes], beside: Sequence[Put]
    ) -> tuple[OwnLedger, list[int]]:
        """As `create`, with other writes whose new versions are answered: all of it is stored, or nothing."""
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
        own, versions = await OwnLedger.create(self._store, ledger_id, metadata, self._keep, beside)
        self._own[ledger_id] = own
        return own, versions

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
        metadata = self._metadata_of(ledger_id)
        if metadata is None:

            def loaded(found: LedgerMetadata | BrokerError) -> None:
                if isinstance(found, LedgerMetadata):
                    self._read_by(found, ledger_id, first, last, bytes_max, done)
                else:
                    done([], found)

            self._load_then(ledger_id, loaded)
            return
        if ledger_id not in self._own:
            done = partial(self._read_or_look_again, metadata, ledger_id, first, last, bytes_max, done)
        self._read_by(metadata, ledger_id, first, last, bytes_max, done)

    def _metadata_of(self, ledger_id: int) -> LedgerMetadata | None:
        own = self._own.get(ledger_id)
        return self._kept.get(ledger_id) if own is None else own.metadata

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

        def loaded(found: LedgerMetadata | BrokerError) -> None:
            if isinstance(found, LedgerMetadata) and found.segments != metadata.segments:
                self._read_by(found, ledger_id, first, last, bytes_max, done)
            else:
                done([], refused)

        self._load_then(ledger_id, loaded)

    def _load_then(self, ledger_id: int, loaded: Loaded) -> None:
        waiting = self._loading.setdefault(ledger_id, [])
        waiting.append(loaded)
        if len(waiting) == 1:
            self._spawn(self._load(ledger_id))

    async def _load(self, ledger_id: int) -> None:
        answer: LedgerMetadata | BrokerError
        try:
            found = await read_metadata(self._store, ledger_id)
            if found is None:
                raise NoSuchLedger(f"ledger {ledger_id} has no metadata")
            answer = found[0]
            self._keep(ledger_id, answer)
        except BrokerError as problem:
            answer = problem
        for loaded in self._loading.pop(ledger_id):
            try:
                loaded(answer)
            except Exception:  # One reader's mistake is not to leave the others without an answer.
                log.exception("a reader of ledger %d failed on its metadata", ledger_id)

    def _keep(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """In the place of the one that was loaded first, when there are many."""
        self._own.pop(ledger_id, None)
        self._kept.pop(ledger_id, None)
        # What readers need, for as long as the log exists: not what tools want to know.
        self._kept[ledger_id] = replace(metadata, custom={})
        if len(self._kept) > KNOWN_MAX:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
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
        self._own.pop(ledger_id, None)
        self._kept.pop(ledger_id, None)
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
