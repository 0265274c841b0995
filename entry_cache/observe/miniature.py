"""Miniature: the cache's own policy at another size, on a sample of its entries (miniature simulation).

A cache for the share R of the entries with the share R of the bytes has about the hit ratio of the whole one, whatever
its policy (Waldspurger et al., ATC 2017). So a miniature is made of the very objects that the broker runs, with its
settings and another size, and time to live, requeues and expected reads are obeyed without a model of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from entry_cache.active_cursors import ActiveCursors, CursorPlace
from entry_cache.cache_stats import Reason
from entry_cache.compose import ComposedCache
from entry_cache.entry_cache import EntryCache
from entry_cache.observe.decisions import Decisions
from entry_cache.observe.repeated_inputs import NOTHING_PINNED, bodiless_entry, read_again
from entry_cache.observe.spatial_sample import FOLDS, SpatialSample
from entry_cache.settings import CacheSettings
from foundation.model.entry import Entry
from foundation.model.position import Position


class SampledRun(NamedTuple):
    """Neighbouring entries of the sample."""

    log: str
    """The managed ledger's name."""
    ledger_id: int
    """The ledger of all of them."""
    first: int
    """The lowest entry id."""
    end: int
    """One more than the highest entry id."""
    size_bytes: int
    """Bytes of each entry."""
    fold: int
    """The part of the sample, for the standard error."""


AWAITED_MAX: Final = 1_024
"""Entries that are awaited from storage; older ones are forgotten."""


