"""EnsembleWriter: the entries of one ledger to several bookies, each confirmed once Qa of them have it.

The laws:

1. An entry goes to the Qw bookies of its write set, together with the entries beside it that go to the same ones. It is
   confirmed, strictly in the order of entries, when Qa different
   bookies of that set have answered OK.
2. When a bookie fails, another takes its position: confirming stops, the ledger's metadata gets a segment that begins
   after the last confirmed entry, and only when that is stored do all unconfirmed entries of the position go to the new
   bookie, and confirming goes on. Confirming earlier would confirm entries that readers then look for in vain: they go by
   the new segment. For the same reason the old bookie's answers for these entries count no more.
3. A fence, or too few bookies, ends the writer: everything unconfirmed fails, in order.
4. A recovery that finds no other bookie goes on without: an entry that it writes back counts as soon as Qa of the others
   have it. It adds nothing new, and waiting for a spare bookie would keep the log closed.

`LedgerHandle` sends through it when there are several bookies, a recovery when it writes back. BookKeeper's names:
PendingAddOp for an entry, EnsembleUtils and LedgerHandle.handleBookieFailure for the ensemble change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Protocol

from bookkeeper.client.ledger_client import AddDone, EntryParts
from bookkeeper.client.result_codes import FENCED, NOT_ENOUGH_BOOKIES, OK
from bookkeeper.ensembles.bookies import Bookies
from bookkeeper.ensembles.placement import write_set
from bookkeeper.ensembles.racks import BookieRacks
from foundation.model.errors import BrokerError, LedgerFenced, NotEnoughBookies
from protocol.bookie_frame import RC_FENCED, RC_IO_ERROR
from protocol.ledger_metadata import LedgerMetadata, LedgerState

log = logging.getLogger(__name__)

CallSoon = Callable[..., object]
"""Calls a function with arguments in a later turn, as the loop's `call_soon`."""
Spawn = Callable[[Coroutine[None, None, None]], object]
"""Runs work in the background, and keeps it until it ends."""


class WrittenLedger(Protocol):
    """The ledger that is written: `OwnLedger` or `RecoveringLedger`."""

    ledger_id: int
    """The ledger's number."""
    metadata: LedgerMetadata
    """The present one; the last segment has the ensemble that is written to."""

    async def change_ensemble(self, first_entry_id: int, members: tuple[str, ...]) -> None:
        """Puts entries from `first_entry_id` on onto `members`.

        A writer's change is stored when this returns; a recovery's is stored with the ledger's end.

        Raises LedgerFenced or another BrokerError; the ensemble then stays as it was.
        """
        ...


class _PendingAdd:
    """Entries of one write set that follow one another and are not confirmed."""

    __slots__ = ("acks", "done", "entries", "entry_ids", "master_key", "recovery", "refusals")

    def __init__(
        self,
        entry_ids: Sequence[int],
        entries: Sequence[EntryParts],
        master_key: bytes,
        recovery: bool,
        done: Callable[[int], object] | None,
    ) -> None:
        """`done` is called with the result; None unless these are the last ones of a run."""
        self.entry_ids = entry_ids
        self.entries = entries
        self.master_key = master_key
        self.recovery = recovery
        self.done = done
        self.acks: set[int] = set()
        """Positions of the ensemble whose present bookie has the entries."""
        self.refusals: set[int] = set()
        """Positions whose present bookie did not take them."""


class _Member:
    """A bookie at its position of the ensemble. Once another has its position, its answers count no more."""

    __slots__ = ("add", "address", "answered", "position")

    def __init__(self, writer: EnsembleWriter, position: int, address: str, bookies: Bookies) -> None:
        self.position = position
        self.address = address
        # Both bound once: they are used for every entry.
        self.add = bookies.client(address).add
        self.answered: AddDone = partial(writer.answered, self)


