"""The three read caches: each against a plain model of its rule, and the numbers that tell them apart."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie_stub.disk import read_cache
from bookie_stub.disk.read_cache import POLICIES, LruCache, ReadCache, RingCache, ServedFirstCache, aligned

Key = tuple[int, int]
Put = list[tuple[int, bytes]]


class Model(Protocol):
    """A slow and plain implementation of a policy's rule."""

    def get(self, key: Key) -> bytes | None: ...

    def put(self, owner: int, entries: Put, served: int) -> None: ...

    def discard(self, key: Key) -> None: ...

    def kept(self) -> set[Key]: ...


class RingModel:
    """BookKeeper's rule: offsets in segments; a whole segment is evicted when the ring comes round to it."""

    def __init__(self, bytes_max: int) -> None:
        self.segment_bytes = bytes_max // 2
        self.segments: list[dict[Key, bytes]] = [{}, {}]
        self.current = self.offset = 0

    def get(self, key: Key) -> bytes | None:
        for segment in (self.segments[self.current], self.segments[1 - self.current]):
            if key in segment:
                return segment[key]
        return None

    def put(self, owner: int, entries: Put, served: int) -> None:
        for entry_id, entry in entries:
            if len(entry) > self.segment_bytes:
                continue
            if self.offset + len(entry) > self.segment_bytes:
                self.current = 1 - self.current
                self.segments[self.current] = {}
                self.offset = 0
            self.segments[self.current][owner, entry_id] = entry
            self.offset += aligned(len(entry))

    def discard(self, key: Key) -> None:
        for segment in self.segments:
            segment.pop(key, None)

    def kept(self) -> set[Key]:
        return {*self.segments[0], *self.segments[1]}


class LruModel:
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used: list[tuple[Key, bytes]] = []
        """Longest ago first."""

    def get(self, key: Key) -> bytes | None:
        found = [pair for pair in self.used if pair[0] == key]
        self.used = [pair for pair in self.used if pair[0] != key] + found
        return found[0][1] if found else None

    def put(self, owner: int, entries: Put, served: int) -> None:
        for entry_id, entry in entries:
            self.discard((owner, entry_id))
            if len(entry) <= self.bytes_max:
                self.used.append(((owner, entry_id), entry))
        while sum(aligned(len(entry)) for _, entry in self.used) > self.bytes_max:
            self.used.pop(0)

    def discard(self, key: Key) -> None:
        self.used = [pair for pair in self.used if pair[0] != key]

    def kept(self) -> set[Key]:
        return {key for key, _ in self.used}


class ServedFirstModel:
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.served: list[tuple[Key, bytes]] = []
        self.loads: list[list[tuple[Key, bytes]]] = []

    def get(self, key: Key) -> bytes | None:
        for load in self.loads:
            for pair in load:
                if pair[0] == key:
                    self.discard(key)
                    self.served.append(pair)
                    return pair[1]
        return next((entry for other, entry in self.served if other == key), None)

    def put(self, owner: int, entries: Put, served: int) -> None:
        load: list[tuple[Key, bytes]] = []
        for number, (entry_id, entry) in enumerate(entries):
            self.discard((owner, entry_id))
            if len(entry) <= self.bytes_max:
                (self.served if number < served else load).append(((owner, entry_id), entry))
        while self.size(load) > self.bytes_max:
            if self.served:
                self.served.pop(0)
            elif self.loads:
                if len(self.loads[-1]) <= sum(map(len, self.loads)) / len(self.loads):
                    self.loads.append(self.loads.pop(0))
                self.loads[-1].pop()
                self.loads = [each for each in self.loads if each]
            else:
                load.pop()
        self.loads += [load] if load else []

    def size(self, newest: list[tuple[Key, bytes]]) -> int:
        return sum(aligned(len(entry)) for each in (self.served, *self.loads, newest) for _, entry in each)

    def discard(self, key: Key) -> None:
        self.served = [pair for pair in self.served if pair[0] != key]
        self.loads = [[pair for pair in load if pair[0] != key] for load in self.loads]
        self.loads = [load for load in self.loads if load]

    def kept(self) -> set[Key]:
        return {key for each in (self.served, *self.loads) for key, _ in each}


