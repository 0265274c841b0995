"""The broker's entry cache as machine code, for replays of `pip430` (4.2, 5.0) and `fifo-ttl`.

It follows `entry_cache` rule by rule, over arrays: 16 bytes per entry, and a ring of slots as the removal queue.
Its rules are written a second time for speed. `tests/pipeline/replays/test_kernel_equals_objects.py` holds them equal: it
compares every counter with that of the broker's objects (`objects.WhatIf`) on random access records and settings, so a rule
that changes in `entry_cache` alone fails there.

Invariant: an entry is cached once in the ring, at the slot that its own field `slot` names. A slot whose entry names
another one, or is not cached, is a tombstone of an invalidated entry; passes skip it.

Functions here allocate nothing, so that numba need not count references: a full ring ends the call, and the caller
(`replay._replay`) continues with a larger one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.machine_code import compiled_without_counts as compiled
from pipeline.replays import accesses as a
from pipeline.replays import counters as c
from pipeline.replays.accesses import REST_NS, AccessRows
from pipeline.replays.cache_arrays import ACCESSED, CACHED, PENDING, CacheArrays

_SLOT_MASK = 0xFFFFFFFF
_REQUEUES_LIMIT = 32_767
_UNLIMITED = 1 << 62
_INVALIDATED_KEPT = 16 * 1024 * 1024
"""Bytes of invalidated entries from which a pass removes their slots from the ring."""

_APPEND, _FETCH, _READ, _STORAGE_READ, _DELIVER, _REDELIVERY = (
    a.APPEND,
    a.FETCH,
    a.READ,
    a.STORAGE_READ,
    a.DELIVER,
    a.REDELIVERY,
)
_INVALIDATE, _TICK, _SIZE_CHECK, _CONFIGURE = a.INVALIDATE, a.TICK, a.SIZE_CHECK, a.CONFIGURE
_NOT_OFFERED, _NOT_COUNTED = a.NOT_OFFERED, a.NOT_COUNTED
_TTL, _SIZE = 0, c.EVICTED_SIZE - c.EVICTED_TTL
_MISSED, _COALESCED, _FORCED = a.MISSED, a.COALESCED, a.FORCED


# Passes


@compiled
def _sweep(
    cache: CacheArrays,
    now_ns: int,
    reason: int,
    threshold_ns: int,
    to_free: int,
    protected: int,
    visits_max: int,
) -> tuple[int, int, bool]:
    """Visits the slots from the head on, and evicts or requeues each entry.

    Ends at an entry that joined at `threshold_ns` or later, and after freeing `to_free` bytes. The first `protected`
    slots may requeue entries; from there on every entry is evicted. Returns bytes freed, slots visited, and False where
    `visits_max` ended the pass early. `reason`: 0 for the time to live, else the size.
    """
    s, entries, slot_entry, slot_ns = cache.s, cache.entries, cache.slot_entry, cache.slot_ns
    mask = len(slot_entry) - 1
    head, tail = s[c.HEAD], s[c.TAIL]
    extend, requeues_max = s[c.EXTEND_ACCESSED] != 0, s[c.REQUEUES_MAX]
    removed = freed = visits = expected = 0
    done = True
    while head < tail:
        # The recorded broker ends a pass after this many slots and continues it in its next turn.
        if visits == visits_max:
            done = False
            break
        x = slot_entry[head & mask]
        e = entries[x]
        # A tombstone. It counts as a visit, as in the broker, so that a slice has a bounded length.
        if not e.flags & CACHED or e.slot != head & _SLOT_MASK:
            head += 1
            visits += 1
            continue
        # Slots are in the order of their times, so no later one has expired either.
        if slot_ns[head & mask] >= threshold_ns or freed >= to_free:
            break
        head += 1
        accessed = extend and e.flags & ACCESSED != 0
        if visits < protected and (accessed or (e.expected > 0 and e.requeues < requeues_max)):
            s[c.REQUEUED_ACCESSED if accessed else c.REQUEUED_EXPECTED] += 1
            e.flags &= ~ACCESSED
            # The field has 16 bits: an entry that is read again and again is requeued without a limit.
            e.requeues = min(e.requeues + 1, _REQUEUES_LIMIT)
            e.slot = tail & _SLOT_MASK
            slot_entry[tail & mask] = x
            slot_ns[tail & mask] = now_ns
            tail += 1
        else:
            # PENDING outlives an eviction: the arrival of a request still inserts the entry.
            e.flags &= PENDING
            freed += e.size
            removed += 1
            expected += e.expected > 0
        visits += 1
    s[c.HEAD], s[c.TAIL] = head, tail
    s[c.ENTRIES] -= removed
    s[c.USED_BYTES] -= freed
    s[c.EVICTED_TTL + reason] += removed
    s[c.EXPECTED_TTL + reason] += expected
    return freed, visits, done


@compiled
def _check_size(cache: CacheArrays, now_ns: int, visits_max: int) -> bool:
    """Evicts down to the target size. Returns True where a size pass is unfinished."""
    s = cache.s
    while True:
        resumed = s[c.PASS_OPEN] != 0
        to_free = s[c.USED_BYTES] - s[c.TARGET_BYTES]
        if not resumed:
            if s[c.USED_BYTES] <= s[c.TRIGGER_BYTES] or to_free <= 0:
                return False
            s[c.PASS_OPEN], s[c.PASS_LEFT] = 1, to_free
            # 5.0 protects each slot of the queue once per pass, so a pass ends; 4.2 protects until requeues run out.
            s[c.PASS_PROTECTED] = s[c.TAIL] - s[c.HEAD] if s[c.ONE_PROTECTED_PASS] else _UNLIMITED
        elif to_free <= 0:
            # Invalidations have freed the rest since the last slice.
            s[c.PASS_OPEN] = 0
            return False
        freed, visits, done = _sweep(
            cache, now_ns, _SIZE, _UNLIMITED, s[c.PASS_LEFT], s[c.PASS_PROTECTED], visits_max
        )
        s[c.PASS_LEFT] -= freed
        if s[c.PASS_PROTECTED] != _UNLIMITED:
            s[c.PASS_PROTECTED] = max(0, s[c.PASS_PROTECTED] - visits)
        if not done:
            return True
        reached = s[c.PASS_LEFT] <= 0
        s[c.PASS_OPEN] = 0
        # A resumed pass reached the target of its start. Inserts since then may need a pass of their own.
        if not (resumed and reached):
            return False
        visits_max -= visits


@compiled
def _run_checks(cache: CacheArrays, now_ns: int, visits_max: int) -> None:
    """Runs the size checks that are due, until one is unfinished."""
    s = cache.s
    while s[c.CHECKS_DUE]:
        if _check_size(cache, now_ns, visits_max):
            return
        s[c.CHECKS_DUE] -= 1
        s[c.CHECK_IN_FLIGHT] = 0


@compiled
def _tick(cache: CacheArrays, now_ns: int, visits_max: int) -> None:
    """Evicts expired entries, then checks the size, then drops the slots of invalidated entries: a periodic pass."""
    s = cache.s
    # As in the broker, expired entries wait until an unfinished size pass has ended.
    if not s[c.PASS_OPEN]:
        _, visits, done = _sweep(
            cache, now_ns, _TTL, now_ns - s[c.TTL_NS], _UNLIMITED, _UNLIMITED, visits_max
        )
        if not done:
            return
        visits_max -= visits
    if _check_size(cache, now_ns, visits_max):
        return
    s[c.CHECK_IN_FLIGHT] = 0
    # No tombstones in the ring: nothing to drop.
    if s[c.TAIL] - s[c.HEAD] == s[c.ENTRIES]:
        s[c.INVALIDATED_BYTES] = 0
    elif s[c.INVALIDATED_BYTES] > max(_INVALIDATED_KEPT, s[c.USED_BYTES]):
        _drop_invalidated(cache)
        s[c.INVALIDATED_BYTES] = 0


@compiled
def _drop_invalidated(cache: CacheArrays) -> None:
    """Closes the gaps that invalidated entries left in the ring."""
    s, entries, slot_entry, slot_ns = cache.s, cache.entries, cache.slot_entry, cache.slot_ns
    mask = len(slot_entry) - 1
    to = s[c.HEAD]
    for q in range(s[c.HEAD], s[c.TAIL]):
        x = slot_entry[q & mask]
        if entries[x].flags & CACHED and entries[x].slot == q & _SLOT_MASK:
            slot_entry[to & mask] = x
            slot_ns[to & mask] = slot_ns[q & mask]
            entries[x].slot = to & _SLOT_MASK
            to += 1
    s[c.TAIL] = to


# Inputs of the cache


@compiled
def _insert(cache: CacheArrays, x: int, expected: int, now_ns: int) -> None:
    """Inserts one entry. The caller makes sure of a free slot before, and calls `_check_later` afterwards."""
    s, e = cache.s, cache.entries[x]
    count = expected if expected >= s[c.COUNTS_FROM] else _NOT_COUNTED
    if e.flags & CACHED:
        # A second insert is refused. 5.0 takes its count of expected reads nevertheless.
        s[c.REFUSED] += 1
        if s[c.RENEWS]:
            e.expected = count
        return
    tail = s[c.TAIL]
    at = tail & (len(cache.slot_entry) - 1)
    cache.slot_entry[at] = x
    cache.slot_ns[at] = now_ns
    s[c.TAIL] = tail + 1
    e.slot = tail & _SLOT_MASK
    e.expected = count
    e.requeues = 0
    e.flags = (e.flags & PENDING) | CACHED
    s[c.INSERTED] += 1
    s[c.INSERTED_BYTES] += e.size
    s[c.ENTRIES] += 1
    s[c.USED_BYTES] += e.size


@compiled
def _check_later(cache: CacheArrays, ledger: int, first: int) -> None:
    """Requests a size check at the end of the turn if the cache is full."""
    s = cache.s
    cache.low[ledger] = min(cache.low[ledger], first)
    s[c.PEAK_BYTES] = max(s[c.PEAK_BYTES], s[c.USED_BYTES])
    # One check per turn, however many runs it inserts.
    if s[c.USED_BYTES] > s[c.TRIGGER_BYTES] and not s[c.CHECK_IN_FLIGHT]:
        s[c.CHECK_IN_FLIGHT] = 1
        s[c.CHECKS_DUE] += 1
        s[c.READ_SINCE] = 0


@compiled
def _append(cache: CacheArrays, first: int, count: int, expected: int, ledger: int, now_ns: int) -> None:
    """Inserts appended entries."""
    if not cache.s[c.ENABLED]:
        return
    for x in range(first, first + count):
        _insert(cache, x, expected, now_ns)
    _check_later(cache, ledger, first)


@compiled
def _fetch(
    cache: CacheArrays, first: int, count: int, expected: int, ledger: int, now_ns: int, as_recorded: bool
) -> None:
    """Inserts entries that arrive from storage, if this replay requested them.

    The recorded broker also requested entries that this cache had; they do not arrive here.
    """
    wanted = cache.s[c.ENABLED] != 0 and expected >= cache.s[c.COUNTS_FROM]
    for x in range(first, first + count):
        e = cache.entries[x]
        if as_recorded or e.flags & PENDING:
            e.flags &= ~PENDING
            if wanted:
                _insert(cache, x, expected, now_ns)
    if wanted:
        _check_later(cache, ledger, first)


@compiled
def _read(cache: CacheArrays, first: int, count: int, expected: int, ledger: int, now_ns: int) -> None:
    """Reads entries; a missing one arrives from storage at once."""
    s, entries = cache.s, cache.entries
    hits = hit_bytes = missed = 0
    offered = s[c.ENABLED] != 0 and expected >= s[c.COUNTS_FROM]
    for x in range(first, first + count):
        e = entries[x]
        if e.flags & CACHED:
            e.flags |= ACCESSED
            hits += 1
            hit_bytes += e.size
        else:
            missed += 1
            s[c.MISS_BYTES] += e.size
            if offered:
                _insert(cache, x, expected, now_ns)
    s[c.HITS] += hits
    s[c.HIT_BYTES] += hit_bytes
    if missed:
        s[c.MISSES] += missed
        s[c.NEW_MISSES] += missed
        if offered:
            _check_later(cache, ledger, first)


@compiled
def _request(cache: CacheArrays, first: int, count: int, detail: int, as_recorded: bool) -> None:
    """Reads entries that the recorded cache did not have. A hit where this one has them, else a request to storage."""
    s, entries = cache.s, cache.entries
    forced = as_recorded or detail & _FORCED != 0
    outcome = detail & ~_FORCED
    for x in range(first, first + count):
        e = entries[x]
        if e.flags & CACHED and not forced:
            e.flags |= ACCESSED
            if outcome:
                s[c.HITS] += 1
                s[c.HIT_BYTES] += e.size
            continue
        e.flags |= PENDING
        if outcome == _MISSED:
            s[c.MISSES] += 1
            s[c.MISS_BYTES] += e.size
        elif outcome == _COALESCED:
            s[c.COALESCED] += 1
            s[c.COALESCED_BYTES] += e.size


@compiled
def _deliver(cache: CacheArrays, first: int, count: int) -> None:
    """Lowers the expected reads of delivered entries."""
    to_zero = cache.s[c.STOPS_AT_ZERO] != 0
    for x in range(first, first + count):
        e = cache.entries[x]
        if e.flags & CACHED:
            if e.expected > 0:
                e.expected -= 1
            elif e.expected != _NOT_COUNTED and not to_zero:
                # In 4.2 a count falls below zero. Such a count n is stored as n - 1, because -1 is NOT_COUNTED.
                e.expected = e.expected - 1 if e.expected else -2


@compiled
def _redeliver(cache: CacheArrays, first: int, count: int) -> None:
    """Raises the expected reads of entries that will be read again."""
    from_zero = cache.s[c.STOPS_AT_ZERO] != 0
    for x in range(first, first + count):
        e = cache.entries[x]
        if e.flags & CACHED and (e.expected >= 0 or (e.expected != _NOT_COUNTED and not from_zero)):
            e.expected = e.expected + 1 if e.expected != -2 else 0


@compiled
def _invalidate(cache: CacheArrays, first: int, count: int, reason: int, ledger: int) -> None:
    """Removes a range of entries. Their slots stay in the ring as tombstones."""
    s = cache.s
    end = first + count
    # Below `low` nothing is cached. Without it each trim of a long ledger would visit all of its entries again.
    for x in range(max(first, cache.low[ledger]), end):
        e = cache.entries[x]
        if e.flags & CACHED:
            e.flags &= PENDING
            s[c.ENTRIES] -= 1
            s[c.USED_BYTES] -= e.size
            s[c.INVALIDATED_BYTES] += e.size
            s[c.EVICTED_TTL + reason] += 1
            s[c.EXPECTED_TTL + reason] += e.expected > 0
    cache.low[ledger] = max(cache.low[ledger], end)


@compiled
def _configure(s: NDArray[np.int64], values: NDArray[np.int64]) -> None:
    """Copies a line of settings to their places."""
    for i in range(len(values)):
        s[c.ENABLED + i] = values[i]


@compiled
def _is_incomplete(cache: CacheArrays, first: int, count: int) -> bool:
    """Returns True where a run has an entry that is not cached."""
    cached = 0
    for x in range(first, first + count):
        cached += cache.entries[x].flags & CACHED != 0
    return cached < count


@compiled
def _turn_is_over(cache: CacheArrays, op: int, first: int, count: int) -> bool:
    """Returns True where an event shows that the turn has ended in which a size check was requested.

    In a turn all arrivals come before all reads and deliveries, and the size check comes last. A read counts as an arrival
    where it inserts entries into this cache, which the recorded one had.
    """
    if op in (_SIZE_CHECK, _TICK):
        return True
    if cache.s[c.READ_SINCE] == 0:
        return False
    return op in (_APPEND, _FETCH) or (op == _READ and _is_incomplete(cache, first, count))


@compiled
def _catch_up(cache: CacheArrays, op: int, first: int, count: int, now_ns: int) -> None:
    """Runs the passes and the size check that were due before this event.

    The recorded broker stops its periodic passes while its own cache is empty; this cache may not be, so they run here at
    their interval. A size check runs at the end of the turn that requested it.
    """
    s = cache.s
    interval = s[c.TICK_NS]
    # A longer gap between passes: the recorded broker rested, because its own cache was empty.
    if now_ns - s[c.LAST_TICK_NS] > max(2 * interval, REST_NS):
        while now_ns - s[c.LAST_TICK_NS] > 2 * interval:
            # An empty queue makes every pass of the gap a no-op, so skip them together.
            if s[c.HEAD] == s[c.TAIL]:
                s[c.LAST_TICK_NS] = now_ns
                break
            s[c.LAST_TICK_NS] += interval
            _tick(cache, s[c.LAST_TICK_NS], _UNLIMITED)
    if s[c.CHECKS_DUE]:
        if _turn_is_over(cache, op, first, count):
            _run_checks(cache, now_ns, _UNLIMITED)
        elif op in (_READ, _STORAGE_READ, _DELIVER):
            s[c.READ_SINCE] = 1


@compiled
def _about_entries(
    cache: CacheArrays,
    op: int,
    first: int,
    count: int,
    detail: int,
    ledger: int,
    now_ns: int,
    as_recorded: bool,
) -> None:
    if op == _READ:
        _read(cache, first, count, detail, ledger, now_ns)
    elif op == _DELIVER:
        # `detail` 1: the recorded cache had evicted the entry before, so its count did not change.
        if not detail or not as_recorded:
            _deliver(cache, first, count)
    elif op == _APPEND:
        if detail != _NOT_OFFERED:
            _append(cache, first, count, detail, ledger, now_ns)
    elif op == _FETCH:
        _fetch(cache, first, count, detail, ledger, now_ns, as_recorded)
    elif op == _STORAGE_READ:
        _request(cache, first, count, detail, as_recorded)
    elif op == _REDELIVERY and (not detail or not as_recorded):
        _redeliver(cache, first, count)


@compiled
def replay_rows(
    rows: AccessRows, begin: int, cache: CacheArrays, settings: NDArray[np.int64], as_recorded: bool
) -> int:
    """Replays the rows from `begin` on; returns the index after the last one.

    A row may need more slots than there are.

    `settings`: a line for each index that CONFIGURE may name. `as_recorded`: passes and arrivals from storage are those of
    the access record; otherwise they follow from the replayed cache.
    """
    s = cache.s
    slots = len(cache.slot_entry)
    if not begin:
        _configure(s, settings[0])
        if len(rows.op):
            s[c.LAST_TICK_NS] = rows.at_ns[0]
    for i in range(begin, len(rows.op)):
        op, now_ns, count = rows.op[i], rows.at_ns[i], rows.entries[i]
        # The kinds below INVALIDATE may insert up to `count` entries, each with a slot of its own.
        if op < _INVALIDATE and s[c.TAIL] - s[c.HEAD] + count > slots:
            return i
        if not as_recorded and op != _INVALIDATE:
            _catch_up(cache, op, rows.first[i], count, now_ns)
        if op == _TICK:
            s[c.LAST_TICK_NS] = now_ns
            _tick(cache, now_ns, count if as_recorded else _UNLIMITED)
        elif op < _INVALIDATE:
            _about_entries(
                cache, op, rows.first[i], count, rows.detail[i], rows.ledger[i], now_ns, as_recorded
            )
        elif op == _INVALIDATE:
            _invalidate(cache, rows.first[i], count, rows.detail[i], rows.ledger[i])
        elif as_recorded:
            if op == _SIZE_CHECK:
                _run_checks(cache, now_ns, count)
            elif op == _CONFIGURE:
                _configure(s, settings[rows.detail[i]])
    return len(rows.op)
