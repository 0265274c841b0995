"""The broker's entry cache as machine code: `EntryCacheManager` with the policies `pip430` (4.2, 5.0) and `fifo-ttl`.

Rule for rule what `broker/entry_cache` does, over arrays: 16 bytes per entry, and a ring of slots for the removal
queue. A slot is an entry's own only while the entry says so, which is how the slots of invalidated ones are told.
Tests hold it to the objects of the broker, counter by counter.

Nothing is allocated here: a ring that is full ends the call, and the caller comes back with a larger one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.machine_code import compiled_without_counts as compiled
from pipeline.replays import accesses as a
from pipeline.replays import counters as c
from pipeline.replays.accesses import TURN_NS, Rows
from pipeline.replays.cache_arrays import ACCESSED, CACHED, PENDING, Cache

SLOT_MASK = 0xFFFFFFFF
REQUEUES_MAX = 32_767
UNLIMITED = 1 << 62
INVALIDATED_KEPT = 16 * 1024 * 1024

_APPEND, _FETCH, _READ, _ASK, _DELIVER, _PUT_BACK = a.APPEND, a.FETCH, a.READ, a.ASK, a.DELIVER, a.PUT_BACK
_INVALIDATE, _TICK, _SIZE_CHECK, _CONFIGURE = a.INVALIDATE, a.TICK, a.SIZE_CHECK, a.CONFIGURE
_NOT_OFFERED, _NOT_COUNTED = a.NOT_OFFERED, a.NOT_COUNTED
_TTL, _SIZE = 0, c.EVICTED_SIZE - c.EVICTED_TTL
_MISSED, _COALESCED, _FORCED = a.MISSED, a.COALESCED, a.FORCED


# Passes


@compiled
def _sweep(
    cache: Cache, now_ns: int, reason: int, threshold_ns: int, to_free: int, protected: int, visits_max: int
) -> tuple[int, int, bool]:
    """(bytes removed, slots visited, whether the pass has ended); `reason`: the number of the pass's reason."""
    s, entries, slot_entry, slot_ns = cache.s, cache.entries, cache.slot_entry, cache.slot_ns
    mask = len(slot_entry) - 1
    head, tail = s[c.HEAD], s[c.TAIL]
    extend, requeues_max = s[c.EXTEND_ACCESSED] != 0, s[c.REQUEUES_MAX]
    removed = freed = visits = expected = 0
    done = True
    while head < tail:
        if visits == visits_max:
            done = False
            break
        x = slot_entry[head & mask]
        e = entries[x]
        if not e.flags & CACHED or e.slot != head & SLOT_MASK:
            head += 1
            visits += 1
            continue
        if slot_ns[head & mask] >= threshold_ns or freed >= to_free:
            break
        head += 1
        accessed = extend and e.flags & ACCESSED != 0
        if visits < protected and (accessed or (e.expected > 0 and e.requeues < requeues_max)):
            s[c.REQUEUED_ACCESSED if accessed else c.REQUEUED_EXPECTED] += 1
            e.flags &= ~ACCESSED
            e.requeues = min(e.requeues + 1, REQUEUES_MAX)
            e.slot = tail & SLOT_MASK
            slot_entry[tail & mask] = x
            slot_ns[tail & mask] = now_ns
            tail += 1
        else:
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
def _check_size(cache: Cache, now_ns: int, visits_max: int) -> bool:
    """Whether a size pass is unfinished."""
    s = cache.s
    while True:
        resumed = s[c.PASS_OPEN] != 0
        to_free = s[c.USED_BYTES] - s[c.TARGET_BYTES]
        if not resumed:
            if s[c.USED_BYTES] <= s[c.TRIGGER_BYTES] or to_free <= 0:
                return False
            s[c.PASS_OPEN], s[c.PASS_LEFT] = 1, to_free
            s[c.PASS_PROTECTED] = s[c.TAIL] - s[c.HEAD] if s[c.ONE_LAP] else UNLIMITED
        elif to_free <= 0:
            s[c.PASS_OPEN] = 0
            return False
        freed, visits, done = _sweep(
            cache, now_ns, _SIZE, UNLIMITED, s[c.PASS_LEFT], s[c.PASS_PROTECTED], visits_max
        )
        s[c.PASS_LEFT] -= freed
        if s[c.PASS_PROTECTED] != UNLIMITED:
            s[c.PASS_PROTECTED] = max(0, s[c.PASS_PROTECTED] - visits)
        if not done:
            return True
        reached = s[c.PASS_LEFT] <= 0
        s[c.PASS_OPEN] = 0
        if not (resumed and reached):
            return False
        visits_max -= visits


