"""The last add confirmed (LAC) of each ledger, and those who wait for it to move.

A writer says in each entry what it knew as confirmed, and may say so on its own (explicit LAC); the highest of both
is a ledger's LAC. Nothing is counted while entries are added: who asks has it taken from the last entry, and only a
ledger that somebody watches sends its adds the long way, where each is looked at. Watchers run inside the call that
moves the LAC and must only note what happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from bookie_stub.base.record import KEY, LENGTH_BYTES, lac_of
from bookie_stub.disk.write_cache import WriteCaches
from bookie_stub.ledgers.ledger import NOT_COUNTED, Ledger
from protocol.bookie_frame import LAST_ENTRY, RC_NO_ENTRY, RC_NO_LEDGER, RC_OK, RC_UNKNOWN_LEDGER_STATE

LacDone = Callable[[int, int], None]
"""(rc, LAC)"""
BodiesDone = Callable[[int, bytes, bytes], None]
"""(rc, explicit LAC's body, last entry), each empty where there is none"""
Read = Callable[[int, int, Callable[[int, bytes], None]], None]
"""(ledger id, entry id, done(rc, entry))"""
IsUnknown = Callable[[int, int], bool]
"""Whether neither yes nor no can be said of (ledger id, entry id), as something was lost."""


class LastConfirmed:
    def __init__(
        self, ledgers: Mapping[int, Ledger], cache: WriteCaches, read: Read, is_unknown: IsUnknown
    ) -> None:
        self._ledgers = ledgers
        self._cache = cache
        self._read = read
        self._is_unknown = is_unknown

    def find(self, ledger_id: int, done: LacDone) -> None:
        """`done(rc, LAC)`, at once where no disk is needed; -1 for a ledger without entries and explicit LAC."""
        ledger = self._ledgers.get(ledger_id)
        if self._is_unknown(ledger_id, LAST_ENTRY):
            done(RC_UNKNOWN_LEDGER_STATE, -1)
        elif ledger is None:
            done(RC_NO_LEDGER, -1)
        elif self._up_to_date(ledger):
            done(RC_OK, ledger.lac)
        else:
            self._read(ledger_id, LAST_ENTRY, partial(self._last_read, ledger, done))

    def _up_to_date(self, ledger: Ledger) -> bool:
        """Take the LAC from the last entry, if that is in memory."""
        if ledger.lac_entry == ledger.last and ledger.last_known:
            return True
        if not ledger.last_known:
            return False
        if ledger.last >= 0:
            record = self._cache.get(ledger.ledger_id, ledger.last)
            if record is None:
                return False
            ledger.lac = max(ledger.lac, lac_of(record, LENGTH_BYTES))
        ledger.lac_entry = ledger.last
        return True

    def _last_read(self, ledger: Ledger, done: LacDone, rc: int, entry: bytes) -> None:
        if rc == RC_OK:
            ledger.lac = max(ledger.lac, lac_of(entry))
            ledger.lac_entry = KEY.unpack_from(entry)[1]
            self.find(ledger.ledger_id, done)  # again: what was added meanwhile is in memory
        elif self._ledgers.get(ledger.ledger_id) is not ledger:
            done(RC_NO_LEDGER, -1)  # deleted meanwhile: nothing would end a watch of it
        elif rc == RC_NO_ENTRY:
            ledger.lac_entry = max(ledger.lac_entry, -1)  # counted, so that the adds to come are
            done(RC_OK, ledger.lac)
        else:
            done(rc, -1)

    def read_bodies(self, ledger_id: int, done: BodiesDone) -> None:
        """What a reader finds the LAC in, with the digests that it checks; rc 2 when there is neither."""
        ledger = self._ledgers.get(ledger_id)
        explicit = b"" if ledger is None else ledger.explicit_lac or b""

        def last_read(rc: int, entry: bytes) -> None:
            if rc == RC_NO_ENTRY and explicit:
                rc = RC_OK
            done(rc, explicit, entry)

        self._read(ledger_id, LAST_ENTRY, last_read)

    def added(self, ledger: Ledger, records: bytes, starts: Sequence[int]) -> None:
        """Adds that went the long way: all do that are watched, or recover a fenced ledger."""
        if ledger.lac_entry != NOT_COUNTED:
            lac = max([lac_of(records, start + LENGTH_BYTES) for start in starts])
            if lac > ledger.lac:
                ledger.lac_moved(lac)

    def watch(self, ledger_id: int, beyond: int, woken: Callable[[], None]) -> Callable[[], object]:
        """Call `woken` once, when the LAC passes `beyond` or the ledger is fenced or deleted. Returns how to give up.

        To be called where `find` has just told the ledger's LAC.
        """
        ledger = self._ledgers[ledger_id]
        ledger.watchers[woken] = beyond
        ledger.writable_key = None
        return lambda: ledger.watchers.pop(woken, None)
