"""EnsembleReader: reads of ledgers from the bookies that have them. BookKeeper's names: ReadOpBase, PendingReadOp.

The laws:

1. Where every bookie of the ensemble has every entry (E = Qw), a run is read in one batch: from the ledger's sticky
   bookie, whose read cache then serves the whole ledger, or from the bookie whose turn the first entry is.
2. Where each bookie has only some entries (E > Qw, a striped ledger), the entries of a run are read one by one, each from
   its own write set.
3. An error, a missing entry or a digest that does not match sends the read to the next bookie. With speculative reads
   silence does so too, and the first good answer wins.
4. An error that leaves the entry's fate open weighs more than damage, and damage more than a bookie's "no such entry". So
   EntryDamaged means that no bookie has the entry whole, and NoSuchEntry that none has it at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from bookkeeper.client.digest import Digest, digest_of
from bookkeeper.client.ledger_client import LedgerClient
from bookkeeper.client.result_codes import OK, error_of_read
from bookkeeper.ensembles.bookies import Bookies
from bookkeeper.ensembles.placement import write_set
from bookkeeper.ensembles.stored_entries import decode_run
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, EntryDamaged, NoSuchEntry, NoSuchLedger, PersistenceError
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment

RunRead = Callable[[list[Entry], BrokerError | None], None]
"""(consecutive entries from the first one asked for, at least one when there is no error; the error)"""
SINGLE_READS_MAX = 64
"""Entries of a striped ledger that are asked for together. Their sizes are not known before, so this bounds the memory."""


class EnsembleRead(NamedTuple):
    """A read of consecutive entries of one ledger."""

    ledger_id: int
    """The ledger of all entries."""
    first: int
    """The entry that must be read."""
    last: int
    """The last entry that may be read."""
    bytes_max: int
    """About so many bytes in all; the first entry is read whatever its size."""
    done: RunRead
    """Called once, never inside the call that asks."""


class Timer(Protocol):
    """A call that is due later, as the loop's TimerHandle."""

    def cancel(self) -> None:
        """Prevents the call."""
        ...


CallLater = Callable[[float, Callable[[], None]], Timer]
"""Calls the function after so many seconds, as the loop's `call_later`."""


class EnsembleReader:
    """Reads runs of entries, and remembers each ledger's sticky bookie."""

    def __init__(
        self, bookies: Bookies, call_later: CallLater, *, sticky: bool, speculative_s: float
    ) -> None:
        """`sticky`: all reads of a ledger begin with one bookie."""
        self._bookies = bookies
        self.call_later = call_later
        """For the timers of speculative reads."""
        self.speculative_s = speculative_s
        """Seconds of silence before the next bookie is asked too; 0 = never."""
        self._sticky = sticky
        self._moved: dict[int, int] = {}
        """By ledger, how often its sticky bookie failed. The bookie to begin with follows from that and the ledger's
        id, so nothing is kept for a ledger whose bookie never failed."""

    def read(self, metadata: LedgerMetadata, request: EnsembleRead) -> None:
        """Reads from the segment that has the first entry; a run ends at the segment's end."""
        segment, following = metadata.segment_of(request.first)
        if following is not None and following <= request.last:
            request = request._replace(last=following - 1)
        # The digest that the ledger was written with; the settings may have changed since.
        digest = digest_of(metadata.digest_type, metadata.password)
        size, quorum = len(segment.members), metadata.write_quorum
        if size > quorum:
            _StripedRead(self, digest, segment, quorum, request).begin()
            return
        ledger_id = request.ledger_id
        # From the ledger's id, so that ledgers are spread over the bookies without any state.
        start = (ledger_id + self._moved.get(ledger_id, 0)) if self._sticky else request.first
        order = [segment.members[position] for position in write_set(start, size, size)]
        _Read(self, digest, order, request).begin()

    def client(self, address: str) -> LedgerClient:
        """Returns the bookie with this name in ledger metadata."""
        return self._bookies.client(address)

    def move_on(self, ledger_id: int) -> None:
        """Begins later reads of the ledger with the next bookie, because the first one did not serve a read."""
        if self._sticky:
            self._moved[ledger_id] = self._moved.get(ledger_id, 0) + 1

    def forget(self, ledger_id: int) -> None:
        """Forgets a ledger that is deleted, or that is not read any more."""
        self._moved.pop(ledger_id, None)


