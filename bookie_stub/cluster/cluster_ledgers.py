"""What a bookie asks its cluster about ledgers, whoever answers. Every answer is certain, or an error."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol


class LedgerMetadata(Protocol):
    """Calls block and come from the garbage collection's thread, or from a start."""

    def missing(self, ledger_ids: Sequence[int], *, verify: bool) -> list[int]:
        """Those of them (ascending) that do not exist any more. With `verify` each one was asked for by name.

        Raises BookieError when anything is in doubt.
        """
        ...

    def naming(self, bookie_id: str) -> list[int]:
        """All ledgers that have, or had for a part of them, this bookie in their ensemble. Raises BookieError."""
        ...

    def elsewhere(self, ledger_ids: Sequence[int], bookie_id: str) -> list[int]:
        """Those of them that are closed and do not name this bookie in any ensemble. Raises BookieError."""
        ...

    def replication_lock(self, ledger_id: int, bookie_id: str) -> AbstractContextManager[bool]:
        """Keeps re-replication away from the ledger; False when somebody else has the lock. Raises BookieError."""
        ...
