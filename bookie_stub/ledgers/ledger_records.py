"""Journal records about whole ledgers: master key, fence, explicit LAC, force.

Invariants:

* Each of them is durable before it is answered.
* A ledger's master key record precedes everything else of that ledger in the journal, because a replay skips the
  entries of ledgers whose key it does not find.
* The ledger index gets the same facts with the next checkpoint, even if the ledger has no entries. So a fence and an
  explicit LAC survive a kill, a clean stop and an empty checkpoint.

Called by `adds`, by `removals` and by the `wire` room, in the loop's thread.
"""

from __future__ import annotations

from functools import partial

from bookie_stub.base.posting import Answers
from bookie_stub.base.record import (
    EXPLICIT_LAC_BYTES_MIN,
    KEY,
    MASTER_KEY_BYTES,
    explicit_lac_of,
    explicit_lac_record,
    fence_record,
    master_key_record,
)
from bookie_stub.disk.ledger_index import LedgerData
from bookie_stub.journal.journal import Done, nothing
from bookie_stub.journal.journals import Journals
from bookie_stub.ledgers.availability import Availability
from bookie_stub.ledgers.ledger import Ledger
from bookie_stub.ledgers.registry import LedgerRegistry
from protocol.bookie_frame import (
    RC_BAD_REQUEST,
    RC_FENCED,
    RC_IO_ERROR,
    RC_NO_LEDGER,
    RC_OK,
    RC_READ_ONLY,
    RC_UNAUTHORIZED,
)


