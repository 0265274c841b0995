"""LedgerParts: the parts of a managed ledger that its cursors call."""

from __future__ import annotations

from dataclasses import dataclass

from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.reading_cursors import ReadingCursors
from broker.managed_ledger.storage_reads import StorageReads
from broker.managed_ledger.trimming import Trimming


@dataclass(frozen=True, slots=True)
class LedgerParts:
    """One per managed ledger; every cursor of it receives the same one."""

    context: LedgerContext
    storage_reads: StorageReads
    reading_cursors: ReadingCursors
    trimming: Trimming