MODELS: dict[str, Callable[[int], Model]] = {
    "ring": RingModel,
    "lru": LruModel,
    "served-first": ServedFirstModel,
}
BYTES_MAX = 2048

OWNERS = st.integers(1, 3)
IDS = st.integers(0, 15)
SIZES = st.lists(st.sampled_from((1, 63, 64, 65, 200, 1100, 2100)), min_size=1, max_size=8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("get"), OWNERS, IDS),
        st.tuples(st.just("discard"), OWNERS, IDS),
        st.tuples(st.just("put"), OWNERS, IDS, SIZES, st.integers(0, 3)),
    ),
    max_size=60,
)


def test_every_policy_has_a_model() -> None:
    assert MODELS.keys() == POLICIES.keys()


@pytest.mark.parametrize("policy", POLICIES)
@given(steps=STEPS)
def test_policy_keeps_what_its_model_keeps(policy: str, steps: list[tuple]) -> None:  # type: ignore[type-arg]
    cache: ReadCache = POLICIES[policy](BYTES_MAX)
    model = MODELS[policy](BYTES_MAX)
    for step, (what, owner, entry_id, *more) in enumerate(steps):
        if what == "get":
            assert cache.get(owner, entry_id) == model.get((owner, entry_id))
        elif what == "discard":
            cache.discard(owner, entry_id)
            model.discard((owner, entry_id))
        else:
            sizes, served = more
            entries = [bytes((step,)) * size for size in sizes]
            ids = range(entry_id, entry_id + len(sizes))
            cache.put(owner, ids, entries, served)
            model.put(owner, list(zip(ids, entries, strict=True)), served)
        assert cache.size <= BYTES_MAX
        if policy == "ring":
            assert cache.count >= len(model.kept())  # an entry may stand in two segments
        else:
            assert cache.count == len(model.kept())
    kept = model.kept()
    for key in [(owner, entry_id) for owner in range(1, 4) for entry_id in range(24)]:
        assert (cache.get(*key) is not None) == (key in kept), key


@pytest.mark.parametrize("policy", POLICIES)
def test_get_finds_only_entries_of_the_same_owner(policy: str) -> None:
    cache: ReadCache = POLICIES[policy](BYTES_MAX)
    cache.put(1, [0, 1], [b"a", b"b"], 1)
    assert cache.get(1, 1) == b"b"
    assert cache.get(2, 1) is None


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("bytes_max", [0, 100])
def test_put_stores_no_entry_larger_than_the_cache(policy: str, bytes_max: int) -> None:
    cache: ReadCache = POLICIES[policy](bytes_max)
    cache.put(1, [0, 1], [b"x" * 101, b"y" * 5000], 0)
    assert (cache.get(1, 0), cache.get(1, 1), cache.count, cache.size) == (None, None, 0, 0)


def test_ring_has_two_segments_and_one_more_per_gibibyte() -> None:
    assert [len(RingCache(size << 30)._segments) for size in (0, 1, 2, 3, 4)] == [2, 2, 2, 3, 4]


def test_ring_evicts_a_whole_segment_at_a_rollover() -> None:
    """A rollover halves the cached bytes, so they form a sawtooth."""
    cache = RingCache(2048)
    cache.put(1, range(16), [b"x" * 128] * 16, 0)
    assert (cache.count, cache.size) == (16, 2048)
    cache.put(1, [16], [b"x" * 128], 0)
    assert (cache.count, cache.size) == (9, 1024 + 128)
    assert cache.get(1, 7) is None
    assert cache.get(1, 8) is not None


def test_ring_frees_an_evicted_segment_before_the_next_one_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    freed: list[int] = []
    cache = RingCache(1 << 20)
    real = cache._free

    def free(size: int) -> None:
        freed.append(size)
        real(size)

    monkeypatch.setattr(cache, "_free", free)
    for owner in range(32):  # two segments of 16 runs
        cache.put(owner, range(64), [bytes((owner,)) * 512] * 64, 0)
    assert not freed
    cache.put(99, range(64), [b"x" * 512] * 64, 0)
    held = sum(len(run) for run in cache._given_up)
    assert 0 < held < 16 * 64  # a part of it, and not all at once
    for owner in range(100, 108):
        cache.put(owner, range(64), [b"x" * 512] * 64, 0)
    assert not cache._given_up


