"""Trimming: removes BookKeeper ledgers from the front of a managed ledger when no cursor needs them.

A ledger is removed once every durable cursor has acknowledged it to its end and retention has passed: first
from the list, then from the metadata store, then from the bookie (the third rule of docs/architecture.md,
"Taking a managed ledger over"). The current ledger is never removed.

A log with shadow topics keeps a ledger as long as it or one of them needs it. So each has a `Keeper`: the cursors and the
retention for which ledgers are kept. One that is not open here is held: it keeps all ledgers, except in a call that brings a
fresh reading of what is stored of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.ledger_list import LedgerInfo, LedgerList, OffloadedLedger
from broker.managed_ledger.reading_cursors import CursorView
from broker.managed_ledger.removal.deletion import copies_of
from broker.managed_ledger.storage_reads import StorageReads
from foundation.model.errors import BrokerError
from foundation.model.position import EARLIEST, LATEST, Position


class Keeper:
    """The reasons for which one topic keeps ledgers."""

    __slots__ = ("held_at", "keep_bytes", "keep_ms", "stored_marks")

    def __init__(self, stored_marks: Collection[Position] = (), held_at: Position = LATEST) -> None:
        self.stored_marks = stored_marks
        """Mark-delete positions of durable cursors that are not open here: of a shadow topic."""
        self.held_at = held_at
        """Every ledger with an entry after this position is kept, whatever is acknowledged.

        Topic compaction holds its stored horizon here: its cursor acknowledges in memory first, and a crash before that
        is stored must find the entries again.
        """
        self.keep_ms = 0
        """Time for which acknowledged ledgers are kept after they were closed; -1 = for ever."""
        self.keep_bytes = 0
        """Size of the managed ledger up to which acknowledged ledgers are kept; -1 = all of them."""

    def marks(self) -> Collection[Position]:
        """Returns the mark-delete positions of the durable cursors."""
        return self.stored_marks

    def superfluous(self, ledgers: LedgerList, now_ms: int, *, without_retention: bool = False) -> list[int]:
        """Returns the ledgers at the front of the list that this topic does not keep."""
        slowest = min(self.held_at, min(self.marks(), default=LATEST))
        keep_ms, keep_bytes = (0, 0) if without_retention else (self.keep_ms, self.keep_bytes)
        return ledgers_to_trim(ledgers, slowest, now_ms, keep_ms=keep_ms, keep_bytes=keep_bytes)


class Held(Keeper):
    """Of a listed shadow topic that is not open here: keeps all ledgers, as another broker may open or make the topic."""

    __slots__ = ("exists",)

    def __init__(self) -> None:
        super().__init__(held_at=EARLIEST)
        self.exists = True
        """False after a reading that has found no such shadow topic."""


_NO_SHADOWS: Final[Mapping[str, Keeper]] = MappingProxyType({})


class Trimming(Keeper):
    """Decides which ledgers to remove, and removes them in the background."""

    __slots__ = ("_context", "_cursors", "_storage_reads", "copying", "shadows")

    def __init__(
        self, context: LedgerContext, storage_reads: StorageReads, cursors: Mapping[str, CursorView]
    ) -> None:
        """`cursors`: those of the managed ledger at any time, by name; the mapping changes with them."""
        super().__init__()
        self._context = context
        self._storage_reads = storage_reads
        self._cursors = cursors
        self.copying = -1
        """The ledger that is being copied to other storage; it and all after it are kept until the copy has ended.

        A copy that outlived its ledger in the list would be named by nothing.
        """
        self.shadows = _NO_SHADOWS
        """By name, the shadow topics that need this log too. Made anew by each change: most topics have none."""

    def marks(self) -> Collection[Position]:
        """Returns those of the open cursors."""
        return [cursor.mark_delete_position for cursor in self._cursors.values() if cursor.durable]

    @property
    def has_shadows(self) -> bool:
        """True while a shadow topic exists, as far as it is known here."""
        return any(not isinstance(one, Held) or one.exists for one in self.shadows.values())

    def hold(self, name: str) -> Held:
        """Keeps all ledgers for this shadow topic, which is not open here; returns its keeper."""
        keeper, former = Held(), self.shadows.get(name)
        if isinstance(former, Held):
            keeper.exists = former.exists
        self.set_shadow(name, keeper)
        return keeper

    def set_shadow(self, name: str, keeper: Keeper | None) -> None:
        """Keeps ledgers for this shadow topic too, from now on; None = no more."""
        shadows = {**self.shadows}
        if keeper is None:
            shadows.pop(name, None)
        else:
            shadows[name] = keeper
        self.shadows = shadows or _NO_SHADOWS

    def trim(
        self,
        now_ms: int,
        *,
        without_cursors: bool = False,
        without_retention: bool = False,
        stored: Mapping[str, Keeper] = _NO_SHADOWS,
    ) -> list[int]:
        """Removes the ledgers that are due, and returns their ids.

        `without_retention` removes acknowledged ledgers that retention would keep, for a topic that is truncated.
        `stored`: what shadow topics that are not open here need, by name, as read just now; without it they keep all.

        `now_ms`: wall clock. The metadata store and the bookie follow in the background. A managed ledger
        without a durable cursor is trimmed only by the periodic check (`without_cursors`), as in Pulsar: a
        consumer that subscribes a little after the first publish finds the messages.
        """
        context = self._context
        ledgers = context.ledgers
        if without_cursors and context.store.has_marked and not context.store.lock.locked():
            # An earlier removal failed, or waits for this lock. Without this, the ledgers of a topic that is idle afterwards
            # would keep their space until it is opened again.
            context.background.spawn(self._delete_marked())
        # The current ledger stays, so there is nothing to look for below two.
        if len(ledgers) < 2:
            return []
        keepers = [stored.get(name, shadow) for name, shadow in self.shadows.items()]
        if not (without_cursors or self.marks() or any(keeper.marks() for keeper in keepers)):
            return []
        removed = self.superfluous(ledgers, now_ms, without_retention=without_retention)
        for keeper in keepers:
            # Both begin at the front of the list, so the shorter one is what neither keeps.
            removed = removed[: len(keeper.superfluous(ledgers, now_ms))]
        if self.copying in removed:
            removed = removed[: removed.index(self.copying)]
        if removed:
            copies = copies_of(info for info in ledgers.infos() if info.ledger_id in removed)
            for ledger_id in removed:
                ledgers.remove(ledger_id)
                # Its entries cannot be asked for any more, whatever the policy expects.
                context.cache.invalidate_ledger(ledger_id)
                self._storage_reads.invalidate_ledger(ledger_id)
            # The last confirmed entry may have been in a ledger that is gone, when the current one is still empty.
            context.last_confirmed = ledgers.last()
            context.note_change()
            self._remove_from_store(removed, copies)
        return removed

    def remove_if_empty(self, info: LedgerInfo) -> None:
        """Removes a closed ledger that never got an entry."""
        if not info.entries:
            self._context.ledgers.remove(info.ledger_id)
            self._remove_from_store([info.ledger_id])

    def _remove_from_store(self, ledger_ids: Iterable[int], copies: Iterable[OffloadedLedger] = ()) -> None:
        self._context.store.mark_deleting(ledger_ids, copies)
        self._context.background.spawn(self._delete_marked())

    async def _delete_marked(self) -> None:
        store = self._context.store
        async with store.lock:
            try:
                await store.delete_marked()
            except BrokerError:
                return  # The stored list still names them: the next periodic check or the next open tries again.


class ShadowTrimming(Trimming):
    """Of a shadow topic: says what it needs; the source's trimming removes ledgers."""

    __slots__ = ("_source",)

    def __init__(self, source: Trimming, cursors: Mapping[str, CursorView]) -> None:
        super().__init__(source._context, source._storage_reads, cursors)
        self._source = source

    def trim(
        self,
        now_ms: int,
        *,
        without_cursors: bool = False,
        without_retention: bool = False,
        stored: Mapping[str, Keeper] = _NO_SHADOWS,
    ) -> list[int]:
        """Lets the source remove what neither topic needs; `without_retention` cannot shorten the source's."""
        return self._source.trim(now_ms, without_cursors=without_cursors, stored=stored)


def ledgers_to_trim(
    ledgers: LedgerList, slowest: Position, now_ms: int, *, keep_ms: int, keep_bytes: int
) -> list[int]:
    """Returns the ledgers at the front that nothing keeps.

    `slowest`: the lowest mark-delete position; a ledger it has not reached the end of is kept. A ledger must
    have been closed for `keep_ms`, or the managed ledger must be larger than `keep_bytes` without the ledgers
    before it; a negative value keeps all of them.
    """
    removed: list[int] = []
    total = ledgers.size_bytes
    for info in ledgers.infos()[:-1]:
        # The default, 0 and 0, keeps nothing that is acknowledged.
        expired = 0 <= keep_ms <= now_ms - (info.closed_at_ms or now_ms)
        oversized = 0 <= keep_bytes < total
        if slowest < (info.ledger_id, info.entries - 1) or not (expired or oversized):
            # From the front only, as in Pulsar: an old ledger keeps all later ones.
            break
        total -= info.size_bytes
        removed.append(info.ledger_id)
    return removed
