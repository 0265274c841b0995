"""MissRatios: the miss ratio that another size of the cache would give, from a sample of what happens in this one.

It takes the cache's events while somebody asks for the curve, and repeats those of a small sample on miniatures of several
sizes (`miniature.py`). The sample shrinks when it holds too many entries or takes too much time, so memory and cost have a
limit whatever the load.

What it knows of an entry begins with the sampling. A read of an older entry counts as the real cache had it at every
size, until the entry is met again; `unknown_share` says how many reads that are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from math import sqrt
from typing import Final

from entry_cache.active_cursors import ActiveCursors
from entry_cache.cache_stats import Reason
from entry_cache.observe.cache_events import (
    NOT_COUNTED,
    REASONS,
    STILL_EXPECTED,
    CacheEvent,
    Op,
    expected_reads_of,
)
from entry_cache.observe.curve import Curve, Point
from entry_cache.observe.miniature import Miniature, SampledRun
from entry_cache.observe.repeated_inputs import refill_reads
from entry_cache.observe.spatial_sample import BLOCK_BITS, FOLDS, SpatialSample
from entry_cache.policy import NO_LIMIT
from entry_cache.reader import LOOKS_ONLY
from entry_cache.settings import CacheSettings
from foundation.model.position import Position
from foundation.units import NS_PER_SECOND

FACTORS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Sizes that are looked at, in sizes of the real cache."""
ENTRIES_MAX: Final = 8_192
"""Entries of the sample; the largest miniature holds no more than these."""
PER_SECOND_MAX: Final = 500
"""Entries of the sample that are inserted or read in a second: some ms of work."""
ENTRIES_ENOUGH: Final = 64
"""Entries below which a miniature is too small to behave as its original."""
HALF_LIFE_NS: Final = 300_000_000_000
"""Time after which counts have half of their weight."""
SETTLE_NS: Final = 30_000_000_000
"""Time after which the counts begin anew, because the miniatures begin empty."""
TICK_NS: Final = 50_000_000
"""Least time between two periodic passes of the miniatures."""
TURN_NS: Final = 2_000_000
"""Time between two sampled events that are taken for different turns of the loop."""
# Plain numbers: comparing an event with a member of an enumeration would cost twice as much.
_HIT, _INSERT, _EVICT = int(Op.HIT), int(Op.INSERT), int(Op.EVICT)
_ASKED: Final = (int(Op.MISS), int(Op.COALESCED))
_RUNS: Final = frozenset((_HIT, _INSERT, *_ASKED))
_LOOKS: Final = (LOOKS_ONLY,)
"""The reader's name in events of looks at single entries."""
CursorsOf = Callable[[str], ActiveCursors | None]
"""Returns the active cursors of a log; None for one that is closed."""


