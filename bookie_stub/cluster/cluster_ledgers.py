"""ClusterLedgers: the questions of a bookie about its cluster's ledgers.

Every answer is certain, or an error."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol


class ClusterLedgers(Protocol):
    """The cluster's ledgers as garbage collection sees them.

    Calls block. They come from the garbage collection's thread, or from a start. Each raises BookieError when anything
    is in doubt, because its answer decides which entries are deleted.
    """

    def missing(self, ledger_ids: Sequence[int], *, verify: bool) -> list[int]:
        """Those of the ledgers (ascending) that do not exist any more.

        `verify` asks for each by name too.
        """
        ...

    def naming(self, bookie_id: str) -> list[int]:
        """All ledgers with this bookie in an ensemble.

        It is enough that one segment of the ledger names it.
        """
        ...

    def elsewhere(self, ledger_ids: Sequence[int], bookie_id: str) -> list[int]:
        """Those that are closed and do not name this bookie.

        No ensemble of any segment names it.
        """
        ...

    def replication_lock(self, ledger_id: int, bookie_id: str) -> AbstractContextManager[bool]:
        """Keeps re-replication away from the ledger.

        False when another process has the lock.
        """
        ...
