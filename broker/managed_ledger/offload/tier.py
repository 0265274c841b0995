"""Tier: the storage beside the bookies that keeps copies of closed ledgers (Pulsar's LedgerOffloader).

`broker/offload` implements it, and is imported when the first ledger is copied to it, read from it or deleted in it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from bookkeeper.ensembles.ledgers import Ledgers
from broker.managed_ledger.ledger_list import LedgerInfo, OffloadContext, OffloadedLedger, OffloadPlace
from broker.managed_ledger.settings import OffloadRules
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError

RunRead = Callable[[list[Entry], BrokerError | None], None]
"""Receives some entries, or none and an error."""


OK: Final = "OK"
"""A list of ledgers names the object as a part of a complete copy. These words are Pulsar's."""
NOT_OFFLOADED: Final = "NOT-OFFLOADED"
"""A list names it as a part of a copy that is not complete, or that is to be deleted."""
NOT_FOUND: Final = "NOT-FOUND"
"""No list names it: it is left over."""
UNKNOWN: Final = "UNKNOWN"
"""No list of the namespace names it, and it does not tell its owner."""


class ScannedObject(NamedTuple):
    """An object in the storage, with what the lists say of it."""

    key: str
    """Its name."""
    uri: str
    """Its place, for people."""
    uuid: UUID | None
    """The offload in its name; None for another name."""
    ledger_id: int
    """The ledger in its name."""
    size_bytes: int
    """Its size."""
    modified_ms: int
    """When it was written, ms since 1970."""
    owner: str
    """Name of its managed ledger; empty where its index is missing."""
    status: str
    """One of the words above."""


class CopyRead(NamedTuple):
    """A read of consecutive entries from a copy."""

    topic: str
    """Name of the managed ledger."""
    ledger_id: int
    """The ledger."""
    copy: OffloadContext
    """Its copy."""
    first: int
    """The first entry."""
    last: int
    """The last entry."""
    bytes_max: int
    """Once these are read the rest is left to the next read."""


class Tier(Protocol):
    """Copies of ledgers in other storage."""

    def new_id(self, place: OffloadPlace) -> UUID:
        """Returns the id of an offload that is to begin.

        Raises PersistenceError where the place cannot be opened: noted in a list, it could never be deleted.
        """
        ...

    async def copy(
        self,
        topic: str,
        info: LedgerInfo,
        context: OffloadContext,
        rules: OffloadRules,
        ledgers: Ledgers,
        go_on: Callable[[], bool],
    ) -> None:
        """Copies a closed ledger from the bookies, and compares the copy.

        `go_on`: asked now and then; the copy ends with an error once it returns False. Raises BrokerError.
        """
        ...

    def read(self, asked: CopyRead, done: RunRead) -> None:
        """Reads some of the entries, at least one; `done` is called in a later loop turn."""
        ...

    async def delete(self, topic: str, copy: OffloadedLedger) -> None:
        """Deletes the objects of a copy; missing ones are fine. Raises BrokerError."""
        ...

    def settle(self, topic: str, copy: OffloadedLedger) -> None:
        """Deletes the objects of a copy, in the background, unless the stored list names it: then its owner deletes it.

        Tries again until the list can be read and the objects are deleted.
        """
        ...

    def scan(
        self, place: OffloadPlace, namespace: str, named: Mapping[UUID, bool]
    ) -> AsyncIterator[ScannedObject]:
        """Yields the objects of a namespace, and those whose owner is not known. Raises BrokerError.

        `named`: the offloads that the lists of the namespace name, and whether each is complete.
        """
        ...


OpenTier = Callable[[], Tier]
"""Returns the tier, and imports its modules at the first call."""
