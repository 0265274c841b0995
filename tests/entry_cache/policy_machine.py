"""The law of every policy: after each random operation bytes, entries and slots equal a plain model.

The model knows who is cached from what the cache told it, adds nothing up in advance, and leaves to a subclass what
its policy may remove. It drives the caches as a broker does: cursors that read, go back, leave and return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import accumulate

from hypothesis import strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.compose.cache_settings import EntryCacheSettings
from entry_cache.active_cursors import ActiveCursors
from entry_cache.cache_stats import Reason
from entry_cache.expected_reads import has_expected_reads
from entry_cache.listener import HitKind, Redelivery
from entry_cache.observe.decisions import Decisions
from entry_cache.reader import Reader
from foundation.model.entry import Entry
from foundation.model.position import Position
from tests.entry_cache.cache_fakes import Acknowledging
from tests.fakes.whole_cache import Removals, WholeCache

LOGS = 2
SIZE_MAX = 200
TTL_NS = 50
RETURN_NS = 100
"""For so long one that left is expected back."""
PINNED_RATIO_MAX = 1.5
NAMES = ("a", "b", "c")
logs = strategies.integers(0, LOGS - 1)
names = strategies.sampled_from(NAMES)
entry_ids = strategies.integers(0, 12)


def content(size: int) -> bytes:
    return bytes(range(size))


def bodies(sizes: list[int], slack: int | None) -> list[bytes | memoryview]:
    """Slices of one receive buffer, which is so much longer; or bytes of their own."""
    if slack is None:
        return [content(size) for size in sizes]
    whole = memoryview(bytearray(b"".join(map(content, sizes)) + bytes(slack)))
    ends = list(accumulate(sizes))
    return [whole[end - size : end] for size, end in zip(sizes, ends, strict=True)]


class PolicyMachine(RuleBasedStateMachine):
    policy = ""

    @initialize(requeues_max=strategies.integers(0, 3))
    def begin(self, requeues_max: int) -> None:
        self.requeues_max = requeues_max
        self.now = 0
        self.size_max, self.ttl_ns = SIZE_MAX, TTL_NS
        self.bound = SIZE_MAX
        """The size, or the bytes held when the cache was made smaller."""
        self.last_run_bytes = 0
        """The same with pinned bytes."""
        self.looked_since_change = True
        """Whether a periodic pass has run since the settings changed: an insert alone asks for none then."""
        self.manager = WholeCache(
            EntryCacheSettings(
                size_bytes_max=SIZE_MAX,
                ttl_ns=TTL_NS,
                ttl_max_ns=3 * TTL_NS,
                watermark=0.5,
                requeues_max=requeues_max,
                policy=self.policy,
                pinned_ratio_max=PINNED_RATIO_MAX,
            ),
            Decisions(0, lambda: self.now),
            others=(Removals(self.left),),
        )
        self.caches = [self.manager.open(str(number)) for number in range(LOGS)]
        self.cursors = [ActiveCursors(RETURN_NS, 0) for _ in range(LOGS)]
        self.of_log: dict[tuple[int, str], Acknowledging] = {}
        self.came_ns: dict[tuple[int, str], int] = {}
        self.departed: dict[tuple[int, str], tuple[Position, int]] = {}
        """By departed cursor, its mark-delete position and the time until which it is expected back."""
        self.readers: list[dict[str, Reader]] = [
            {name: cache.reader(name) for name in NAMES} for cache in self.caches
        ]
        for cache, cursors in zip(self.caches, self.cursors, strict=True):
            cache.attach_cursors(cursors)
        self.held: dict[tuple[int, int], Entry] = {}
        """The entries of the model, by (ledger id, entry id); a log has the ledger of its number."""
        self.inserted = 0
        self.gone: list[Entry] = []
        self.claims: set[tuple[Entry, int]] = set()
        """(cached entry, reader that waits for its redelivery), once each."""
        self.expected_gone = 0

    def left(self, entries: list[Entry], reason: Reason) -> None:
        self.expected_gone += sum(map(self.is_expected, entries))
        self.claims = {claim for claim in self.claims if claim[0].cached}
        for entry in entries:
            assert self.held.pop((entry.ledger_id, entry.entry_id)) is entry
            assert not entry.cached
        self.gone += entries
        self.check_removal(entries, reason)

    def is_expected(self, entry: Entry) -> bool:
        """Whether reads of an entry that is leaving were expected: its count says."""
        return has_expected_reads(entry)

    def check_removal(self, entries: list[Entry], reason: Reason) -> None:
        """Fails if the policy removed an entry that its rules keep."""

    @rule(
        log=logs,
        first=entry_ids,
        sizes=strategies.lists(strategies.integers(1, 40), min_size=1, max_size=6),
        expected=strategies.integers(-1, 3),
        slack=strategies.one_of(strategies.none(), strategies.integers(0, 60)),
    )
    def insert(self, log: int, first: int, sizes: list[int], expected: int, slack: int | None) -> None:
        """`slack`: unused bytes of the receive buffer; None = each entry has its own bytes."""
        run = [Entry(log, first + number, b"", body, 1) for number, body in enumerate(bodies(sizes, slack))]
        offered = list(run)
        if self.policy == "magnetar" and sum(sizes) > self.size_max > 0:
            return  # It comes in portions, which a test of its own looks at.
        refused = not self.size_max or self.refuses(log, expected)
        before = dict(self.held)
        for entry in run:
            if not refused:
                self.held.setdefault((log, entry.entry_id), entry)
        new = 0 if refused else sum((log, entry.entry_id) not in before for entry in offered)
        if new:
            self.last_run_bytes = int(sum(sizes) * PINNED_RATIO_MAX)
        count = None if expected < 0 else expected
        assert self.caches[log].insert_run(run, count, self.now) == new
        self.inserted += new

    def refuses(self, log: int, expected: int) -> bool:
        return False

    @rule(log=logs, name=names, entry=entry_ids)
    def come(self, log: int, name: str, entry: int) -> None:
        cursor = self.of_log.setdefault((log, name), Acknowledging(log, -1))
        cursor.mark_delete_position = Position(log, entry - 1)
        if name not in self.cursors[log]:
            self.came_ns[log, name] = self.now
        self.departed.pop((log, name), None)
        self.cursors[log].add(name, Position(log, entry), cursor)

    @rule(log=logs, name=names)
    def leave(self, log: int, name: str) -> None:
        if name in self.cursors[log]:
            self.departed[log, name] = (self.of_log[log, name].mark_delete_position, self.now + RETURN_NS)
        self.cursors[log].remove(name, self.now)

    @rule(log=logs, name=names, count=strategies.integers(1, 6), kept=strategies.booleans())
    def read(self, log: int, name: str, count: int, kept: bool) -> None:
        position = self.cursors[log].position(name)
        if position is None:
            return
        first = position.entry_id
        taken = self.caches[log].read_run(self.readers[log][name], log, first, first + count - 1, 10**6)
        expected = []
        for entry_id in range(first, first + count):
            entry = self.held.get((log, entry_id))
            if entry is None:
                break
            expected.append(entry)
        assert taken == expected
        self.cursors[log].update(name, Position(log, first + max(1, len(taken))))
        if kept:
            self.expect_again(
                partial(self.caches[log].listener.redelivery_changed, Redelivery.POSTPONED), log, name, taken
            )
        else:
            self.manager.mark_delivered(taken)

    @rule(log=logs, name=names, entry=entry_ids)
    def go_elsewhere(self, log: int, name: str, entry: int) -> None:
        self.cursors[log].update(name, Position(log, entry))

    @rule(log=logs, name=names, entry=entry_ids)
    def acknowledge(self, log: int, name: str, entry: int) -> None:
        cursor = self.of_log.setdefault((log, name), Acknowledging(log, -1))
        cursor.mark_delete_position = Position(log, entry)

    @rule(log=logs, name=names, entry=entry_ids)
    def replay(self, log: int, name: str, entry: int) -> None:
        held = self.held.get((log, entry))
        if held is not None:
            self.expect_again(self.manager.expect_redelivery, log, name, [held])

    def expect_again(
        self, tell: Callable[[Reader, list[Entry]], None], log: int, name: str, entries: list[Entry]
    ) -> None:
        reader = self.readers[log][name]
        tell(reader, entries)
        self.claims |= {(entry, reader.number) for entry in entries}

    @rule(log=logs, name=names, entry=entry_ids)
    def read_again(self, log: int, name: str, entry: int) -> None:
        found = self.caches[log].get(self.readers[log][name], log, entry, HitKind.REDELIVERY)
        assert found is self.held.get((log, entry))
        if found is not None:
            self.claims.discard((found, self.readers[log][name].number))

    @rule(log=logs, name=names, places=strategies.lists(entry_ids, max_size=3))
    def give_up(self, log: int, name: str, places: list[int]) -> None:
        reader = self.readers[log][name]
        cache = self.caches[log]
        entries = cache.present([(log, entry_id) for entry_id in places])
        cache.listener.redelivery_changed(Redelivery.DROPPED, reader, entries)
        gone = {self.held[log, entry_id] for entry_id in places if (log, entry_id) in self.held}
        self.claims = {claim for claim in self.claims if claim[0] not in gone or claim[1] != reader.number}

    @rule(log=logs, entry=entry_ids, whole=strategies.booleans())
    def invalidate(self, log: int, entry: int, whole: bool) -> None:
        if whole:
            self.caches[log].invalidate_ledger(log)
        else:
            self.caches[log].invalidate_before(Position(log, entry))
        assert not [key for key in self.held if key[0] == log and (whole or key[1] < entry)]

    @rule(passed_ns=strategies.integers(0, 30), visits=strategies.sampled_from([None, 1, 3]))
    def tick(self, passed_ns: int, visits: int | None) -> None:
        self.now += passed_ns
        if visits is None:
            assert not self.manager.tick(self.now)
        else:
            for _ in range(1000):
                if not self.manager.tick(self.now, visits):
                    break
            else:
                raise AssertionError("a pass does not end")
        self.looked_since_change = True
        self.after_pass()

    @rule(passed_ns=strategies.integers(0, 30), visits=strategies.integers(1, 3))
    def first_slice_of_a_tick(self, passed_ns: int, visits: int) -> None:
        """The rest may come at any time later, or begin anew."""
        self.now += passed_ns
        self.manager.tick(self.now, visits)

    @rule(
        size=strategies.sampled_from([0, 60, SIZE_MAX]), ttl_ns=strategies.sampled_from([TTL_NS, 2 * TTL_NS])
    )
    def reconfigure(self, size: int, ttl_ns: int) -> None:
        """Also in the middle of a pass."""
        self.size_max, self.ttl_ns = size, ttl_ns
        self.looked_since_change = False
        self.manager.reconfigure(replace(self.manager.settings, size_bytes_max=size, ttl_ns=ttl_ns))
        self.bound = max(size, self.charged_bytes)

    @rule(log=logs)
    def delete_and_create(self, log: int) -> None:
        """The log's cursors leave, too."""
        for name in NAMES:
            self.leave(log, name)
        self.manager.remove(str(log))
        assert not [key for key in self.held if key[0] == log]
        self.caches[log] = self.manager.open(str(log))
        self.readers[log] = {name: self.caches[log].reader(name) for name in NAMES}
        self.cursors[log] = ActiveCursors(RETURN_NS, self.now)
        self.caches[log].attach_cursors(self.cursors[log])
        self.departed = {key: value for key, value in self.departed.items() if key[0] != log}

    @rule(visits=strategies.sampled_from([None, 1, 2]))
    def run_pending(self, visits: int | None) -> None:
        """Perhaps only the first slice: the rest may come at any time later."""
        if visits is None:
            assert not self.manager.run_pending(self.now)
            if self.looked_since_change:
                self.after_pass()
        else:
            self.manager.run_pending(self.now, visits)

    def after_pass(self) -> None:
        """Checks the law after a whole pass."""

    @rule()
    def forget_invalidated_slots(self) -> None:
        self.manager.policy.drop_invalidated()
        assert self.manager.tombstones == 0

    @invariant()
    def what_is_counted_is_the_sum(self) -> None:
        manager, held = self.manager, self.held.values()
        assert manager.entries == len(self.held) == sum(cache.entries for cache in self.caches)
        assert manager.used_bytes == sum(entry.size for entry in held)
        assert manager.used_bytes == sum(cache.size_bytes for cache in self.caches)
        assert manager.inserted_entries == self.inserted
        assert sum(manager.stats.evicted_entries.values()) == len(self.gone)
        assert sum(manager.eviction_stats.evicted_expected_entries.values()) == self.expected_gone

    @property
    def charged_bytes(self) -> int:
        charged: int = self.manager.used_bytes + self.manager.pinned_bytes
        return charged

    @invariant()
    def little_is_pinned_whatever_has_left(self) -> None:
        slices: dict[int, tuple[int, int]] = {}
        for entry in self.held.values():
            body = entry.body
            if type(body) is memoryview:
                whole, used = slices.get(id(body.obj), (len(body.obj), 0))  # type: ignore[arg-type]
                slices[id(body.obj)] = (whole, used + len(body))
        assert self.manager.pinned_bytes == sum(whole - used for whole, used in slices.values())
        assert all(whole <= used * PINNED_RATIO_MAX for whole, used in slices.values())
        assert self.charged_bytes <= self.manager.used_bytes * PINNED_RATIO_MAX

    @invariant()
    def bodies_are_what_came(self) -> None:
        assert all(bytes(entry.body) == content(len(entry.body)) for entry in self.held.values())

    @invariant()
    def the_cache_has_what_the_model_has(self) -> None:
        for (log, entry_id), entry in self.held.items():
            assert entry.cached
            assert self.caches[log].peek(log, entry_id) is entry

    @invariant()
    def every_cached_entry_has_one_slot(self) -> None:
        slots = list(self.slots())
        assert len(slots) == len(self.manager.policy)
        assert sorted(map(id, self.held.values())) == sorted(id(entry) for entry in slots if entry.cached)
        assert self.manager.tombstones == sum(not entry.cached for entry in slots) >= 0

    def slots(self) -> Iterable[Entry]:
        policy: Iterable[Entry] = self.manager.policy
        return policy

    @invariant()
    def nothing_leaves_twice(self) -> None:
        assert len({id(entry) for entry in self.gone}) == len(self.gone)