class _Read:
    """A run that is asked of one bookie after the other."""

    __slots__ = (
        "_asked",
        "_digest",
        "_done",
        "_error",
        "_order",
        "_outstanding",
        "_reader",
        "_request",
        "_timer",
    )

    def __init__(
        self, reader: EnsembleReader, digest: Digest, order: list[str], request: EnsembleRead
    ) -> None:
        """`order`: the bookies in the order in which to ask them."""
        self._reader = reader
        self._digest = digest
        self._order = order
        self._request = request
        self._done: RunRead | None = request.done
        """None once it is called; answers after that are dropped."""
        self._asked = 0
        """Bookies asked so far."""
        self._outstanding = 0
        """Bookies that were asked and have not answered."""
        self._error: BrokerError | None = None
        """The one to report by law 4."""
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Asks the first bookie."""
        self._ask_next()

    def _ask_next(self) -> None:
        place = self._asked
        self._asked += 1
        self._outstanding += 1
        more = self._asked < len(self._order)
        # No timer for the last bookie: its silence leaves nothing to do but wait for it.
        if more and self._reader.speculative_s > 0:
            self._timer = self._reader.call_later(self._reader.speculative_s, self._silent)
        ledger_id, first, last, bytes_max, _ = self._request
        self._reader.client(self._order[place]).batch_read(
            ledger_id, first, last - first + 1, bytes_max, partial(self._answered, place)
        )

    def _silent(self) -> None:
        self._timer = None
        if self._done is not None and self._asked < len(self._order):
            self._ask_next()

    def _answered(self, place: int, rc: int, stored: list[bytes]) -> None:
        self._outstanding -= 1
        if self._done is None:
            return
        ledger_id, first, last, _, _ = self._request
        if rc != OK:
            what = f"reading entry {ledger_id}:{first} from {self._order[place]}"
            self._missed(place, error_of_read(rc, what))
            return
        if not stored:
            error = PersistenceError(f"reading entry {ledger_id}:{first}: an answer without entries")
            self._missed(place, error)
            return
        # A bookie may answer with more entries than were asked for; callers count on none after `last`.
        del stored[last - first + 1 :]
        entries: list[Entry] = []
        try:
            decode_run(ledger_id, first, stored, entries, self._digest)
        except EntryDamaged as damage:
            # Entries before the damaged one are good; the next read begins with the damaged one and asks on.
            if not entries:
                self._missed(place, EntryDamaged(f"{damage}, {self._file_of(place)}"))
                return
        self._end(entries, None)

    def _file_of(self, place: int) -> str:
        address = self._order[place]
        return self._reader.client(address).file_of(self._request.ledger_id, self._request.first) or address

    def _missed(self, place: int, error: BrokerError) -> None:
        """A bookie did not serve the read."""
        if self._error is None or _weight(error) >= _weight(self._error):
            self._error = error
        # Only the first bookie is the sticky one; failures of later ones say nothing about where to begin.
        if place == 0 and len(self._order) > 1:
            self._reader.move_on(self._request.ledger_id)
        if self._asked < len(self._order):
            self._cancel_timer()
            self._ask_next()
        # With speculative reads another bookie may still answer, and have the entry.
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


def _weight(error: BrokerError) -> int:
    """Orders errors by law 4."""
    if isinstance(error, NoSuchEntry | NoSuchLedger):
        return 0
    return 1 if isinstance(error, EntryDamaged) else 2


class _StripedRead:
    """A run of a striped ledger: its entries are read one by one, and reported up to the first that failed."""

    def __init__(
        self,
        reader: EnsembleReader,
        digest: Digest,
        segment: LedgerSegment,
        quorum: int,
        request: EnsembleRead,
    ) -> None:
        first = request.first
        count = min(request.last - first + 1, SINGLE_READS_MAX)
        self._request = request
        self._entries: list[Entry | None] = [None] * count
        self._left = count
        self._error: BrokerError | None = None
        """Of the first entry; errors of later ones only end the run."""
        members = segment.members
        self._reads = [
            _Read(
                reader,
                digest,
                [members[position] for position in write_set(entry_id, len(members), quorum)],
                EnsembleRead(
                    request.ledger_id,
                    entry_id,
                    entry_id,
                    request.bytes_max,
                    partial(self._answered, entry_id - first),
                ),
            )
            for entry_id in range(first, first + count)
        ]

    def begin(self) -> None:
        """Asks for all entries at once."""
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
        bytes_left = self._request.bytes_max
        # The first entry is reported whatever its size, or a reader with a small budget would never get past it.
        for entry in self._entries:
            if entry is None or (run and entry.size > bytes_left):
                break
            run.append(entry)
            bytes_left -= entry.size
        self._request.done(run, None if run else self._error)