class LedgerRecords:
    """Checks master keys, creates ledgers, fences them, and keeps explicit LACs."""

    def __init__(
        self, ledgers: LedgerRegistry, journals: Journals, answers: Answers, availability: Availability
    ) -> None:
        self._registry = ledgers
        self._ledgers = ledgers.by_id
        self._journals = journals
        self._answers = answers
        self._availability = availability
        self._closed = False

    def close(self) -> None:
        """Answers every later request with an I/O error (101)."""
        self._closed = True

    # Keys.

    def for_add(self, ledger_id: int, entry_id: int, master_key: bytes, recovery: bool) -> Ledger | int:
        """Returns the ledger for this add, or the code of the refusal.

        A new ledger is created with the key.

        A bookie that may have lost whole ledgers accepts an unknown ledger only with entry 0. Any other ledger may
        have been fenced before the loss, so its writer must go to another bookie.
        """
        registry = self._registry
        if registry.lossy and ledger_id not in self._ledgers and entry_id > 0 and not recovery:
            return RC_FENCED if registry.has_deleted(ledger_id) else RC_IO_ERROR
        ledger = self.authorize(ledger_id, master_key, begins=not recovery)
        if not isinstance(ledger, int) and ledger.fenced and not recovery:
            return RC_FENCED
        return ledger

    def authorize(self, ledger_id: int, master_key: bytes, *, begins: bool = False) -> Ledger | int:
        """Returns the ledger for this key, or the code of the refusal.

        A new ledger is created with the key.

        102: the key is another one, or has not 20 bytes. 104: the ledger was deleted, which is answered like a fence,
        to a recovery too. `begins` says that the caller adds the ledger's first entry; in a lossy bookie a ledger
        that begins in another way is in limbo.
        """
        if len(master_key) != MASTER_KEY_BYTES:
            return RC_UNAUTHORIZED
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            # Taken for a new ledger it would have no fence, and a writer that was fenced off could go on. BookKeeper
            # remembers a deleted ledger for seven days, in memory only.
            if self._registry.has_deleted(ledger_id):
                return RC_FENCED
            data = LedgerData(master_key, limbo=self._registry.lossy and not begins)
            ledger = self._ledgers[ledger_id] = Ledger(ledger_id, data, stored=False)
            self._registry.changed.add(ledger_id)
        elif ledger.key_open:
            # The ledger's key record was lost: the first key that is presented becomes its key.
            ledger.master_key = master_key
            ledger.key_open = False
            self._registry.changed.add(ledger_id)
        return ledger if ledger.master_key == master_key else RC_UNAUTHORIZED

    def journal_key(self, ledger: Ledger) -> None:
        """Queues the master key record, unless this process has done so already."""
        if not ledger.key_journaled:
            ledger.key_journaled = True
            record = master_key_record(ledger.ledger_id, ledger.master_key)
            self._journals.of(ledger.ledger_id).append(record, nothing, 0)

    # Fences.

    def fence(self, ledger_id: int, master_key: bytes, done: Done) -> None:
        """Refuses plain adds from now on.

        Calls `done(rc, ledger id)` once the fence is durable.

        rc: 0; 1 for a deleted ledger or a negative id; 102 for another key; 101 when the disk failed or the bookie is
        closed. The fence holds for this process as soon as the call returns, even when the disk fails."""
        if self._closed or ledger_id < 0:
            self._answer(done, RC_IO_ERROR if self._closed else RC_NO_LEDGER, ledger_id)
            return
        ledger = self.authorize(ledger_id, master_key)
        if isinstance(ledger, int):
            self._answer(done, RC_NO_LEDGER if ledger == RC_FENCED else ledger, ledger_id)
            return
        if not ledger.fenced:
            # Before the record is durable: no add may be accepted between this call and the sync.
            ledger.fenced = True
            self._registry.changed.add(ledger_id)
            ledger.wake_watchers()
        # From now on every add of the ledger is checked, and the check finds the fence.
        ledger.writable_key = None
        if ledger.fence_durable:
            self._answer(done, RC_OK, ledger_id)
            return
        # Before the fence, or a replay by BookKeeper would take the fence for that of a deleted ledger and skip it.
        self.journal_key(ledger)
        journaled = partial(_fence_done, ledger, done)
        self._journals.of(ledger_id).append(fence_record(ledger_id), journaled, ledger_id)

    # Explicit LACs and syncs.

    def write_lac(self, ledger_id: int, master_key: bytes, body: bytes, done: Done) -> None:
        """Keeps an explicit LAC.

        Calls `done(rc, ledger id)` once one at least as high is durable.

        `body` is ledger id, LAC, and the writer's digest over both. A LAC lower than the kept one changes nothing. A
        fence does not matter: what was confirmed before it stays confirmed. rc: 0; 1 deleted; 100 when `body` does
        not fit or the id is negative; 101; 102 another key; 105 read-only.
        """
        rc = self._refusal_of_lac(ledger_id, body)
        if rc != RC_OK:
            self._answer(done, rc, ledger_id)
            return
        ledger = self.authorize(ledger_id, master_key)
        if isinstance(ledger, int):
            self._answer(done, RC_NO_LEDGER if ledger == RC_FENCED else ledger, ledger_id)
            return
        lac = explicit_lac_of(body)
        if ledger.explicit_lac is None or lac > explicit_lac_of(ledger.explicit_lac):
            ledger.explicit_lac = body
            self._registry.changed.add(ledger_id)
            if lac > ledger.lac:
                ledger.raise_lac(lac)
        self.journal_key(ledger)
        # The kept body is written even when the new LAC is lower: the kept one may not be durable yet.
        record = explicit_lac_record(ledger_id, ledger.explicit_lac)
        self._journals.of(ledger_id).append(record, done, ledger_id)

    def _refusal_of_lac(self, ledger_id: int, body: bytes) -> int:
        if self._closed:
            return RC_IO_ERROR
        if ledger_id < 0:
            return RC_BAD_REQUEST
        if self._availability.refuses(ledger_id):
            return RC_READ_ONLY
        if len(body) < EXPLICIT_LAC_BYTES_MIN or KEY.unpack_from(body)[0] != ledger_id:
            return RC_BAD_REQUEST
        return RC_OK

    def force(self, ledger_id: int, done: Done) -> None:
        """Calls `done` once every earlier add of the ledger is durable.

        Its arguments are rc (0; 101 when closed) and the ledger id.

        An empty record goes through the journal's queue: it is answered after everything queued before it."""
        if self._closed:
            self._answer(done, RC_IO_ERROR, ledger_id)
        else:
            self._journals.of(ledger_id).append(b"", done, ledger_id)

    def _answer(self, done: Done, rc: int, ledger_id: int) -> None:
        self._answers.add(partial(done, rc, ledger_id))


def _fence_done(ledger: Ledger, done: Done, rc: int, ledger_id: int) -> None:
    if rc == RC_OK:
        ledger.fence_durable = True
    done(rc, ledger_id)