def test_lru_keeps_entries_in_use() -> None:
    cache = LruCache(4 * 64)
    cache.put(1, range(4), [b"x"] * 4, 0)
    cache.get(1, 0)
    cache.put(1, [4], [b"x"], 0)
    assert [cache.get(1, entry_id) is not None for entry_id in range(5)] == [True, False, True, True, True]


def test_served_first_keeps_unserved_entries() -> None:
    cache = ServedFirstCache(4 * 64)
    cache.put(1, range(4), [b"x"] * 4, 1)
    cache.get(1, 1)
    cache.put(1, [4, 5], [b"x"] * 2, 0)
    assert [cache.get(1, entry_id) is not None for entry_id in range(6)] == [
        False,
        False,
        True,
        True,
        True,
        True,
    ]


def lengths(cache: ServedFirstCache) -> list[int]:
    """Returns the number of unserved entries of each owner, checked to be the nearest ones."""
    kept = [[(owner, entry_id) in cache._unserved for entry_id in range(9)] for owner in range(1, 6)]
    assert all(sorted(each, reverse=True) == each for each in kept)
    return [sum(each) for each in kept]


def test_served_first_shortens_loads_from_their_far_ends_to_equal_length() -> None:
    cache = ServedFirstCache(12 * 64)
    for owner in (1, 2):
        cache.put(owner, range(4), [b"x"] * 4, 0)
    cache.put(3, range(6), [b"x"] * 6, 0)
    assert lengths(cache) == [3, 3, 6, 0, 0]  # the newest one is whole ...
    cache.put(4, range(4), [b"x"] * 4, 0)
    assert lengths(cache) == [2, 3, 3, 4, 0]  # ... until the next one comes
    cache.put(5, range(9), [b"x"] * 9, 0)
    assert lengths(cache) == [0, 1, 1, 1, 9]


def test_served_first_forgets_loads_that_were_served() -> None:
    cache = ServedFirstCache(1 << 20)
    for first in range(0, 1000, 10):
        cache.put(1, range(first, first + 10), [b"x"] * 10, 1)
        for entry_id in range(first, first + 10):
            assert cache.get(1, entry_id) == b"x"
    assert not cache._loads


# Thrashing: what cold readers cost, see docs/explanation/bookie.md.

ENTRY = bytes(1024 + 36)


def disk_reads_per_entry(
    policy: str, share: float, *, readers: int = 20, batch: int = 50, run: int = 1, lockstep: bool = False
) -> float:
    """Readers of different ledgers take turns, each for `run` entries; the first third warms the cache."""
    rng = random.Random(1)
    cache: ReadCache = POLICIES[policy](int(share * readers * (batch + 1) * aligned(len(ENTRY))))
    positions = [0] * readers
    reads = readers * (batch + 1) * 9
    loaded = warm = 0
    for number in range(0, reads, run):
        reader = number // run % readers if lockstep else rng.randrange(readers)
        for entry_id in range(positions[reader], positions[reader] + run):
            if cache.get(reader, entry_id) is None:
                cache.put(reader, range(entry_id, entry_id + batch + 1), [ENTRY] * (batch + 1), 1)
                loaded += batch + 1
        positions[reader] += run
        if number <= reads // 3:
            warm = loaded
    return (loaded - warm) / (reads * 2 / 3)


def test_served_first_does_not_thrash_where_the_ring_does() -> None:
    assert disk_reads_per_entry("ring", 0.9) > 10
    assert disk_reads_per_entry("lru", 0.9) > 5
    assert disk_reads_per_entry("served-first", 0.9) <= 1.3
    # Where the cache has a quarter of the room: no cliff, every reader has a quarter of its readahead.
    assert disk_reads_per_entry("ring", 0.25) > 40
    assert disk_reads_per_entry("served-first", 0.25) <= 4


