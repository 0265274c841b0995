"""From the journals back to ledgers and write cache, at start: everything behind the last mark, again.

Replaying is idempotent: what a flush had already written is written once more and the index follows. Entries
of a ledger that neither the index nor a master key record knows belong to a deleted ledger and are skipped.
A fence of such a ledger is kept: losing it would let a fenced-off writer go on. Behind damage, where the key may have
been, its entries are kept too. What a ledger with a tombstone
has in the journal was written before it was deleted, or by BookKeeper after; it does not come back either way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
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
from bookie_stub.journal.journal_file import Mark
from bookie_stub.ledgers.ledger import Ledger

log = logging.getLogger(__name__)


class Replay:
    """`cache`, `changed` and `deleted` are what the next flush has to write; the caller empties them."""

    def __init__(
        self,
        ledgers: dict[int, Ledger],
        active_bytes_max: int,
        flush: Callable[[], None],
        has_deleted: Callable[[int], bool],
    ) -> None:
        """`has_deleted`: whether a flush has noted that the ledger is deleted."""
        self._ledgers = ledgers
        self._has_deleted = has_deleted
        self._cache_bytes_max = active_bytes_max
        self._flush = flush
        self.cache = WriteCache()
        self.changed: set[int] = set()
        self.deleted: set[int] = set()
        self.records = 0
        self.skipped = 0
        self.damaged = False
        """Records that were acknowledged are lost."""
        self._keys_lost = False
        """In the journal at hand, before the record at hand."""
        self.cut = False
        """All of them at the end of a journal that is cut."""

    def run(self, directory: Path, mark: Mark, *, skip_invalid: bool) -> Mark:
        """Returns where the last journal ends. Raises CorruptJournal."""
        chain = JournalChain(directory, mark, skip_invalid=skip_invalid)
        for record in chain.records():
            self._keys_lost = chain.damaged
            self._apply(record)
        self.damaged |= chain.damaged
        self._keys_lost = False
        for flaw in chain.flaws:
            log.warning("given up: %s", flaw)
        if chain.cut:
            log.warning("%s", chain.cut)
            self.cut = True
        return chain.end

    def _apply(self, record: bytes) -> None:
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
        elif entry_id != FORCE_ID:
            log.warning("journal record with id %d of ledger %d skipped", entry_id, ledger_id)
            self.skipped += 1

    def _entry(self, ledger_id: int, entry_id: int, record: bytes) -> None:
        ledger = self._ledgers.get(ledger_id)
        if ledger is None and self._keys_lost:
            ledger = self._without_key(ledger_id)
        if ledger is None:
            self.skipped += 1
            return
        self.cache.put(ledger_id, entry_id, record)
        ledger.last = max(ledger.last, entry_id)
        if self.cache.size >= self._cache_bytes_max:
            self._flush()

    def _without_key(self, ledger_id: int) -> Ledger | None:
        """Takes the first key that is presented. None for a deleted ledger."""
        if self._is_gone(ledger_id):
            return None
        ledger = self._ledgers[ledger_id] = Ledger(ledger_id, LedgerData(UNSET_KEY), stored=True)
        self.changed.add(ledger_id)
        return ledger

    def _is_gone(self, ledger_id: int) -> bool:
        return ledger_id in self.deleted or self._has_deleted(ledger_id)

    def _master_key(self, ledger_id: int, master_key: bytes) -> None:
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            if self._is_gone(ledger_id):
                return
            self._ledgers[ledger_id] = Ledger(ledger_id, LedgerData(master_key), stored=True)
        elif ledger.key_open:
            ledger.master_key = master_key
            ledger.key_open = master_key in (b"", UNSET_KEY)
        else:
            return
        self.changed.add(ledger_id)

    def _fence(self, ledger_id: int) -> None:
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            ledger = self._without_key(ledger_id)
        if ledger is None:
            return
        ledger.fenced = ledger.fence_durable = True
        self.changed.add(ledger_id)

    def _explicit_lac(self, ledger_id: int, body: bytes) -> None:
        ledger = self._ledgers.get(ledger_id)
        if ledger is None and self._keys_lost:
            ledger = self._without_key(ledger_id)
        if ledger is not None and explicit_lac_of(body) >= ledger.lac:
            ledger.explicit_lac = body
            ledger.lac = explicit_lac_of(body)
            self.changed.add(ledger_id)

    def _delete(self, ledger_id: int) -> None:
        self._ledgers.pop(ledger_id, None)
        self.cache.entries.pop(ledger_id, None)
        self.changed.discard(ledger_id)
        self.deleted.add(ledger_id)