class MissRatios:
    """The sampling of one cache, from its begin on."""

    def __init__(
        self, settings: CacheSettings, cached_entries: int, cursors_of: CursorsOf, now_ns: int
    ) -> None:
        """`settings` hold now; `cached_entries` are in the cache, for the first rate."""
        self._settings = settings
        self._cursors_of = cursors_of
        self._began_ns = self._counted_ns = self._now_ns = now_ns
        self._sample = SpatialSample(min(1.0, ENTRIES_MAX / max(1.0, cached_entries * FACTORS[-1])))
        self._caches = [Miniature(factor, settings, self._time) for factor in FACTORS]
        # By log, the highest place at the first event: later entries have been watched all their life.
        self._known_from: dict[str, Position] = {}
        # Older entries that were read since, oldest first.
        self._met: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._counts_reads: dict[str, bool] = {}
        self._all_bytes = self._sampled_bytes = 0.0
        self._hits = self._misses = 0.0
        self._unknown = 0.0
        self._tick_due_ns = self._second_ns = self._halved_ns = now_ns
        self._in_second = 0
        self._settled = False
        self._resize()

    def _time(self) -> int:
        return self._now_ns

    # Events

    def take(self, row: CacheEvent) -> None:
        """Takes one event of the cache, in order."""
        op, count = row[1], row[6]
        if row[9] == _LOOKS:
            # Looks say nothing of how a cache serves its cursors, and fill none.
            return
        if op == _HIT:
            self._hits += count
        elif op == _INSERT:
            self._all_bytes += row[7]
            if row[2] not in self._known_from:
                self._known_from[row[2]] = self._tail(row)
        elif op in _ASKED:
            self._misses += count
        elif op == _EVICT:
            self._evict(row)
        # Most runs have no entry of the sample, and cost no more than this comparison.
        if op in _RUNS and self._sample.next_block(row[4], row[5]) << BLOCK_BITS < row[5] + count:
            self._repeat(row)
        if row[0] >= self._tick_due_ns:
            self._tick(row[0])

    def _repeat(self, row: CacheEvent) -> None:
        """Repeats the parts of an event that are in the sample."""
        for first, end, fold in self._sample.parts(row[4], row[5], row[6]):
            if row[0] - self._now_ns > TURN_NS:
                self._end_turn()
            self._now_ns = row[0]
            run = SampledRun(row[2], row[4], first, end, row[7] // row[6], fold)
            if row[1] == _INSERT:
                self._counts_reads[row[2]] = row[8] != NOT_COUNTED
                self._insert(run, row)
            else:
                self._read(run, row)

    def _insert(self, run: SampledRun, row: CacheEvent) -> None:
        self._sampled_bytes += run.size_bytes * (run.end - run.first)
        self._in_second += run.end - run.first
        self._follow(run.log)
        expected_reads = expected_reads_of(row[8])
        for cache in self._caches:
            cache.insert(run, expected_reads)

    def _read(self, run: SampledRun, row: CacheEvent) -> None:
        reader = row[9][0] if row[9] else ""
        self._in_second += run.end - run.first
        if not self._is_known(run):
            self._unknown += run.end - run.first
            for cache in self._caches:
                cache.count(run, missed=row[1] != Op.HIT)
            return
        self._follow(run.log)
        # The real cache has reported nothing that would fill a smaller one, where it had the entries itself.
        refill = self._refill(run, reader) if row[1] == Op.HIT else None
        for cache in self._caches:
            cache.read(run, reader, refill)

    def _is_known(self, run: SampledRun) -> bool:
        if self._known_from.get(run.log, (NO_LIMIT, 0)) <= (run.ledger_id, run.first):
            return True
        place = (run.ledger_id, run.first >> BLOCK_BITS)
        known = place in self._met
        self._met[place] = None
        if len(self._met) > ENTRIES_MAX:
            self._met.popitem(last=False)
        return known

    def _tail(self, row: CacheEvent) -> Position:
        """Returns the furthest place that is known of a log: that of its first insert, or of a cursor ahead of it."""
        place = Position(row[4], row[5])
        cursors = self._cursors_of(row[2])
        return max(place, Position(*cursors.places[-1][:2])) if cursors and cursors.places else place

    def _refill(self, run: SampledRun, reader: str) -> int:
        """Returns the expected reads with which the log would fetch the run; -1 where that fills no cache."""
        cursors = self._cursors_of(run.log)
        if cursors is None or not self._counts_reads.get(run.log, True):
            return -1
        return refill_reads(cursors, reader, (run.ledger_id, run.first))

    def _follow(self, log: str) -> None:
        if self._settings.policy == "magnetar" and (cursors := self._cursors_of(log)) is not None:
            for cache in self._caches:
                cache.follow(log, cursors.places)

    def _evict(self, row: CacheEvent) -> None:
        """Repeats invalidations; what passes remove is for each miniature to decide."""
        reason = REASONS[row[8] % STILL_EXPECTED]
        self._now_ns = max(self._now_ns, row[0])
        if reason is Reason.LEDGER:
            for cache in self._caches:
                cache.invalidate_ledger(row[2], row[4])
        elif reason is Reason.INVALIDATE:
            for cache in self._caches:
                cache.invalidate_before(row[2], Position(row[4], row[5] + row[6]))

    # Time

    def _end_turn(self) -> None:
        for cache in self._caches:
            cache.check_size(self._now_ns)

    def _tick(self, now_ns: int) -> None:
        self._now_ns = now_ns
        self._tick_due_ns = now_ns + TICK_NS
        for cache in self._caches:
            cache.tick(now_ns)
        if not self._settled and now_ns - self._began_ns >= SETTLE_NS:
            self._settled = True
            self._counted_ns = now_ns
            self._weigh(0.0)
        if now_ns - self._halved_ns >= HALF_LIFE_NS:
            self._halved_ns = now_ns
            self._weigh(0.5)
            self._all_bytes, self._sampled_bytes = self._all_bytes / 2, self._sampled_bytes / 2
            self._forget_closed()
        if now_ns - self._second_ns >= NS_PER_SECOND:
            per_second = self._in_second * NS_PER_SECOND / (now_ns - self._second_ns)
            self._second_ns, self._in_second = now_ns, 0
            if per_second > PER_SECOND_MAX or self._caches[-1].entries > ENTRIES_MAX:
                self._shrink()
            self._resize()

    def _forget_closed(self) -> None:
        """Forgets closed logs, or a page that stays open for days would collect all topics of these days."""
        for log in [log for log in self._known_from if not self._is_open(log)]:
            del self._known_from[log]
            self._counts_reads.pop(log, None)
        for cache in self._caches:
            cache.forget_closed(self._is_open)

    def _is_open(self, log: str) -> bool:
        return self._cursors_of(log) is not None

    def _shrink(self) -> None:
        self._sample.halve()
        self._sampled_bytes /= 2
        for cache in self._caches:
            cache.leave_out(self._sample)
            # Half of the sample makes half of the counts in the same time.
            cache.weigh(0.5)
        self._unknown /= 2

    def _weigh(self, weight: float) -> None:
        """Gives the counts so far a part of their weight."""
        for cache in self._caches:
            cache.weigh(weight)
        self._hits, self._misses, self._unknown = (
            count * weight for count in (self._hits, self._misses, self._unknown)
        )

    def _resize(self) -> None:
        """Gives the miniatures the sample's share of the bytes, which differs from that of the entries by chance."""
        rate = self._sample.rate
        if self._sampled_bytes and self._all_bytes:
            # By chance again a share of few entries may be far off.
            rate = min(max(self._sampled_bytes / self._all_bytes, rate / 2), rate * 2)
        for cache in self._caches:
            cache.resize(self._settings, rate)

    def configure(self, settings: CacheSettings) -> None:
        """Takes over changed settings of the real cache."""
        if settings != self._settings:
            self._settings = settings
            self._resize()

    # Results

    @property
    def entries(self) -> int:
        """Entries of the largest miniature."""
        return self._caches[-1].entries

    @property
    def logs(self) -> int:
        """Logs that it remembers; closed ones are forgotten at each half-life."""
        return max(len(self._known_from), *(cache.logs for cache in self._caches))

    def curve(self) -> Curve:
        """Returns the curve as the sample tells it now."""
        reads = sum(self._caches[0].reads)
        all_reads = self._hits + self._misses
        measured = self._misses / all_reads if all_reads else None
        off = self._model_error(measured)
        mean_bytes = self._mean_bytes()
        points = []
        for cache in self._caches:
            size_bytes = int(self._settings.size_bytes_max * cache.factor)
            if reads and size_bytes * self._sample.rate >= ENTRIES_ENOUGH * mean_bytes:
                ratio, error = estimate(cache.reads, cache.misses)
                # A sample of everything has no error of chance.
                error *= sqrt(1 - self._sample.rate)
                # A miniature of fewer entries decides more coarsely.
                error = sqrt(error**2 + off**2 / cache.factor)
                evicted = round(cache.evicted_expected / self._sample.rate)
                points.append(Point(size_bytes, ratio, error, evicted))
        return Curve(
            self._counted_ns,
            self._sample.rate,
            round(reads),
            measured,
            self._unknown / reads if reads else 0.0,
            points,
        )

    def _model_error(self, measured: float | None) -> float:
        """Returns how far the miniature of the present size is from the real cache, which it should repeat.

        A miniature has few segments, so it evicts more at once than its original. Folds of the sample share this error,
        so their spread does not show it.
        """
        if measured is None:
            return 0.0
        (now,) = (cache for cache in self._caches if cache.factor == 1.0)
        return abs(estimate(now.reads, now.misses)[0] - measured) if sum(now.reads) else 0.0

    def _mean_bytes(self) -> float:
        entries = self._caches[-1].entries
        return self._caches[-1].size_bytes / entries if entries else 0.0


def estimate(reads: Sequence[float], misses: Sequence[float]) -> tuple[float, float]:
    """Returns misses per read and its standard error, from the counts by fold.

    The error is that of a jackknife: each fold is left out once.
    """
    all_reads, all_misses = sum(reads), sum(misses)
    if not all_reads:
        return 0.0, 0.0
    left_out = [
        (all_misses - missed) / (all_reads - read)
        for read, missed in zip(reads, misses, strict=True)
        if all_reads > read
    ]
    if not left_out:
        return all_misses / all_reads, 1.0
    mean = sum(left_out) / len(left_out)
    spread = sum([(one - mean) ** 2 for one in left_out])
    return all_misses / all_reads, sqrt((FOLDS - 1) / FOLDS * spread)
