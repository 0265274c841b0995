"""Reads of ledgers from the bookies that have them, with another one asked where the first cannot serve.

Where every bookie of the ensemble has every entry (E = Qw), a run is read in one batch: from the ledger's sticky bookie,
or from the one whose turn the first entry is. Where each has only some entries (E > Qw), the entries of a run are
asked one by one, each from its own write set. An error, a missing entry or a digest that does not match sends the read
to the next bookie; if told to, silence does so too, and the first good answer wins.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from broker.ledger_client.bookies import Bookies
from broker.ledger_client.digest import Digest, digest_of
from broker.ledger_client.ledger_client import LedgerClient
from broker.ledger_client.placement import write_set
from broker.ledger_client.result_codes import NEGATIVE, OK, error_of
from broker.ledger_client.stored_entries import decode_run
from broker.model.entry import Entry
from broker.model.errors import BrokerError, PersistenceError
from protocol.ledger_metadata import LedgerMetadata, Segment

RunRead = Callable[[list[Entry], BrokerError | None], None]
"""(consecutive entries from the first one asked for, at least one when there is no error; the error)"""
SINGLE_READS_MAX = 64
"""Entries of a striped ledger that are asked for together, as long as their size is not known."""


class Timer(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Timer]


class EnsembleReader:
    def __init__(
        self, bookies: Bookies, call_later: CallLater, *, sticky: bool, speculative_s: float
    ) -> None:
        self._bookies = bookies
        self.call_later = call_later
        self.speculative_s = speculative_s
        """Seconds of silence before the next bookie is asked too, 0 = as many as it takes."""
        self._sticky = sticky
        self._moved: dict[int, int] = {}
        """By ledger, how often its sticky bookie failed; the place to start from follows from the ledger's id."""

    def read(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        first: int,
        last: int,
        bytes_max: int,
        done: RunRead,
    ) -> None:
        """Some entries from `first` on, none behind `last`; `done` is never called inside this call."""
        segment, following = metadata.segment_of(first)
        if following is not None:
            last = min(last, following - 1)
        digest = digest_of(metadata.digest_type, metadata.password)
        size, quorum = len(segment.members), metadata.write_quorum
        if size > quorum:
            _StripedRead(self, ledger_id, segment, quorum, digest, first, last, bytes_max, done).begin()
            return
        start = (ledger_id + self._moved.get(ledger_id, 0)) if self._sticky else first
        order = [segment.members[position] for position in write_set(start, size, size)]
        _Read(self, ledger_id, digest, order, first, last - first + 1, bytes_max, done).begin()

    def client(self, address: str) -> LedgerClient:
        return self._bookies.client(address)

    def move_on(self, ledger_id: int) -> None:
        """The bookie that a read began with did not serve it: later ones begin with the next."""
        if self._sticky:
            self._moved[ledger_id] = self._moved.get(ledger_id, 0) + 1

    def forget(self, ledger_id: int) -> None:
        self._moved.pop(ledger_id, None)


class _Read:
    """One run, from one bookie after the other until one has it."""

    __slots__ = (
        "_asked",
        "_digest",
        "_done",
        "_error",
        "_negatives",
        "_order",
        "_outstanding",
        "_reader",
        "_timer",
        "bytes_max",
        "count",
        "first",
        "ledger_id",
    )

    def __init__(
        self,
        reader: EnsembleReader,
        ledger_id: int,
        digest: Digest,
        order: list[str],
        first: int,
        count: int,
        bytes_max: int,
        done: RunRead,
    ) -> None:
        self.ledger_id = ledger_id
        self.first = first
        self.count = count
        self.bytes_max = bytes_max
        self._reader = reader
        self._digest = digest
        self._order = order
        self._done: RunRead | None = done
        """None once it is answered; what comes later is dropped."""
        self._asked = 0
        self._outstanding = 0
        self._negatives = 0
        self._error: BrokerError | None = None
        """Of a bookie that may have the entry; it weighs more than another's "I do not have it"."""
        self._timer: Timer | None = None

    def begin(self) -> None:
        self._ask_next()

    def _ask_next(self) -> None:
        place = self._asked
        self._asked += 1
        self._outstanding += 1
        more = self._asked < len(self._order)
        if more and self._reader.speculative_s > 0:
            self._timer = self._reader.call_later(self._reader.speculative_s, self._silent)
        self._reader.client(self._order[place]).batch_read(
            self.ledger_id, self.first, self.count, self.bytes_max, partial(self._answered, place)
        )

    def _silent(self) -> None:
        self._timer = None
        if self._done is not None and self._asked < len(self._order):
            self._ask_next()

    def _answered(self, place: int, rc: int, stored: list[bytes]) -> None:
        self._outstanding -= 1
        if self._done is None:
            return
        what = f"reading entry {self.ledger_id}:{self.first}"
        if rc == OK and not stored:
            self._missed(place, PersistenceError(f"{what}: an answer without entries"), negative=False)
            return
        if rc != OK:
            self._missed(place, error_of(rc, what), negative=rc in NEGATIVE)
            return
        # A bookie that answers more than was asked for is taken at its word for what was.
        del stored[self.count :]
        entries: list[Entry] = []
        try:
            decode_run(self.ledger_id, self.first, stored, entries, self._digest)
        except PersistenceError as error:
            if not entries:  # Those before the damaged one are good; the next read begins with it.
                self._missed(place, error, negative=False)
                return
        self._end(entries, None)

    def _missed(self, place: int, error: BrokerError, *, negative: bool) -> None:
        self._negatives += negative
        if self._error is None or not negative:
            self._error = error
        if place == 0 and len(self._order) > 1:
            self._reader.move_on(self.ledger_id)
        if self._asked < len(self._order):
            self._cancel_timer()
            self._ask_next()
        elif not self._outstanding:
            self._end([], self._error)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, entries: list[Entry], error: BrokerError | None) -> None:
        assert self._done is not None
        done, self._done = self._done, None
        self._cancel_timer()
        done(entries, error)


class _StripedRead:
    """A run of a ledger whose bookies have only some entries each: asked one by one, answered up to the first gap."""

    def __init__(
        self,
        reader: EnsembleReader,
        ledger_id: int,
        segment: Segment,
        quorum: int,
        digest: Digest,
        first: int,
        last: int,
        bytes_max: int,
        done: RunRead,
    ) -> None:
        count = min(last - first + 1, SINGLE_READS_MAX)
        self._entries: list[Entry | None] = [None] * count
        self._left = count
        self._error: BrokerError | None = None
        self._bytes_max = bytes_max
        self._done = done
        self._reads = [
            _Read(
                reader,
                ledger_id,
                digest,
                [segment.members[place] for place in write_set(entry_id, len(segment.members), quorum)],
                entry_id,
                1,
                bytes_max,
                partial(self._answered, entry_id - first),
            )
            for entry_id in range(first, first + count)
        ]

    def begin(self) -> None:
        for read in self._reads:
            read.begin()

    def _answered(self, place: int, entries: list[Entry], error: BrokerError | None) -> None:
        self._left -= 1
        if error is None:
            self._entries[place] = entries[0]
        elif place == 0:
            self._error = error
        if self._left == 0:
            self._end()

    def _end(self) -> None:
        run: list[Entry] = []
        room = self._bytes_max
        for entry in self._entries:
            if entry is None or (run and entry.size > room):
                break
            run.append(entry)
            room -= entry.size
        self._done(run, None if run else self._error)
