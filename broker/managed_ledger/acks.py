"""Acks: the acknowledgements of one cursor: a mark-delete position, entries beyond it, parts of batches.

Everything up to the mark-delete position is acknowledged. Acknowledged entries further on are kept in a
RangeSet until the hole before them closes; then the mark-delete position moves over them. Positions come
from clients and may be anything: one that names no existing, unacknowledged entry changes nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.managed_ledger.ledger_list import LedgerList
from broker.managed_ledger.managed_ledger_info import NO_NUMBERS, CursorInfo
from foundation.model.entry import Entry
from foundation.model.position import Position
from foundation.model.range_set import EntryRange, RangeSet

WORD_BITS = 64
"""Clients send ack sets as 64-bit words."""
WORDS_MAX = 1 << 14
"""Words of an ack set that are read, for a batch of 2^20 messages. No batch of 5 MiB has more, because a message in a
batch takes 6 bytes at least."""
_WORD = 2**WORD_BITS - 1
_SIGN = 2 ** (WORD_BITS - 1)


_NO_BATCHES: Final[dict[tuple[int, int], int]] = {}
"""Of every cursor that never had a partly acknowledged batch. Nothing is ever put in."""
_NOT_COUNTED: Final = (Position(-1, -1), 0, 0)
NOTHING_PROMISED: Mapping[tuple[int, int], int] = MappingProxyType({})
"""The `promised` of a cursor without transactions."""


class Acks:
    """The acknowledgements of one cursor. Pure bookkeeping: nothing here reads, stores or waits."""

    __slots__ = (
        "_batches",
        "_counted",
        "_ledgers",
        "beyond",
        "entry_id",
        "ledger_id",
        "promised",
        "properties",
    )

    def __init__(
        self, ledgers: LedgerList, mark_delete: Position, properties: Mapping[str, int] = NO_NUMBERS
    ) -> None:
        self._ledgers = ledgers
        self.ledger_id, self.entry_id = mark_delete
        """The mark-delete position in two fields, because a tuple per acknowledgement would cost more."""
        self.beyond = RangeSet()
        """Acknowledged entries after the mark-delete position."""
        self.properties = properties
        """Stored with the mark-delete position. Replaced as a whole: nearly all cursors have none."""
        self._batches = _NO_BATCHES
        """Partly acknowledged batches: a bit per message, set = not acknowledged."""
        self._counted = _NOT_COUNTED
        """(mark-delete position, entries beyond it, their ranges) at the last count of the ranges."""
        self.promised: Mapping[tuple[int, int], int] = NOTHING_PROMISED
        """As `_batches`, for messages that open transactions acknowledge; they are not delivered meanwhile."""

    @classmethod
    def restore(cls, ledgers: LedgerList, info: CursorInfo) -> Acks:
        """Restores stored acknowledgements, without entries that no longer exist."""
        # A position past the last entry would acknowledge entries that are still to be added.
        mark_delete = min(info.mark_delete, ledgers.last())
        acks = cls(ledgers, mark_delete, info.properties)
        for ledger_id, first, bits in info.acked:
            entries = ledgers.last_entry(ledger_id) + 1 - first
            if ledger_id >= mark_delete.ledger_id and entries > 0:
                # The mask is a number of as many bits as entries follow; made for each page, it would cost their square.
                if bits.bit_length() > entries:
                    bits &= (1 << entries) - 1
                acks.beyond.add_bits(ledger_id, first, bits)
        acks.beyond.remove_through(*mark_delete)
        for position, bits in info.batches:
            if acks._is_open(*position):
                acks._keep_batch(position, bits)
        # Trimmed ledgers may have closed the hole before the first acknowledged entry.
        acks._advance()
        return acks

    def info(self, ranges_max: int, batches_max: int) -> CursorInfo:
        """Returns the info to store, within the limits.

        The lowest ranges and batches are kept. Acknowledgements above the limits are delivered again after a
        crash.
        """
        acked = list(self.beyond.lowest_pages(ranges_max))
        batches = sorted(self._batches)[:batches_max]
        return CursorInfo(
            self.mark_delete,
            self.properties,
            acked,
            [(Position(*key), self._batches[key]) for key in batches],
            left_out=self.beyond.count - sum([bits.bit_count() for _, _, bits in acked]),
            batches_left_out=len(self._batches) - len(batches),
        )

    def copy(self) -> Acks:
        """Returns the acknowledgements of now, for a thread that stores them while more arrive here."""
        twin = Acks(self._ledgers, self.mark_delete, self.properties)
        twin.beyond = self.beyond.copy()
        twin._batches = self._batches.copy()
        return twin

    @property
    def stored_parts(self) -> int:
        """Number of pages and batches that an info of everything has: a measure of the work to store it."""
        return self.beyond.pages + len(self._batches)

    def has_more_ranges(self, limit: int) -> bool:
        """Returns True when the acknowledged entries beyond the mark-delete position form more ranges than `limit`.

        Cheap enough for each run of a dispatcher: an acknowledgement adds or closes one range at most, so the ranges are
        counted again only when enough entries were acknowledged since the last count to change the answer.
        """
        # A range has an entry at least; nearly every subscription ends here.
        if self.beyond.count <= limit:
            return False
        position_then, acked_then, ranges_then = self._counted
        acked = self._ledgers.entries_between(position_then, self.mark_delete) + self.beyond.count
        since = acked - acked_then
        # Below 0 after a reset, and a trimmed ledger makes the difference too small: count in both cases.
        if since >= 0 and self._ledgers.get(position_then.ledger_id) is not None:
            if ranges_then + since <= limit:
                return False
            if ranges_then - since > limit:
                return True
        ranges = self.beyond.count_ranges()
        self._counted = self.mark_delete, self.beyond.count, ranges
        return ranges > limit

    @property
    def mark_delete(self) -> Position:
        """The last position up to which every entry is acknowledged."""
        return Position(self.ledger_id, self.entry_id)

    def acknowledge(self, positions: Iterable[tuple[int, int]]) -> int:
        """Acknowledges whole entries; returns how many were not acknowledged before."""
        newly = 0
        last = self._ledgers.last_entry(self.ledger_id)
        for ledger_id, entry_id in positions:
            # Consumers acknowledge in order most of the time: then there is nothing but a number to raise.
            if (
                entry_id == self.entry_id + 1
                and ledger_id == self.ledger_id
                and entry_id <= last
                and not self.beyond.count
                and not self._batches
            ):
                self.entry_id = entry_id
                newly += 1
            elif self._acknowledge_one(ledger_id, entry_id):
                newly += 1
                # The mark-delete position may have moved on into another ledger.
                last = self._ledgers.last_entry(self.ledger_id)
        return newly

    def _acknowledge_one(self, ledger_id: int, entry_id: int) -> bool:
        if not self._ledgers.has_entry(ledger_id, entry_id) or (
            ledger_id <= self.ledger_id and (ledger_id < self.ledger_id or entry_id <= self.entry_id)
        ):
            return False
        if not self.beyond.add(ledger_id, entry_id):
            return False
        if self._batches:
            self._batches.pop((ledger_id, entry_id), None)
        # Only the next entry of the same ledger, or the first of a later one, can close the gap.
        if entry_id == self.entry_id + 1 if ledger_id == self.ledger_id else entry_id == 0:
            self._advance()
        return True

    def acknowledge_run(self, run: EntryRange) -> int:
        """Acknowledges whole entries that follow one another; returns how many were not acknowledged before."""
        ledger_id, first, last = run
        last = min(last, self._ledgers.last_entry(ledger_id))
        if ledger_id == self.ledger_id:
            first = max(first, self.entry_id + 1)
        if first > last or ledger_id < self.ledger_id:
            return 0
        if self._batches:
            for key in zip(repeat(ledger_id), range(first, last + 1)):
                self._batches.pop(key, None)
        # As in `acknowledge` and `_acknowledge_one`, for all entries at once.
        closes_gap = first == (self.entry_id + 1 if ledger_id == self.ledger_id else 0)
        if closes_gap and ledger_id == self.ledger_id and not self.beyond.count:
            self.entry_id = last
            return last - first + 1
        newly = self.beyond.add_bits(ledger_id, first, (1 << last - first + 1) - 1)
        if newly and closes_gap:
            self._advance()
        return newly

    def acknowledge_batch(self, position: tuple[int, int], ack_set: Sequence[int], batch_size: int) -> bool:
        """Acknowledges the messages whose bit is clear.

        Returns True when none of the entry is left. `batch_size` 0 = not known: messages that the words do
        not mention are then acknowledged. An ack set of more than WORDS_MAX words has no effect.
        """
        if len(ack_set) > WORDS_MAX or not self._is_open(*position):
            return False
        bits = bits_of(ack_set)
        # Clients may send bits beyond the batch; they must not keep the entry open for ever. A size beyond the words masks
        # nothing, and shifting by it would make a number as large as the client likes. -1 has every bit set, so the words
        # alone decide then, as in Pulsar.
        everything = (1 << batch_size) - 1 if 0 < batch_size <= WORD_BITS * len(ack_set) else -1
        key = (position[0], position[1])
        left = self._batches.get(key, everything) & bits & everything
        if not left:
            return self.acknowledge((key,)) == 1
        if left != everything:
            self._keep_batch(key, left)
        return False

    def _keep_batch(self, key: tuple[int, int], left: int) -> None:
        if self._batches is _NO_BATCHES:
            self._batches = {}
        self._batches[key] = left

    def acknowledge_cumulative(self, position: tuple[int, int], ack_set: Sequence[int] | None) -> bool:
        """Acknowledges everything up to the position, as far as entries exist.

        Returns True if that changed anything. With an `ack_set`, of the entry itself only the messages whose
        bit is clear.
        """
        ledger_id, entry_id = position
        if entry_id >= _SIGN:  # -1 arrives as an unsigned number of 64 bits.
            entry_id = -1
        if ledger_id >= _SIGN:
            ledger_id = -1
        # With all bits clear the entry is acknowledged as a whole, which is the plain case.
        if ack_set is not None and bits_of(ack_set):
            moved = self._move_to(self._ledgers.previous((ledger_id, entry_id)))
            before = self._batches.get((ledger_id, entry_id))
            self.acknowledge_batch((ledger_id, entry_id), ack_set, 0)
            return moved or self._batches.get((ledger_id, entry_id)) != before
        return self._move_to(self._ledgers.at_or_before((ledger_id, entry_id)))

    def _move_to(self, mark_delete: Position) -> bool:
        if mark_delete <= self.mark_delete:
            return False
        self._set(mark_delete)
        self._advance()
        return True

    def reset(self, mark_delete: Position) -> None:
        """Sets the mark-delete position, forwards or backwards; nothing after it stays acknowledged."""
        self.ledger_id, self.entry_id = mark_delete
        self.beyond.clear()
        self._batches.clear()

    def is_acknowledged(self, position: tuple[int, int]) -> bool:
        """Returns True when every message of the entry is acknowledged."""
        return tuple(position) <= (self.ledger_id, self.entry_id) or position in self.beyond

    def left_of(self, position: tuple[int, int]) -> int:
        """Returns a set bit per unacknowledged message of the entry: 0 when none is left, -1 when none is acknowledged."""
        return 0 if self.is_acknowledged(position) else self._batches.get((position[0], position[1]), -1)

    def ack_set_of(self, position: tuple[int, int]) -> tuple[int, ...] | None:
        """Returns the words for MESSAGE.ack_set, None to deliver the whole entry. A set bit = a message to deliver."""
        key = (position[0], position[1])
        bits = self._batches.get(key)
        if self.promised and (left := self.promised.get(key)) is not None:
            bits = left if bits is None else bits & left
        return None if bits is None else words_of(bits)

    @property
    def partly_acknowledged(self) -> int:
        """Number of entries acknowledged in part."""
        return len(self._batches) + len(self.promised) if self._batches or self.promised else 0

    def first_open(self, position: Position) -> Position:
        """Returns the first unacknowledged entry at or after the position.

        Without one: the place where the next entry will stand.
        """
        position = self._ledgers.at_or_after(max(position, self._ledgers.next_valid(self.mark_delete)))
        while position in self.beyond:
            entry_id = self.beyond.first_missing(*position)
            position = self._ledgers.at_or_after((position.ledger_id, entry_id))
        return position

    def _is_open(self, ledger_id: int, entry_id: int) -> bool:
        return self._ledgers.has_entry(ledger_id, entry_id) and not self.is_acknowledged(
            (ledger_id, entry_id)
        )

    def _advance(self) -> None:
        """Moves the mark-delete position over the acknowledged entries after it."""
        following = self._ledgers.next_valid((self.ledger_id, self.entry_id))
        while following in self.beyond:
            ledger_id = following.ledger_id
            last = self.beyond.first_missing(*following) - 1
            self._set(Position(ledger_id, last))
            following = self._ledgers.next_valid((ledger_id, last))

    def _set(self, mark_delete: Position) -> None:
        before = self.ledger_id, self.entry_id
        self.ledger_id, self.entry_id = mark_delete
        same_ledger = before[0] == mark_delete.ledger_id
        # Both guards: with acknowledgements in order the two collections stay empty, and this runs per message.
        if self.beyond.count:
            if not same_ledger:
                for ledger_id in self.beyond.ledger_ids():
                    if ledger_id < mark_delete.ledger_id:
                        self.beyond.remove_ledger(ledger_id)
            self.beyond.remove_through(*mark_delete, empty_through=before[1] if same_ledger else -1)
        if self._batches:
            self._drop_batches(before, mark_delete)

    def _drop_batches(self, after: tuple[int, int], through: Position) -> None:
        """Forgets the batches in (after, through]: their entries are acknowledged as a whole."""
        batches = self._batches
        # The shorter way: there may be many thousand batches, and nearly always the position moves by a few entries.
        if after[0] == through.ledger_id and through.entry_id - after[1] < len(batches):
            for entry_id in range(after[1] + 1, through.entry_id + 1):
                batches.pop((through.ledger_id, entry_id), None)
        else:
            for key in [key for key in batches if key <= through]:
                del batches[key]


def split(entries: list[Entry], left_out: RangeSet) -> tuple[list[Entry], list[Entry]]:
    """Divides consecutive entries of one ledger into (to deliver, those in `left_out`)."""
    ledger_id, first, last = entries[0].ledger_id, entries[0].entry_id, entries[-1].entry_id
    if left_out.first_present(ledger_id, first, last) > last:
        return entries, []
    left = [entry for entry in entries if (entry.ledger_id, entry.entry_id) in left_out]
    return [entry for entry in entries if (entry.ledger_id, entry.entry_id) not in left_out], left


def bits_of(words: Sequence[int]) -> int:
    """Joins 64-bit words, signed or not, lowest first, into one number."""
    # Through bytes: shifting word by word takes a time that grows with the square of their number.
    return int.from_bytes(b"".join([(word & _WORD).to_bytes(8, "little") for word in words]), "little")


def words_of(bits: int) -> tuple[int, ...]:
    """Splits the number into signed words of 64 bits, lowest first, without empty words at the end."""
    count = -(-bits.bit_length() // WORD_BITS)
    return struct.unpack(f"<{count}q", bits.to_bytes(8 * count, "little"))


class StoredInfo(NamedTuple):
    """An encoded cursor info."""

    value: bytes
    """The stored bytes."""
    left_out: int
    """Acknowledged entries that did not fit."""
    batches_left_out: int
    """Batches acknowledged in part that did not fit."""


class InfoLimits(NamedTuple):
    """The limits of one stored cursor."""

    ranges: int
    """Acknowledged ranges after the mark-delete position."""
    batches: int
    """Batches acknowledged in part."""
    value_bytes: int
    """Bytes of the value."""


def encode_within(
    acks: Acks, texts: Mapping[str, str], limits: InfoLimits, encode: Callable[[CursorInfo], bytes]
) -> StoredInfo:
    """Encodes as many acknowledgements as the limits allow, the lowest positions first."""
    info = acks.info(limits.ranges, limits.batches)
    info.cursor_properties = texts
    value, bytes_max = encode(info), limits.value_bytes
    while len(value) > bytes_max and (info.acked or info.batches):
        # A tenth less than the share that would fit, because a part may be packed worse than the whole.
        share = bytes_max / len(value) * 0.9
        kept_batches = int(len(info.batches) * share)
        info.batches_left_out += len(info.batches) - kept_batches
        info.batches = info.batches[:kept_batches]
        kept = int(len(info.acked) * share)
        info.left_out += sum([bits.bit_count() for _, _, bits in info.acked[kept:]])
        info.acked = info.acked[:kept]
        value = encode(info)
    return StoredInfo(value, info.left_out, info.batches_left_out)
