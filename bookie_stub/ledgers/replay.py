"""The replay: applies every journal record after the last mark again.

Invariants:

* A replay is idempotent. Entries that a flush had written before are written once more, and the index follows.
* Entries of a ledger without a known master key are skipped: the ledger was deleted. After damage that was given up
  they are kept, because the key record may be among the losses.
* A fence of a ledger without a known key is kept: without it a fenced writer could go on.
* A ledger with a tombstone never comes back, whatever the journal has of it: the records are older than the deletion,
  or BookKeeper wrote them afterwards.

Called by `compose.start`; the simulation in `tests/sim` applies single records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from bookie_stub.base.record import (
    DELETE_ID,
    EXPLICIT_LAC_ID,
    FENCE_ID,
    FORCE_ID,
    KEY,
    LENGTH_BYTES,
    MASTER_KEY_ID,
    UNSET_KEY,
    explicit_lac_of,
    special_body,
)
from bookie_stub.disk.ledger_index import LedgerData
from bookie_stub.disk.write_cache import WriteCache
from bookie_stub.journal.journal_chain import JournalChain
from bookie_stub.journal.journal_file import JournalMark
from bookie_stub.ledgers.ledger import Ledger

log = logging.getLogger(__name__)

Write = Callable[[WriteCache, Mapping[int, LedgerData], frozenset[int]], None]
"""Makes replayed entries, rows of the ledger index and deletions durable. May raise OSError or BookieError."""


class JournalReplay:
    """Collects the changes of the records and flushes them in portions.

    A flush follows whenever the write cache is full."""

    def __init__(
        self,
        ledgers: dict[int, Ledger],
        cache_bytes_max: int,
        write: Write,
        has_tombstone: Callable[[int], bool],
    ) -> None:
        """`ledgers` are those of the index. The replay adds to them and deletes from them."""
        self._ledgers = ledgers
        self._has_tombstone = has_tombstone
        self._cache_bytes_max = cache_bytes_max
        self._write = write
        self.cache = WriteCache()
        """Entries that the next flush writes."""
        self.changed: set[int] = set()
        """Ledgers whose row the next flush writes."""
        self.deleted: set[int] = set()
        """Ledgers that the next flush removes from the indexes."""
        self.records = 0
        """Records read so far."""
        self.skipped = 0
        """Records that belong to no known ledger, or have no known meaning."""
        self.damaged = False
        """True when acknowledged records were damaged and given up (`skipReplayJournalInvalidRecord`)."""
        self.cut = False
        """True when a journal ends before the last record that was acknowledged."""
        self._keys_lost = False

    def replay_journal(self, directory: Path, mark: JournalMark, *, skip_invalid: bool) -> JournalMark:
        """Applies the records of one journal directory after `mark`.

        Returns the end of its last file. Raises CorruptJournal for damage, unless `skip_invalid`.
        """
        chain = JournalChain(directory, mark, skip_invalid=skip_invalid)
        for record in chain.records():
            # Only after the damage: a key record before it was read, so an entry without one belongs to a deleted
            # ledger.
            self._keys_lost = chain.damaged
            self.apply(record)
        self.damaged |= chain.damaged
        self._keys_lost = False
        for flaw in chain.flaws:
            log.warning("given up: %s", flaw)
        if chain.cut:
            log.warning("%s", chain.cut)
            self.cut = True
        return chain.end

    def apply(self, record: bytes) -> None:
        """Applies one record, its int32 length included."""
        self.records += 1
        if len(record) < LENGTH_BYTES + KEY.size:
            self.skipped += 1
            return
        ledger_id, entry_id = KEY.unpack_from(record, LENGTH_BYTES)
        if entry_id >= 0:
            self._entry(ledger_id, entry_id, record)
        elif entry_id == MASTER_KEY_ID:
            self._master_key(ledger_id, special_body(record))
        elif entry_id == FENCE_ID:
            self._fence(ledger_id)
        elif entry_id == EXPLICIT_LAC_ID:
            self._explicit_lac(ledger_id, special_body(record))
        elif entry_id == DELETE_ID:
            self._delete(ledger_id)
        # The force marker has no content. BookKeeper defines it and never writes it.
        elif entry_id != FORCE_ID:
            log.warning(
                "journal record with id %d of ledger %d skipped: the id is unknown", entry_id, ledger_id
            )
            self.skipped += 1

    def flush(self) -> None:
        """Writes out all that was collected, and begins anew."""
        self._write(self.cache, self.rows(), frozenset(self.deleted))
        self.cache = WriteCache()
        self.changed.clear()
        self.deleted.clear()

    def rows(self) -> dict[int, LedgerData]:
        """Returns the new rows of the ledger index."""
        return {ledger_id: self._ledgers[ledger_id].data() for ledger_id in self.changed}

    def _entry(self, ledger_id: int, entry_id: int, record: bytes) -> None:
        ledger = self._ledgers.get(ledger_id)
        if ledger is None and self._keys_lost:
            ledger = self._add_without_key(ledger_id)
        if ledger is None:
            self.skipped += 1
            return
        self.cache.put(ledger_id, entry_id, record)
        ledger.last = max(ledger.last, entry_id)
        if self.cache.size >= self._cache_bytes_max:
            self.flush()

    def _add_without_key(self, ledger_id: int) -> Ledger | None:
        """Adds a ledger that accepts the first key presented. Returns None for a deleted one."""
        if self._is_deleted(ledger_id):
            return None
        ledger = self._ledgers[ledger_id] = Ledger(ledger_id, LedgerData(UNSET_KEY), stored=True)
        self.changed.add(ledger_id)
        return ledger

    def _is_deleted(self, ledger_id: int) -> bool:
        return ledger_id in self.deleted or self._has_tombstone(ledger_id)

    def _master_key(self, ledger_id: int, master_key: bytes) -> None:
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            if self._is_deleted(ledger_id):
                return
            self._ledgers[ledger_id] = Ledger(ledger_id, LedgerData(master_key), stored=True)
        # A known key never changes: every add and fence is checked against the first one.
        elif ledger.key_open:
            ledger.master_key = master_key
            ledger.key_open = master_key in (b"", UNSET_KEY)
        else:
            return
        self.changed.add(ledger_id)

    def _fence(self, ledger_id: int) -> None:
        # BookKeeper 4.17 writes no key record for a fence, and its replay skips a fence without one: after a restart the
        # fenced writer is accepted again.
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            ledger = self._add_without_key(ledger_id)
        if ledger is None:
            return
        ledger.fenced = ledger.fence_durable = True
        self.changed.add(ledger_id)

    def _explicit_lac(self, ledger_id: int, body: bytes) -> None:
        ledger = self._ledgers.get(ledger_id)
        if ledger is None and self._keys_lost:
            ledger = self._add_without_key(ledger_id)
        # BookKeeper lets an older body replace a newer one, so a reader could see the LAC fall.
        if ledger is not None and explicit_lac_of(body) >= ledger.lac:
            ledger.explicit_lac = body
            ledger.lac = explicit_lac_of(body)
            self.changed.add(ledger_id)

    def _delete(self, ledger_id: int) -> None:
        self._ledgers.pop(ledger_id, None)
        self.cache.entries.pop(ledger_id, None)
        # `flush` looks up every changed ledger, and this one no longer exists.
        self.changed.discard(ledger_id)
        self.deleted.add(ledger_id)
