"""PendingAcks: acknowledgements of one subscription that wait for the end of their transactions.

A message that an open transaction acknowledges is not delivered again, and no other transaction may acknowledge it.
Commit turns these acknowledgements into real ones, abort gives the messages back. Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.managed_ledger.acks import WORD_BITS, WORDS_MAX, bits_of, words_of
from foundation.model.errors import TransactionConflict
from foundation.model.position import Position, PositionKey
from foundation.model.range_set import RangeSet
from foundation.model.txn_id import TxnId

PROPERTY = "magnetar.transactions.pending-acks"
"""Name under which the cursor's info keeps them."""

BATCH_MAX = WORD_BITS * WORDS_MAX
"""Messages of one batch that are told apart."""


class AckedEntry(NamedTuple):
    """One message id of an ACK."""

    key: PositionKey
    """The entry."""
    ack_set: Sequence[int] = ()
    """Words with a set bit for each message of the batch that stays unacknowledged (PIP-54); () = the whole entry."""
    batch_size: int = 0
    """Messages in the batch, 0 = not known."""

    @property
    def size(self) -> int:
        """Messages of the batch that are told apart."""
        # The size is a client's number: without the limit it could ask for a number of 2^31 bits.
        return min(self.batch_size, BATCH_MAX) if self.batch_size > 0 else WORD_BITS * len(self.ack_set)

    @property
    def left(self) -> int:
        """A set bit for each message that stays unacknowledged."""
        return bits_of(self.ack_set) & _all_of(self.size)

    @property
    def wanted(self) -> int:
        """A set bit for each message that it acknowledges; -1 for the whole entry."""
        return _all_of(self.size) & ~self.left if any(self.ack_set) else -1


@dataclass(slots=True)
class TransactionAcks:
    """The acknowledgements of one transaction."""

    whole: RangeSet = field(default_factory=RangeSet)
    """Entries acknowledged as a whole. Ranges, because each write of the cursor has all of them in order."""
    parts: dict[PositionKey, tuple[int, int]] = field(default_factory=dict)
    """Bits of the messages left, and size of the batch, for entries acknowledged in part."""
    through: AckedEntry | None = None
    """The position of a cumulative acknowledgement."""

    @property
    def whole_keys(self) -> list[PositionKey]:
        """Entries acknowledged as a whole, in order."""
        ranges = self.whole.ranges()
        return [(one.ledger_id, entry) for one in ranges for entry in range(one.first, one.last + 1)]

    @property
    def keys(self) -> list[PositionKey]:
        """Entries of the individual acknowledgements, in order."""
        return sorted([*self.whole_keys, *self.parts])


