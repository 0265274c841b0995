"""Replays an access record through the broker's own cache objects, under other settings.

It serves policies without machine code, and tests compare the machine code with it.
`entry_cache.observe.replay.Replay` repeats the recorded decisions; `WhatIf` lets the cache decide anew. Both drive
`RepeatedInputs`, and `WhatIf` gives it a table of the inputs that it takes anew.
Positions of cursors, times of reads and deliveries are as recorded; the cache's contents, and so reads from storage, are
not. A read that is a hit here alone moves its cursor when it was asked for, under a policy that watches cursors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Final

from broker.recorder.record_reader import BrokerLifetime, events, events_of
from broker.recorder.schema import COLUMNS
from entry_cache.observe.cache_events import HIT_MOVES, HIT_REDELIVERY, Op
from entry_cache.observe.recorded import Recorded
from entry_cache.observe.repeated_inputs import (
    NOTHING_PINNED,
    RepeatedInputs,
    bodiless_entry,
    nothing,
    read_again,
    refill_reads,
)
from entry_cache.observe.replay import OUTPUTS, Replay
from entry_cache.observe.totals import totals_of
from entry_cache.settings import CacheSettings
from foundation.model.entry import Entry
from foundation.model.position import Position
from pipeline.replays.accesses import REST_NS
from pipeline.replays.inputs import InputBatch
from pipeline.replays.replay import Outcome

EntryPlace = tuple[int, int]
"""(ledger id, entry id)."""
_CATCHES_UP: Final = frozenset(
    (
        Op.APPEND,
        Op.FETCHED,
        Op.HIT,
        Op.MISS,
        Op.COALESCED,
        Op.DELIVER,
        Op.REDELIVERY,
        Op.TICK,
        Op.SIZE_CHECK,
        Op.SETTINGS,
    )
)
"""Events before which due passes run. The ones that the machine code has rows for."""
_CACHED_NOW: Final = frozenset((Op.DELIVER, Op.REDELIVERY, Op.POSTPONED))
"""Events whose `detail` says if the recorded cache still had the entries."""
_READS: Final = frozenset((Op.HIT, Op.MISS, Op.COALESCED, Op.DELIVER))
"""Events of dispatchers, which come after all arrivals of their turn."""


class WhatIf:
    """A replay with settings other than the recorded ones."""

    def __init__(self, settings: CacheSettings, tick_ns: int) -> None:
        """`settings` hold from start to end, whatever SETTINGS events say. `tick_ns`: between two periodic passes."""
        taken_anew = {
            Op.APPEND: self._append,
            Op.FETCHED: self._fetch,
            Op.HIT: self._read,
            Op.MISS: self._ask,
            Op.COALESCED: self._ask,
            Op.ARRIVED: self._arrive,
            Op.TICK: self._tick,
            Op.SIZE_CHECK: nothing,
            Op.SETTINGS: nothing,
        }
        self._repeated = RepeatedInputs(settings, NOTHING_PINNED, taken_anew=taken_anew)
        self._manager = self._repeated.manager
        self.events = 0
        """The number of replayed inputs."""
        self.peak_bytes = 0
        """The largest use of the cache so far."""
        self.new_misses = 0
        """Misses of entries that the recorded cache had."""
        # The core asks for a check and leaves the time of it to its owner, here as in the broker.
        self._manager.eviction.on_size_check = self._size_check_wanted
        self._tick_ns = tick_ns
        self._last_tick_ns: int | None = None
        self._read_since = False
        """Entries were read or delivered since a size check was requested."""
        self._run: list[int] = []
        """Entry ids of a call whose last row has not come yet; its rows differ in the size of their entries."""
        self._sizes: dict[EntryPlace, int] = {}
        self._pending: set[EntryPlace] = set()
        """Requested from storage in this replay, and not arrived yet."""
        self._found: dict[tuple[str, str], set[EntryPlace]] = {}
        """By log and reader, entries that the broker requested from storage and this cache has."""

    @property
    def outcome(self) -> Outcome:
        """The counters so far."""
        return Outcome(totals_of(self._repeated.cache), self.peak_bytes, self.new_misses)

    def feed(self, record: Iterable[Recorded]) -> None:
        """Replays the next events, in order; recorded decisions are skipped."""
        for event in record:
            # Decisions of the recorded cache; this one decides anew.
            if event.op in OUTPUTS:
                continue
            self.events += 1
            self._repeated.now_ns = event.at_ns
            if self._repeated.skips(event):
                continue
            if event.op in _CATCHES_UP:
                self._catch_up(event)
            # This cache has its entries from other inserts, so whether the broker's had lost one decides nothing here.
            self._repeated.repeat([event._replace(detail=0) if event.op in _CACHED_NOW else event])
            self._repeated.problems.clear()  # Other contents than recorded are the purpose here.

    def _size_check_wanted(self) -> None:
        self._read_since = False

    def _catch_up(self, event: Recorded) -> None:
        """Runs the passes that were due before the event, by the rules of `kernel._catch_up`."""
        now_ns = event.at_ns
        if self._last_tick_ns is None:
            self._last_tick_ns = now_ns
        if now_ns - self._last_tick_ns > max(2 * self._tick_ns, REST_NS):
            self._last_tick_ns = self._ticks_of_a_rest(self._last_tick_ns, now_ns)
        if self._manager.eviction.size_checks_due:
            if self._turn_is_over(event):
                self._manager.eviction.run_size_checks(now_ns)
            elif event.op in _READS:
                self._read_since = True
        if event.op is Op.TICK:
            self._last_tick_ns = now_ns

    def _ticks_of_a_rest(self, last_tick_ns: int, now_ns: int) -> int:
        """Runs the passes that the recorded broker left out; returns the time of the last one."""
        while now_ns - last_tick_ns > 2 * self._tick_ns:
            # An empty queue: all passes of the gap would do nothing, so they are skipped together.
            if not self._manager.policy:
                last_tick_ns = now_ns
                break
            last_tick_ns += self._tick_ns
            self._repeated.now_ns = last_tick_ns
            self._manager.eviction.tick(last_tick_ns)
        self._repeated.now_ns = now_ns
        return last_tick_ns

    def _turn_is_over(self, event: Recorded) -> bool:
        """Returns True if the turn has ended in which a size check was requested; see `kernel._turn_is_over`."""
        if event.op in (Op.SIZE_CHECK, Op.TICK):
            return True
        return self._read_since and (
            event.op in (Op.APPEND, Op.FETCHED) or (event.op is Op.HIT and self._is_incomplete(event))
        )

    def _is_incomplete(self, event: Recorded) -> bool:
        peek = self._repeated.log_of(event).cache.peek
        return any(peek(event.ledger_id, entry_id) is None for entry_id in event.ids)

    # Entries by place

    def _entry(self, ledger_id: int, entry_id: int, mean: int) -> Entry:
        return bodiless_entry(ledger_id, entry_id, self._sizes.get((ledger_id, entry_id), mean))

    def _insert(self, event: Recorded, entry_ids: list[int], expected_reads: int | None) -> None:
        """Inserts some of the event's entries, in runs of neighbours."""
        cache = self._repeated.logs[event.log].cache
        mean = event.size_bytes // max(event.entries, 1)
        for run in _neighbours(entry_ids):
            entries = [self._entry(event.ledger_id, entry_id, mean) for entry_id in run]
            cache.insert_run(entries, expected_reads, event.at_ns)
        self.peak_bytes = max(self.peak_bytes, self._manager.eviction.accounted_bytes)

    def _remember_sizes(self, event: Recorded) -> None:
        size = event.size_bytes // max(event.entries, 1)
        for entry_id in event.ids:
            self._sizes[event.ledger_id, entry_id] = size

    # Events whose outcome differs from the recorded one

    def _append(self, event: Recorded) -> None:
        self._remember_sizes(event)
        log = self._repeated.log_of(event)
        self._run += event.ids
        if event.more:
            return
        run, self._run = self._run, []
        if log.cursors.should_cache_added(event.at_ns):
            expected_reads = len(log.cursors) if log.counts_reads else None
            self._insert(event, run, expected_reads)

    def _fetch(self, event: Recorded) -> None:
        self._remember_sizes(event)
        wanted = [entry_id for entry_id in event.ids if (event.ledger_id, entry_id) in self._pending]
        # Each arrival is used once; a second one for the same entry is another reader's.
        self._pending.difference_update((event.ledger_id, entry_id) for entry_id in wanted)
        self._run += wanted
        if event.more:
            return
        run, self._run = self._run, []
        if event.detail >= 0 and self._manager.policy.counts.fills_cache(event.detail):
            self._insert(event, run, event.detail)

    def _read(self, event: Recorded) -> None:
        log = self._repeated.log_of(event)
        reader, place = log.cache.reader(event.reader), (event.ledger_id, event.first)
        expected_reads = refill_reads(log.cursors, event.reader, place) if log.counts_reads else -1
        # Not `read_run`: in this cache the run may have gaps, which the recorded one had not.
        present, missing = read_again(log.cache, event.reader, *place, event.first + event.entries)
        if event.detail == HIT_REDELIVERY:
            for entry in present:
                log.cache.listener.redelivery_read(reader, entry)
        mean = event.size_bytes // max(event.entries, 1)
        missing_bytes = sum([self._sizes.get((event.ledger_id, entry_id), mean) for entry_id in missing])
        # As if read from storage at once: the record has no time of an arrival for a read that was a hit.
        log.cache.counters(reader)[0].count_arrived(False, len(missing), missing_bytes)
        self.new_misses += len(missing)
        if expected_reads >= 0 and self._manager.policy.counts.fills_cache(expected_reads):
            self._insert(event, missing, expected_reads)
        if event.detail == HIT_MOVES:
            log.move(event.reader, Position(event.ledger_id, event.first + event.entries))

    def _ask(self, event: Recorded) -> None:
        cache = self._repeated.log_of(event).cache
        found = self._found.setdefault((event.log, event.reader), set())
        for entry_id in event.ids:
            place = (event.ledger_id, entry_id)
            # With a positive `detail` the broker read from storage although it had entries of the range, so
            # this replay does, too.
            entry = None if event.detail else cache.peek(*place)
            if entry is None:
                self._pending.add(place)
                found.discard(place)
            else:
                entry.accessed = True
                found.add(place)
        self._move_over_hits(event, found)

    def _move_over_hits(self, event: Recorded, found: set[EntryPlace]) -> None:
        """Moves a reader at once past entries that the recorded broker had to read, and this cache has.

        The record moves it when its read has arrived. Until then the policy `magnetar` would keep these entries for it.
        Other policies ask for positions at inserts alone, and the machine code has the recorded ones.
        """
        log = self._repeated.logs[event.log]
        if log.cursors.watcher is None or log.cursors.position(event.reader) != event.position:
            return
        ahead = takewhile(lambda entry_id: (event.ledger_id, entry_id) in found, event.ids)
        log.move(event.reader, Position(event.ledger_id, event.first + sum(1 for _ in ahead)))

    def _arrive(self, event: Recorded) -> None:
        cache = self._repeated.log_of(event).cache
        reads, _ = cache.counters(cache.reader(event.reader))
        found = self._found.get((event.log, event.reader), set())
        mean = event.size_bytes // max(event.entries, 1)
        for entry_id in event.ids:
            place = (event.ledger_id, entry_id)
            size = self._sizes.get(place, mean)
            if place in found:
                found.discard(place)
                reads.count_hits(1, size)
            else:
                reads.count_arrived(event.detail != Op.MISS, 1, size)

    def _tick(self, event: Recorded) -> None:
        self._manager.eviction.tick(event.at_ns)


