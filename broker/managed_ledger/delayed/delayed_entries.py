"""DelayedEntries: which entries of a managed ledger must wait for their delivery time. Pure.

The delay is a fact of an entry, so all subscriptions of a topic share one index. It is a cache of facts that stand in
the entries themselves: an entry that is missing here is found again by the next dispatcher that reads it.

The laws:

1. An entry is in `held` from the moment a dispatcher finds it delayed until it is due. Cursors of Shared and Key_Shared
   subscriptions leave held entries out while they read on.
2. An entry leaves `held` once. `take_due` returns it then, and every such subscription that has passed it delivers it.
3. Memory is 16 bytes per entry and a bit of `held`, whatever the number of subscriptions.

`BucketLedgers` stores full buckets; `DelayedDelivery` (broker/service) knows the clock, the policies and the dispatchers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from broker.managed_ledger.delayed.bucket import BYTES_PER_ENTRY, Bucket
from foundation.model.position import Position, PositionKey
from foundation.model.range_set import RangeSet

_PAGE_BYTES: Final = 150
"""About the memory of one page of `held`, 256 entries."""


class DelayedEntries:
    """The delayed entries of one managed ledger, by delivery time."""

    __slots__ = (
        "_bucket_size",
        "_open",
        "_segment_size",
        "buckets",
        "fixed_delay",
        "held",
        "highest_due_ms",
        "last",
    )

    def __init__(self, segment_size: int, bucket_size: int) -> None:
        """`segment_size`: entries of a segment. `bucket_size`: entries at which a bucket is full."""
        self.held = RangeSet()
        """Positions that wait. Always the same object: cursors refer to it."""
        self.buckets: list[Bucket] = []
        """Buckets with entries, the oldest first."""
        self.fixed_delay = True
        """True while every entry that was looked at is due after those before it, as with one delay for all."""
        self.highest_due_ms = 0
        """The latest delivery time seen since the index was empty."""
        self.last: PositionKey = (-1, -1)
        """The highest position that was ever held."""
        self._segment_size = segment_size
        self._bucket_size = bucket_size
        self._open: Bucket | None = None

    def __len__(self) -> int:
        return self.held.count

    @property
    def size_bytes(self) -> int:
        """About the memory of the index."""
        return sum(bucket.count for bucket in self.buckets) * BYTES_PER_ENTRY + self.held.pages * _PAGE_BYTES

    @property
    def next_due_ms(self) -> int | None:
        """The earliest delivery time, None without entries."""
        return min(
            (segment.first_due_ms for bucket in self.buckets for segment in bucket.segments), default=None
        )

    def hold(self, ledger_id: int, entry_id: int, deliver_at_ms: int, tick_ms: int) -> Bucket | None:
        """Adds an entry that must wait; an entry that waits already changes nothing.

        Returns the bucket that this entry has filled, for storing. `tick_ms`: by how much the times of a fixed
        delay may differ from the order of the entries.
        """
        if not self.held.add(ledger_id, entry_id):
            return None
        if deliver_at_ms >= self.highest_due_ms:
            self.highest_due_ms = deliver_at_ms
        elif deliver_at_ms < self.highest_due_ms - tick_ms:
            self.fixed_delay = False
        key = ledger_id, entry_id
        if key > self.last:
            self.last = key
        bucket = self._open
        if bucket is None:
            bucket = self._open = Bucket(self._segment_size)
            self.buckets.append(bucket)
        bucket.add(ledger_id, entry_id, deliver_at_ms)
        if bucket.count < self._bucket_size:
            return None
        self._open = None
        return bucket

    def load(self, bucket: Bucket, first_ledger: int, now_ms: int) -> Iterator[None]:
        """Adds a stored bucket, without entries that are due or were trimmed.

        Yields after each segment, which takes milliseconds, so that the caller can let others run.
        `first_ledger`: the first ledger that the managed ledger still has.
        """
        bucket.take_due(now_ms, bucket.count)
        add = self.held.add
        for segment in bucket.segments:
            for ledger_id, entry_id, _ in segment.items():
                if ledger_id >= first_ledger:
                    add(ledger_id, entry_id)
            yield
        self.last = max(self.last, bucket.last)
        # The order in which the entries of a stored bucket came is not known any more.
        self.fixed_delay = False
        self.buckets.append(bucket)

    def take_due(self, cutoff_ms: int, count_max: int) -> list[PositionKey]:
        """Removes entries whose time is at or before the cutoff, and returns those that waited.

        Looks at `count_max` entries at most; to be called again while `next_due_ms` is at or before the cutoff.
        """
        due: list[PositionKey] = []
        looked_at = 0
        discard = self.held.discard
        for bucket in self.buckets:
            if looked_at >= count_max:
                break
            taken = bucket.take_due(cutoff_ms, count_max - looked_at)
            looked_at += len(taken)
            # An entry may be in two buckets after `forget`; it waits and is due once.
            due += [key for key in taken if discard(*key)]
        return due

    def forget(self, through: Position) -> None:
        """Drops entries up to and including the position: every cursor has acknowledged them."""
        for ledger_id in self.held.ledger_ids():
            if ledger_id < through.ledger_id:
                self.held.remove_ledger(ledger_id)
        self.held.remove_through(*through)
        for bucket in self.buckets:
            if bucket.last <= through:
                bucket.clear()

    def remove_empty(self) -> list[int]:
        """Drops buckets without entries; returns the ledgers that kept them."""
        if all(bucket.segments for bucket in self.buckets):
            return []
        gone = [bucket for bucket in self.buckets if not bucket.segments]
        self.buckets = [bucket for bucket in self.buckets if bucket.segments]
        if self._open in gone:
            self._open = None
        if not self.buckets:
            self.fixed_delay = True
            self.highest_due_ms = 0
        return _ledgers_of(gone)

    @property
    def stored(self) -> list[int]:
        """The ledgers that keep buckets."""
        return _ledgers_of(self.buckets)


def _ledgers_of(buckets: Iterable[Bucket]) -> list[int]:
    return [bucket.ledger_id for bucket in buckets if bucket.ledger_id is not None]


NONE_DELAYED: Final = DelayedEntries(1, 1)
"""Of every managed ledger whose entries were never delayed, as nearly all are not. Nothing is ever held here."""
