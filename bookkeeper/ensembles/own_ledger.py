"""A ledger's metadata while a process writes it: every change is a compare-and-set in the metadata store.

The laws:

1. One write begins a ledger. `OwnLedger.create` stores the ledger's metadata together with the list that names it
   (`MetadataStore.put_all`), so no list names a ledger that does not exist, and no ledger exists that no list names.
   A cursor's ledger is made alone (`CursorRecord`).
2. The writer changes its metadata only while the ledger is OPEN. A change that meets another process's looks once more:
   a ledger that is not OPEN has been taken over, and its writer must stop.
3. A recovery first makes the ledger IN_RECOVERY. From then on its own ensemble changes stay in memory, because only the
   close makes them count, and of several recoveries only one can close.

BookKeeper's names: LedgerCreateOp, MetadataUpdateLoop for law 2, ReadOnlyLedgerHandle for a ledger in recovery.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from bookkeeper.metadata.metadata_store import ABSENT, Check, Lease, MetadataStore, Put
from foundation.model.errors import BadVersion, LedgerFenced, MetadataError
from protocol.ledger_metadata import (
    LedgerMetadata,
    LedgerMetadataError,
    LedgerState,
    decode,
    encode,
    ledger_key,
)

_Change = Callable[[LedgerMetadata], LedgerMetadata]
Closed = Callable[[int, LedgerMetadata], None]
"""(ledger id, its metadata with the end)"""


class OwnLedger:
    """A ledger that this process writes. It is OPEN in the store until it is closed or taken over."""

    def __init__(
        self,
        store: MetadataStore,
        ledger_id: int,
        metadata: LedgerMetadata,
        version: int,
        closed: Closed,
    ) -> None:
        """Called by `create` alone. `closed` is called after `close` has ended the ledger."""
        self.ledger_id = ledger_id
        """The ledger's node in the store is named after it."""
        self.metadata = metadata
        """The last metadata that the store was known to have."""
        self._store = store
        self._version = version
        self._closed = closed
        # Two changes at once would begin with the same version, and the second would look like another process's.
        self._one_change = asyncio.Lock()

    @classmethod
    async def create(
        cls,
        store: MetadataStore,
        ledger_id: int,
        metadata: LedgerMetadata,
        closed: Closed,
        beside: Sequence[Put | Check] = (),
    ) -> tuple[OwnLedger, list[int]]:
        """Begins a ledger together with the writes in `beside`; returns it and the new versions of `beside`.

        All is stored, or nothing. Raises MetadataError; BadVersion when another process made the ledger or changed a
        key in `beside`.
        """
        try:
            version, *others = await store.put_all(
                (Put(ledger_key(ledger_id), encode(metadata), ABSENT), *beside)
            )
        except BadVersion:
            # An earlier try of ours may have been carried out, though its answer was lost. The ledger then has our
            # creator token, and every key beside it has the very value that we wrote.
            found = await read_metadata(store, ledger_id)
            if (
                found is None
                or found[0].creator_token != metadata.creator_token
                or not metadata.creator_token  # 0 is every broker's that has none.
            ):
                raise
            metadata, version = found
            others = []
            for put in beside:
                if isinstance(put, Check):
                    others.append(put.expected)
                    continue
                there = await store.get(put.key)
                if there is None or there.value != put.value:
                    raise
                others.append(there.version)
        return cls(store, ledger_id, metadata, version, closed), others

    async def change_ensemble(self, first_entry_id: int, members: tuple[str, ...]) -> None:
        """Stores that entries from `first_entry_id` on are on `members`.

        Raises LedgerFenced when the ledger was taken over or closed, MetadataError when the outcome is not known.
        """
        async with self._one_change:
            await self._write(lambda metadata: metadata.with_ensemble(first_entry_id, members))

    async def close(self, last_entry_id: int, length: int) -> None:
        """Ends the ledger for ever. Raises as `change_ensemble`; does nothing for a ledger that is closed."""
        async with self._one_change:
            if self.metadata.state is not LedgerState.CLOSED:
                await self._write(lambda metadata: closed_at(metadata, last_entry_id, length))
                self._closed(self.ledger_id, self.metadata)

    async def _write(self, change: _Change) -> None:
        while True:
            if self.metadata.state is not LedgerState.OPEN:
                raise LedgerFenced(f"ledger {self.ledger_id} is {self.metadata.state.name.lower()}")
            wanted = change(self.metadata)
            try:
                self._version = await self._store.put(
                    ledger_key(self.ledger_id), encode(wanted), self._version
                )
            except BadVersion:
                if await self._is_stored(wanted):
                    self.metadata = wanted
                    return
                continue  # Still OPEN: a tool has changed it. Make the change again on what is there.
            self.metadata = wanted
            return

    async def _is_stored(self, wanted: LedgerMetadata) -> bool:
        """Takes the store's metadata.

        Returns True when it is as wanted: a write was carried out and its answer lost.
        """
        found = await read_metadata(self._store, self.ledger_id)
        if found is None:
            raise LedgerFenced(f"ledger {self.ledger_id} was deleted")
        self.metadata, self._version = found
        return encode(self.metadata) == encode(wanted)


