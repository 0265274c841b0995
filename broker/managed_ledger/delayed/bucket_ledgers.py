"""BucketLedgers: keeps full buckets of delayed entries in ledgers of their own, so that a restart need not read the log.

Each bucket is one ordinary ledger, which the managed ledger's stored list names under "delayed". The steps of storing a
bucket, and what the next open finds after a crash:

    before 1                        nothing; the entries are read from the log again
    1  list and ledger in one write     a ledger that is not closed: the open removes it
    2  the segments, one entry each     the same
    3  the ledger's end                 the whole bucket

A bucket never changes. Its ledger is removed when the last of its entries is due or acknowledged, in the two steps of
every ledger: out of the list, then the ledger itself. A bucket that cannot be stored or read costs time and nothing
else, because the entries themselves say when they are due.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from bookkeeper.ensembles.awaited_adds import AwaitedAdds
from bookkeeper.ensembles.awaited_reads import read_entries
from bookkeeper.ensembles.own_ledger import OwnLedger, read_metadata
from broker.managed_ledger.delayed.bucket import BrokenSegment, Bucket, BucketSegment
from broker.managed_ledger.delayed.delayed_entries import DelayedEntries
from broker.managed_ledger.ledger_context import LedgerContext
from foundation.model.errors import BrokerError, MetadataError
from protocol.ledger_metadata import LedgerState

log = logging.getLogger(__name__)


class BucketLedgers:
    """Stores, loads and removes the buckets of one managed ledger."""

    __slots__ = ("_context",)

    def __init__(self, context: LedgerContext) -> None:
        self._context = context

    # Storing

    def store(self, bucket: Bucket) -> None:
        """Stores a full bucket in the background; it stays in memory alone when that fails."""
        self._context.background.spawn(self._store(bucket))

    async def _store(self, bucket: Bucket) -> None:
        context = self._context
        try:
            ledger_id = await context.environment.ids.next(above=context.ledgers.current.ledger_id)
            async with context.store.lock:
                ledger = await context.store.start_bucket(ledger_id)
        except BrokerError as error:
            log.warning("! %s: a bucket of delayed entries was not stored: %s", context.name, error)
            return
        try:
            await self._write(ledger, [segment.encode() for segment in bucket.segments])
        except BrokerError as error:
            log.warning(
                "! %s: bucket %d of delayed entries was not stored: %s", context.name, ledger_id, error
            )
            await self._remove([ledger_id])
            return
        # Its entries may all have become due while it was written; then nothing else would remove the ledger.
        if bucket.segments:
            bucket.ledger_id = ledger_id
        else:
            await self._remove([ledger_id])

    async def _write(self, ledger: OwnLedger, segments: list[bytes]) -> None:
        environment = self._context.environment
        adds = AwaitedAdds(ledger, environment.ledgers, environment.turn, environment.now_ns)
        for segment in segments:
            adds.add(segment)
        await adds.confirmed()
        # The end last: a bucket counts only as a whole.
        await adds.close()

    # Loading

    async def load(self, entries: DelayedEntries) -> None:
        """Reads all stored buckets into the index. Buckets that cannot be used are removed."""
        context = self._context
        first_ledger = context.ledgers.infos()[0].ledger_id
        unusable: list[int] = []
        for ledger_id in list(context.store.buckets):
            try:
                segments = await self._read(ledger_id)
            except (BrokerError, BrokenSegment) as error:
                log.warning(
                    "! %s: bucket %d of delayed entries is dropped, its entries are read again: %s",
                    context.name,
                    ledger_id,
                    error,
                )
                unusable.append(ledger_id)
                continue
            bucket = Bucket.restore(segments, ledger_id)
            for _ in entries.load(bucket, first_ledger, context.environment.wall_ms()):
                await asyncio.sleep(0)
        unusable += entries.remove_empty()
        if unusable:
            await self._remove(unusable)

    async def _read(self, ledger_id: int) -> list[BucketSegment]:
        environment = self._context.environment
        found = await read_metadata(environment.metadata, ledger_id)
        if found is None:
            raise MetadataError(f"ledger {ledger_id} has no metadata")
        metadata, _ = found
        if metadata.state is not LedgerState.CLOSED:
            raise MetadataError(
                f"ledger {ledger_id} is {metadata.state.name.lower()}: its writer did not end it"
            )
        segments: list[BucketSegment] = []
        bytes_max = self._context.settings.read_bytes_max
        while len(segments) <= metadata.last_entry_id:
            first, last = len(segments), metadata.last_entry_id
            run = await read_entries(environment.ledgers, ledger_id, first, last, bytes_max)
            segments += [BucketSegment.decode(entry.body) for entry in run]
        return segments

    # Removing

    def remove(self, ledger_ids: Iterable[int]) -> None:
        """Removes the ledgers of buckets without entries, in the background."""
        self._context.background.spawn(self._remove(list(ledger_ids)))

    async def _remove(self, ledger_ids: list[int]) -> None:
        store = self._context.store
        async with store.lock:
            store.drop_buckets(ledger_ids)
            try:
                await store.delete_marked()
            except MetadataError as error:
                # The stored list still names them: the next removal or the next open tries again.
                log.info("%s: buckets %s are removed later: %s", self._context.name, ledger_ids, error)
