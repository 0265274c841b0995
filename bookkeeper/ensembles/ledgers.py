"""Ledgers: making, writing, reading, recovering and deleting ledgers, on one bookie or on many.

The one object of this package that the layers above know: `broker/managed_ledger` makes a log of many ledgers with it.
BookKeeper's name: the class BookKeeper, and LedgerManager for the metadata.

A ledger's metadata says where its entries are. It is loaded at the first read and kept, up to 20,000 ledgers. The metadata
of ledgers that are written here is always current. That of others may change: by its writer's ensemble change, or by a
tool that copies the entries of a dead bookie. So a read that failed on every bookie loads the metadata again, once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial

from bookkeeper.client.digest import Digest, digest_of
from bookkeeper.client.ledger_client import EntryAdds
from bookkeeper.client.result_codes import error_of
from bookkeeper.ensembles.bookies import Bookies
from bookkeeper.ensembles.ensemble_reader import CallLater, EnsembleRead, EnsembleReader, RunRead
from bookkeeper.ensembles.ensemble_writer import CallSoon, EnsembleWriter
from bookkeeper.ensembles.own_ledger import OwnLedger, RecoveringLedger, read_metadata
from bookkeeper.ensembles.racks import BookieRacks
from bookkeeper.ensembles.recovery import recover
from bookkeeper.ensembles.settings import Copies, EnsembleSettings
from bookkeeper.metadata.metadata_store import Check, Lease, MetadataStore, Put
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, NoSuchLedger
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, ledger_key

log = logging.getLogger(__name__)

KNOWN_MAX = 20_000
"""Ledgers not written here whose metadata is kept: some 20 MB."""

_Loaded = Callable[[LedgerMetadata | BrokerError], None]


class Ledgers:
    """Makes, writes, reads, recovers and deletes a broker's ledgers."""

    def __init__(
        self,
        metadata: MetadataStore,
        bookies: Bookies,
        settings: EnsembleSettings,
        *,
        call_soon: CallSoon,
        call_later: CallLater,
        creator_token: int = 0,
    ) -> None:
        """`call_soon` and `call_later` as the loop's.

        `creator_token`: a random number by which this broker knows a ledger again whose creation was answered late; 0 =
        never know one again.
        """
        self.bookies = bookies
        """All bookies that this broker knows; new ledgers are placed on them."""
        self.racks = BookieRacks(metadata)
        """Racks and groups of bookies; the owner opens it."""
        self.settings = settings
        """For new ledgers; those that exist keep what their metadata says."""
        self.digest: Digest = digest_of(settings.digest_type, settings.password)
        """Of new ledgers."""
        self._store = metadata
        self._call_soon = call_soon
        self._creator_token = creator_token
        self._reader = EnsembleReader(
            bookies, call_later, sticky=settings.sticky_reads, speculative_s=settings.speculative_read_s
        )
        self._own: dict[int, OwnLedger] = {}
        """Ledgers that are written here, until they are closed. Never dropped: their metadata changes here."""
        self._kept: dict[int, LedgerMetadata] = {}
        """Metadata of other ledgers; the one that was loaded first is dropped first."""
        self._loading: dict[int, list[_Loaded]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # Writing

    async def create(self, ledger_id: int, custom: dict[str, bytes]) -> OwnLedger:
        """Begins a ledger and returns it. Raises NotEnoughBookies, or MetadataError (BadVersion when it exists)."""
        own, _ = await self.create_with(ledger_id, custom, ())
        return own

    async def create_with(
        self,
        ledger_id: int,
        custom: dict[str, bytes],
        beside: Sequence[Put | Check],
        copies: Copies | None = None,
    ) -> tuple[OwnLedger, list[int]]:
        """Begins a ledger as `create` does, together with the writes in `beside`.

        All is stored, or nothing. Returns the new versions of `beside` too. `copies` replaces the numbers of the
        settings; a broker with one bookie stores each entry once all the same.
        """
        settings = self.settings
        if copies is not None and self.bookies.sole is None:
            settings = replace(
                settings,
                ensemble_size=copies.ensemble_size,
                write_quorum=copies.write_quorum,
                ack_quorum=copies.ack_quorum,
            )
        # With fewer than Qw bookies an entry would have fewer copies than promised, so that is the least.
        least = settings.write_quorum if settings.opportunistic_striping else settings.ensemble_size
        place = self.racks.place(custom, (None,) * settings.ensemble_size, settings.write_quorum)
        members = self.bookies.choose(settings.ensemble_size, count_min=least, place=place)
        metadata = LedgerMetadata(
            (LedgerSegment(members),),
            ensemble_size=len(members),  # Readers and recoveries count with the bookies that there are.
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
        """Returns the destination of a created ledger's entries, from entry 0 on. To be called once per ledger."""
        sole = self.bookies.sole
        if sole is not None:  # Without a wrapper, which would cost a call per entry and add nothing.
            return sole
        return EnsembleWriter(
            ledger, self.bookies, call_soon=self._call_soon, spawn=self._spawn, racks=self.racks
        )

    # Reading

    def read(self, ledger_id: int, first: int, last: int, bytes_max: int, done: RunRead) -> None:
        """Reads some entries from `first` on, none after `last`.

        The entries have about `bytes_max` bytes in all.

        `done` is called once, never inside this call. Its error is NoSuchLedger or NoSuchEntry only when every bookie
        that might have the entry says so.
        """
        request = EnsembleRead(ledger_id, first, last, bytes_max, done)
        metadata = self._metadata_of(ledger_id)
        if metadata is None:
            self._load_then(ledger_id, partial(self._read_loaded, request))
            return
        if ledger_id not in self._own:
            # Made anew and not by `_replace`, which costs a microsecond: a catch-up read of one entry costs six.
            retrying = partial(self._done_or_again, request, metadata)
            request = EnsembleRead(ledger_id, first, last, bytes_max, retrying)
        self._reader.read(metadata, request)

    def _metadata_of(self, ledger_id: int) -> LedgerMetadata | None:
        own = self._own.get(ledger_id)
        return self._kept.get(ledger_id) if own is None else own.metadata

    def _read_loaded(self, request: EnsembleRead, found: LedgerMetadata | BrokerError) -> None:
        if isinstance(found, LedgerMetadata):
            self._reader.read(found, request)
        else:
            request.done([], found)

    def _done_or_again(
        self,
        request: EnsembleRead,
        before: LedgerMetadata,
        entries: list[Entry],
        error: BrokerError | None,
    ) -> None:
        """Reports the outcome, or reads again where newer metadata says.

        Only an error leads to a second read, and only when the loaded metadata names other segments than `before`, by
        which the first read went.
        """
        if error is None:
            request.done(entries, error)
            return
        refused = error

        def loaded(found: LedgerMetadata | BrokerError) -> None:
            if isinstance(found, LedgerMetadata) and found.segments != before.segments:
                self._reader.read(found, request)
            else:
                request.done([], refused)

        self._load_then(request.ledger_id, loaded)

    def _load_then(self, ledger_id: int, loaded: _Loaded) -> None:
        """Loads the metadata and calls `loaded` with it; calls for one ledger share one load."""
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
            except Exception:  # One reader's error must not leave the other readers without an answer.
                log.exception("a reader of ledger %d failed on its metadata", ledger_id)
        # An error's traceback has this frame: only the collector would free both.
        del answer

    def _keep(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Keeps the metadata of a ledger that this broker does not write."""
        self._own.pop(ledger_id, None)
        # Removed first, so that it goes to the end: dicts keep the place of a key that is set again.
        self._kept.pop(ledger_id, None)
        # Without the custom part, which only tools read.
        self._kept[ledger_id] = replace(metadata, custom={})
        if len(self._kept) > KNOWN_MAX:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._reader.forget(oldest)

    # Ends

    async def recover(
        self, ledger_id: int, *, keeps_damaged: bool = False, lease: Lease | None = None
    ) -> LedgerMetadata | None:
        """Fences and closes a ledger that another writer left open.

        Returns its metadata, None for a missing ledger.

        A closed ledger stays as it is. An entry that no bookie has whole refuses the recovery unless `keeps_damaged`,
        which leaves it where it is, for readers that skip lost entries. With a `lease` the writer is fenced only while that
        stands. After PersistenceError or MetadataError the call may be tried again.
        """
        taken = await RecoveringLedger.take_over(self._store, ledger_id, lease)
        if isinstance(taken, RecoveringLedger):
            taken = await recover(
                taken,
                self.bookies,
                call_soon=self._call_soon,
                spawn=self._spawn,
                racks=self.racks,
                keeps_damaged=keeps_damaged,
            )
        if taken is not None:
            self._keep(ledger_id, taken)
        return taken

    async def delete(self, ledger_id: int) -> None:
        """Deletes the ledger's metadata; bookies reclaim its space.

        Returns when an embedded bookie has it durably too: a caller may then forget the ledger. A missing ledger is
        fine. Raises MetadataError, and PersistenceError when the bookie cannot write its journal; the caller then asks
        again.
        """
        # The metadata first: bookies give the space back when they find it gone, and a crash in between leaves nothing
        # that points to deleted entries.
        await self._store.delete(ledger_key(ledger_id))
        self._own.pop(ledger_id, None)
        self._kept.pop(ledger_id, None)
        self._reader.forget(ledger_id)
        # Only an embedded bookie can be told. Those over TCP compare with the metadata store now and then.
        if self.bookies.sole is not None:
            deleted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self.bookies.sole.delete(ledger_id, partial(_settle, deleted))
            if rc := await deleted:
                raise error_of(rc, f"deleting ledger {ledger_id}")

    async def close(self) -> None:
        """Closes the bookies; outstanding requests fail with an I/O error."""
        await self.racks.close()
        await self.bookies.close()
        # Again and again: a task that ends with an error may have begun another one.
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            # Finished tasks leave the set in callbacks. Since Python 3.12 `gather` does not yield for them, so without this
            # turn of the loop the callbacks would never run.
            await asyncio.sleep(0)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _settle(deleted: asyncio.Future[int], rc: int, _ledger_id: int) -> None:
    if not deleted.done():  # The caller was cancelled; the ledger is deleted all the same.
        deleted.set_result(rc)
