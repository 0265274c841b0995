"""How long can the entry cache hold the loop, and how much memory beyond its size, in the hardest cases?

`python -m bench.cache_bounds [--topics N] [--cursors N] [--buffers N]`

Policy `magnetar`, three situations, one line each:
* many topics of one entry each and a full cache, into which each turn brings 200 more: the longest turn in ms of CPU, of
  its inserts and its slice, and the peak of the cache's bytes in percent of its size;
* one topic with many cursors that all move between two slices: the longest slice of time passes and of size passes;
* receive buffers of which one entry survives a pass: slices, ms, entries and bytes that remain, and bytes pinned.
"""

from __future__ import annotations

import argparse
import gc
import time

from broker.entry_cache.active_cursors import ActiveCursors
from broker.entry_cache.compose import ComposedCache
from broker.entry_cache.eviction import VISITS_PER_SLICE
from broker.entry_cache.settings import EntryCacheSettings
from broker.model.entry import Entry
from broker.model.position import Position

MS = 1_000_000
BODY = bytes(1000)
RUNS_PER_TURN = 200
TURNS = 60


def many_topics(topics: int) -> None:
    """Prints the longest turn of a full cache with many topics."""
    size_max = topics * len(BODY)
    manager = ComposedCache(EntryCacheSettings(size_max, policy="magnetar", ttl_ns=10_000 * MS)).manager
    now_ns = 0

    def insert(topic: int) -> None:
        cache = manager.open(f"t{topic}")
        cursors = ActiveCursors(0, now_ns)
        cache.attach_cursors(cursors)
        cursors.add("reader", Position(topic, 0), lambda: Position(topic, -1))
        cache.insert_run([Entry(topic, 0, b"", BODY, 1)], 1, now_ns)

    for topic in range(topics * 98 // 100):
        insert(topic)
    longest = {"inserts": 0, "slice": 0, "turn": 0}
    peak = 0.0
    for turn in range(TURNS):
        now_ns += 20 * MS
        inserts_ns = 0
        for run in range(RUNS_PER_TURN):
            topic = topics + turn * RUNS_PER_TURN + run
            cache = manager.open(f"t{topic}")
            cursors = ActiveCursors(0, now_ns)
            cache.attach_cursors(cursors)
            cursors.add("reader", Position(topic, 0), lambda topic=topic: Position(topic, -1))  # type: ignore[misc]
            entries = [Entry(topic, 0, b"", BODY, 1)]
            began_ns = time.thread_time_ns()
            cache.insert_run(entries, 1, now_ns)
            inserts_ns += time.thread_time_ns() - began_ns
            peak = max(peak, manager.used_bytes / size_max)
        began_ns = time.thread_time_ns()
        manager.eviction.run_size_checks(now_ns, VISITS_PER_SLICE)
        slice_ns = time.thread_time_ns() - began_ns
        for part, spent_ns in (("inserts", inserts_ns), ("slice", slice_ns), ("turn", inserts_ns + slice_ns)):
            longest[part] = max(longest[part], spent_ns)
    parts = ", ".join(f"{part} {spent_ns / MS:.1f} ms" for part, spent_ns in longest.items())
    print(
        f"{topics} topics of one entry, {RUNS_PER_TURN} runs a turn: longest {parts}; peak {peak:.2%} of the size"
    )


def many_cursors(count: int) -> None:
    """Prints the longest slice while all cursors of a topic move."""
    entries = 200_000
    manager = ComposedCache(EntryCacheSettings(1 << 40, policy="magnetar", ttl_ns=100 * MS)).manager
    cache = manager.open("log")
    cursors = ActiveCursors(0, 0)
    cache.attach_cursors(cursors)
    at = dict.fromkeys((f"cursor{number}" for number in range(count)), 0)
    for name in at:
        cursors.add(name, Position(1, 0), lambda name=name: Position(1, at[name] - 1))  # type: ignore[misc]
    for first in range(0, entries, 20):
        cache.insert_run(
            [Entry(1, entry_id, b"", BODY, 1) for entry_id in range(first, first + 20)], 1, first
        )
    longest = {"time": 0.0, "size": 0.0}
    now_ns = 200 * MS
    for kind in longest:
        size_pass = manager.policy.begin_size_pass(entries * len(BODY) // 2)
        done = False
        for turn in range(40):
            now_ns += 5 * MS
            for number, name in enumerate(at):
                at[name] += 1 + (number + turn) % 5
                cursors.update(name, Position(1, at[name]))
            began_ns = time.thread_time_ns()
            if kind == "time":
                manager.policy.remove_expired(now_ns - 100 * MS, now_ns, VISITS_PER_SLICE)
            else:
                done = manager.policy.free(size_pass, now_ns, VISITS_PER_SLICE).done
            longest[kind] = max(longest[kind], (time.thread_time_ns() - began_ns) / MS)
            if done:
                break
    slices = ", ".join(f"{kind} {ms:.1f} ms" for kind, ms in longest.items())
    print(f"{count} cursors of one topic, all moving: longest slice {slices}")


def survivors(buffers: int) -> None:
    """Prints the bytes pinned by buffers of which one entry survives a pass."""
    size_max = buffers * 65_536
    composed = ComposedCache(
        EntryCacheSettings(size_max, policy="magnetar", ttl_ns=100 * MS, pinned_ratio_max=1.5)
    )
    manager = composed.manager
    cache = manager.open("log")
    reader = cache.reader("waiting")
    for number in range(buffers * 9 // 10):
        whole = memoryview(bytearray(65_536))
        parts = [whole[at : at + 1024] for at in range(0, 65_536, 1024)]
        run = [Entry(1, number * 64 + at, b"", part, 1) for at, part in enumerate(parts)]
        cache.insert_run(run, 1, 0)
        manager.expect_redelivery(reader, run[-1:])
    began_ns = time.thread_time_ns()
    slices = 1
    while composed.tick(200 * MS, VISITS_PER_SLICE):
        slices += 1
    spent_ms = (time.thread_time_ns() - began_ns) / MS
    print(
        f"{buffers * 9 // 10} buffers of which a replay awaits one entry of 64: {slices} slices, {spent_ms:.0f} ms,"
        f" {manager.entries} entries of {manager.used_bytes} bytes left, {composed.pinned_bytes} pinned"
    )


def main() -> None:
    """Measures the three situations with Python's garbage collector off."""
    parser = argparse.ArgumentParser("python -m bench.cache_bounds", description="The hardest cases.")
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--cursors", type=int, default=10_000)
    parser.add_argument("--buffers", type=int, default=4_000)
    options = parser.parse_args()
    gc.disable()  # What is measured is the cache, not Python's search for cycles.
    many_topics(options.topics)
    many_cursors(options.cursors)
    survivors(options.buffers)


if __name__ == "__main__":
    main()
