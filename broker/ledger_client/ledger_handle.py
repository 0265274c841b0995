"""LedgerHandle: the writing end of one ledger.

It numbers entries, seals them, hands them on (to the only bookie, or to an EnsembleWriter), and reports them
confirmed strictly in order, one run per loop turn however many answers came. One writer per ledger, for ever: after a failed
add nothing behind it can be confirmed, so the handle takes no further part and its owner goes on in a new
ledger. What bookies may have stored behind the failure is cut off by the ledger's metadata.
"""

from __future__ import annotations

from typing import Protocol

from broker.ledger_client.digest import DEFAULT_DIGEST, Digest
from broker.ledger_client.ledger_client import EntryAdds
from broker.loop.turn import Turn
from broker.model.entry import Buffer, Entry

OK = 0


class AddedRun(Protocol):
    """Who owns the ledger. The first call may come in the turn in which the answer came; the other two end it."""

    def ledger_failing(self, handle: LedgerHandle, rc: int) -> None:
        """An add was refused: send no more. The run before it may still be confirmed."""
        ...

    def entries_confirmed(
        self,
        handle: LedgerHandle,
        entries: list[Entry],
        contexts: list[object],
        asked_ns: list[int],
        now_ns: int,
    ) -> None:
        """`asked_ns`: when each was added, non-decreasing."""
        ...

    def adds_failed(
        self, handle: LedgerHandle, entries: list[Entry], contexts: list[object], rc: int
    ) -> None:
        """Everything from the refused add on, in order, once."""
        ...


class LedgerHandle:
    __slots__ = (
        "_answered",
        "_asked_ns",
        "_client_add",
        "_contexts",
        "_delivered",
        "_done",
        "_early",
        "_entries",
        "_failed_entry",
        "_key",
        "_noted",
        "_owner",
        "_rc",
        "_seal",
        "_turn",
        "ledger_id",
        "length",
        "next_entry_id",
    )

    def __init__(
        self,
        ledger_id: int,
        adds: EntryAdds,
        turn: Turn,
        owner: AddedRun,
        digest: Digest = DEFAULT_DIGEST,
    ) -> None:
        self.ledger_id = ledger_id
        self.next_entry_id = 0
        self.length = 0
        """Payload bytes of all entries added, confirmed or not."""
        self._client_add = adds.add
        self._seal = digest.seal
        self._turn = turn
        self._owner = owner
        self._key = digest.master_key
        self._entries: list[Entry] = []
        """Added and not yet delivered, oldest first; the next two lists run beside it."""
        self._contexts: list[object] = []
        self._asked_ns: list[int] = []
        self._delivered = 0
        """The entry id that `_entries` starts with."""
        self._answered = 0
        """Every entry before this one has been answered with OK."""
        self._early: set[int] = set()
        """Answered with OK, but an earlier one has not been yet."""
        self._rc = OK
        self._failed_entry = -1
        self._noted = False
        self._done = self._add_done

    @property
    def last_confirmed(self) -> int:
        """The last entry that was delivered to the owner, -1 = none."""
        return self._delivered - 1

    @property
    def pending(self) -> int:
        """Adds not yet delivered, neither as confirmed nor as failed."""
        return len(self._entries)

    def add(self, header: bytes, body: Buffer, messages: int, context: object, now_ns: int) -> None:
        ledger_id = self.ledger_id
        entry_id = self.next_entry_id
        self.next_entry_id = entry_id + 1
        entry = Entry(ledger_id, entry_id, header, body, messages)
        self.length = length = self.length + entry.size
        self._entries.append(entry)
        self._contexts.append(context)
        self._asked_ns.append(now_ns)
        self._client_add(
            ledger_id,
            entry_id,
            self._seal(ledger_id, entry_id, self._answered - 1, length, header, body),
            master_key=self._key,
            recovery=False,
            done=self._done,
        )

    def _add_done(self, rc: int, entry_id: int) -> None:
        if rc == OK and entry_id == self._answered:
            self._answered = entry_id + 1
            if self._early:
                self._take_early()
        elif rc == OK:
            self._early.add(entry_id)
            return
        elif not self._note_failure(rc, entry_id):
            return
        if not self._noted:
            self._noted = True
            self._turn.confirm(self._deliver)

    def _take_early(self) -> None:
        while self._answered in self._early:
            self._early.remove(self._answered)
            self._answered += 1

    def _note_failure(self, rc: int, entry_id: int) -> bool:
        """Remember the earliest failed add; answers False for one that failed already with it."""
        if self._rc != OK and entry_id > self._failed_entry:
            return False
        first = self._rc == OK
        self._rc = rc
        self._failed_entry = entry_id
        if first:
            self._owner.ledger_failing(self, rc)
        return True

    def _deliver(self, now_ns: int) -> None:
        self._noted = False
        count = self._answered - self._delivered
        if count:
            self._delivered = self._answered
            entries, contexts, asked_ns = self._cut(count)
            self._owner.entries_confirmed(self, entries, contexts, asked_ns, now_ns)
        if self._rc != OK and self._answered == self._failed_entry and self._entries:
            entries, contexts, _ = self._cut(len(self._entries))
            self._owner.adds_failed(self, entries, contexts, self._rc)

    def _cut(self, count: int) -> tuple[list[Entry], list[object], list[int]]:
        if count == len(self._entries):
            cut = self._entries, self._contexts, self._asked_ns
            self._entries, self._contexts, self._asked_ns = [], [], []
            return cut
        cut = self._entries[:count], self._contexts[:count], self._asked_ns[:count]
        del self._entries[:count], self._contexts[:count], self._asked_ns[:count]
        return cut
