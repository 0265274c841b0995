"""EnsembleWriter: the entries of one ledger to several bookies, each confirmed once Qa of them have it.

An entry goes to its write set. It is confirmed, strictly in the order of entries, when Qa different bookies of it have
answered OK. When one fails, another takes its position: confirming stops, the ledger's metadata gets a segment
that begins behind the last confirmed entry, and only when that is stored do all unconfirmed entries of the position go
to the new bookie, and confirming goes on. What the old bookie had answered for them does not count any more, because
readers will not look there. A fence, or too few bookies, ends the writer: everything unconfirmed fails, in order.

A recovery that finds no other bookie goes on without: what it writes back counts as soon as Qa of the others have it. It
adds nothing new, and waiting for a spare bookie would keep the log closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Protocol

from broker.ledger_client.bookies import Bookies
from broker.ledger_client.ledger_client import AddDone, EntryParts
from broker.ledger_client.placement import write_set
from broker.ledger_client.result_codes import FENCED, NOT_ENOUGH_BOOKIES, OK
from broker.model.errors import BrokerError, LedgerFenced, NotEnoughBookies
from protocol.bookie_frame import RC_FENCED, RC_IO_ERROR
from protocol.ledger_metadata import LedgerMetadata, LedgerState

log = logging.getLogger(__name__)

CallSoon = Callable[..., object]
Spawn = Callable[[Coroutine[None, None, None]], object]


class Ledger(Protocol):
    """Whose entries these are."""

    ledger_id: int
    metadata: LedgerMetadata

    async def change_ensemble(self, first_entry_id: int, members: tuple[str, ...]) -> None: ...


class _PendingAdd:
    __slots__ = ("acks", "done", "master_key", "parts", "recovery", "refusals")

    def __init__(self, parts: EntryParts, master_key: bytes, recovery: bool, done: AddDone) -> None:
        self.parts = parts
        self.master_key = master_key
        self.recovery = recovery
        self.done = done
        self.acks: set[int] = set()
        """Positions of the ensemble whose present bookie has the entry."""
        self.refusals: set[int] = set()
        """Those whose present bookie did not take it."""


class _Member:
    """A bookie at its position. A new one in its place makes it a stranger, whose answers do not count."""

    __slots__ = ("add", "address", "answered", "position")

    def __init__(self, writer: EnsembleWriter, position: int, address: str, bookies: Bookies) -> None:
        self.position = position
        self.address = address
        self.add = bookies.client(address).add
        self.answered: AddDone = partial(writer.answered, self)


class EnsembleWriter:
    def __init__(
        self,
        ledger: Ledger,
        bookies: Bookies,
        *,
        call_soon: CallSoon,
        spawn: Spawn,
        first_entry_id: int = 0,
        recovering: bool = False,
    ) -> None:
        """`first_entry_id`: the first one that will be added; every add is one higher. `spawn` runs a change of the
        ensemble in the background. `recovering`: where no bookie can take a failed one's place, go on without."""
        metadata = ledger.metadata
        self._ledger = ledger
        self._bookies = bookies
        self._call_soon = call_soon
        self._spawn = spawn
        self._quorum = metadata.ack_quorum
        size, quorum = metadata.ensemble_size, metadata.write_quorum
        self._write_sets = [write_set(start, size, quorum) for start in range(size)]
        """By entry id modulo E."""
        self._members = [
            _Member(self, position, address, bookies)
            for position, address in enumerate(metadata.segments[-1].members)
        ]
        self._pending: dict[int, _PendingAdd] = {}
        """Entries that are not confirmed, in their order."""
        self._head = first_entry_id
        """The entry to be confirmed next."""
        self._failed: set[int] = set()
        """Positions that wait for another bookie, or, in a recovery, have to do without."""
        self._recovering = recovering
        self._refused: set[str] = set()
        """Bookies that failed since an entry was last confirmed: none of them is tried twice, or two that take nothing
        would take turns for ever."""
        self._changing = False
        self._rc = OK
        """Why no more entries are taken."""

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        parts: EntryParts,
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        if self._rc != OK:
            self._call_soon(done, self._rc, entry_id)
            return
        assert entry_id == self._head + len(self._pending), "one writer, one entry after the other"
        pending = self._pending[entry_id] = _PendingAdd(parts, master_key, recovery, done)
        for position in self._write_sets[entry_id % len(self._write_sets)]:
            self._send(self._members[position], entry_id, pending)

    def _send(self, member: _Member, entry_id: int, pending: _PendingAdd) -> None:
        member.add(
            self._ledger.ledger_id,
            entry_id,
            pending.parts,
            master_key=pending.master_key,
            recovery=pending.recovery,
            done=member.answered,
        )

    def answered(self, member: _Member, rc: int, entry_id: int) -> None:
        if self._rc != OK or self._members[member.position] is not member:
            return
        if rc == OK:
            pending = self._pending.get(entry_id)
            if pending is not None:
                pending.acks.add(member.position)
                if entry_id == self._head and not self._changing:
                    self._confirm()
        elif rc in FENCED:
            self._fail(rc)
        elif not self._is_closed:
            self._note_refusal(member, rc, entry_id)

    def _note_refusal(self, member: _Member, rc: int, entry_id: int) -> None:
        pending = self._pending.get(entry_id)
        if pending is not None:
            pending.refusals.add(member.position)
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
        if not self._changing:
            self._changing = True
            self._spawn(self._change_ensemble())

    @property
    def _is_closed(self) -> bool:
        """Whatever a bookie has not answered by then is not wanted any more."""
        return self._ledger.metadata.state is LedgerState.CLOSED

    def _confirm(self) -> None:
        while (pending := self._pending.get(self._head)) is not None and len(pending.acks) >= self._quorum:
            entry_id = self._head
            del self._pending[entry_id]
            self._head = entry_id + 1
            if self._refused:
                self._refused.clear()
            pending.done(OK, entry_id)

    def _fail(self, rc: int) -> None:
        self._rc = rc
        pending, self._pending = self._pending, {}
        for entry_id, add in pending.items():
            add.done(rc, entry_id)

    # Another bookie in the place of a failed one

    async def _change_ensemble(self) -> None:
        try:
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
        self._confirm()
        self._fail_if_hopeless()

    def _fail_if_hopeless(self) -> None:
        """Where no other bookie is to be had: an entry that too many have refused can never be confirmed."""
        refusals_max = len(self._write_sets[0]) - self._quorum
        if self._failed and any(len(each.refusals) > refusals_max for each in self._pending.values()):
            self._fail(NOT_ENOUGH_BOOKIES)

    async def _replace(self, positions: list[int]) -> None:
        members = [member.address for member in self._members]
        fresh = self._bookies.choose(len(positions), avoid={*members, *self._refused})
        for position, address in zip(positions, fresh, strict=True):
            members[position] = address
        await self._ledger.change_ensemble(self._head, tuple(members))
        if self._rc != OK:
            return
        log.info(
            "ledger %d goes on at entry %d on %s", self._ledger.ledger_id, self._head, ", ".join(members)
        )
        for position in positions:
            self._members[position] = _Member(self, position, members[position], self._bookies)
        self._failed.difference_update(positions)
        for entry_id, pending in self._pending.items():
            for position in self._write_sets[entry_id % len(self._write_sets)]:
                if position in positions:
                    pending.acks.discard(position)
                    pending.refusals.discard(position)
                    self._send(self._members[position], entry_id, pending)


def _code_of(error: BrokerError) -> int:
    if isinstance(error, LedgerFenced):
        return RC_FENCED
    return NOT_ENOUGH_BOOKIES if isinstance(error, NotEnoughBookies) else RC_IO_ERROR
