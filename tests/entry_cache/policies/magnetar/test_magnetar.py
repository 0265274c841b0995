"""The size passes of the policy `magnetar` by themselves: what a pass that ends early leaves behind."""

from __future__ import annotations

from typing import cast

from broker.compose.cache_settings import EntryCacheSettings
from entry_cache.policies.magnetar.magnetar import Magnetar
from entry_cache.range_cache import CachedLog, RangeCache
from foundation.model.entry import Entry

NS_PER_SECOND = 1_000_000_000


class Log:
    """A managed ledger's cache without cursors, as far as the policy looks at it."""

    name = "log"
    cursors = None
    size_bytes = 600


def six_ledgers(policy: Magnetar) -> None:
    """Gives the policy an entry of 100 bytes in each of six ledgers, a second apart."""
    for ledger_id in range(6):
        held = RangeCache(cast(CachedLog, Log()), 0)
        entry = Entry(ledger_id, 0, b"", b"x" * 100, 1)
        entry.holder, entry.cached, entry.expected_reads = held, True, 0
        entry.queued_at_ns = entry.inserted_at_ns = ledger_id * NS_PER_SECOND
        held.entries[0] = entry
        held.size_bytes = 100
        policy.admit([entry])


def test_pass_that_ends_early_leaves_its_order_incomplete() -> None:
    policy = Magnetar(EntryCacheSettings(size_bytes_max=10_000, policy="magnetar"))
    six_ledgers(policy)
    size_pass = policy.begin_size_pass(100)
    assert policy.free(size_pass, 6 * NS_PER_SECOND).done
    order = size_pass.order
    assert order is not None
    assert not order.complete, "the scan stopped at the first victim"
    size_pass.bytes_to_free = 0
    removed = policy.free(size_pass, 6 * NS_PER_SECOND, 0)
    assert removed.entries == []
    assert not order.complete, "a later pass would take it for a whole scan"
