"""IdSet: a compressed set of ids.

It needs about a bit for each neighbour and a few hundred bytes for each scattered id.

The layout is that of a Roaring bitmap: ids are grouped in chunks of 65,536; a chunk with few ids is a sorted array of
uint16, a chunk with many is a bitmap, here one big int. A chunk never takes more than 8 KiB. Pure: no I/O, no clock.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator

_CHUNK_IDS = 1 << 16
_FEW = 500
"""A chunk of up to so many ids is an array, of 1 KiB at most."""
_ALL = (1 << _CHUNK_IDS) - 1

IdRange = tuple[int, int]
"""The first and the last id of a range."""


class IdSet:
    """A set of ids, 0 and above. One thread changes it; others may look at the same time."""

    def __init__(self) -> None:
        self._arrays: dict[int, array[int]] = {}
        """Chunks with few ids: the ids without the chunk's first id, sorted."""
        self._bitmaps: dict[int, int] = {}
        """The other chunks."""
        self._count = 0

    def __contains__(self, number: int) -> bool:
        chunk, low = divmod(number, _CHUNK_IDS)
        lows = self._arrays.get(chunk)
        if lows is None:
            return bool(self._bitmaps.get(chunk, 0) >> low & 1)
        at = bisect_left(lows, low)
        return at < len(lows) and lows[at] == low

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Yields the ids, ascending."""
        for chunk in sorted((*self._arrays, *self._bitmaps)):
            lows = self._arrays.get(chunk)
            for low in _lows_in(self._bitmaps[chunk]) if lows is None else lows:
                yield chunk * _CHUNK_IDS + low

    @property
    def highest(self) -> int:
        """The highest id, -1 in an empty set."""
        chunk = max((*self._arrays, *self._bitmaps), default=None)
        if chunk is None:
            return -1
        lows = self._arrays.get(chunk)
        return chunk * _CHUNK_IDS + (self._bitmaps[chunk].bit_length() - 1 if lows is None else lows[-1])

    def add_range(self, first: int, last: int) -> None:
        """Adds the ids from `first` to `last`, both included."""
        while first <= last:
            chunk, low = divmod(first, _CHUNK_IDS)
            count = min(last, chunk * _CHUNK_IDS + _CHUNK_IDS - 1) - first + 1
            # A long range becomes a bitmap at once; id by id it would be inserted into an array that is dropped soon after.
            if chunk in self._bitmaps or count > _FEW:
                bits = self._bitmaps.get(chunk)
                if bits is None:
                    bits = _bits_of(self._arrays.get(chunk, ()))
                self._bitmaps[chunk] = bits | _ALL >> (_CHUNK_IDS - count) << low
                # After the bitmap, so that a thread which looks meanwhile finds the old ids in one of the two.
                self._arrays.pop(chunk, None)
                self._count += self._bitmaps[chunk].bit_count() - bits.bit_count()
            else:
                for each in range(low, low + count):
                    self._add(chunk, each)
            first += count

    def add_chunk(self, chunk: int, bits: int) -> None:
        """Adds a whole chunk that is not here yet. Bit n of `bits` stands for the id `chunk` x 65,536 + n."""
        if bits.bit_count() > _FEW:
            self._bitmaps[chunk] = bits
        else:
            self._arrays[chunk] = _lows_in(bits)
        self._count += bits.bit_count()

    def _add(self, chunk: int, low: int) -> None:
        if chunk in self._bitmaps:  # the id before this one may have made it a bitmap
            bits = self._bitmaps[chunk]
            self._count += 1 - (bits >> low & 1)
            self._bitmaps[chunk] = bits | 1 << low
            return
        lows = self._arrays.get(chunk, array("H"))
        at = bisect_left(lows, low)
        if at == len(lows) or lows[at] != low:
            # A new array instead of an insert: another thread may be between its bisection and its look at `lows[at]`,
            # and would miss an id that moved up by one. It would take a deleted ledger for a new one.
            lows = self._arrays[chunk] = lows[:at] + array("H", (low,)) + lows[at:]
            self._count += 1
        # Never back: ids are only added.
        if len(lows) > _FEW:
            # The bitmap is there before the array goes, for the same thread.
            self._bitmaps[chunk] = _bits_of(lows)
            del self._arrays[chunk]


def ranges_of(ascending: Iterable[int]) -> Iterator[IdRange]:
    """Yields the ranges that ascending ids form."""
    first = last = None
    for each in ascending:
        if first is None or last is None:
            first = last = each
        elif each > last + 1:
            yield first, last
            first = last = each
        else:
            last = each
    if first is not None and last is not None:
        yield first, last


def _bits_of(lows: Iterable[int]) -> int:
    bits = bytearray(_CHUNK_IDS // 8)
    for low in lows:
        bits[low >> 3] |= 1 << (low & 7)
    return int.from_bytes(bits, "little")


def _lows_in(bits: int) -> array[int]:
    """Returns the places of the bits that are set. Zero bytes are skipped, so it takes as long as there are ids."""
    lows = array("H")
    for index, byte in enumerate(bits.to_bytes(_CHUNK_IDS // 8, "little")):
        if byte:
            lows.extend(index * 8 + bit for bit in range(8) if byte >> bit & 1)
    return lows