@compiled
def _run_checks(cache: Cache, now_ns: int, visits_max: int) -> None:
    s = cache.s
    while s[c.CHECKS_DUE]:
        if _check_size(cache, now_ns, visits_max):
            return
        s[c.CHECKS_DUE] -= 1
        s[c.CHECK_IN_FLIGHT] = 0


@compiled
def _tick(cache: Cache, now_ns: int, visits_max: int) -> None:
    s = cache.s
    if not s[c.PASS_OPEN]:
        _, visits, done = _sweep(cache, now_ns, _TTL, now_ns - s[c.TTL_NS], UNLIMITED, UNLIMITED, visits_max)
        if not done:
            return
        visits_max -= visits
    if _check_size(cache, now_ns, visits_max):
        return
    s[c.CHECK_IN_FLIGHT] = 0
    if s[c.TAIL] - s[c.HEAD] == s[c.ENTRIES]:
        s[c.INVALIDATED_BYTES] = 0
    elif s[c.INVALIDATED_BYTES] > max(INVALIDATED_KEPT, s[c.USED_BYTES]):
        _drop_invalidated(cache)
        s[c.INVALIDATED_BYTES] = 0


@compiled
def _drop_invalidated(cache: Cache) -> None:
    s, entries, slot_entry, slot_ns = cache.s, cache.entries, cache.slot_entry, cache.slot_ns
    mask = len(slot_entry) - 1
    to = s[c.HEAD]
    for q in range(s[c.HEAD], s[c.TAIL]):
        x = slot_entry[q & mask]
        if entries[x].flags & CACHED and entries[x].slot == q & SLOT_MASK:
            slot_entry[to & mask] = x
            slot_ns[to & mask] = slot_ns[q & mask]
            entries[x].slot = to & SLOT_MASK
            to += 1
    s[c.TAIL] = to


# What the cache is told


@compiled
def _insert(cache: Cache, x: int, expected: int, now_ns: int) -> None:
    """One entry; the caller has seen to room for its slot and minds the size afterwards."""
    s, e = cache.s, cache.entries[x]
    count = expected if expected >= s[c.COUNTS_FROM] else _NOT_COUNTED
    if e.flags & CACHED:
        s[c.REFUSED] += 1
        if s[c.RENEWS]:
            e.expected = count
        return
    tail = s[c.TAIL]
    at = tail & (len(cache.slot_entry) - 1)
    cache.slot_entry[at] = x
    cache.slot_ns[at] = now_ns
    s[c.TAIL] = tail + 1
    e.slot = tail & SLOT_MASK
    e.expected = count
    e.requeues = 0
    e.flags = (e.flags & PENDING) | CACHED
    s[c.INSERTED] += 1
    s[c.INSERTED_BYTES] += e.size
    s[c.ENTRIES] += 1
    s[c.USED_BYTES] += e.size


@compiled
def _mind_the_size(cache: Cache, ledger: int, first: int, now_ns: int) -> None:
    s = cache.s
    cache.low[ledger] = min(cache.low[ledger], first)
    s[c.PEAK_BYTES] = max(s[c.PEAK_BYTES], s[c.USED_BYTES])
    if s[c.USED_BYTES] > s[c.TRIGGER_BYTES] and not s[c.CHECK_IN_FLIGHT]:
        s[c.CHECK_IN_FLIGHT] = 1
        s[c.CHECKS_DUE] += 1
        s[c.ASKED_NS] = now_ns


@compiled
def _append(cache: Cache, first: int, count: int, expected: int, ledger: int, now_ns: int) -> None:
    if not cache.s[c.ENABLED]:
        return
    for x in range(first, first + count):
        _insert(cache, x, expected, now_ns)
    _mind_the_size(cache, ledger, first, now_ns)


@compiled
def _fetch(
    cache: Cache, first: int, count: int, expected: int, ledger: int, now_ns: int, as_recorded: bool
) -> None:
    """What nobody has asked of storage in this replay is not brought by it either."""
    wanted = cache.s[c.ENABLED] != 0 and expected >= cache.s[c.COUNTS_FROM]
    for x in range(first, first + count):
        e = cache.entries[x]
        if as_recorded or e.flags & PENDING:
            e.flags &= ~PENDING
            if wanted:
                _insert(cache, x, expected, now_ns)
    if wanted:
        _mind_the_size(cache, ledger, first, now_ns)


