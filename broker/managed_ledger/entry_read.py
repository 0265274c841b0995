"""EntryRead: one read of entries, from acquiring its permits to its result.

The way of a read that the cache cannot serve alone (a miss):

    ManagedCursor.request        RedeliveryReads.request         read_entry
          ForwardRead              a redelivery read             a single read       each one a ReadOwner
               |                          |                          |
               +----------------> EntryRead.begin <------------------+
                                          |  permits: granted, or the read waits in InflightReadsLimiter
                                          v
          plan_read(wanted, cached, running) -> have, join, fetch                    a pure function
                    |                  |                  |
            cached entries    a RunningRead of        a new RunningRead -> Ledgers.read
                    |         another reader              |     its entries are offered to the cache once
                    +------------------+------------------+
                                       v
                        all parts have ended -> ReadOwner.read_ended(entries, error)

The laws:
1. `read_ended` is called once, after `begin` has returned.
2. A range is delivered whole and in order, or not at all.
3. If the cache had a part of a range and another part failed, the whole range is read once more, past the cache,
   as Pulsar does (PIP-430). After a timeout it is not, because the time is up.
4. Every entry delivered was counted once for the reader: as found, missed or coalesced.
5. The deadline covers the storage reads that this read started; reads that it joined have their own, earlier one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

from broker.managed_ledger.inflight_reads_limiter import ReadPermits
from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.read_plan import ReadPlan, plan_read
from broker.managed_ledger.storage_reads import ReadPart, RunningRead, StorageReads
from entry_cache.listener import StorageRead
from entry_cache.reader import Reader
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, ReadTimedOut
from foundation.model.range_set import EntryRange
from foundation.units import NS_PER_SECOND

log = logging.getLogger("magnetar")

_place = attrgetter("ledger_id", "entry_id")


class ReadOwner(Protocol):
    """The user of a read: names its ranges and receives the result."""

    @property
    def reader(self) -> Reader:
        """The cursor for which hits and misses count."""
        ...

    def ranges(self) -> Sequence[EntryRange]:
        """Returns the ranges to read now; empty when nothing is left.

        Called when permits are granted. The ranges exist and are disjoint.
        """
        ...

    def expected_reads(self) -> int | None:
        """Returns how many readers of fetched entries are to come.

        None keeps them out of the cache. Called when the entries have arrived.
        """
        ...

    def read_ended(self, entries: list[Entry], error: BrokerError | None) -> None:
        """Receives the entries in order, and the reason why some are missing.

        A range is complete or missing as a whole.
        """
        ...


class _FailedPart(NamedTuple):
    part: ReadPart
    error: BrokerError


class EntryRead:
    """Executes the plans of its ranges; holds permits and deadline."""

    __slots__ = (
        "_context",
        "_entries",
        "_error",
        "_failed",
        "_missed",
        "_open",
        "_own_reads",
        "_partly_cached",
        "_pieces",
        "_repeating",
        "_request",
        "_storage_reads",
        "begun",
        "permits",
    )

    def __init__(self, context: LedgerContext, storage_reads: StorageReads, request: ReadOwner) -> None:
        environment = context.environment
        self.permits = ReadPermits(environment.reads_limiter, environment.turn, environment.now_ns)
        """The request releases them when it has used or dropped the entries."""
        self.begun = False
        """The permits were granted and the ranges are fixed."""
        self._context = context
        self._storage_reads = storage_reads
        self._request = request
        self._entries: list[Entry] = []
        self._pieces = 0
        """Lists that were joined into `_entries`; with more than one the order is unknown."""
        self._open = 0
        """Parts that have not ended yet."""
        self._own_reads: list[RunningRead] = []
        self._partly_cached: list[EntryRange] = []
        """Ranges of which the cache had a part: law 3 holds for these."""
        self._failed: list[_FailedPart] = []
        self._error: BrokerError | None = None
        """The first error of a range that is given up."""
        self._repeating = False
        self._missed: list[ReadPart] = []
        """Parts that failed at first and are being read again with their whole range."""

    def begin(self, ranges: Sequence[EntryRange]) -> None:
        """Reads these ranges as soon as permits are there.

        With a limit of reads in flight, the read asks `request.ranges` once more when its permits are granted.
        """
        # Without a limit neither an estimate nor a place in a queue is needed.
        if not self._context.environment.reads_limiter.enabled:
            self._execute(ranges)
            return
        estimate = self._context.estimated_bytes
        size_bytes = sum([estimate(ledger_id, last - first + 1) for ledger_id, first, last in ranges])
        self.permits.acquire(size_bytes, self._granted, self._refused)

    def withdraw(self) -> None:
        """Ends a wait for permits with an empty result; a read that has begun goes on."""
        if self.permits.waiting:
            self.permits.release()
            self._context.at_end_of_turn(self._end)

    def _granted(self) -> None:
        ranges = self._request.ranges()
        if ranges:
            self._execute(ranges)
        else:  # Everything was acknowledged while the read waited.
            self.permits.release()
            self._end()

    def _refused(self, error: BrokerError) -> None:
        self._error = error
        self._end()

    # Executing the plan

    def _execute(self, ranges: Sequence[EntryRange]) -> None:
        self.begun = True
        cache, reader = self._context.cache, self._request.reader
        for wanted in ranges:
            ledger_id, first, last = wanted
            # Held from here on: an eviction cannot take these entries away while the gaps are being read.
            present = cache.get_present(reader, ledger_id, first, last)
            if present:
                self._partly_cached.append(wanted)
                self._gather(present)
            if len(present) <= last - first:
                ids = [entry.entry_id for entry in present]
                self._carry_out(wanted, plan_read(first, last, ids, self._storage_reads.running(ledger_id)))
        if self._open:
            self._set_deadline()
        else:
            # Law 1: the caller has not returned yet, so not inside this call.
            self._context.at_end_of_turn(self._end)

    def _carry_out(self, wanted: EntryRange, plan: ReadPlan) -> None:
        """Joins and starts the plan's reads; no part ends inside this call."""
        # Counted before the calls, as nothing may look complete while parts are still being started.
        self._open += len(plan.join) + len(plan.fetch)
        for join in plan.join:
            part = ReadPart(wanted, join.first, join.last)
            self._note(StorageRead.COALESCED, part)
            self._storage_reads.join(join, self, part)
        for span in plan.fetch:
            part = ReadPart(wanted, *span)
            self._note(StorageRead.MISS, part)
            self._own_reads.append(self._storage_reads.fetch(span, self, part, self._request.expected_reads))

    def _set_deadline(self) -> None:
        timeout_s = self._context.settings.read_timeout_s
        if timeout_s > 0 and self._own_reads:
            environment = self._context.environment
            environment.read_deadlines.add(self.overdue, environment.now_ns() + timeout_s * NS_PER_SECOND)

    def overdue(self) -> None:
        """Fails the storage reads that this read started, for all their readers."""
        limit = f"{self._context.settings.read_timeout_s} s (managedLedgerReadEntryTimeoutSeconds)"
        # The last failure ends this pass, which sets `_own_reads` to a new list; the loop keeps the old one.
        for read in self._own_reads:
            place = f"{read.ledger_id}:{read.first}-{read.last}"
            read.fail(ReadTimedOut(f"reading entries {place}: not read within {limit}"))

    # Parts end

    def part_arrived(self, part: ReadPart, entries: list[Entry], *, fetched: bool) -> None:
        """Keeps the entries and counts them. Entries of a second pass are counted at its end."""
        if not self._repeating:
            read = StorageRead.MISS if fetched else StorageRead.COALESCED
            self._context.cache.count_arrived(read, self._request.reader, entries)
            self._context.note_change()
        self._gather(entries)
        self._part_ended()

    def part_failed(self, part: ReadPart, error: BrokerError) -> None:
        """Keeps the error until the other parts have ended too."""
        self._note(StorageRead.FAILED, part)
        self._failed.append(_FailedPart(part, error))
        self._part_ended()

    def _gather(self, entries: list[Entry]) -> None:
        self._pieces += 1
        if self._entries:
            # The list is this read's own, see PartReceiver.
            self._entries += entries
        else:
            self._entries = entries

    def _part_ended(self) -> None:
        self._open -= 1
        if self._open:
            return
        # Before a second pass, which sets a deadline of its own.
        self._context.environment.read_deadlines.remove(self.overdue)
        if self._repeating:
            self._end_second_pass()
        elif self._failed:
            self._end_first_pass()
        if not self._open:
            self._end()

    def _end(self) -> None:
        # Parts end in any order. Python's sort is close to a merge for runs that are in order already.
        if self._pieces > 1:
            self._entries.sort(key=_place)
        entries, self._entries = self._entries, []
        request = self._request
        # The owner of the read has it as an attribute: without the cut each read would be work for the garbage collector.
        del self._request
        request.read_ended(entries, self._error)

    # A second pass, from storage alone

    def _end_first_pass(self) -> None:
        """Reads ranges with a failed part again where law 3 says so.

        The others are given up, with their first error.
        """
        errors: dict[EntryRange, BrokerError] = {}
        for part, error in self._failed:
            errors.setdefault(part.wanted, error)
        # Law 2: the parts of these ranges that did arrive must not be delivered alone.
        self._drop(errors)
        again: list[EntryRange] = []
        for wanted, error in errors.items():
            if wanted in self._partly_cached and not isinstance(error, ReadTimedOut):
                log.warning("%d:%d-%d is read again as a whole: %s", *wanted, error)
                again.append(wanted)
            else:
                self._error = self._error or error
        self._missed = [part for part, _ in self._failed if part.wanted in again]
        self._failed = []
        self._own_reads = []
        # The failure was noted as an event, so observers need to know that the entries are asked for again.
        for part in self._missed:
            self._note(StorageRead.MISS, part)
        self._repeating = bool(again)
        for wanted in again:
            # Past the cache, as Pulsar reads a range again after a failed gap.
            running = self._storage_reads.running(wanted.ledger_id)
            self._carry_out(wanted, plan_read(wanted.first, wanted.last, (), running))
        self._set_deadline()

    def _end_second_pass(self) -> None:
        """Counts the entries that had failed at first: as missed, or as failed for good."""
        # Reversed, so that of several errors of a range the first one stays.
        lost = {part.wanted: error for part, error in reversed(self._failed)}
        self._entries.sort(key=_place)
        self._drop(lost)
        for part in self._missed:
            if part.wanted in lost:
                self._note_always(StorageRead.FAILED, part)
            else:
                found = [
                    entry
                    for entry in self._entries
                    if _is_in(entry, part.wanted.ledger_id, part.first, part.last)
                ]
                self._context.cache.count_arrived(StorageRead.MISS, self._request.reader, found)
                self._context.note_change()
        if lost:
            self._error = self._error or self._failed[0].error

    def _drop(self, ranges: dict[EntryRange, BrokerError]) -> None:
        self._entries = [
            entry for entry in self._entries if not any(_is_in(entry, *wanted) for wanted in ranges)
        ]

    def _note(self, read: StorageRead, part: ReadPart) -> None:
        """Reports an event to the cache's observers; a second pass reports none."""
        if not self._repeating:
            self._note_always(read, part)

    def _note_always(self, read: StorageRead, part: ReadPart) -> None:
        cache, ledger_id, count = self._context.cache, part.wanted.ledger_id, part.last - part.first + 1
        cache.listener.asked_storage(read, cache, self._request.reader, ledger_id, part.first, count)


def _is_in(entry: Entry, ledger_id: int, first: int, last: int) -> bool:
    return entry.ledger_id == ledger_id and first <= entry.entry_id <= last
