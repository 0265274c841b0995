"""What does one cached entry cost, in microseconds of CPU per entry?

`python -m bench.cache_micro [--entries N ...] [--run N ...] [--readers N] [--policy POLICY]`

Policies: `4.2` and `5.0` are profiles of `pip430`, the others by their names; the first line of the output names the one
measured. Entries are made before the clock starts, in runs of `--run`, with bodies of their own or slices of a shared
buffer ("bodies").

Columns: insert; read by each reader in runs of 100, as dispatchers do; deliver (expected reads fall); requeue, a pass
that keeps every entry; evict, a time pass in slices; the sum of all but requeue; and the worst slice in ms of CPU.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable

from broker.config.policy_names import MAGNETAR
from broker.entry_cache.active_cursors import ActiveCursors
from broker.entry_cache.compose import ComposedCache
from broker.entry_cache.eviction import VISITS_PER_SLICE
from broker.entry_cache.profiles import PROFILES
from broker.entry_cache.reader import Reader
from broker.entry_cache.settings import EntryCacheSettings
from broker.model.entry import Entry
from broker.model.position import Position

SECOND = 1_000_000_000
TAKE = 100
POLICIES = (*PROFILES, MAGNETAR)
BODY_BYTES = 1024
COLUMNS = ("insert", "read", "deliver", "requeue", "evict", "all but requeue", "worst slice ms")


def measure(entries: int, run: int, readers: int, policy: str, *, shared: bool) -> list[float]:
    """Returns the values of `COLUMNS` for one filling of the cache."""
    composed = ComposedCache(
        EntryCacheSettings(
            size_bytes_max=1 << 50,
            policy=policy if policy not in PROFILES else "pip430",
            profile=policy if policy in PROFILES else "4.2",
            ttl_ns=SECOND,
            extend_recently_accessed=False,
        )
    )
    manager = composed.manager
    cache = manager.open("log")
    reader = Reader("reader", 1)
    cursors = ActiveCursors(0, 0)
    cache.attach_cursors(cursors)
    for number in range(readers):
        cursors.add(str(number), Position(1, 0))
    runs = make_runs(entries, run, shared=shared)
    worst_slice = 0.0

    def insert() -> None:
        for number, one in enumerate(runs):
            cache.insert_run(one, readers, number)

    def read() -> None:
        for first in range(0, entries, TAKE):
            cache.read_run(reader, 1, first, first + TAKE - 1, 5 << 20)

    def deliver() -> None:
        for one in runs:
            manager.delivered(one)

    def tick(now_ns: int) -> None:
        nonlocal worst_slice
        more = True
        while more:
            begun = time.process_time()
            more = composed.tick(now_ns, VISITS_PER_SLICE)
            worst_slice = max(worst_slice, time.process_time() - begun)

    insert_s = cpu(insert)
    requeue_s = cpu(lambda: tick(2 * SECOND))
    assert manager.entries == entries
    read_s = sum(cpu(read) for _ in range(readers))
    for number in range(readers):
        cursors.update(str(number), Position(1, entries))
    deliver_s = sum(cpu(deliver) for _ in range(readers))
    evict_s = cpu(lambda: tick(4 * SECOND))
    assert manager.entries == manager.used_bytes == composed.pinned_bytes == 0
    micro = 1e6 / entries
    parts = [insert_s * micro, read_s * micro, deliver_s * micro, requeue_s * micro, evict_s * micro]
    return [*parts, sum(parts) - requeue_s * micro, worst_slice * 1000]


def make_runs(entries: int, run: int, *, shared: bool) -> list[list[Entry]]:
    """Makes runs of entries; bodies are `bytes` of their own, or slices of a receive buffer of sixteen (`shared`)."""
    own = bytes(BODY_BYTES)
    buffer = memoryview(bytearray(16 * BODY_BYTES))
    made = []
    for entry_id in range(entries):
        place = entry_id % 16 * BODY_BYTES
        if shared and not place:
            buffer = memoryview(bytearray(16 * BODY_BYTES))
        made.append(Entry(1, entry_id, b"", buffer[place : place + BODY_BYTES] if shared else own, 1))
    return [made[first : first + run] for first in range(0, entries, run)]


def cpu(work: Callable[[], None]) -> float:
    """Returns the CPU seconds that `work` takes in this process."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    """Prints a row per number of entries, length of runs and kind of bodies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--entries", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--run", type=int, nargs="+", default=[1, 20])
    parser.add_argument("--readers", type=int, default=1)
    parser.add_argument("--policy", choices=POLICIES, default="4.2", help="4.2 and 5.0 are those of pip430")
    parser.add_argument("--collect", action="store_true", help="leave the garbage collector on")
    options = parser.parse_args()
    if not options.collect:
        gc.disable()
    name = f"pip430 {options.policy}" if options.policy in PROFILES else options.policy
    print(f"policy {name}, {options.readers} reader(s), µs of CPU per entry")
    print(f"{'entries':>9} {'run':>4} {'bodies':>7}" + "".join(f"{name:>16}" for name in COLUMNS))
    for entries in options.entries:
        for run in options.run:
            for shared in (False, True) if entries <= 100_000 else (False,):
                figures = measure(entries, run, options.readers, options.policy, shared=shared)
                bodies = "slices" if shared else "own"
                print(f"{entries:>9} {run:>4} {bodies:>7}" + "".join(f"{one:>16.3f}" for one in figures))


if __name__ == "__main__":
    main()
