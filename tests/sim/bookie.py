"""A bookie as its clients see it: memory, disk, and the disk after a crash.

Fences, master keys and the replay after a start are the real bookie's own code; journal, disk and reads are models of
it: an add is readable before it is durable and answered after, a group of the journal can fail, a crash keeps any
beginning of what was not synced. A bookie that lost its disk comes back knowing that it did: every ledger is fenced and in
limbo (BP-46), so it never says "I do not have it" about what it may have lost. Closed ledgers too: a writer that was cut
off for long may still lack one answer for an entry behind the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from bookie_stub.base.posting import Answers
from bookie_stub.base.record import delete_record, frame
from bookie_stub.journal.journal import Done, nothing
from bookie_stub.ledgers.availability import Availability
from bookie_stub.ledgers.ledger import Ledger
from bookie_stub.ledgers.ledger_records import LedgerRecords
from bookie_stub.ledgers.limbo import add_lost_ledgers, put_in_limbo
from bookie_stub.ledgers.registry import LedgerRegistry
from bookie_stub.ledgers.replay import JournalReplay
from protocol.bookie_frame import (
    LAST_ENTRY,
    RC_IO_ERROR,
    RC_NO_ENTRY,
    RC_NO_LEDGER,
    RC_OK,
)
from tests.sim.loop import SimLoop

_UNLIMITED = 1 << 40


def _write_nothing(*_: object) -> None:
    """Stands for the flush of a replay, which unlimited memory never needs."""


class SimJournal:
    """The journal as `LedgerRecords` uses it: one for all ledgers, records in order, an answer after the sync."""

    def __init__(self, loop: SimLoop, rng: random.Random) -> None:
        self._loop = loop
        self._rng = rng
        self.waiting: list[tuple[bytes, Done, int]] = []
        self.durable: list[bytes] = []
        self.error_rate = 0.0
        self.failed: Callable[[], None] = lambda: None
        self._alive = True

    def of(self, ledger_id: int) -> SimJournal:
        return self

    def append(self, record: bytes, done: Done, value: int) -> None:
        self.waiting.append((record, done, value))
        if len(self.waiting) == 1:
            self._loop.call_later(self._rng.uniform(0.0005, 0.01), self._sync)

    def _sync(self) -> None:
        if not self._alive:
            return
        group, self.waiting = self.waiting, []
        rc = RC_OK
        kept = len(group)
        if self._rng.random() < self.error_rate:
            rc = RC_IO_ERROR
            kept = self._rng.randint(0, len(group))
            self.failed()
        self.durable += [record for record, _, _ in group[:kept]]
        for _, done, value in group:
            done(rc, value)

    def crash(self) -> list[bytes]:
        """Ends the journal; returns the records that are on disk afterwards."""
        self._alive = False
        kept = self._rng.randint(0, len(self.waiting))
        return self.durable + [record for record, _, _ in self.waiting[:kept]]


class SimBookie:
    def __init__(self, address: str, loop: SimLoop, rng: random.Random) -> None:
        self.address = address
        self.up = True
        self.lost_disk = False
        self.error_rate = 0.0
        """Of the journal's groups."""
        self._loop = loop
        self._rng = rng
        self._limbo: tuple[int, ...] = ()
        """Ledgers that may have been there when the disk was lost; known for ever."""
        self._start([])

    # What happens to it

    def crash(self) -> None:
        self.up = False
        self._disk = self._journal.crash()

    def start(self) -> None:
        self._start(self._disk)

    def start_after_a_loss(self, ledgers: Iterable[int]) -> None:
        """Of what was acknowledged any beginning is left, nothing in half of the cases; the cluster has `ledgers` on
        this bookie."""
        self.lost_disk = True
        self._limbo = tuple(ledgers)
        kept = self._rng.choice((0, self._rng.randint(0, len(self._disk))))
        self._start(self._disk[:kept])

    def _start(self, disk: list[bytes]) -> None:
        self._ledgers: dict[int, Ledger] = {}
        replay = JournalReplay(self._ledgers, _UNLIMITED, _write_nothing, lambda _: False)
        for record in disk:
            replay.apply(record)
        self.deleted = replay.deleted
        self.entries: dict[tuple[int, int], bytes] = {
            (ledger_id, entry_id): record[4:]
            for ledger_id, entries in replay.cache.entries.items()
            for entry_id, record in entries.in_order()
        }
        put_in_limbo([self._ledgers[each] for each in self._limbo if each in self._ledgers], set())
        add_lost_ledgers(self._limbo, self._ledgers, set(), self.deleted.__contains__)
        self._journal = SimJournal(self._loop, self._rng)
        self._journal.durable = list(disk)
        self._journal.error_rate = self.error_rate
        self._registry = LedgerRegistry(self._ledgers, self.deleted.__contains__)
        self._records = LedgerRecords(
            self._registry,
            self._journal,  # type: ignore[arg-type]
            Answers(self._loop.call_soon),
            Availability(lambda _: 0, 1, forced=False, any_full_closes_all=True),
        )
        self._journal.failed = lambda: self._registry.journal_failed(lambda ledger_id: True)
        self.up = True

    def collect(self, ledger_id: int) -> None:
        """The metadata store does not have the ledger any more."""
        ledger = self._ledgers.pop(ledger_id, None)
        if ledger is None:
            return
        self.entries = {key: entry for key, entry in self.entries.items() if key[0] != ledger_id}
        self._registry.forget(ledger)
        self.deleted.add(ledger_id)
        self._journal.append(delete_record(ledger_id), nothing, 0)

    def give_up(self, ledger_id: int) -> int:
        """Removes the entries of a ledger that belongs to others; its key and fence stay. Answers how many."""
        before = len(self.entries)
        self.entries = {key: entry for key, entry in self.entries.items() if key[0] != ledger_id}
        return before - len(self.entries)

    def damage(self, rate: float) -> int:
        """Wrong bytes in so many of its entries: in what they say of the ledger, or in what was sent. Answers how many."""
        damaged = 0
        for key, entry in self.entries.items():
            if self._rng.random() < rate:
                at, bits = self._rng.choice(((16, 0x80), (31, 1), (len(entry) - 1, 1)))
                self.entries[key] = entry[:at] + bytes([entry[at] ^ bits]) + entry[at + 1 :]
                damaged += 1
        return damaged

    def set_error_rate(self, rate: float) -> None:
        self.error_rate = self._journal.error_rate = rate

    # Requests

    def add(
        self, ledger_id: int, entry_id: int, entry: bytes, key: bytes, recovery: bool, reply: Done
    ) -> None:
        ledger = self._records.for_add(ledger_id, entry_id, key, recovery)
        if isinstance(ledger, int):
            reply(ledger, entry_id)
        else:
            self._records.journal_key(ledger)
            self.entries[ledger_id, entry_id] = entry
            ledger.last = max(ledger.last, entry_id)
            self._journal.append(frame(entry), reply, entry_id)

    def fence(self, ledger_id: int, key: bytes, entry_id: int, reply: Callable[[int, bytes], None]) -> None:
        def fenced(rc: int, _: int) -> None:
            if rc == RC_OK:
                self.read(ledger_id, entry_id, reply)
            else:
                reply(rc, b"")

        self._records.fence(ledger_id, key, fenced)

    def read(self, ledger_id: int, entry_id: int, reply: Callable[[int, bytes], None]) -> None:
        ledger = self._ledgers.get(ledger_id)
        last_wanted = entry_id == LAST_ENTRY
        if last_wanted and ledger is not None:
            entry_id = ledger.last
        found = self.entries.get((ledger_id, entry_id))
        if ledger is not None and ledger.limbo and (found is None or last_wanted):
            # The last one that it knows need not be the last one that it had. v2 has no code for "unknown".
            reply(RC_IO_ERROR, b"")
        elif found is not None:
            reply(RC_OK, found)
        else:
            reply(RC_NO_LEDGER if ledger is None else RC_NO_ENTRY, b"")

    def batch_read(
        self, ledger_id: int, first: int, count: int, reply: Callable[[int, list[bytes]], None]
    ) -> None:
        run: list[bytes] = []
        while len(run) < count and (entry := self.entries.get((ledger_id, first + len(run)))):
            run.append(entry)
        if run:
            reply(RC_OK, run)
        else:
            self.read(ledger_id, first, lambda rc, _: reply(rc, []))
