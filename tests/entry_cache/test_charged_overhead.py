"""`managedLedgerCacheChargesOverhead`: the objects of cached entries count against the size; off, nothing changes."""

from __future__ import annotations

import gc
import json
import tracemalloc
from dataclasses import replace

import pytest

from broker.compose.cache_settings import EntryCacheSettings
from broker.service.entry_facts import facts_of
from entry_cache.compose import ComposedCache
from entry_cache.policy_names import MAGNETAR, PIP430_STASH, POLICY_NAMES
from entry_cache.settings import CacheSettings
from entry_cache.size_bound import ENTRY_OVERHEAD_BYTES
from foundation.model.entry import Entry
from protocol.broker_entry_metadata import EntryStamp
from tests.fakes.messages import message

SIZE = 1 << 20
RUN = 20
BODY_BYTES = 128


def new_cache(policy: str, *, charges: bool) -> ComposedCache:
    return ComposedCache(EntryCacheSettings(size_bytes_max=SIZE, policy=policy, charges_overhead=charges))


def fill(cache: ComposedCache, runs: int) -> int:
    """Inserts runs with the size checks between them; returns the most bytes that were charged after a check."""
    log = cache.manager.open("log")
    # The stash keeps entries with expected reads above the size.
    expected = 0 if cache.manager.settings.policy == PIP430_STASH else 1
    most = 0
    for run in range(runs):
        ids = range(run * RUN, (run + 1) * RUN)
        log.insert_run(
            [Entry(1, entry_id, b"", bytes(BODY_BYTES), 1) for entry_id in ids], expected, now_ns=run
        )
        while cache.run_pending(run):
            pass
        most = max(most, cache.charged_bytes)
    return most


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_cache_holds_as_many_entries_as_fit_with_their_objects(policy: str) -> None:
    cache = new_cache(policy, charges=True)
    most = fill(cache, 500)
    each = BODY_BYTES + ENTRY_OVERHEAD_BYTES
    assert cache.charged_bytes == cache.memory_bytes == cache.manager.entries * each
    assert SIZE * 0.85 < cache.charged_bytes <= most <= SIZE
    assert cache.manager.used_bytes == cache.manager.entries * BODY_BYTES


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_cache_counts_bytes_alone_while_it_is_off_and_tells_the_memory(policy: str) -> None:
    cache = new_cache(policy, charges=False)
    fill(cache, 500)
    assert cache.charged_bytes == cache.manager.used_bytes > SIZE * 0.85
    assert cache.memory_bytes == cache.manager.used_bytes + cache.manager.entries * ENTRY_OVERHEAD_BYTES
    # The way of an insert has no bound in it, as before.
    assert (cache.manager.eviction.bound is None) == (policy != MAGNETAR)


def test_magnetar_charges_objects_within_an_insert() -> None:
    cache = new_cache(MAGNETAR, charges=True)
    log = cache.manager.open("log")
    fitting = SIZE // ENTRY_OVERHEAD_BYTES
    # Their bytes are a few hundred; their objects are twice the size.
    run = [Entry(1, entry_id, b"", b"1", 1) for entry_id in range(2 * fitting)]
    log.insert_run(run, 1, now_ns=0)
    assert SIZE // 2 < cache.charged_bytes <= SIZE


def test_objects_of_an_entry_take_about_as_much_as_is_charged() -> None:
    count = 5_000
    cache = ComposedCache(EntryCacheSettings())
    log = cache.manager.open("log")
    body = message(b"x" * 100)
    stamp = EntryStamp(timestamp=True, index=True, now_ms=lambda: 1_700_000_000_000)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for first in range(0, count, RUN):
            # Ids and times above the small integers that Python has once.
            ids = range(100_000 + first, 100_000 + first + RUN)
            blocks = stamp.stamp(1, RUN)
            run = [
                Entry(5_000, entry_id, block, bytes(bytearray(body)), 1)
                for entry_id, block in zip(ids, blocks, strict=True)
            ]
            for entry in run:
                facts_of(entry)
            log.insert_run(run, 1, now_ns=10**15 + first)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    overhead = (grown - cache.manager.used_bytes) / count
    # Resident memory has what the allocator rounds up as well.
    assert overhead == pytest.approx(ENTRY_OVERHEAD_BYTES, rel=0.12)


def test_settings_of_a_record_are_those_of_earlier_versions_while_it_is_off() -> None:
    settings = CacheSettings.from_text(EntryCacheSettings().to_text())
    assert "charges_overhead" not in json.loads(settings.to_text())
    charged = replace(settings, charges_overhead=True)
    assert CacheSettings.from_text(charged.to_text()) == charged != settings
