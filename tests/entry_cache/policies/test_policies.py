"""Each policy equals a plain model over 10,000 random steps and keeps its own promises."""

from __future__ import annotations

from collections import Counter

from hypothesis import Phase, settings
from hypothesis.stateful import invariant

from broker.compose.cache_settings import EntryCacheSettings
from entry_cache.active_cursors import ActiveCursors
from entry_cache.cache_stats import Reason
from entry_cache.eviction import VISITS_PER_SLICE
from entry_cache.expected_reads import has_expected_reads
from entry_cache.policies.magnetar.magnetar import Magnetar as Ours
from foundation.model.entry import Entry
from foundation.model.position import Position
from tests.entry_cache.cache_fakes import Acknowledging
from tests.entry_cache.policy_machine import NAMES, TTL_NS, PolicyMachine
from tests.fakes.whole_cache import WholeCache


class Pip430(PolicyMachine):
    policy = "pip430"

    def after_pass(self) -> None:
        assert self.manager.used_bytes <= int(self.size_max * 0.98)


class FifoTtl(PolicyMachine):
    policy = "fifo-ttl"

    def check_removal(self, entries: list[Entry], reason: Reason) -> None:
        """Removes the oldest entries, even those with reads to come."""
        if reason is Reason.TTL:
            assert all(entry.queued_at_ns < self.now - self.ttl_ns for entry in entries)
        elif reason is Reason.SIZE and self.held:
            oldest_left = min(entry.queued_at_ns for entry in self.held.values())
            assert all(entry.queued_at_ns <= oldest_left for entry in entries)

    def after_pass(self) -> None:
        assert self.manager.used_bytes <= int(self.size_max * 0.98)


class Pip430Stash(PolicyMachine):
    policy = "pip430-stash"

    def check_removal(self, entries: list[Entry], reason: Reason) -> None:
        """An entry with expected reads leaves after its longer time and never before, room or not."""
        for entry in entries:
            if has_expected_reads(entry) and reason in (Reason.TTL, Reason.SIZE):
                assert entry.queued_at_ns < self.now - max(self.ttl_ns, 3 * TTL_NS)
            elif reason is Reason.TTL:
                assert entry.queued_at_ns < self.now - self.ttl_ns

    def after_pass(self) -> None:
        protected = sum(entry.size for entry in self.held.values() if has_expected_reads(entry))
        assert self.manager.used_bytes <= max(int(self.size_max * 0.98), protected)


class Magnetar(PolicyMachine):
    policy = "magnetar"

    def refuses(self, log: int, expected: int) -> bool:
        return expected <= 0 and not len(self.cursors[log]) and self.charged_bytes >= self.size_max

    @invariant()
    def bytes_in_slots_are_counted_by_log(self) -> None:
        policy = self.manager.policy
        assert isinstance(policy, Ours)
        held = sum(policy._queue.held.values())
        assert held == sum(entry.size for entry in policy)

    @invariant()
    def a_replay_claims_once_and_takes_back_its_own(self) -> None:
        waiting = Counter(entry for entry, _ in self.claims)
        assert all(entry.expected_reads == waiting[entry] for entry in self.held.values())

    def is_expected(self, entry: Entry) -> bool:
        """By the replays that wait, and by cursors that stand at it or before or come back there."""
        place = (entry.ledger_id, entry.entry_id)
        cursors = self.cursors[entry.ledger_id]
        stands = [cursors.position(name) for name in NAMES if name in cursors]
        back = [
            Position(at.ledger_id, at.entry_id + 1)
            for (log, _), (at, until_ns) in self.departed.items()
            if log == entry.ledger_id and until_ns > self.now
        ]
        claimed = any(claim[0] is entry for claim in self.claims)
        return claimed or any(at is not None and at <= place for at in [*stands, *back])

    def check_removal(self, entries: list[Entry], reason: Reason) -> None:
        """Keeps entries for a reader that advances."""
        if reason is not Reason.TTL:
            return
        patience_ns = self.ttl_ns * self.requeues_max
        for entry in entries:
            cursors = self.cursors[entry.ledger_id]
            for name in NAMES:
                position = cursors.position(name)
                if position is not None and position <= Position(entry.ledger_id, entry.entry_id):
                    assert self.now - self.came_ns[entry.ledger_id, name] > patience_ns

    def after_pass(self) -> None:
        assert self.charged_bytes <= int(self.size_max * 0.98)

    @invariant()
    def the_size_is_a_bound(self) -> None:
        """One run alone may pin more. A cache that was made smaller never grows before it fits."""
        assert self.charged_bytes <= max(self.bound, self.last_run_bytes)
        self.bound = max(self.size_max, min(self.bound, self.charged_bytes))


STEPS = settings(
    max_examples=200,
    stateful_step_count=50,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
"""10,000 steps. Without the phase that explains failures, whose tracing makes every step several times slower."""

TestPip430 = Pip430.TestCase
TestPip430.settings = STEPS
TestFifoTtl = FifoTtl.TestCase
TestFifoTtl.settings = STEPS
TestPip430Stash = Pip430Stash.TestCase
TestPip430Stash.settings = STEPS
TestMagnetar = Magnetar.TestCase
TestMagnetar.settings = STEPS


def test_size_pass_slice_limits_looks_at_new_segments() -> None:
    ttl_ns = 1_000_000_000
    manager = WholeCache(EntryCacheSettings(1 << 40, policy="magnetar", ttl_ns=ttl_ns))
    policy = manager.policy
    now_ns = 10 * ttl_ns

    def fill(topics: range) -> None:
        for topic in topics:
            cache = manager.open(f"t{topic}")
            cache.attach_cursors(ActiveCursors(0, now_ns))
            cache.cursors.add("s", Position(topic + 1, 0), Acknowledging(1, -1))
            cache.insert_run([Entry(topic + 1, 0, b"", bytes(100), 1)], 1, now_ns + topic)

    def first_slice() -> int:
        size_pass = policy.begin_size_pass(100)
        first = removed = policy.free(size_pass, now_ns, VISITS_PER_SLICE)
        while not removed.done:
            removed = policy.free(size_pass, now_ns, VISITS_PER_SLICE)
        visits: int = first.visits
        return visits

    fill(range(3000))
    first_slice()
    now_ns += ttl_ns // 10
    fill(range(3000, 6000))
    now_ns += ttl_ns // 10
    assert first_slice() <= VISITS_PER_SLICE + 100 * 10
    assert first_slice() <= VISITS_PER_SLICE + 100 * 10, "the rest"
