"""What a bookie promises about a ledger besides its entries: master key, fence, explicit LAC.

Law of the place: each is durable before it is answered. A key record goes before whatever needs it, because a replay
skips ledgers whose key it does not find; the ledger index follows at the next checkpoint, entries or not. So a fence
and an explicit LAC survive a kill, a clean stop and empty checkpoints, also those of a ledger without entries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bookie_stub.base.posting import Answer
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
from bookie_stub.ledgers.ledger import Ledger
from protocol.bookie_frame import (
    RC_BAD_REQUEST,
    RC_FENCED,
    RC_IO_ERROR,
    RC_NO_LEDGER,
    RC_OK,
    RC_UNAUTHORIZED,
)


class LedgerRecords:
    def __init__(
        self,
        ledgers: dict[int, Ledger],
        journals: Journals,
        answer: Callable[[Answer], None],
        lossy: bool,
        has_deleted: Callable[[int], bool],
    ) -> None:
        """`lossy`: any ledger may be forgotten, so one that is not begun by an add, but found by a fence, a recovery
        or an explicit LAC is in limbo.
        `has_deleted`: whether the bookie had a ledger and deleted it."""
        self._ledgers = ledgers
        self._has_deleted = has_deleted
        self._journals = journals
        self._answer = answer
        self._lossy = lossy
        self.changed: set[int] = set()
        """Ledgers whose row in the ledger index is out of date."""

    def for_add(self, ledger_id: int, entry_id: int, master_key: bytes, recovery: bool) -> Ledger | int:
        """The ledger that an entry is to be added to, created if need be, or why not.

        A bookie that may have forgotten any ledger takes as new only what begins here: another one's fence may be
        among what was lost, and its writer is to go elsewhere.
        """
        if self._lossy and ledger_id not in self._ledgers and entry_id > 0 and not recovery:
            return RC_FENCED if self._has_deleted(ledger_id) else RC_IO_ERROR
        ledger = self.known(ledger_id, master_key, begins=not recovery)
        if not isinstance(ledger, int) and ledger.fenced and not recovery:
            return RC_FENCED
        return ledger

    def known(self, ledger_id: int, master_key: bytes, *, begins: bool = False) -> Ledger | int:
        """The ledger, created if need be, or why not: its key is another one or no key at all; it was deleted, and
        then it is as fenced as a ledger can be, also for the adds of a recovery."""
        if len(master_key) != MASTER_KEY_BYTES:
            return RC_UNAUTHORIZED
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            if self._has_deleted(ledger_id):
                return RC_FENCED
            data = LedgerData(master_key, limbo=self._lossy and not begins)
            ledger = self._ledgers[ledger_id] = Ledger(ledger_id, data, stored=False)
            self.changed.add(ledger_id)
        elif ledger.key_open:
            ledger.master_key = master_key
            ledger.key_open = False
            self.changed.add(ledger_id)
        return ledger if ledger.master_key == master_key else RC_UNAUTHORIZED

    def journal_key(self, ledger: Ledger) -> None:
        """Before the first record of the ledger in this process."""
        if not ledger.key_journaled:
            ledger.key_journaled = True
            record = master_key_record(ledger.ledger_id, ledger.master_key)
            self._journals.of(ledger.ledger_id).append(record, nothing, 0)

    def journal_failed(self, its_own: Callable[[int], bool]) -> None:
        """Key records of these ledgers may not have been written: each writes its own again."""
        for ledger in self._ledgers.values():
            if its_own(ledger.ledger_id):
                ledger.key_journaled = False
                ledger.writable_key = None

    def fence(self, ledger_id: int, master_key: bytes, done: Done) -> None:
        """`done(rc, ledger id)` once the fence is durable: 0, 1 for a deleted ledger, which takes no adds either, 102
        with another key, 101 when the disk failed."""
        ledger = self.known(ledger_id, master_key)
        if isinstance(ledger, int):
            self._answer(partial(done, RC_NO_LEDGER if ledger == RC_FENCED else ledger, ledger_id))
            return
        if not ledger.fenced:
            ledger.fenced = True
            self.changed.add(ledger_id)
            ledger.ended()
        ledger.writable_key = None
        if ledger.fence_durable:
            self._answer(partial(done, RC_OK, ledger_id))
            return
        self.journal_key(ledger)
        journaled = partial(_fence_done, ledger, done)
        self._journals.of(ledger_id).append(fence_record(ledger_id), journaled, ledger_id)

    def write_lac(self, ledger_id: int, master_key: bytes, body: bytes, done: Done) -> None:
        """`done(rc, ledger id)` once an explicit LAC at least as high is durable.

        `body` is ledger, LAC and the writer's digest over both. A lower LAC than the one that is kept changes
        nothing; a fence does not matter, as what was confirmed stays so.
        """
        if len(body) < EXPLICIT_LAC_BYTES_MIN or KEY.unpack_from(body)[0] != ledger_id:
            self._answer(partial(done, RC_BAD_REQUEST, ledger_id))
            return
        ledger = self.known(ledger_id, master_key)
        if isinstance(ledger, int):
            self._answer(partial(done, RC_NO_LEDGER if ledger == RC_FENCED else ledger, ledger_id))
            return
        lac = explicit_lac_of(body)
        if ledger.explicit_lac is None or lac > explicit_lac_of(ledger.explicit_lac):
            ledger.explicit_lac = body
            self.changed.add(ledger_id)
            if lac > ledger.lac:
                ledger.lac_moved(lac)
        self.journal_key(ledger)
        record = explicit_lac_record(ledger_id, ledger.explicit_lac)
        self._journals.of(ledger_id).append(record, done, ledger_id)

    def forget(self, ledger: Ledger) -> None:
        """A deleted ledger, which is in the dictionary no more."""
        self.changed.discard(ledger.ledger_id)
        ledger.ended()

    def take_changed(self) -> dict[int, LedgerData]:
        """The rows that the checkpoint which begins now has to write."""
        changed = {ledger_id: self._ledgers[ledger_id].data() for ledger_id in self.changed}
        self.changed.clear()
        return changed


def _fence_done(ledger: Ledger, done: Done, rc: int, ledger_id: int) -> None:
    if rc == RC_OK:
        ledger.fence_durable = True
    done(rc, ledger_id)
