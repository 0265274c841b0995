"""Random operations against a model that keeps one plain list: bytes, counts, order, nothing leaves twice.

The model knows the rules of PIP-430 in their simplest form, one entry at a time, with nothing maintained
incrementally; whatever the cache counts must equal the sum over the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import Phase, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.compose.cache_settings import EntryCacheSettings
from entry_cache.cache_stats import Reason
from entry_cache.profiles import PROFILE_4_2, PROFILE_5_0, Profile
from foundation.model.entry import Entry
from foundation.model.position import Position
from tests.entry_cache.cache_fakes import READER
from tests.fakes.whole_cache import Removals, WholeCache

CACHES = 2
SIZE_MAX = 150
TRIGGER, TARGET = 147, 75
ledger_ids = strategies.integers(1, 2)
entry_ids = strategies.integers(0, 7)
picks = strategies.integers(0, 40)
readers = strategies.integers(0, 3)
sizes_max = strategies.integers(0, 120)
cache_ids = strategies.integers(0, CACHES - 1)


@dataclass(eq=False)
class Slot:
    """One slot of the removal queue, as the model sees it."""

    key: tuple[int, int, int]
    size: int
    expected: int | None
    at_ns: int
    requeues: int = 0
    accessed: bool = False
    cached: bool = True

    @property
    def wanted(self) -> bool:
        return self.expected is not None and self.expected > 0


class CacheAgainstModel(RuleBasedStateMachine):
    profile: Profile

    @initialize(
        requeues_max=strategies.integers(0, 3),
        extend=strategies.booleans(),
    )
    def begin(self, requeues_max: int, extend: bool) -> None:
        self.requeues_max, self.extend = requeues_max, extend
        self.manager = WholeCache(
            EntryCacheSettings(
                size_bytes_max=SIZE_MAX,
                ttl_ns=50,
                watermark=0.5,
                requeues_max=requeues_max,
                extend_recently_accessed=extend,
                policy="pip430",
                profile=self.profile.name,
            ),
            others=(Removals(self.left),),
        )
        self.now = 0
        self.slots: list[Slot] = []
        self.gone: list[Entry] = []
        self.inserted = 0
        self.buffers: list[bytearray] = []

    def left(self, entries: list[Entry], reason: Reason) -> None:
        self.gone += entries

    def find(self, cache: int, ledger: int, entry: int) -> Slot | None:
        return next((slot for slot in self.slots if slot.cached and slot.key == (cache, ledger, entry)), None)

    @rule(
        cache=cache_ids,
        ledger=ledger_ids,
        first=entry_ids,
        sizes=strategies.lists(strategies.integers(0, 40), min_size=1, max_size=6),
        expected=strategies.integers(-1, 3),
        shared=strategies.booleans(),
    )
    def insert(
        self, cache: int, ledger: int, first: int, sizes: list[int], expected: int, shared: bool
    ) -> None:
        buffer = bytearray(sum(sizes) + 7)
        self.buffers.append(buffer)
        run, start = [], 0
        for number, size in enumerate(sizes):
            body = memoryview(buffer)[start : start + size] if shared else bytes(size)
            run.append(Entry(ledger, first + number, b"", body, 1))
            start += size
        count = self.profile.counts.initial(None if expected < 0 else expected)
        new = 0
        for number, size in enumerate(sizes):
            standing = self.find(cache, ledger, first + number)
            if standing is None:
                new += 1
                self.slots.append(Slot((cache, ledger, first + number), size, count, self.now))
            elif self.profile is PROFILE_5_0:
                standing.expected = count
        self.inserted += new
        assert (
            self.manager.open(str(cache)).insert_run(run, None if expected < 0 else expected, self.now) == new
        )

    @rule(
        pick=picks,
        before=strategies.integers(0, 1),
        more=strategies.integers(0, 5),
        limit=sizes_max,
        readers=readers,
    )
    def take(self, pick: int, before: int, more: int, limit: int, readers: int) -> None:
        """From an entry that is present, or the one before it."""
        cache, ledger, entry = self.pick(pick)
        first, last = entry - before, entry + more
        taken = self.manager.open(str(cache)).read_run(READER, ledger, first, last, limit)
        found: list[Slot] = []
        for entry_id in range(first, last + 1):
            slot = self.find(cache, ledger, entry_id)
            if slot is None or (found and sum(one.size for one in found) + slot.size > limit):
                break
            found.append(slot)
        assert [entry.entry_id for entry in taken] == [slot.key[2] for slot in found]
        for slot in found:
            slot.accessed = True
        for _ in range(readers):
            self.manager.mark_delivered(taken)
            for slot in found:
                slot.expected = self.after_hand_over(slot.expected)

    def after_hand_over(self, expected: int | None) -> int | None:
        if expected is None:
            return None
        return expected - 1 if self.profile is PROFILE_4_2 else max(0, expected - 1)

    def pick(self, number: int) -> tuple[int, int, int]:
        live = [slot.key for slot in self.slots if slot.cached] or [(0, 1, 0)]
        return live[number % len(live)]

    @rule(pick=picks)
    def replay(self, pick: int) -> None:
        cache, ledger, entry = self.pick(pick)
        cached = self.manager.open(str(cache)).peek(ledger, entry)
        slot = self.find(cache, ledger, entry)
        assert (cached is None) == (slot is None)
        if cached is not None and slot is not None:
            self.manager.expect_redelivery(READER, [cached])
            slot.expected = None if slot.expected is None else slot.expected + 1

    @rule(pick=picks, whole_ledger=strategies.booleans())
    def invalidate(self, pick: int, whole_ledger: bool) -> None:
        """A ledger, or the part of it before a present entry."""
        cache, ledger, entry = self.pick(pick)
        room = self.manager.open(str(cache))
        if whole_ledger:
            removed = room.invalidate_ledger(ledger)
            doomed = [slot for slot in self.slots if slot.cached and slot.key[:2] == (cache, ledger)]
        else:
            removed = room.invalidate_before(Position(ledger, entry))
            doomed = [s for s in self.slots if s.cached and s.key[0] == cache and s.key[1:] < (ledger, entry)]
        assert [(e.ledger_id, e.entry_id) for e in removed.entries] == sorted(s.key[1:] for s in doomed)
        for slot in doomed:
            slot.cached = False

    @rule(passed_ns=strategies.integers(0, 25), slice_of=strategies.sampled_from([None, 1, 3]))
    def tick(self, passed_ns: int, slice_of: int | None) -> None:
        self.now += passed_ns
        if slice_of is None:
            assert self.manager.tick(self.now) is False
        else:
            while self.manager.tick(self.now, slice_of):
                pass
        self.model_pass(threshold=self.now - 50)
        self.model_size_check(in_slices=slice_of is not None)

    @rule()
    def run_pending(self) -> None:
        self.manager.run_pending(self.now)
        self.model_size_check()

    def model_size_check(self, *, in_slices: bool = False) -> None:
        used = sum(slot.size for slot in self.slots if slot.cached)
        if used > TRIGGER:
            self.model_pass(to_free=used - TARGET, in_slices=in_slices)

    def model_pass(
        self, threshold: int | None = None, to_free: int | None = None, *, in_slices: bool = False
    ) -> None:
        visits, freed, lap = 0, 0, len(self.slots)
        while self.slots:
            slot = self.slots[0]
            if in_slices and to_free is not None and freed >= to_free and not slot.cached:
                # Cut here the pass is over; one that is not cut also drops the empty slots that come next.
                if len(self.slots) == self.manager.queue_length:
                    return
            elif slot.cached:
                if threshold is not None and slot.at_ns >= threshold:
                    return
                if to_free is not None and freed >= to_free:
                    return
            self.slots.pop(0)
            visits += 1
            protected = threshold is not None or self.profile is PROFILE_4_2 or visits <= lap
            stays = (self.extend and slot.accessed) or (slot.wanted and slot.requeues < self.requeues_max)
            if slot.cached and protected and stays:
                slot.at_ns, slot.accessed, slot.requeues = self.now, False, slot.requeues + 1
                self.slots.append(slot)
            elif slot.cached:
                freed += slot.size

    @invariant()
    def what_is_counted_is_the_sum(self) -> None:
        cached = [slot for slot in self.slots if slot.cached]
        manager = self.manager
        assert (manager.entries, manager.used_bytes) == (len(cached), sum(slot.size for slot in cached))
        assert manager.queue_length == len(self.slots)
        assert manager.tombstones == len(self.slots) - len(cached)
        assert sum(cache.entries for cache in manager.caches) == len(cached)
        assert sum(cache.size_bytes for cache in manager.caches) == manager.used_bytes
        assert manager.inserted_entries == self.inserted
        assert sum(manager.stats.evicted_entries.values()) == self.inserted - len(cached)

    @invariant()
    def the_queue_is_the_model_slot_by_slot(self) -> None:
        for entry, slot in zip(self.manager.policy, self.slots, strict=True):
            assert entry.cached == slot.cached
            if slot.cached:
                assert (entry.ledger_id, entry.entry_id) == slot.key[1:]
                assert (entry.queued_at_ns, entry.accessed) == (slot.at_ns, slot.accessed)
                assert entry.requeue_count == slot.requeues
                assert entry.expected_reads == slot.expected

    @invariant()
    def expected_reads_are_never_negative_in_5_0(self) -> None:
        if self.profile is PROFILE_5_0:
            assert all((entry.expected_reads or 0) >= 0 for entry in self.manager.policy)

    @invariant()
    def nothing_leaves_twice(self) -> None:
        assert len({id(entry) for entry in self.gone}) == len(self.gone)
        assert not any(entry.cached for entry in self.gone)

    @invariant()
    def pinned_bytes_are_the_rest_of_the_buffers_in_use(self) -> None:
        bodies = [entry.body for entry in self.manager.policy if entry.cached]
        views = [body for body in bodies if isinstance(body, memoryview)]
        in_use = {id(view.obj): len(view.obj) for view in views}  # type: ignore[arg-type]
        assert self.manager.pinned_bytes == sum(in_use.values()) - sum(map(len, views))


class Cache42(CacheAgainstModel):
    profile = PROFILE_4_2


class Cache50(CacheAgainstModel):
    profile = PROFILE_5_0


STEPS = settings(
    max_examples=200,
    stateful_step_count=50,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
"""10,000 steps. Without the phase that explains failures, whose tracing makes every step several times slower."""

TestCache42 = Cache42.TestCase
TestCache42.settings = STEPS
TestCache50 = Cache50.TestCase
TestCache50.settings = STEPS


@pytest.mark.parametrize(("slice_of", "left"), [(None, 1), (1, 2)])
def test_cut_pass_leaves_the_next_invalidated_slot(slice_of: int | None, left: int) -> None:
    """The whole pass would have dropped it. It holds nothing, and the next pass does."""
    state = Cache50()
    state.begin(requeues_max=0, extend=False)
    for cache, ledger, first, size in ((0, 1, 0, 100), (1, 2, 0, 0), (0, 1, 1, 50)):
        state.insert(cache=cache, ledger=ledger, first=first, sizes=[size], expected=0, shared=False)
    state.invalidate(pick=1, whole_ledger=True)
    state.tick(passed_ns=0, slice_of=slice_of)
    assert state.manager.queue_length == left
    state.the_queue_is_the_model_slot_by_slot()
