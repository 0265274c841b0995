"""A ledger's metadata in the hands of whoever writes it: every change a compare-and-set in the metadata store.

`OwnLedger` is the writer's. A change that meets somebody else's is looked at once more: a ledger that is not open any
more has been taken over, and its writer must stop. `RecoveringLedger` is a recovery's: changes of the ensemble
stay in memory until the ledger is closed, because only the close makes them count, and only one recovery can close.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from broker.metadata.metadata_store import ABSENT, MetadataStore, Put
from broker.model.errors import BadVersion, LedgerFenced, MetadataError
from protocol.ledger_metadata import (
    LedgerMetadata,
    LedgerState,
    decode,
    encode,
    ledger_key,
)

Change = Callable[[LedgerMetadata], LedgerMetadata]
Closed = Callable[[int, LedgerMetadata], None]
"""(ledger id, its metadata, which says where it ends)"""


class OwnLedger:
    def __init__(
        self,
        store: MetadataStore,
        ledger_id: int,
        metadata: LedgerMetadata,
        version: int,
        closed: Closed,
    ) -> None:
        """`closed` is called when the ledger has been closed by `close`."""
        self.ledger_id = ledger_id
        self.metadata = metadata
        self._store = store
        self._version = version
        self._closed = closed
        self._one_change = asyncio.Lock()

    @classmethod
    async def create(
        cls,
        store: MetadataStore,
        ledger_id: int,
        metadata: LedgerMetadata,
        closed: Closed,
        beside: Sequence[Put] = (),
    ) -> tuple[OwnLedger, list[int]]:
        """The ledger, and the new versions of what is written `beside` it: all of that is stored, or nothing. Raises
        MetadataError; BadVersion when somebody else made the ledger or changed what stands beside it. A ledger of the
        same creator token, beside the very same values, is an earlier try of our own, whose answer was lost."""
        try:
            version, *others = await store.put_all(
                (Put(ledger_key(ledger_id), encode(metadata), ABSENT), *beside)
            )
        except BadVersion:
            found = await read_metadata(store, ledger_id)
            if (
                found is None
                or found[0].creator_token != metadata.creator_token
                or not metadata.creator_token
            ):
                raise
            metadata, version = found
            others = []
            for put in beside:
                there = await store.get(put.key)
                if there is None or there.value != put.value:
                    raise
                others.append(there.version)
        return cls(store, ledger_id, metadata, version, closed), others

    async def change_ensemble(self, first_entry_id: int, members: tuple[str, ...]) -> None:
        """From this entry on, entries go to `members`. Durable when this returns; LedgerFenced when the ledger was
        taken over or closed, MetadataError when it is not known whether it was stored."""
        async with self._one_change:
            await self._write(lambda metadata: metadata.with_ensemble(first_entry_id, members))

    async def close(self, last_entry_id: int, length: int) -> None:
        """The ledger ends here, for ever. Raises as `change_ensemble`; a ledger that has this very end is closed."""
        async with self._one_change:
            if self.metadata.state is not LedgerState.CLOSED:
                await self._write(lambda metadata: closed_at(metadata, last_entry_id, length))
                self._closed(self.ledger_id, self.metadata)

    async def _write(self, change: Change) -> None:
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
                continue
            self.metadata = wanted
            return

    async def _is_stored(self, wanted: LedgerMetadata) -> bool:
        """Look at what the store has. True when it is what was wanted: a write whose answer was lost."""
        found = await read_metadata(self._store, self.ledger_id)
        if found is None:
            raise LedgerFenced(f"ledger {self.ledger_id} was deleted")
        self.metadata, self._version = found
        return encode(self.metadata) == encode(wanted)


class RecoveringLedger:
    """A ledger that was taken over: IN_RECOVERY in the store."""

    def __init__(self, store: MetadataStore, ledger_id: int, metadata: LedgerMetadata, version: int) -> None:
        assert metadata.state is LedgerState.IN_RECOVERY
        self.ledger_id = ledger_id
        self.metadata = metadata
        self._store = store
        self._version = version

    @classmethod
    async def take_over(
        cls, store: MetadataStore, ledger_id: int
    ) -> RecoveringLedger | LedgerMetadata | None:
        """Forbid the writer all changes of the metadata. The metadata itself when the ledger is closed already, None
        when there is none. Raises MetadataError."""
        while True:
            found = await read_metadata(store, ledger_id)
            if found is None:
                return None
            metadata, version = found
            if metadata.state is LedgerState.CLOSED:
                return metadata
            if metadata.state is LedgerState.OPEN:
                metadata = replace(metadata, state=LedgerState.IN_RECOVERY)
                try:
                    version = await store.put(ledger_key(ledger_id), encode(metadata), version)
                except BadVersion:
                    continue  # the writer changed its ensemble, or somebody else is faster
            return cls(store, ledger_id, metadata, version)

    async def change_ensemble(self, first_entry_id: int, members: tuple[str, ...]) -> None:
        self.metadata = self.metadata.with_ensemble(first_entry_id, members)

    async def close(self, last_entry_id: int, length: int) -> LedgerMetadata:
        """Answers the ledger's end, which is another recovery's where that was faster. Raises MetadataError."""
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
    """With its version. Raises MetadataError."""
    found = await store.get(ledger_key(ledger_id))
    return None if found is None else (decode(found.value), found.version)


def closed_at(metadata: LedgerMetadata, last_entry_id: int, length: int) -> LedgerMetadata:
    return replace(metadata, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length=length)
