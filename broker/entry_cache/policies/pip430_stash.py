"""The first revision of PIP-430: a stash beside the queue, and a longer time to live for what is still awaited.

An entry with expected reads that meets a size pass is set aside in the stash, and no size pass removes it before
its own, longer time is over: a hard guarantee, so that a pass may free less than it was asked for. Each pass
looks at the stash first, then at the queue. Reads are not remembered and nothing is extended.

The text leaves open what a time pass does with a head that is too old for an entry nobody awaits and young
enough for one that somebody does. Here it goes to the stash, so that those behind it are reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from broker.entry_cache.policies.names import PIP430_STASH
from broker.entry_cache.policies.policy import (
    EXPECTED_READS,
    NO_LIMIT,
    MakeRoom,
    Removed,
    SizePass,
    positive,
)
from broker.entry_cache.policies.profile import handed_over_below_zero, put_back_below_zero
from broker.entry_cache.settings import EntryCacheSettings
from broker.model.entry import Entry


@dataclass(slots=True)
class StashPass:
    bytes_to_free: int
    stashed: int
    """Slots of the stash that the pass has not looked at yet."""


class Pip430Stash:
    """A `Policy`."""

    __slots__ = (
        "_longer_ns",
        "_queue",
        "_stash",
        "_stashed_left",
        "_ttl_max_ns",
        "by_position",
        "handed_over",
        "make_room",
        "name",
        "requeues",
        "watched",
    )

    def __init__(self, settings: EntryCacheSettings) -> None:
        self.name = PIP430_STASH
        self.handed_over = handed_over_below_zero
        self.make_room: MakeRoom | None = None
        self.by_position = False
        self.requeues = {EXPECTED_READS: 0}
        """How often an entry was set aside."""
        self.watched = False
        self._queue: deque[Entry] = deque()
        self._stash: deque[Entry] = deque()
        self._stashed_left: int | None = None
        """What a time pass in slices has not looked at yet; None between two passes."""
        self.configure(settings)

    def configure(self, settings: EntryCacheSettings) -> None:
        self._ttl_max_ns = max(settings.ttl_max_ns, settings.ttl_ns)
        self._longer_ns = self._ttl_max_ns - settings.ttl_ns

    def put_back(self, reader: int, entries: Iterable[Entry]) -> None:
        put_back_below_zero(entries)

    def kept_back(self, reader: int, entries: Iterable[Entry]) -> None:
        """Its read is still counted, since it was not handed over."""

    def taken_again(self, reader: int, entry: Entry) -> None:
        """The hand-over will be counted."""

    def __len__(self) -> int:
        return len(self._stash) + len(self._queue)

    def __iter__(self) -> Iterator[Entry]:
        yield from self._stash
        yield from self._queue

    def initial_count(self, expected_reads: int) -> int:
        return expected_reads

    def caches_storage_reads(self, expected_reads: int) -> bool:
        return expected_reads >= 0

    def offered_again(self, present: Entry, count: int) -> bool:
        """The counts are added up."""
        if count > 0:
            for _ in range(count):
                put_back_below_zero((present,))
        return False

    def admit(self, entries: list[Entry]) -> None:
        self._queue.extend(entries)

    # Passes

    def remove_expired(self, threshold_ns: int, now_ns: int, visits_max: int = NO_LIMIT) -> Removed:
        if self._stashed_left is None:
            self._stashed_left = len(self._stash)
        self._stashed_left = min(self._stashed_left, len(self._stash))  # A size pass may have come between.
        removed = Removed()
        longer_ns = threshold_ns - self._longer_ns
        while self._stashed_left and removed.visits < visits_max:
            self._stashed_left -= 1
            entry = self._stash.popleft()
            removed.visits += 1
            if not entry.cached:
                entry.holder = None
            elif entry.queued_at_ns < (longer_ns if entry.expected_reads > 0 else threshold_ns):
                _remove(entry, removed)
            else:
                self._stash.append(entry)
        while self._queue and removed.visits < visits_max:
            entry = self._queue[0]
            if entry.cached and entry.queued_at_ns >= threshold_ns:
                break
            self._queue.popleft()
            removed.visits += 1
            if not entry.cached:
                entry.holder = None
            elif entry.expected_reads > 0 and entry.queued_at_ns >= longer_ns:
                self._set_aside(entry, removed)
            else:
                _remove(entry, removed)
        more = self._queue and (not self._queue[0].cached or self._queue[0].queued_at_ns < threshold_ns)
        removed.done = not (self._stashed_left or more)
        if removed.done:
            self._stashed_left = None
        return removed

    def begin_size_pass(self, bytes_to_free: int) -> StashPass:
        return StashPass(positive(bytes_to_free), len(self._stash))

    def free(self, size_pass: SizePass, now_ns: int, visits_max: int = NO_LIMIT) -> Removed:
        """Ends when the bytes are free or nothing is left that may go, which can be before."""
        assert isinstance(size_pass, StashPass)
        removed = Removed()
        threshold_ns = now_ns - self._ttl_max_ns
        size_pass.stashed = min(size_pass.stashed, len(self._stash))  # A time pass ran between two slices.
        while removed.visits < visits_max and removed.size_bytes < size_pass.bytes_to_free:
            if size_pass.stashed:
                size_pass.stashed -= 1
                entry = self._stash.popleft()
            elif self._queue:
                entry = self._queue.popleft()
            else:
                break
            removed.visits += 1
            if not entry.cached:
                entry.holder = None
            elif entry.expected_reads > 0 and entry.queued_at_ns >= threshold_ns:
                self._set_aside(entry, removed)
            else:
                _remove(entry, removed)
        size_pass.bytes_to_free -= removed.size_bytes
        removed.done = size_pass.bytes_to_free <= 0 or not (size_pass.stashed or self._queue)
        return removed

    def abandon(self, size_pass: SizePass) -> None:
        """Nothing is aside but in the stash."""

    def _set_aside(self, entry: Entry, removed: Removed) -> None:
        self._stash.append(entry)
        self.requeues[EXPECTED_READS] += 1
        if self.watched:
            removed.requeued.setdefault(EXPECTED_READS, []).append(entry)

    # Housekeeping

    def drop_invalidated(self) -> None:
        for slots in (self._stash, self._queue):
            kept = []
            for entry in slots:
                if entry.cached:
                    kept.append(entry)
                else:
                    entry.holder = None
            slots.clear()
            slots.extend(kept)
        self._stashed_left = None


def _remove(entry: Entry, removed: Removed) -> None:
    holder = entry.holder
    assert holder is not None
    del holder.entries[entry.entry_id]
    holder.size_bytes -= entry.size
    entry.holder = None
    entry.cached = False
    removed.entries.append(entry)
    removed.size_bytes += entry.size
