"""What does a size pass cost that wants one byte of a cache in which everything is protected?

`python -m bench.cache_size_pass [--entries N]`

One reader still expects every entry. Columns: policy (with its profile), slots that the pass visits, entries removed,
requeues charged to the survivors, slices, the longest slice in ms of CPU, and the bytes that Python allocates for one
cached entry without its body.
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc

from broker.entry_cache.active_cursors import ActiveCursors
from broker.entry_cache.compose import ComposedCache
from broker.entry_cache.entry_cache import EntryCache
from broker.entry_cache.entry_cache_manager import EntryCacheManager
from broker.entry_cache.eviction import VISITS_PER_SLICE
from broker.entry_cache.settings import EntryCacheSettings
from broker.model.entry import Entry
from broker.model.position import Position

POLICIES = (("pip430", "4.2"), ("pip430", "5.0"), ("magnetar", "4.2"))
RUN = 20
BODY = bytes(1024)


def filled(policy: str, profile: str, entries: int) -> tuple[EntryCacheManager, EntryCache]:
    """Returns a cache in which one reader still expects every entry."""
    settings = EntryCacheSettings(
        size_bytes_max=1 << 50, policy=policy, profile=profile, extend_recently_accessed=False
    )
    manager = ComposedCache(settings).manager
    cache = manager.open("log")
    cursors = ActiveCursors(0, 0)
    cache.attach_cursors(cursors)
    cursors.add("reader", Position(1, 0))
    for first in range(0, entries, RUN):
        run = [Entry(1, entry_id, b"", BODY, 1) for entry_id in range(first, first + RUN)]
        cache.insert_run(run, 1, first)
    return manager, cache


def one_byte(policy: str, profile: str, entries: int) -> str:
    """Returns the cells of one policy: visits, removed, requeues, slices, longest slice."""
    manager, _ = filled(policy, profile, entries)
    size_pass = manager.policy.begin_size_pass(1)
    visits = slices = removed = 0
    longest = 0.0
    done = False
    while not done:
        begun = time.process_time()
        part = manager.policy.free(size_pass, 10**9, VISITS_PER_SLICE)
        longest = max(longest, time.process_time() - begun)
        visits, slices, removed = visits + part.visits, slices + 1, removed + len(part.entries)
        done = part.done
    charged = sum(manager.policy.requeues.values())
    return f"{visits:>9} {removed:>8} {charged:>11} {slices:>7} {longest * 1000:>11.1f}"


def bytes_per_entry(policy: str, profile: str, entries: int) -> float:
    """Returns the bytes that Python allocates per cached entry, without its body."""
    gc.collect()
    tracemalloc.start()
    kept = filled(policy, profile, entries)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return size / entries


def main() -> None:
    """Prints a row per policy."""
    parser = argparse.ArgumentParser("python -m bench.cache_size_pass", description="Freeing one byte.")
    parser.add_argument("--entries", type=int, default=100_000)
    options = parser.parse_args()
    columns = (
        ("visits", 9),
        ("removed", 8),
        ("requeues", 11),
        ("slices", 7),
        ("longest ms", 11),
        ("bytes/entry", 12),
    )
    print("policy      ", *(f"{name:>{width}}" for name, width in columns))
    for policy, profile in POLICIES:
        name = policy if policy == "magnetar" else f"{policy} {profile}"
        line = one_byte(policy, profile, options.entries)
        print(f"{name:<12} {line} {bytes_per_entry(policy, profile, options.entries):>12.0f}", flush=True)


if __name__ == "__main__":
    main()
