"""LedgerHandle: the writing end of one ledger. BookKeeper's names: LedgerHandle, and PendingAddOp for each add.

The laws:

1. One writer per ledger, for ever. It numbers entries 0, 1, 2, … and adds each once.
2. Entries are confirmed strictly in order: an entry counts only when every one before it is stored. The last add
   confirmed (LAC) is the highest such entry, and each entry that is sent carries the LAC of that moment, so a recovery
   finds in any bookie's last entry how far the ledger certainly goes.
3. After a failed add nothing after it can be confirmed. The handle takes no further part, and its owner goes on in a new
   ledger. Entries that bookies may have stored after the failure are cut off by the end in the ledger's metadata.

`ManagedLedger` owns the handle of its current ledger. An add is a run of entries, which are confirmed or fail together;
a single entry is a run of one. The handle sends to the only bookie, or to an EnsembleWriter, and reports what was
confirmed once per turn of the loop, whatever the number of answers. This is the hot path: one `add` and one `_add_done`
per run, no object per entry besides the Entry itself and its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from bookkeeper.client.digest import DEFAULT_DIGEST, Digest
from bookkeeper.client.ledger_client import EntryAdds
from foundation.loop.turn import Turn
from foundation.model.entry import Buffer, Entry

_OK = 0

Added: TypeAlias = tuple[object, int, int]
"""An add: its context, the number of its entries, and when it was asked for, in monotonic nanoseconds."""


class AddedRun(Protocol):
    """The ledger's owner. `ledger_failing` may come in any turn; the other two are called at a turn's end."""

    def ledger_failing(self, handle: LedgerHandle, rc: int) -> None:
        """An add was refused: the ledger sends no more. Entries before it may still be confirmed."""
        ...

    def entries_confirmed(
        self,
        handle: LedgerHandle,
        entries: list[Entry],
        added: list[Added],
        now_ns: int,
    ) -> None:
        """The next entries, at least one, are confirmed. `added`: their adds, whose times never decrease."""
        ...

    def adds_failed(self, handle: LedgerHandle, entries: list[Entry], added: list[Added], rc: int) -> None:
        """The refused add and all after it have failed, in order. Called once."""
        ...


class LedgerHandle:
    """Adds entries to one ledger, from entry 0 on."""

    __slots__ = (
        "_added",
        "_answered",
        "_client_add",
        "_counts",
        "_delivered",
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
        """`adds`: the destination of the entries. `digest` is that of the ledger's metadata."""
        self.ledger_id = ledger_id
        """BookKeeper's id of the ledger that is written."""
        self.next_entry_id = 0
        """Entries added so far, confirmed or not."""
        self.length = 0
        """Payload bytes of all entries added, confirmed or not."""
        # Bound once: looking the methods up costs two steps per entry.
        self._client_add = adds.add
        self._seal = digest.seal
        self._turn = turn
        self._owner = owner
        self._key = digest.master_key
        self._entries: list[Entry] = []
        """Added and not yet delivered, oldest first."""
        self._added: list[Added] = []
        """The adds of these entries."""
        self._counts: dict[int, int] = {}
        """Entries of the adds that are not answered, by their first one."""
        self._delivered = 0
        """The entry id that `_entries` starts with."""
        self._answered = 0
        """Every entry before this one has been answered with OK."""
        self._early: set[int] = set()
        """First entries of adds that are answered with OK although an earlier one has not been yet."""
        self._rc = _OK
        self._failed_entry = -1
        """The first entry of the earliest add that failed, with `_rc`."""
        self._noted = False
        """True while the end of this turn will call `_deliver`."""

    @property
    def last_confirmed(self) -> int:
        """The last entry that the owner knows as confirmed, -1 = none."""
        return self._delivered - 1

    @property
    def pending(self) -> int:
        """Entries of which the owner does not know the outcome."""
        return len(self._entries)

    def add(
        self, headers: Sequence[bytes], bodies: Sequence[Buffer], messages: int, context: object, now_ns: int
    ) -> None:
        """Adds the next entries, at least one.

        Their outcome is reported to the owner, with `context` and `now_ns`.

        `headers`: the broker entry metadata block of each entry, or b"". `messages`: how many each entry holds.
        """
        ledger_id, seal = self.ledger_id, self._seal
        first = entry_id = self.next_entry_id
        length = self.length
        # The LAC is that of the answers, which may be ahead of what the owner was told: an entry counts as confirmed when
        # its bookies have it, and a recovery that reads a higher LAC has less to read back.
        lac = self._answered - 1
        entries, parts = self._entries, []
        for header, body in zip(headers, bodies, strict=True):
            entry = Entry(ledger_id, entry_id, header, body, messages)
            entries.append(entry)
            length += entry.size
            parts.append(seal(ledger_id, entry_id, lac, length, header, body))
            entry_id += 1
        self.next_entry_id = entry_id
        self.length = length
        self._added.append((context, entry_id - first, now_ns))
        self._counts[first] = entry_id - first
        self._client_add(
            ledger_id,
            range(first, entry_id),
            parts,
            master_key=self._key,
            recovery=False,
            done=self._add_done,
        )

    def _add_done(self, rc: int, first: int) -> None:
        # Answers come in the order of the adds nearly always, so this case is first and touches no set.
        if rc == _OK and first == self._answered:
            self._answered = first + self._counts.pop(first)
            if self._early:
                self._take_early()
        elif rc == _OK:
            # The order of answers is no part of LedgerClient's contract.
            self._early.add(first)
            return
        elif not self._note_failure(rc, first):
            return
        if not self._noted:
            self._noted = True
            self._turn.confirm(self._deliver)

    def _take_early(self) -> None:
        """Moves past adds whose answers came early."""
        while self._answered in self._early:
            self._early.remove(self._answered)
            self._answered += self._counts.pop(self._answered)

    def _note_failure(self, rc: int, entry_id: int) -> bool:
        """Remembers the earliest failed add; returns False for one after it, which has failed with it already."""
        if self._rc != _OK and entry_id > self._failed_entry:
            return False
        # A later answer may tell of an earlier entry; that one then is the failure, because nothing after it counts.
        first = self._rc == _OK
        self._rc = rc
        self._failed_entry = entry_id
        if first:
            # Once, and at once: the owner must send no more in this turn, also before `adds_failed` comes.
            self._owner.ledger_failing(self, rc)
        return True

    def _deliver(self, now_ns: int) -> None:
        self._noted = False
        count = self._answered - self._delivered
        if count:
            self._delivered = self._answered
            entries, added = self._entries, self._added
            if count == len(entries):
                # Nearly always, and then nothing is copied.
                self._entries, self._added = [], []
            else:
                entries, added = self._cut(count)
            self._owner.entries_confirmed(self, entries, added, now_ns)
        # Not before every entry in front of the failed one is answered: each of them may still be confirmed, and the owner
        # must hear of confirmed entries first.
        if self._rc != _OK and self._answered == self._failed_entry and self._entries:
            entries, added = self._entries, self._added
            self._entries, self._added = [], []
            self._owner.adds_failed(self, entries, added, self._rc)

    def _cut(self, count: int) -> tuple[list[Entry], list[Added]]:
        """Removes the oldest `count` entries and their adds; some are left."""
        adds = 0
        left = count
        while left:
            left -= self._added[adds][1]
            adds += 1
        cut = self._entries[:count], self._added[:adds]
        del self._entries[:count], self._added[:adds]
        return cut