@pytest.mark.parametrize("policy", POLICIES)
def test_each_entry_is_read_once_when_the_cache_fits_all_readers(policy: str) -> None:
    assert disk_reads_per_entry(policy, 2) == pytest.approx(51 / 50, abs=0.1)
    assert disk_reads_per_entry(policy, 1.6, run=10) == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize(
    ("policy", "low", "high"), [("ring", 50, 51), ("lru", 50, 51), ("served-first", 1, 1.3)]
)
def test_lockstep_readers_thrash_where_demand_exceeds_capacity(policy: str, low: float, high: float) -> None:
    """Equally fast readers: a cliff for ring and lru; a served-first cache gives each a little less."""
    assert low <= disk_reads_per_entry(policy, 0.9, lockstep=True) <= high
    assert disk_reads_per_entry(policy, 1.1, lockstep=True) <= 1.2


def golden(policy: str, batch_bytes: int) -> int:
    """BookKeeper's own test of its read cache, without the disk: misses of 2048 reads."""
    size, batch = 4120, 1024
    cache: ReadCache = POLICIES[policy](16 << 20)
    ahead = min(batch, -(-min(batch_bytes, 8 << 20) // size))
    misses = 0
    for entry_id in range(512):
        for ledger in range(4):
            if cache.get(ledger, entry_id) is None:
                misses += 1
                ids = range(entry_id, min(entry_id + 1 + ahead, 1024))
                cache.put(ledger, ids, [bytes(size)] * len(ids), 1)
    return misses


def test_ring_has_bookkeepers_golden_misses() -> None:
    assert golden("ring", 2 << 20) == 8
    assert golden("ring", 1 << 40) == 132


def test_module_docstring_names_all_policies() -> None:
    assert all(f"`{policy}`" in (read_cache.__doc__ or "") for policy in POLICIES)


# Entries evicted before their first use.


@pytest.mark.parametrize("policy", POLICIES)
@given(steps=STEPS)
def test_evicted_unserved_counts_entries_that_left_without_being_served(
    policy: str,
    steps: list[tuple],  # type: ignore[type-arg]
) -> None:
    """Each copy that was put unserved is served, discarded, replaced, still there, or counted."""
    cache: ReadCache = POLICIES[policy](BYTES_MAX)
    unserved: set[Key] = set()
    evicted = 0
    for what, owner, entry_id, *more in steps:
        before = cache.evicted_unserved
        if what == "get":
            if cache.get(owner, entry_id) is not None:
                unserved.discard((owner, entry_id))
        elif what == "discard":
            cache.discard(owner, entry_id)
            unserved.discard((owner, entry_id))
        elif (owner, entry_id) not in unserved:
            sizes, served = more
            # A load brings no entry that is cached; a second copy in another segment would be counted on its own.
            sizes = sizes[:1]
            if any(key == (owner, entry_id) for key in unserved) or _is_cached(cache, owner, entry_id):
                continue
            cache.put(owner, [entry_id], [b"x" * sizes[0]], served)
            limit = BYTES_MAX // 2 if policy == "ring" else BYTES_MAX
            if not served and sizes[0] <= limit:
                unserved.add((owner, entry_id))
        gone = {key for key in unserved if not _is_cached(cache, *key)}
        evicted += len(gone)
        unserved -= gone
        assert cache.evicted_unserved - before == len(gone)
    assert cache.evicted_unserved == evicted


def _is_cached(cache: ReadCache, owner: int, entry_id: int) -> bool:
    """Looks without serving."""
    if isinstance(cache, RingCache):
        return any(entry_id in segment.owners.get(owner, {}) for segment in cache._segments)
    if isinstance(cache, LruCache):
        return (owner, entry_id) in cache._entries
    assert isinstance(cache, ServedFirstCache)
    return (owner, entry_id) in cache._unserved or (owner, entry_id) in cache._served


@pytest.mark.parametrize("policy", POLICIES)
def test_cold_readers_in_a_small_cache_waste_what_is_read_ahead(policy: str) -> None:
    cache: ReadCache = POLICIES[policy](10 * 64)
    for owner in range(5):
        cache.put(owner, range(6), [b"x"] * 6, 1)
    assert cache.evicted_unserved >= 10
    wasted = cache.evicted_unserved
    fitting: ReadCache = POLICIES[policy](100 * 64)
    for owner in range(5):
        fitting.put(owner, range(6), [b"x"] * 6, 1)
        for entry_id in range(1, 6):
            assert fitting.get(owner, entry_id) == b"x"
    assert (fitting.evicted_unserved, wasted > 0) == (0, True)
