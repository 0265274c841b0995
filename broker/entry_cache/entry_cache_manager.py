"""EntryCacheManager: all entry caches of the broker, their bytes, their limits, and when to evict. What, the policy says.

One thread calls everything here, and the manager owns no timer: an insert that crosses the trigger only
asks for a size check (`on_size_check`), and the owner calls `run_pending` soon and `tick` every
`managedLedgerCacheEvictionIntervalMs`. Inserts are never refused for lack of room (PIP-430), so the
bytes may pass the maximum until the check has run; not so under a strict policy. A call with `visits_max` looks at
no more slots than that and answers whether more is to do, so that the loop is never held for long.

What is decided depends on the calls, their times and the levels that a record has (`replay.py`), on nothing else: not
on how long anything took, nor on whether buffers could be copied in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from broker.entry_cache.cache_events import CAUSES, REASONS, Op
from broker.entry_cache.cache_filling import CacheFilling
from broker.entry_cache.cache_stats import CacheStats, ReadStats, Reason
from broker.entry_cache.charge import Charge, entries_share
from broker.entry_cache.decisions import Decisions
from broker.entry_cache.entry_cache import EntryCache
from broker.entry_cache.pinned_bytes import Pinned, PinnedBytes, copy_out_of_idle_buffers
from broker.entry_cache.policies.make import make_policy
from broker.entry_cache.policies.policy import NO_LIMIT, CountReads, MakeRoom, Policy, Removed, SizePass
from broker.entry_cache.reader import Reader
from broker.entry_cache.runs import LeftRun, left_runs_of, runs_of
from broker.entry_cache.settings import EntryCacheSettings
from broker.model.entry import Entry

VISITS_PER_SLICE: Final = 10_000
"""Slots that take 3 to 8 ms to visit: what a slice may look at between two turns of the loop."""

VISITS_OF_INSERTS: Final = VISITS_PER_SLICE // 4
"""What inserts that meet a full cache may look at between two checks, all of them together. A check follows at the end
of the turn, so it is so much in one turn."""

INVALIDATED_BYTES_KEPT: Final = 16 * 1024 * 1024
"""Invalidated entries may hold so many bytes, or as many as are cached, until the head reaches them."""

Observer = Callable[[list[Entry], Reason], None]


class EntryCacheManager:
    __slots__ = (
        "_admit",
        "_asked_for_share",
        "_by_ledger",
        "_caches",
        "_charge",
        "_check_in_flight",
        "_invalidated_bytes",
        "_pinned",
        "_retired_reads",
        "_size_checks",
        "_size_pass",
        "_visits_of_inserts",
        "decisions",
        "enabled",
        "entries",
        "handed_over",
        "on_evicted",
        "on_size_check",
        "policy",
        "settings",
        "stats",
        "used_bytes",
    )

    def __init__(
        self, settings: EntryCacheSettings, decisions: Decisions | None = None, pinned: Pinned | None = None
    ) -> None:
        """`pinned`: who counts what entries pin, where that is not to be told from their bodies."""
        self.stats = CacheStats()
        self.used_bytes = 0
        self.entries = 0
        self.decisions = decisions or Decisions(0, lambda: 0)
        self.policy: Policy = make_policy(settings)
        self._admit = self.policy.admit
        self.on_evicted: Observer | None = None
        """Told of everything that leaves, in order."""
        self.on_size_check: Callable[[], None] | None = None
        """Told once when a size check is wanted, in the middle of an insert: it must not evict at once."""
        self._caches: dict[str, EntryCache] = {}
        self._by_ledger: dict[int, CacheFilling] = {}
        """The cache of each ledger that has cached entries. Ledger ids are unique in a broker."""
        self._pinned: Pinned = PinnedBytes() if pinned is None else pinned
        self._charge = Charge(self._pinned, self.decisions, strict=self.policy.make_room is not None)
        self._retired_reads = ReadStats()
        self._invalidated_bytes = 0
        self._size_checks = 0
        self._check_in_flight = False
        self._size_pass: SizePass | None = None
        self._asked_for_share = False
        """Whether what the pass is to free may be not enough (`entries_share`)."""
        self._visits_of_inserts = VISITS_OF_INSERTS
        """Those left until the next check."""
        recorded = self.decisions.record is not None
        self.handed_over: CountReads = self._note_handed_over if recorded else self.policy.handed_over
        """Call with the entries of a delivery written to a consumer: one read of each is done."""
        self._apply(settings)

    def put_back(self, reader: Reader, entries: Sequence[Entry]) -> None:
        """Call with entries that go to the reader's replay: it is to read each of them once more."""
        self.policy.put_back(reader.number, entries)
        if self.decisions.on and entries:
            self.decisions.counted(Op.REPLAY, entries, reader.number)

    def kept_back(self, reader: Reader, entries: Sequence[Entry]) -> None:
        """Call with entries that the reader read and that go to its replay without having been handed over."""
        self.policy.kept_back(reader.number, entries)
        if self.decisions.on and entries:
            self.decisions.counted(Op.KEPT_BACK, entries, reader.number)

    def _note_handed_over(self, entries: Iterable[Entry]) -> None:
        delivered = entries if isinstance(entries, list) else list(entries)
        self.policy.handed_over(delivered)
        if delivered and self.decisions.record is not None:
            self.decisions.handed_over(delivered)

    def reconfigure(self, settings: EntryCacheSettings) -> None:
        """Every value holds from the next visit on. Policy and profile are for the life of the manager."""
        if (settings.policy, settings.profile) != (self.settings.policy, self.settings.profile):
            raise ValueError("the cache policy cannot be changed while entries are cached under it")
        if settings != self.settings:
            self._apply(settings)

    def _apply(self, settings: EntryCacheSettings) -> None:
        self.settings = settings
        self.enabled = settings.size_bytes_max > 0
        self._charge.configure(settings)
        self.policy.configure(settings)
        self._pinned.configure(settings.pinned_ratio_max)
        self.decisions.configured(settings.to_text())
        self._charge.rebound(self._charged_bytes() if self.entries else 0)

    # Caches

    def open(self, name: str) -> EntryCache:
        """The cache of the managed ledger `name`, new and empty if there is none."""
        cache = self._caches.get(name)
        if cache is None:
            cache = self._caches[name] = EntryCache(self, name)
        return cache

    def remove(self, name: str) -> None:
        """Forget a cache with all it holds."""
        cache = self._caches.pop(name, None)
        if cache is not None:
            cache.clear()
            self._retired_reads.add(cache.reads)
            self.decisions.place(Op.CLOSE, name, 0, 0, 0)

    def clear(self) -> None:
        for cache in self._caches.values():
            cache.clear()

    # Called by the caches

    def ledger_opened(self, ledger_id: int, cache: CacheFilling) -> None:
        """The cache holds entries of another ledger from now on."""
        self._by_ledger[ledger_id] = cache
        self.decisions.ledger_opened(ledger_id, cache.name)

    def ledger_closed(self, ledger_id: int) -> None:
        """It holds none of that ledger any more."""
        self._by_ledger.pop(ledger_id, None)
        self.decisions.ledger_closed(ledger_id)

    def is_full(self, size_bytes: int) -> bool:
        """Whether so many bytes more have no room, for a policy that is strict about it."""
        strict = self.policy.make_room is not None
        return strict and self._charged_bytes() + size_bytes >= self.settings.size_bytes_max

    def _charged_bytes(self) -> int:
        return self._charge.look(self.used_bytes, under_way=self._size_pass is not None)

    def admit(self, entries: list[Entry], size_bytes: int, now_ns: int, *, slices: bool) -> None:
        """Entries that a cache has just taken in, at least one; whether any may be a slice of a buffer."""
        if slices:
            self._admit_slices(entries)
        self.entries += len(entries)
        self.used_bytes += size_bytes
        if self.used_bytes > self._charge.trigger_bytes or self.policy.make_room is not None:
            self._mind_the_size(now_ns)
        self._admit(entries)

    def _mind_the_size(self, now_ns: int) -> None:
        """The entries that ask for it are not in the policy's hands yet, so none of them goes before it was read."""
        charged = self._charged_bytes()
        if self.policy.make_room is not None and charged > self._charge.bound_bytes:
            charged = self._bring_down(charged, self.policy.make_room, now_ns)
        if charged > self._charge.trigger_bytes and not self._check_in_flight:
            self._check_in_flight = True
            self._size_checks += 1
            if self.on_size_check is not None:
                self.on_size_check()

    def _bring_down(self, charged: int, make_room: MakeRoom, now_ns: int) -> int:
        """Below the bound: by a slice of a size pass while inserts have visits left, then at once, as far as there are
        entries that can go. What is charged then."""
        if self._visits_of_inserts > 0:
            visits_before = self.stats.passes[Reason.SIZE].visits
            self._check_size(now_ns, self._visits_of_inserts)
            self._visits_of_inserts -= self.stats.passes[Reason.SIZE].visits - visits_before
            charged = self._charged_bytes()
        while (too_much := charged - self._charge.bound_bytes) > 0:
            removed = make_room(entries_share(too_much, self.used_bytes, charged), now_ns)
            self._left(removed, Reason.SIZE, now_ns)
            if not removed.entries:
                break
            charged = self._charged_bytes()
        return charged

    def _admit_slices(self, entries: list[Entry]) -> None:
        """Entries leave their buffer by setting, and where they use so little of it that sharing is not worth it."""
        if self.settings.copy_entries:
            for entry in entries:
                if type(entry.body) is memoryview:
                    entry.body = bytes(entry.body)
            return
        ratio_max = self.settings.pinned_ratio_max
        if ratio_max > 0:
            copy_out_of_idle_buffers(entries, ratio_max)
        self._pinned.add(entries)

    def dismiss(self, cache: CacheFilling, removed: Removed, reason: Reason, now_ns: int) -> None:
        """Entries that a cache has invalidated; their slots stay in the queue."""
        if removed.entries:
            self._invalidated_bytes += removed.size_bytes
            runs = left_runs_of(removed.entries, lambda ledger_id: _expected_from(cache, ledger_id, now_ns))
            self._account(removed, reason, list(runs))

    def _account(self, removed: Removed, reason: Reason, runs: Sequence[LeftRun]) -> None:
        """What has left the caches, at least one entry; `runs`: the same in short."""
        entries = removed.entries
        self.entries -= len(entries)
        self.used_bytes -= removed.size_bytes
        stats = self.stats
        stats.evicted_entries[reason] += len(entries)
        stats.evicted_bytes[reason] += removed.size_bytes
        for run in runs:
            if run.expected:
                stats.evicted_expected_entries[reason] += run.entries
                stats.evicted_expected_bytes[reason] += run.size_bytes
        if self._pinned:
            # What goes for want of room must make room, or the cache would be emptied around a few large buffers.
            makes_room = reason is Reason.SIZE and self.policy.make_room is not None
            self._pinned.remove(entries, makes_room=makes_room)
        if self.on_evicted is not None:
            self.on_evicted(entries, reason)
        if self.decisions.on:
            self.decisions.evicted(runs, REASONS.index(reason))

    # Evicting

    @property
    def size_checks_due(self) -> int:
        """Checks that were asked for and have not run: a periodic pass lets a second one be asked for."""
        return self._size_checks

    def tick(self, now_ns: int, visits_max: int = NO_LIMIT) -> bool:
        """The periodic pass: what is too old, then the size check. Whether to call again at once."""
        if self._pinned.copy_out():
            return True
        self.decisions.passed(Op.TICK, now_ns, visits_max)
        self._visits_of_inserts = VISITS_OF_INSERTS
        if self._size_pass is None:
            removed = self._expire(now_ns - self.settings.ttl_ns, now_ns, visits_max)
            if not removed.done:
                return True
            visits_max -= removed.visits
        if self._check_size(now_ns, visits_max):
            return True
        self._check_in_flight = False
        self._let_go_of_invalidated()
        return self._pinned.behind

    def _expire(self, threshold_ns: int, now_ns: int, visits_max: int) -> Removed:
        policy = self.policy
        policy.watched = self.decisions.on
        removed = policy.remove_expired(threshold_ns, now_ns, visits_max)
        self._passed(removed, Reason.TTL, now_ns)
        return removed

    def run_pending(self, now_ns: int, visits_max: int = NO_LIMIT) -> bool:
        """The size checks asked for. Whether to call again at once."""
        if self._pinned.copy_out():
            return True
        self.decisions.passed(Op.SIZE_CHECK, now_ns, visits_max)
        self._visits_of_inserts = VISITS_OF_INSERTS
        while self._size_checks:
            if self._check_size(now_ns, visits_max):
                return True
            self._size_checks -= 1
            self._check_in_flight = False
        return self._pinned.behind

    def _check_size(self, now_ns: int, visits_max: int) -> bool:
        """Begin or go on with size passes while there is need; whether one is unfinished."""
        while (size_pass := self._wanted_size_pass()) is not None:
            removed = self._free(size_pass, now_ns, visits_max)
            if not removed.done:
                return True
            visits_max -= removed.visits
            nothing_left = size_pass.bytes_to_free > 0
            if nothing_left or not self._asked_for_share:
                self._size_pass = None
            if nothing_left:
                return False
        return False

    def _wanted_size_pass(self) -> SizePass | None:
        """The one under way; the next one, if that was asked for a share and it was not enough; or a new one, from the
        trigger on. What was inserted while one was cut may need it."""
        size_pass = self._size_pass
        charged = self._charged_bytes()
        bytes_to_free = charged - self._charge.target_bytes
        if size_pass is None:
            if charged <= self._charge.trigger_bytes or bytes_to_free <= 0:
                return None
            self.stats.size_evictions += 1
        elif bytes_to_free <= 0:  # The share was enough, or others made the room while the pass was cut.
            self.policy.abandon(size_pass)
            self._size_pass = None
            return None
        if size_pass is None or size_pass.bytes_to_free <= 0:
            share = entries_share(bytes_to_free, self.used_bytes, charged)
            self._asked_for_share = share < bytes_to_free
            size_pass = self._size_pass = self.policy.begin_size_pass(share)
        return size_pass

    def _free(self, size_pass: SizePass, now_ns: int, visits_max: int) -> Removed:
        policy = self.policy
        policy.watched = self.decisions.on
        removed = policy.free(size_pass, now_ns, visits_max)
        self._passed(removed, Reason.SIZE, now_ns)
        return removed

    def _passed(self, removed: Removed, reason: Reason, now_ns: int) -> None:
        """A pass, or a slice of it, has run."""
        self.stats.passes[reason].passes += removed.done
        # Before what was removed, and reads before expected reads: so it was for an entry that met all of it.
        for cause in sorted(removed.requeued, key=CAUSES.index, reverse=True):
            self.decisions.requeued(runs_of(removed.requeued[cause]), CAUSES.index(cause))
        self._left(removed, reason, now_ns)

    def _left(self, removed: Removed, reason: Reason, now_ns: int) -> None:
        """A policy has taken out entries, or found none."""
        stats = self.stats.passes[reason]
        stats.visits += removed.visits
        if removed.entries:
            by_ledger = self._by_ledger

            def expected_from(ledger_id: int) -> int:
                return _expected_from(by_ledger.get(ledger_id), ledger_id, now_ns)

            runs = list(left_runs_of(removed.entries, expected_from))
            stats.removed(removed.entries, runs, now_ns)
            number = REASONS.index(reason)
            for run in runs:
                cache = by_ledger.get(run.ledger_id)
                if cache is not None:
                    cache.evicted_entries[number] += run.entries
            self._account(removed, reason, runs)

    def evict_older(self, threshold_ns: int, now_ns: int) -> Removed:
        """One time pass with a threshold of the caller's choice."""
        return self._expire(threshold_ns, now_ns, NO_LIMIT)

    def evict_bytes(self, bytes_to_free: int, now_ns: int) -> Removed:
        """One size pass, whatever the limits say. ValueError unless `bytes_to_free` is positive."""
        return self._free(self.policy.begin_size_pass(bytes_to_free), now_ns, NO_LIMIT)

    def _let_go_of_invalidated(self) -> None:
        """With a long TTL the head may take long to reach invalidated entries, and their bytes are held."""
        if not self.tombstones:
            self._invalidated_bytes = 0
        elif self._invalidated_bytes > max(INVALIDATED_BYTES_KEPT, self.used_bytes):
            self.policy.drop_invalidated()
            self._invalidated_bytes = 0

    # Levels

    @property
    def caches(self) -> list[EntryCache]:
        return list(self._caches.values())

    @property
    def inserted_entries(self) -> int:
        """Since the start, like `inserted_bytes`."""
        return self.entries + sum(self.stats.evicted_entries.values())

    @property
    def inserted_bytes(self) -> int:
        return self.used_bytes + sum(self.stats.evicted_bytes.values())

    @property
    def queue_length(self) -> int:
        return len(self.policy)

    @property
    def tombstones(self) -> int:
        """Slots of the queue whose entries were invalidated."""
        return len(self.policy) - self.entries

    @property
    def pinned_bytes(self) -> int:
        """Bytes that cached entries keep alive beyond their own length: the rest of their receive buffers."""
        return self._pinned.count

    def reads(self) -> ReadStats:
        """Of all caches, those removed included."""
        total = ReadStats()
        total.add(self._retired_reads)
        for cache in self._caches.values():
            total.add(cache.reads)
        return total


def _expected_from(cache: CacheFilling | None, ledger_id: int, now_ns: int) -> int:
    """Of a ledger that loses entries. Its next loss is not to look again at cursors that nobody expects back."""
    if cache is None:
        return NO_LIMIT
    if cache.readers is not None:
        cache.readers.expect_no_more(now_ns)
    return cache.expected_from(ledger_id, now_ns)
