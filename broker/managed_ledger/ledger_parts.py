"""LedgerParts: the parts of a managed ledger that its cursors call."""

from __future__ import annotations

from typing import NamedTuple

from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.reading_cursors import ReadingCursors
from broker.managed_ledger.storage_reads import StorageReads
from broker.managed_ledger.trimming import Trimming


class LedgerParts(NamedTuple):
    """The parts that all cursors of one managed ledger share."""

    context: LedgerContext
    """State of the managed ledger."""
    storage_reads: StorageReads
    """Reads from BookKeeper ledgers that are under way."""
    reading_cursors: ReadingCursors
    """The active cursors, as the cache knows them."""
    trimming: Trimming
    """Removes ledgers when an acknowledgement made them superfluous."""