class PendingAcks:
    """The acknowledgements of all open transactions on one subscription."""

    __slots__ = ("_left_of", "_of", "_parts", "_through", "_whole", "left", "name")

    def __init__(self, name: str, left_of: Callable[[PositionKey], int]) -> None:
        """`name`: topic and subscription, for error texts. `left_of`: `Acks.left_of` of the cursor."""
        self._left_of = left_of
        self.name = name
        """Topic and subscription, as errors show them."""
        self.left: dict[PositionKey, int] = {}
        """By entry acknowledged in part: bits of messages that no transaction has acknowledged."""
        self._of: dict[TxnId, TransactionAcks] = {}
        # The same by entry, because every delivery and every acknowledgement asks for one.
        self._whole: dict[PositionKey, TxnId] = {}
        self._parts: dict[PositionKey, set[TxnId]] = {}
        self._through: tuple[TxnId, AckedEntry] | None = None

    def __len__(self) -> int:
        return len(self._whole) + len(self._parts) + (self._through is not None)

    def covers(self, key: PositionKey) -> bool:
        """Returns True when open transactions have acknowledged all messages of the entry that were left."""
        if key in self._whole:
            return True
        left = self.left.get(key)
        # With those of the cursor: an ack set without a bit would read as no ack set, and deliver the whole batch.
        if left is not None and not left & self._left_of(key):
            return True
        return self._through is not None and _reaches(self._through[1], key)

    def touches(self, key: PositionKey) -> bool:
        """Returns True when an open transaction has acknowledged any message of the entry."""
        return key in self._parts or self.covers(key)

    def acknowledge(self, txn: TxnId, entries: Iterable[AckedEntry]) -> None:
        """Adds individual acknowledgements, all or none. TransactionConflict when one of them is taken already.

        So it is when it repeats the transaction's own, as in Pulsar: a client that got a message twice, and handles it
        twice in one transaction, must not commit that.
        """
        wanted = list(entries)
        self.check(txn, wanted)
        for entry in wanted:
            if entry.key not in self._whole:
                acks = self._of.setdefault(txn, TransactionAcks())
                left, size = acks.parts.get(entry.key, (-1, entry.size))
                self._add(txn, entry.key, left & entry.left if entry.ack_set else 0, size)

    def check(self, txn: TxnId, entries: Iterable[AckedEntry]) -> None:
        """Raises TransactionConflict when `acknowledge` would."""
        held: dict[PositionKey, int] = {}
        for entry in entries:
            self._check(txn, entry)
            own = held.get(entry.key)
            if own is None:
                own = self._held_by(txn, entry.key)
            # Clients may send the messages of a batch that they acknowledged before with the next one.
            if entry.wanted and not entry.wanted & ~own:
                raise self._pending(txn, entry)
            held[entry.key] = own | entry.wanted

    def _held_by(self, txn: TxnId, key: PositionKey) -> int:
        """Returns a set bit for each message of the entry that the transaction has acknowledged; -1 for all."""
        if self._whole.get(key) == txn:
            return -1
        acks = self._of.get(txn)
        left, size = (-1, 0) if acks is None else acks.parts.get(key, (-1, 0))
        return _all_of(size) & ~left

    def _pending(self, txn: TxnId, entry: AckedEntry) -> TransactionConflict:
        where = f"{entry.key[0]}:{entry.key[1]}"
        return TransactionConflict(
            f"[{self.name}] Transaction:{txn} try to ack message:{where} in pending ack status."
        )

    def _add(self, txn: TxnId, key: PositionKey, left: int, size: int) -> None:
        acks = self._of.setdefault(txn, TransactionAcks())
        if left:
            acks.parts[key] = left, size
            self._parts.setdefault(key, set()).add(txn)
        else:
            self._drop_part(txn, key)
            acks.whole.add(*key)
            self._whole[key] = txn
        self._count_left(key)

    def _drop_part(self, txn: TxnId, key: PositionKey) -> None:
        self._of[txn].parts.pop(key, None)
        holders = self._parts.get(key)
        if holders is not None:
            holders.discard(txn)
            if not holders:
                del self._parts[key]

    def _check(self, txn: TxnId, entry: AckedEntry) -> None:
        # By message: an earlier transaction may have committed parts of a batch that another consumer still has whole.
        if entry.wanted & ~self._left_of(entry.key):
            where = f"{entry.key[0]}:{entry.key[1]}"
            raise TransactionConflict(
                f"[{self.name}] Transaction:{txn} try to ack message:{where} already acked before."
            )
        holder = self._whole.get(entry.key)
        taken = holder is not None and holder != txn
        if self._through is not None and self._through[0] != txn:
            taken = taken or _overlap(self._through[1], entry)
        if taken or self._is_held(txn, entry):
            raise self._pending(txn, entry)

    def _is_held(self, txn: TxnId, entry: AckedEntry) -> bool:
        """Returns True when another transaction has acknowledged messages of the entry that are wanted."""
        for other in self._parts.get(entry.key, ()):
            if other != txn:
                left, size = self._of[other].parts[entry.key]
                # The whole entry is wanted without an ack set, which a part of another transaction excludes.
                if _all_of(size) & ~left & entry.wanted:
                    return True
        return False

    def _is_held_through(self, txn: TxnId, through: AckedEntry) -> bool:
        """Returns True when another transaction has acknowledged a message that the cumulative one would take, too."""
        for other, acks in self._of.items():
            first = next(iter(acks.whole.ranges()), None)
            lowest = [] if first is None else [(first.ledger_id, first.first)]
            if other != txn and any(_reaches(through, key) for key in (*lowest, *acks.parts)):
                return True
        holder = self._whole.get(through.key)
        return (holder is not None and holder != txn) or self._is_held(txn, through)

    def acknowledge_cumulative(self, txn: TxnId, through: AckedEntry, mark_delete: Position) -> None:
        """Acknowledges everything through a position. TransactionConflict when it is acknowledged already.

        So it is when another transaction has a cumulative acknowledgement here, as in Pulsar, or an individual one of a
        message before the position: if that one is aborted, its message must be delivered again.
        """
        where = f"{through.key[0]}:{through.key[1]}"
        if through.key <= mark_delete or not through.wanted & self._left_of(through.key):
            raise TransactionConflict(
                f"[{self.name}] Transaction:{txn} try to cumulative ack position: {where} "
                f"within range of cursor's markDeletePosition: {mark_delete}"
            )
        if self._through is not None:
            other, before = self._through
            if other != txn or through.key < before.key:
                raise TransactionConflict(
                    f"[{self.name}] Transaction:{txn} try to cumulative ack position: {where} "
                    f"within range of cursor's currentPosition: {before.key[0]}:{before.key[1]}"
                )
            if through.key == before.key:
                # A lower message of the same batch must not take back what the transaction has acknowledged.
                words = () if before.wanted == -1 else words_of(before.left & through.left)
                through = AckedEntry(through.key, words, through.batch_size)
        if self._is_held_through(txn, through):
            raise TransactionConflict(
                f"[{self.name}] Transaction:{txn} try to cumulative ack position: {where} "
                "past a message in pending ack status."
            )
        self._of.setdefault(txn, TransactionAcks()).through = through
        self._through = txn, through

    def end(self, txn: TxnId) -> TransactionAcks | None:
        """Removes and returns the acknowledgements of a transaction that ends; None when it has none here."""
        acks = self._of.get(txn)
        if acks is None:
            return None
        ended = TransactionAcks(acks.whole, dict(acks.parts), acks.through)
        for key in acks.whole_keys:
            del self._whole[key]
        for key in ended.parts:
            self._drop_part(txn, key)
            self._count_left(key)
        if acks.through is not None:
            self._through = None
        del self._of[txn]
        return ended

    def _count_left(self, key: PositionKey) -> None:
        holders = self._parts.get(key)
        if not holders or key in self._whole:
            self.left.pop(key, None)
            return
        bits = -1
        for txn in holders:
            bits &= self._of[txn].parts[key][0]
        self.left[key] = bits

    def transactions(self) -> list[TxnId]:
        """Returns the transactions with acknowledgements here."""
        return list(self._of)

    def cumulative_of(self, txn: TxnId) -> PositionKey | None:
        """Returns the position of the transaction's cumulative acknowledgement, None without one."""
        acks = self._of.get(txn)
        return None if acks is None or acks.through is None else acks.through.key

    def state_of(self, key: PositionKey, batch_index: int | None) -> str:
        """Returns Pulsar's word for a message: PendingAck, NotInPendingAck or InvalidPosition.

        InvalidPosition: the entry is pending, and no batch with such a message was acknowledged. `batch_index` None asks
        for the entry.
        """
        holders = self._parts.get(key, ())
        if key not in self._whole and not holders:
            return "NotInPendingAck"
        if batch_index is None:
            return "PendingAck"
        sizes = [self._of[txn].parts[key][1] for txn in holders]
        if not 0 <= batch_index < max(sizes, default=0):
            return "InvalidPosition"
        return "NotInPendingAck" if self.left.get(key, 0) >> batch_index & 1 else "PendingAck"

    def to_text(self) -> str:
        """Returns the state as JSON, entries joined to ranges."""
        rows = [
            [
                *txn,
                list(acks.whole.ranges()),
                # As hexadecimal text: Python refuses to write a number of more than 4,300 decimal digits.
                [[*key, f"{left:x}", size] for key, (left, size) in sorted(acks.parts.items())],
                None if acks.through is None else [*acks.through.key, list(acks.through.ack_set)],
            ]
            for txn, acks in self._of.items()
        ]
        return json.dumps(rows, separators=(",", ":"))

    def restore(self, text: str) -> None:
        """Adds the state that `to_text` returned."""
        for most, least, ranges, parts, through in json.loads(text):
            txn = TxnId(most, least)
            self._of[txn] = TransactionAcks()
            for ledger, first, last in ranges:
                for entry in range(first, last + 1):
                    self._add(txn, (ledger, entry), 0, 0)
            for ledger, entry, left, size in parts:
                self._add(txn, (ledger, entry), int(left, 16), size)
            if through is not None:
                ledger, entry, words = through
                self._of[txn].through = AckedEntry((ledger, entry), tuple(words))
                self._through = txn, AckedEntry((ledger, entry), tuple(words))


def _all_of(size: int) -> int:
    """Returns a set bit for each message of a batch."""
    return (1 << size) - 1


def _overlap(through: AckedEntry, entry: AckedEntry) -> bool:
    """Returns True when the cumulative acknowledgement takes a message of the individual one."""
    return _reaches(through, entry.key) or (through.key == entry.key and bool(through.wanted & entry.wanted))


def _reaches(through: AckedEntry, key: PositionKey) -> bool:
    # Of a batch that is acknowledged in part, messages are left.
    return key < through.key or (key == through.key and not any(through.ack_set))