def _neighbours(entry_ids: list[int]) -> Iterator[list[int]]:
    start = 0
    for at in range(1, len(entry_ids) + 1):
        if at == len(entry_ids) or entry_ids[at] != entry_ids[at - 1] + 1:
            yield entry_ids[start:at]
            start = at


def replay_objects(
    lifetime: BrokerLifetime,
    batches: Iterable[InputBatch],
    settings: Sequence[CacheSettings],
    tick_ns: int,
) -> list[Outcome]:
    """Replays a broker lifetime, given its inputs or a sample of them, under each of the settings.

    `settings`: of caches for the sample's share (`replay.scaled`). RecordError for damaged files or missing names.
    """
    replays = [WhatIf(one, tick_ns) for one in settings]
    # All caches replay a batch before the next one, so that the events of one batch are in memory as objects.
    for batch in batches:
        columns = {name: batch.rows[name] for name in COLUMNS}
        recorded = events_of(lifetime, lifetime.files[batch.number], columns)
        for replay in replays:
            replay.feed(recorded)
    return [replay.outcome for replay in replays]


def own_totals(lifetime: BrokerLifetime) -> Outcome:
    """Replays a broker lifetime as recorded, with the broker's own settings and any policy."""
    replay = Replay(CacheSettings.from_text(lifetime.files[0].facts.settings))
    for batch in events(lifetime):
        replay.feed(batch)
    replay.finish(cut_off=lifetime.files[-1].facts.totals is None)
    return Outcome(replay.totals, 0, replay.differences)