class RecoveringLedger:
    """A ledger that this process has taken over. It is IN_RECOVERY in the store until it is closed."""

    def __init__(self, store: MetadataStore, ledger_id: int, metadata: LedgerMetadata, version: int) -> None:
        """Called by `take_over` alone."""
        assert metadata.state is LedgerState.IN_RECOVERY
        self.ledger_id = ledger_id
        """The ledger's node in the store is named after it."""
        self.metadata = metadata
        """With the ensemble changes of this recovery, which are not stored yet."""
        self._store = store
        self._version = version

    @classmethod
    async def take_over(
        cls, store: MetadataStore, ledger_id: int, lease: Lease | None = None
    ) -> RecoveringLedger | LedgerMetadata | None:
        """Forbids the writer every change of the metadata, under a `lease` if there is one. Raises MetadataError.

        Returns the metadata itself for a ledger that is closed already, None for a missing one.
        """
        refused = None
        while True:
            found = await read_metadata(store, ledger_id)
            if found is None:
                return None
            metadata, version = found
            if metadata.state is LedgerState.CLOSED:
                return metadata
            # A ledger that is IN_RECOVERY already is taken as it is: its recovery may have died, and the close decides.
            if metadata.state is LedgerState.OPEN:
                if version == refused:
                    # Not the ledger has changed, so the lease has gone.
                    raise MetadataError(f"ledger {ledger_id} is another broker's to take over")
                metadata = replace(metadata, state=LedgerState.IN_RECOVERY)
                put = Put(ledger_key(ledger_id), encode(metadata), version)
                try:
                    if lease is None:
                        version = await store.put(*put)
                    else:
                        version, _ = await store.put_all((put, lease()))
                except BadVersion:
                    refused = version
                    continue  # The writer changed its ensemble, or another recovery was faster.
            return cls(store, ledger_id, metadata, version)

    async def change_ensemble(self, first_entry_id: int, members: tuple[str, ...]) -> None:
        """Changes the ensemble in memory; `close` stores it."""
        self.metadata = self.metadata.with_ensemble(first_entry_id, members)

    async def close(self, last_entry_id: int, length: int) -> LedgerMetadata:
        """Ends the ledger; returns its metadata.

        The end is that of another recovery where that one was faster. Raises MetadataError when the end is not stored.
        """
        # With the version of the take-over, so only one of several recoveries stores its end.
        closed = closed_at(self.metadata, last_entry_id, length)
        try:
            await self._store.put(ledger_key(self.ledger_id), encode(closed), self._version)
        except BadVersion as error:
            found = await read_metadata(self._store, self.ledger_id)
            if found is None or found[0].state is not LedgerState.CLOSED:
                raise MetadataError(f"ledger {self.ledger_id}: {error}") from error
            return found[0]
        return closed


async def read_metadata(store: MetadataStore, ledger_id: int) -> tuple[LedgerMetadata, int] | None:
    """Returns the ledger's metadata and its version, None for a missing ledger.

    Raises MetadataError when the store cannot be read, or its value not understood.
    """
    found = await store.get(ledger_key(ledger_id))
    if found is None:
        return None
    try:
        metadata = decode(found.value)
    except LedgerMetadataError as error:
        raise MetadataError(f"ledger {ledger_id}: {error}") from error
    # Readers and recoveries look for the segment of an entry and rely on finding one.
    if not metadata.segments or metadata.segments[0].first_entry_id > 0:
        raise MetadataError(f"ledger {ledger_id}: its metadata names no bookies for entry 0")
    return metadata, found.version


def closed_at(metadata: LedgerMetadata, last_entry_id: int, length: int) -> LedgerMetadata:
    """Returns a copy that is CLOSED after this entry. `length`: payload bytes of the whole ledger."""
    return replace(metadata, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length=length)
