"""EntryRun: entries of one ledger that are handled as one add.

A single add is a run of one. No other request of the bookie comes between two entries of a run, so one check of the
master key and of the fence holds for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bookie_stub.journal.journal import Done


class EntryRun(NamedTuple):
    """A run of adds, as the wire cuts it out."""

    ledger_id: int
    """The ledger of all entries, as it stands inside them."""
    entry_ids: Sequence[int]
    """The ids inside the entries; a range when each is one more than the one before.

    Never negative in a run of two and more; a single add is checked later and may be refused.
    """
    records: bytes
    """The records one after the other, each size field at least 24. A single add may be shorter, and is refused."""
    starts: Sequence[int]
    """The offset of each record in `records`; a range when all have the same length."""
    master_key: bytes
    """The key that the writer presents, 20 bytes unless the add is to be refused."""
    recovery: bool
    """True when the adds carry the recovery flag, with which a fenced ledger takes them."""
    done: Done
    """Called as `done(rc, first entry id)`, once for all entries."""
