"""Redeliverer: everything that a Shared or Key_Shared subscription must deliver again.

A position comes here when its consumer asks for it again or leaves, and, in Key_Shared, when its entry was read and
cannot be sent yet. It leaves when its entry is sent or acknowledged. Between the two it is in exactly one place:

    queue      the position waits
    fetching   storage reads the entry
    fetched    the entry was read; the next run of the dispatcher sends it or queues its position again

Law (PIP-430): while a position waits in the queue and its entry is cached, the entry counts one expected read of this
subscription, so the cache keeps it. Every change of the queue therefore tells the entry cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from broker.service.subscriptions.dispatch.redelivery_queue import RedeliveryQueue
from foundation.model.entry import Entry
from foundation.model.position import Position, PositionKey

if TYPE_CHECKING:
    from broker.managed_ledger.ledger_context import ReadView
    from broker.managed_ledger.managed_cursor import ManagedCursor
    from broker.service.subscriptions.dispatch.read_retry import ReadRetry

_NO_POSITIONS: Final[dict[PositionKey, int]] = {}
"""Of every dispatcher that delivered nothing again. Nothing is ever put in."""
_NO_ENTRIES: Final[Sequence[Entry]] = ()


class Redeliverer:
    """The redelivery queue of one dispatcher, and the storage reads for it."""

    __slots__ = (
        "_cursor",
        "_fetched",
        "_retry",
        "_stopped",
        "counts",
        "fetching",
        "hash_of",
        "queue",
    )

    def __init__(
        self,
        cursor: ManagedCursor,
        retry: ReadRetry,
        hash_of: Callable[[Entry], int],
    ) -> None:
        """`retry` wakes the dispatcher when a storage read has ended."""
        self.hash_of = hash_of
        """Returns the key hash of an entry; always 0 on a Shared subscription, where keys do not matter."""
        self.queue = RedeliveryQueue()
        """Positions that wait."""
        self.counts = _NO_POSITIONS
        """Redelivery count of each unacknowledged position, 1 and above. Only requests of consumers count; a consumer
        that leaves adds nothing, as recorded of Pulsar 4.2. An acknowledgement of a part of a batch begins it anew."""
        self.fetching = _NO_POSITIONS
        """Positions that storage reads now, with their key hashes."""
        self._cursor = cursor
        self._retry = retry
        self._fetched = _NO_ENTRIES
        self._stopped = False

    @property
    def has_work(self) -> bool:
        """True while positions wait or fetched entries can be sent."""
        return bool(self._fetched) or len(self.queue) > 0

    def has(self, key: PositionKey) -> bool:
        """Returns True while the position waits, or its entry is being read or was read and not sent."""
        if key in self.queue or key in self.fetching:
            return True
        ledger_id, entry_id = key
        return any(entry.entry_id == entry_id and entry.ledger_id == ledger_id for entry in self._fetched)

    def add_sent(self, keys: Iterable[tuple[PositionKey, int]]) -> None:
        """Queues (position, key hash) pairs whose entries were delivered before."""
        pairs = list(keys)
        self._cursor.redelivery.expect_redelivery([key for key, _ in pairs])
        self._add(pairs)

    def add_fetched(self, entries: list[Entry]) -> None:
        """Takes entries that were delivered before and have been read again; the next run sends them."""
        self._cursor.redelivery.expect_redelivery([entry.position for entry in entries])
        self._fetched = [*self._fetched, *entries]

    def add_unsent(self, entries: Iterable[Entry]) -> None:
        """Queues entries that were read and not delivered."""
        hash_of = self.hash_of
        self._add_unsent({(entry.ledger_id, entry.entry_id): hash_of(entry) for entry in entries})

    def _add_unsent(self, hashes: Mapping[PositionKey, int]) -> None:
        # They keep their expected read in the cache: only a delivery lowers it.
        self._cursor.redelivery.postpone_delivery(hashes)
        self._add(hashes.items())

    def _add(self, pairs: Iterable[tuple[PositionKey, int]]) -> None:
        by_hash: dict[int, list[PositionKey]] = {}
        fetched = {entry.position for entry in self._fetched}
        for key, sticky_hash in pairs:
            # A transaction that acknowledged an entry while it was read, and was aborted, gives it back here. The read
            # brings it, or has just brought it. Queued too, the entry would be fetched under one key twice and lost with
            # an error, or sent and counted twice.
            if key not in self.fetching and key not in fetched:
                by_hash.setdefault(sticky_hash, []).append(key)
        for sticky_hash, keys in by_hash.items():
            self.queue.add(keys, sticky_hash)

    def stop(self) -> None:
        """Forgets everything, because the last consumer left.

        The next consumer gets a dispatcher of its own, which begins at the first unacknowledged entry. Storage reads
        that are still running are dropped when they end.
        """
        self._stopped = True
        cursor = self._cursor
        cursor.redelivery.drop_redeliveries(self.queue.keys())
        self.queue.clear()
        self.counts.clear()
        self._fetched = _NO_ENTRIES

    def count(self, key: PositionKey) -> None:
        """Raises the redelivery count of a position by one."""
        if self.counts is _NO_POSITIONS:
            self.counts = {}
        self.counts[key] = self.counts.get(key, 0) + 1

    def acknowledged(self, key: PositionKey, remaining: int) -> None:
        """Begins the count of a position anew, as in Pulsar; discards the position when no message of it remains."""
        counted = self.counts.pop(key, None)
        if not remaining:
            self.discard(key)
        elif counted and self.has(key):
            # The redelivery that is still to come is the first one after this acknowledgement.
            self.counts[key] = 1

    def discard(self, key: PositionKey) -> None:
        """Takes a position out of the queue, because it needs no redelivery now."""
        if self.queue.discard(key):
            self._cursor.redelivery.drop_redeliveries((key,))

    def read(self, entries_max: int, allowed: Callable[[PositionKey, int], bool] | None) -> list[Entry]:
        """Returns up to `entries_max` entries to send now: fetched ones, then cached ones of the queue's first positions.

        Starts a storage read for positions that the cache does not have. Positions being fetched count towards
        `entries_max`, so one read at a time is out while consumers have few permits.
        """
        fetched = self._fetched[:entries_max]
        self._fetched = self._fetched[entries_max:] or _NO_ENTRIES
        # They may have been acknowledged since storage read them.
        entries = [entry for entry in fetched if not self._cursor.acks.is_acknowledged(entry.position)]
        # Without the subtraction a slow read would let each wake begin another one, past the consumers' permits.
        due = self.queue.remove_first(max(0, entries_max - len(entries) - len(self.fetching)), allowed)
        if due:
            found, missing = self._cursor.redelivery.read_cached([Position(*key) for key in due])
            entries += found
            if missing:
                self._fetch(missing, {key: due[key] for key in missing})
        view = self._cursor.context.view
        if view is not None and entries:
            entries = self._shown(view, entries)
        elif self._fetched and not entries:
            # All of the first ones were acknowledged. As in `_shown`, those after them must not wait for the next event.
            self._retry.wake()
        return entries

    def _shown(self, view: ReadView, entries: list[Entry]) -> list[Entry]:
        """Returns the entries without those that a transaction has acknowledged since they were asked for."""
        shown = self._cursor.shown(view, entries)
        # The dispatcher takes nothing for "nothing waits"; the positions after these would wait for the next event.
        if not shown and self.has_work:
            self._retry.wake()
        return shown

    def _fetch(self, asked: list[Position], hashes: dict[PositionKey, int]) -> None:
        if self._retry.waiting:  # A read has failed just now: the positions wait until its delay is over.
            self._add_unsent(hashes)
            return
        if self.fetching is _NO_POSITIONS:
            self.fetching = {}
        self.fetching.update(hashes)
        self._cursor.redelivery.request(asked, lambda entries: self._fetch_done(asked, entries))

    def _fetch_done(self, asked: list[Position], entries: list[Entry]) -> None:
        missing: dict[PositionKey, int] = {key: self.fetching.pop(key) for key in asked}
        for entry in entries:
            del missing[entry.position]
        # After `stop` no consumer is left to send to, and the cache must count no expected reads for it.
        if not self._stopped:
            self._fetched = [*self._fetched, *entries]
            if missing:
                self._add_unsent(missing)
        if self._cursor.redelivery.last_error is None:
            self._retry.succeeded()
        else:
            self._retry.failed()
        self._retry.wake()

    def put_off(self) -> None:
        """Queues fetched entries again, because no consumer has permits now.

        The entries themselves are dropped: they count towards the budget of reads in flight, and a slow client could
        hold that budget for ever. The cache probably still has them when permits arrive.
        """
        if not self._fetched:
            return
        fetched, self._fetched = self._fetched, _NO_ENTRIES
        self.add_unsent(fetched)

    def older_is_fetched(self, key: PositionKey, sticky_hash: int) -> bool:
        """Returns True while storage reads an older entry of the hash, or of a hash that is not known yet."""
        return any(waits in (0, sticky_hash) and older < key for older, waits in self.fetching.items())
