"""A run: entries of one ledger that came together, with one key and one answer. A single add is a run of one.

Nothing happens between the entries of a run, so what is judged for one of them holds for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bookie_stub.journal.journal import Done


class EntryRun(NamedTuple):
    ledger_id: int
    entry_ids: Sequence[int]
    """Those inside the entries; never negative, unless it is only one. A range when they follow one another."""
    records: bytes
    """The entries, each with its int32 length in front, which is 24 or more, unless it is only one; one behind the other."""
    starts: Sequence[int]
    """Where each record begins; a range when all are equally long."""
    master_key: bytes
    recovery: bool
    done: Done
    """`done(rc, the first entry's id)`: one answer for all of them."""