class Miniature:
    """A cache of a fixed multiple of the real size, scaled down to the sample."""

    def __init__(self, factor: float, settings: CacheSettings, clock: Callable[[], int]) -> None:
        """`factor` multiplies the size of the real cache; `clock` returns the time of the event that is repeated."""
        self.factor = factor
        """Size in sizes of the real cache."""
        self.reads = [0.0] * FOLDS
        """Sampled reads by fold."""
        self.misses = [0.0] * FOLDS
        """Those of them that found no entry."""
        self._clock = clock
        self._cache = ComposedCache(settings, Decisions(0, clock), pinned=NOTHING_PINNED)
        self._manager = self._cache.manager
        self._cursors: dict[str, ActiveCursors] = {}
        # By ledger and entry, the readers that wait for it from storage, oldest first.
        self._awaited: OrderedDict[tuple[int, int], int] = OrderedDict()

    @property
    def entries(self) -> int:
        """Entries that the miniature holds."""
        return self._manager.entries

    @property
    def logs(self) -> int:
        """Logs that it has a cache for."""
        return len(self._manager.caches)

    @property
    def size_bytes(self) -> int:
        """Their bytes."""
        return self._manager.used_bytes

    @property
    def evicted_expected(self) -> int:
        """Entries that it removed although reads of them were expected."""
        return sum(self._cache.eviction_stats.evicted_expected_entries.values())

    def resize(self, settings: CacheSettings, rate: float) -> None:
        """Takes over the settings of the real cache, with the size for a sample of the share `rate` of the bytes."""
        size = max(1, int(settings.size_bytes_max * self.factor * rate))
        quota = int(settings.topic_quota_bytes * self.factor * rate)
        self._manager.reconfigure(replace(settings, size_bytes_max=size, topic_quota_bytes=quota))

    def insert(self, run: SampledRun, expected_reads: int | None) -> None:
        """Caches a run that entered the real cache; entries that are present stay as they are."""
        cache = self._manager.open(run.log)
        ledger = cache.ledgers.get(run.ledger_id)
        held = () if ledger is None else ledger.entries
        missing = [entry_id for entry_id in range(run.first, run.end) if entry_id not in held]
        if not missing:
            return
        entries = self._insert(cache, run, missing, expected_reads)
        if self._awaited:
            # Readers that had asked for them get them now, and lower the counts that include these readers.
            for entry in entries:
                for _ in range(self._awaited.pop((run.ledger_id, entry.entry_id), 0)):
                    self._manager.policy.counts.mark_delivered((entry,))

    def _insert(
        self, cache: EntryCache, run: SampledRun, ids: Iterable[int], expected_reads: int | None
    ) -> list[Entry]:
        entries = [bodiless_entry(run.ledger_id, entry_id, run.size_bytes) for entry_id in ids]
        cache.insert_run(entries, expected_reads, self._clock())
        return entries

    def read(self, run: SampledRun, reader: str, refill: int | None) -> None:
        """Reads a run.

        `refill` is the count of expected reads with which missing entries come back from storage: None for a read that
        went to storage in the real cache too, which reports the return by itself, and -1 for one that fills no cache.
        """
        cache = self._manager.open(run.log)
        present, missing = read_again(cache, reader, run.ledger_id, run.first, run.end)
        counts = self._manager.policy.counts
        # Written to a consumer in the same turn, nearly always.
        counts.mark_delivered(present)
        count = run.end - run.first
        self.reads[run.fold] += count
        self.misses[run.fold] += len(missing)
        if not missing:
            return
        if refill is None:
            for entry_id in missing:
                place = run.ledger_id, entry_id
                self._awaited[place] = self._awaited.pop(place, 0) + 1
            while len(self._awaited) > AWAITED_MAX:
                self._awaited.popitem(last=False)
        elif refill >= 0 and counts.fills_cache(refill):
            counts.mark_delivered(self._insert(cache, run, missing, refill))

    def count(self, run: SampledRun, *, missed: bool) -> None:
        """Counts a read whose outcome the miniature cannot know, as the real cache had it."""
        self.reads[run.fold] += run.end - run.first
        if missed:
            self.misses[run.fold] += run.end - run.first

    def follow(self, log: str, places: Iterable[CursorPlace]) -> None:
        """Moves the cursors of a log to the places of the real ones; the policy `magnetar` judges by them."""
        cursors = self._cursors.get(log)
        if cursors is None:
            cursors = self._cursors[log] = ActiveCursors(0, self._clock())
            self._manager.open(log).attach_cursors(cursors, self._clock(), counts_reads=True)
        real = {name: Position(ledger_id, entry_id) for ledger_id, entry_id, name in places}
        for name in [name for name in cursors if name not in real]:
            cursors.remove(name, self._clock())
        for name, position in real.items():
            if name in cursors:
                cursors.update(name, position)
            else:
                cursors.add(name, position, None)

    def check_size(self, now_ns: int) -> None:
        """Runs the size checks that inserts have asked for, as the broker does at the end of a turn."""
        if self._manager.eviction.size_checks_due:
            self._manager.eviction.run_size_checks(now_ns)

    def tick(self, now_ns: int) -> None:
        """Runs the passes that are due."""
        self._cache.tick(now_ns)

    def invalidate_before(self, log: str, position: Position) -> None:
        """Removes entries that no reader needs any more."""
        self._manager.open(log).invalidate_before(position)

    def invalidate_ledger(self, log: str, ledger_id: int) -> None:
        """Removes the entries of a ledger that no longer exists."""
        self._manager.open(log).invalidate_ledger(ledger_id)

    def forget_closed(self, is_open: Callable[[str], bool]) -> None:
        """Removes the caches of logs that were closed."""
        for cache in self._manager.caches:
            if not is_open(cache.name):
                self._cursors.pop(cache.name, None)
                self._manager.remove(cache.name)

    def leave_out(self, sample: SpatialSample) -> None:
        """Removes the entries that are not in the sample any more."""
        now_ns = self._clock()
        for cache in self._manager.caches:
            for ledger_id, ledger in list(cache.ledgers.items()):
                for entry_id in [one for one in ledger.entries if not sample.has(ledger_id, one)]:
                    first, end = Position(ledger_id, entry_id), Position(ledger_id, entry_id + 1)
                    cache.invalidate_range(first, end, Reason.INVALIDATE, now_ns)
        self._manager.policy.drop_invalidated()

    def weigh(self, weight: float) -> None:
        """Gives the counts so far a part of their weight."""
        self.reads = [count * weight for count in self.reads]
        self.misses = [count * weight for count in self.misses]
