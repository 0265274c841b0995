"""The policies against a plain model, 10,000 random steps each, and what each of them promises."""

from __future__ import annotations

from hypothesis import Phase, settings

from broker.entry_cache import Reason
from broker.model.entry import Entry
from broker.model.position import Position
from tests.broker.entry_cache.policy_machine import NAMES, SIZE_MAX, TTL_NS, PolicyMachine

TRIGGER = int(SIZE_MAX * 0.98)


class Pip430(PolicyMachine):
    policy = "pip430"

    def after_pass(self) -> None:
        assert self.manager.used_bytes <= TRIGGER


class FifoTtl(PolicyMachine):
    policy = "fifo-ttl"

    def check_removal(self, entries: list[Entry], reason: Reason) -> None:
        """The oldest leave, whoever is still to read them."""
        if reason is Reason.TTL:
            assert all(entry.queued_at_ns < self.now - TTL_NS for entry in entries)
        elif reason is Reason.SIZE and self.held:
            oldest_left = min(entry.queued_at_ns for entry in self.held.values())
            assert all(entry.queued_at_ns <= oldest_left for entry in entries)

    def after_pass(self) -> None:
        assert self.manager.used_bytes <= TRIGGER


class Pip430Stash(PolicyMachine):
    policy = "pip430-stash"

    def check_removal(self, entries: list[Entry], reason: Reason) -> None:
        """An entry with expected reads leaves after its longer time and never before, room or not."""
        for entry in entries:
            if entry.expected_reads > 0 and reason in (Reason.TTL, Reason.SIZE):
                assert entry.queued_at_ns < self.now - 3 * TTL_NS
            elif reason is Reason.TTL:
                assert entry.queued_at_ns < self.now - TTL_NS

    def after_pass(self) -> None:
        protected = sum(entry.size for entry in self.held.values() if entry.expected_reads > 0)
        assert self.manager.used_bytes <= max(TRIGGER, protected)


class Magnetar(PolicyMachine):
    policy = "magnetar"

    def refuses(self, expected: int) -> bool:
        return expected <= 0 and self.manager.used_bytes >= SIZE_MAX

    def check_removal(self, entries: list[Entry], reason: Reason) -> None:
        """Nothing grows too old before a reader who gets on."""
        if reason is not Reason.TTL:
            return
        patience_ns = TTL_NS * self.requeues_max
        for entry in entries:
            cursors = self.cursors[entry.ledger_id]
            for name in NAMES:
                position = cursors.position(name)
                if position is not None and position <= Position(entry.ledger_id, entry.entry_id):
                    assert self.now - self.came_ns[entry.ledger_id, name] > patience_ns

    def after_pass(self) -> None:
        assert self.manager.used_bytes <= TRIGGER


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