@compiled
def _read(cache: Cache, first: int, count: int, expected: int, ledger: int, now_ns: int) -> None:
    """What is not there comes from storage at once."""
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
            _mind_the_size(cache, ledger, first, now_ns)


@compiled
def _ask(cache: Cache, first: int, count: int, detail: int, as_recorded: bool) -> None:
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
def _hand_over(cache: Cache, first: int, count: int) -> None:
    to_zero = cache.s[c.STOPS_AT_ZERO] != 0
    for x in range(first, first + count):
        e = cache.entries[x]
        if e.flags & CACHED:
            if e.expected > 0:
                e.expected -= 1
            elif e.expected != _NOT_COUNTED and not to_zero:
                e.expected = e.expected - 1 if e.expected else -2


@compiled
def _put_back(cache: Cache, first: int, count: int) -> None:
    from_zero = cache.s[c.STOPS_AT_ZERO] != 0
    for x in range(first, first + count):
        e = cache.entries[x]
        if e.flags & CACHED and (e.expected >= 0 or (e.expected != _NOT_COUNTED and not from_zero)):
            e.expected = e.expected + 1 if e.expected != -2 else 0


@compiled
def _invalidate(cache: Cache, first: int, count: int, reason: int, ledger: int) -> None:
    s = cache.s
    end = first + count
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
    for i in range(len(values)):
        s[c.ENABLED + i] = values[i]


@compiled
def _catch_up(cache: Cache, op: int, now_ns: int) -> None:
    """What the broker would have done before this event: passes in a time in which it rested because its own cache
    was empty, and a size check at the end of the turn that asked for it: where the record has the end of one, or
    when a turn's time is over."""
    s = cache.s
    interval = s[c.TICK_NS]
    while now_ns - s[c.LAST_TICK_NS] > 2 * interval:
        if s[c.HEAD] == s[c.TAIL]:
            s[c.LAST_TICK_NS] = now_ns
            break
        s[c.LAST_TICK_NS] += interval
        _tick(cache, s[c.LAST_TICK_NS], UNLIMITED)
    if s[c.CHECKS_DUE] and (op == _SIZE_CHECK or now_ns > s[c.ASKED_NS] + TURN_NS):
        _run_checks(cache, now_ns, UNLIMITED)


@compiled
def _about_entries(
    cache: Cache, op: int, first: int, count: int, detail: int, ledger: int, now_ns: int, as_recorded: bool
) -> None:
    if op == _READ:
        _read(cache, first, count, detail, ledger, now_ns)
    elif op == _DELIVER:
        if not detail or not as_recorded:
            _hand_over(cache, first, count)
    elif op == _APPEND:
        if detail != _NOT_OFFERED:
            _append(cache, first, count, detail, ledger, now_ns)
    elif op == _FETCH:
        _fetch(cache, first, count, detail, ledger, now_ns, as_recorded)
    elif op == _ASK:
        _ask(cache, first, count, detail, as_recorded)
    elif op == _PUT_BACK and (not detail or not as_recorded):
        _put_back(cache, first, count)


@compiled
def replay_rows(rows: Rows, begin: int, cache: Cache, settings: NDArray[np.int64], as_recorded: bool) -> int:
    """Rows from `begin` on; answers how many are done: all, or up to the one that needs more slots than there are.
    `settings`: a line for each that CONFIGURE may name; `as_recorded`: passes run where they ran and what came from
    storage came; otherwise these follow from what the replayed cache does."""
    s = cache.s
    slots = len(cache.slot_entry)
    if not begin:
        _configure(s, settings[0])
        if len(rows.op):
            s[c.LAST_TICK_NS] = rows.at_ns[0]
    for i in range(begin, len(rows.op)):
        op, now_ns, count = rows.op[i], rows.at_ns[i], rows.entries[i]
        if op < _INVALIDATE and s[c.TAIL] - s[c.HEAD] + count > slots:
            return i
        if not as_recorded and op != _INVALIDATE:
            _catch_up(cache, op, now_ns)
        if op == _TICK:
            s[c.LAST_TICK_NS] = now_ns
            _tick(cache, now_ns, count if as_recorded else UNLIMITED)
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