class EnsembleWriter:
    """`EntryAdds` to the present ensemble of one ledger."""

    def __init__(
        self,
        ledger: WrittenLedger,
        bookies: Bookies,
        *,
        call_soon: CallSoon,
        spawn: Spawn,
        first_entry_id: int = 0,
        recovering: bool = False,
        racks: BookieRacks | None = None,
    ) -> None:
        """`first_entry_id` is added first; every add is one higher. `racks` None: bookies are replaced in turn alone.

        `recovering`: the writer goes on without a failed bookie when no other can take its place (law 4).
        """
        metadata = ledger.metadata
        self._ledger = ledger
        self._bookies = bookies
        self._call_soon = call_soon
        self._spawn = spawn
        self._racks = racks
        self._quorum = metadata.ack_quorum
        size, quorum = metadata.ensemble_size, metadata.write_quorum
        self._write_sets = [write_set(start, size, quorum) for start in range(size)]
        """Positions by entry id modulo E, computed once."""
        self._members = [
            _Member(self, position, address, bookies)
            for position, address in enumerate(metadata.segments[-1].members)
        ]
        self._pending: dict[int, _PendingAdd] = {}
        """Unconfirmed entries by the id of the first, in their order."""
        self._head = first_entry_id
        """The entry to be confirmed next."""
        self._next = first_entry_id
        """The entry to be added next."""
        self._failed: set[int] = set()
        """Positions without a working bookie: they wait for another, or, in a recovery, stay so."""
        self._recovering = recovering
        self._refused: set[str] = set()
        """Bookies that failed since an entry was last confirmed. None of them is tried again before: two bookies that
        take nothing would replace each other for ever."""
        self._changing = False
        """True while an ensemble change is being stored: nothing is confirmed then (law 2)."""
        self._rc = OK
        """Any other code: the reason why no more entries are taken."""

    def add(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        entries: Sequence[EntryParts],
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        """Sends the next entries to their write sets.

        `done` is called when all are confirmed, or with all that failed.
        """
        first = entry_ids[0]
        if self._rc != OK:
            # Later, because a completion never comes inside the call that asks.
            self._call_soon(done, self._rc, first)
            return
        assert first == self._next, "one writer, one entry after the other"
        count = len(entry_ids)
        self._next += count
        sets = self._write_sets
        # Without striping every bookie has every entry, so a run stays in one piece.
        step = count if len(sets) == len(sets[0]) else 1
        for place in range(0, count, step):
            last = place + step == count
            pending = self._pending[first + place] = _PendingAdd(
                entry_ids[place : place + step],
                entries[place : place + step],
                master_key,
                recovery,
                (lambda rc: done(rc, first)) if last else None,
            )
            for position in sets[(first + place) % len(sets)]:
                self._send(self._members[position], pending)

    def _send(self, member: _Member, pending: _PendingAdd) -> None:
        member.add(
            self._ledger.ledger_id,
            pending.entry_ids,
            pending.entries,
            master_key=pending.master_key,
            recovery=pending.recovery,
            done=member.answered,
        )

    def answered(self, member: _Member, rc: int, entry_id: int) -> None:
        """A bookie has answered the add of an entry. Called by `_Member`'s completion, once per entry and bookie."""
        # An answer of a bookie that was replaced says nothing about the present one (law 2).
        if self._rc != OK or self._members[member.position] is not member:
            return
        if rc == OK:
            # None for an entry that was confirmed by the others before.
            pending = self._pending.get(entry_id)
            if pending is not None:
                # A set of positions and not a count: a bookie that answers twice is still one copy.
                pending.acks.add(member.position)
                if entry_id == self._head and not self._changing:
                    self._confirm()
        elif rc in FENCED:
            # No other bookie helps: another process has taken the ledger over.
            self._fail(rc)
        elif not self._is_closed:
            self._note_refusal(member, rc, entry_id)

    def _note_refusal(self, member: _Member, rc: int, entry_id: int) -> None:
        pending = self._pending.get(entry_id)
        if pending is not None:
            pending.refusals.add(member.position)
        # One failure per bookie: the answers of all its outstanding adds come one after the other.
        if member.position in self._failed:
            if not self._changing:
                self._fail_if_hopeless()
            return
        log.warning(
            "bookie %s answered %d to entry %d:%d", member.address, rc, self._ledger.ledger_id, entry_id
        )
        self._bookies.failed(member.address)
        self._refused.add(member.address)
        self._failed.add(member.position)
        # One change at a time; the one that is running takes positions that fail meanwhile along.
        if not self._changing:
            self._changing = True
            self._spawn(self._change_ensemble())

    @property
    def _is_closed(self) -> bool:
        """True when the ledger has its end: a bookie that fails after that needs no successor."""
        return self._ledger.metadata.state is LedgerState.CLOSED

    def _confirm(self) -> None:
        while (pending := self._pending.get(self._head)) is not None and len(pending.acks) >= self._quorum:
            entry_id = self._head
            del self._pending[entry_id]
            self._head = entry_id + len(pending.entry_ids)
            if self._refused:  # Looking is cheaper than clearing an empty set for every entry.
                self._refused.clear()
            if pending.done is not None:
                pending.done(OK)

    def _fail(self, rc: int) -> None:
        # Code and table first: a completion may add again, and must then be refused.
        self._rc = rc
        pending, self._pending = self._pending, {}
        for add in pending.values():
            if add.done is not None:
                add.done(rc)

    # The ensemble change.

    async def _change_ensemble(self) -> None:
        try:
            # Again while another position has failed during the change.
            while self._failed and self._rc == OK:
                try:
                    await self._replace(sorted(self._failed))
                except NotEnoughBookies as error:
                    if not self._recovering:
                        raise
                    log.warning(
                        "ledger %d is recovered without a spare bookie: %s", self._ledger.ledger_id, error
                    )
                    break
        except BrokerError as error:
            log.warning("ledger %d takes no more entries: %s", self._ledger.ledger_id, error)
            if self._rc == OK:
                self._fail(_code_of(error))
        finally:
            self._changing = False
        # Entries that were acknowledged during the change.
        self._confirm()
        self._fail_if_hopeless()

    def _fail_if_hopeless(self) -> None:
        """Fails when an entry can never be confirmed any more.

        Too many bookies refused it, and no other bookie can be had.
        """
        # With Qw = 3 and Qa = 2 one refusal leaves two bookies, which are enough.
        refusals_max = len(self._write_sets[0]) - self._quorum
        if self._failed and any(len(each.refusals) > refusals_max for each in self._pending.values()):
            self._fail(NOT_ENOUGH_BOOKIES)

    async def _replace(self, positions: list[int]) -> None:
        members = [member.address for member in self._members]
        left = [None if number in positions else name for number, name in enumerate(members)]
        custom = self._ledger.metadata.custom
        place = None if self._racks is None else self._racks.place(custom, left, len(self._write_sets[0]))
        fresh = self._bookies.choose(len(positions), avoid={*members, *self._refused}, place=place)
        for position, address in zip(positions, fresh, strict=True):
            members[position] = address
        # `_head` cannot move during the wait, because `_changing` stops confirming.
        await self._ledger.change_ensemble(self._head, tuple(members))
        if self._rc != OK:  # Fenced meanwhile.
            return
        log.info(
            "ledger %d goes on at entry %d on %s", self._ledger.ledger_id, self._head, ", ".join(members)
        )
        for position in positions:
            self._members[position] = _Member(self, position, members[position], self._bookies)
        self._failed.difference_update(positions)
        # All unconfirmed entries of these positions, also those that the old bookie had: readers ask the new one only.
        for entry_id, pending in self._pending.items():
            for position in self._write_sets[entry_id % len(self._write_sets)]:
                if position in positions:
                    pending.acks.discard(position)
                    pending.refusals.discard(position)
                    self._send(self._members[position], pending)


def _code_of(error: BrokerError) -> int:
    """Returns the result code that stands for this error."""
    if isinstance(error, LedgerFenced):
        return RC_FENCED
    return NOT_ENOUGH_BOOKIES if isinstance(error, NotEnoughBookies) else RC_IO_ERROR
