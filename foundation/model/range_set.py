"""RangeSet: the positions beyond the mark-delete position that are acknowledged.

A bitmap: one integer per page of 256 entries, and a dictionary of pages per ledger. Adding one position and looking
one up happen per message, so both are a few integer operations. Ranges are made only when a cursor's info is written or
an operator looks. A page without a set bit does not exist, so memory is bounded by one bit per entry of the
window plus about 150 bytes per touched page.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import NamedTuple

PAGE_BITS = 8
PAGE_ENTRIES = 1 << PAGE_BITS
"""Large enough to share the dictionary's cost, small enough that integer operations stay cheap."""
_OFFSET = PAGE_ENTRIES - 1
_FULL = (1 << PAGE_ENTRIES) - 1
_BIT = tuple(1 << offset for offset in range(PAGE_ENTRIES))
_NO_PAGES: dict[int, int] = {}
_NO_LEDGERS: dict[int, dict[int, int]] = {}
"""Of every set that was never filled: each topic has several. Nothing is ever put in."""
SORTED_AT_ONCE = 20_000
"""Numbers that one sort holds the interpreter for, 2 ms. A sort of 400,000 in a thread stops the event loop for 100 ms."""


class EntryRange(NamedTuple):
    """Consecutive entries of one ledger, both ends included."""

    ledger_id: int
    """The ledger of all entries."""
    first: int
    """Lowest entry id."""
    last: int
    """Highest entry id."""


class RangeSet:
    """A set of (ledger id, entry id) for dense ids."""

    __slots__ = ("_ledgers", "count")

    def __init__(self) -> None:
        self._ledgers = _NO_LEDGERS
        self.count = 0
        """How many entries are in the set; the same as `len`, without a call."""

    def __len__(self) -> int:
        return self.count

    def __contains__(self, position: tuple[int, int]) -> bool:
        pages = self._ledgers.get(position[0])
        if pages is None:
            return False
        entry_id = position[1]
        return bool(pages.get(entry_id >> PAGE_BITS, 0) & _BIT[entry_id & _OFFSET])

    def add(self, ledger_id: int, entry_id: int) -> bool:
        """Adds one entry; returns True when it was not in the set."""
        pages = self._ledgers.get(ledger_id)
        if pages is None:
            pages = self._new_pages(ledger_id)
        number = entry_id >> PAGE_BITS
        page = pages.get(number, 0)
        # A table look-up instead of a shift: shifting makes a new large integer each time.
        bit = _BIT[entry_id & _OFFSET]
        if page & bit:
            return False
        pages[number] = page | bit
        self.count += 1
        return True

    def _new_pages(self, ledger_id: int) -> dict[int, int]:
        if self._ledgers is _NO_LEDGERS:
            self._ledgers = {}
        pages = self._ledgers[ledger_id] = {}
        return pages

    def add_bits(self, ledger_id: int, first: int, bits: int) -> int:
        """Adds entry `first` + n for every set bit n. Returns how many were not in the set."""
        before = self.count
        number = first >> PAGE_BITS
        bits <<= first & _OFFSET
        pages = self._ledgers.get(ledger_id, _NO_PAGES)
        if bits and not pages:
            pages = self._new_pages(ledger_id)
        # The number may span many pages: cut off one page at a time.
        while bits:
            page = pages.get(number, 0)
            mask = bits & _FULL
            if mask:
                self.count += (mask & ~page).bit_count()
                pages[number] = page | mask
            bits >>= PAGE_ENTRIES
            number += 1
        return self.count - before

    def discard(self, ledger_id: int, entry_id: int) -> bool:
        """Removes one entry; returns True when it was in the set."""
        pages = self._ledgers.get(ledger_id)
        if pages is None:
            return False
        number = entry_id >> PAGE_BITS
        page = pages.get(number, 0)
        bit = _BIT[entry_id & _OFFSET]
        if not page & bit:
            return False
        self.count -= 1
        if page != bit:
            pages[number] = page ^ bit
            return True
        # An empty page must not stay: memory is bounded by the pages with a set bit.
        del pages[number]
        if not pages:
            del self._ledgers[ledger_id]
        return True

    def first_missing(self, ledger_id: int, entry_id: int, other: RangeSet | None = None) -> int:
        """Returns the first entry at or after `entry_id` outside the set, and outside of `other`.

        Both are looked at a page at a time: sets that alternate entry by entry cost no more than full ones.
        """
        pages = self._ledgers.get(ledger_id, _NO_PAGES)
        others = _NO_PAGES if other is None else other._ledgers.get(ledger_id, _NO_PAGES)
        if not pages and not others:
            return entry_id
        number = entry_id >> PAGE_BITS
        # Entries before the one asked for count as present, so the lowest clear bit is the answer.
        page = pages.get(number, 0) | others.get(number, 0) | _BIT[entry_id & _OFFSET] - 1
        while page == _FULL:
            number += 1
            page = pages.get(number, 0) | others.get(number, 0)
        return (number << PAGE_BITS) + (~page & (page + 1)).bit_length() - 1

    def first_present(self, ledger_id: int, entry_id: int, last: int) -> int:
        """Returns the range's first entry in the set, or `last` + 1."""
        pages = self._ledgers.get(ledger_id)
        if pages is None:
            return last + 1
        page_first = entry_id >> PAGE_BITS
        for number in range(page_first, (last >> PAGE_BITS) + 1):
            page = pages.get(number, 0)
            if number == page_first:
                # A negative power of two is a mask of all bits from there on.
                page &= -_BIT[entry_id & _OFFSET]
            if page:
                return min((number << PAGE_BITS) + (page & -page).bit_length() - 1, last + 1)
        return last + 1

    def pop_first(self, count: int) -> list[tuple[int, int]]:
        """Removes the lowest `count` entries and returns them in order."""
        popped: list[tuple[int, int]] = []
        while len(popped) < count and self._ledgers:
            ledger_id = min(self._ledgers)
            pages = self._ledgers[ledger_id]
            number = min(pages)
            page = pages[number]
            base = number << PAGE_BITS
            while page and len(popped) < count:
                lowest = page & -page
                popped.append((ledger_id, base + lowest.bit_length() - 1))
                page ^= lowest
            if page:
                pages[number] = page
            else:
                del pages[number]
                if not pages:
                    del self._ledgers[ledger_id]
        self.count -= len(popped)
        return popped

    def count_after(self, ledger_id: int, entry_id: int, without: RangeSet) -> int:
        """Returns how many entries after the position are in the set and not in `without`."""
        total = 0
        for ledger, pages in self._ledgers.items():
            if ledger < ledger_id:
                continue
            others = without._ledgers.get(ledger, _NO_PAGES)
            first = entry_id + 1 if ledger == ledger_id else 0
            for number, page in pages.items():
                kept = page & ~others.get(number, 0)
                if number << PAGE_BITS < first:
                    kept &= -1 << min(first - (number << PAGE_BITS), PAGE_ENTRIES)
                total += kept.bit_count()
        return total

    @property
    def pages(self) -> int:
        """Number of pages of 256 entries with an entry in the set."""
        return sum(map(len, self._ledgers.values()))

    def remove_through(self, ledger_id: int, entry_id: int, empty_through: int = -1) -> int:
        """Removes the ledger's entries through `entry_id`; returns how many there were.

        `empty_through`: an entry up to which the set is known to have none, which makes the search shorter.
        """
        pages = self._ledgers.get(ledger_id)
        if pages is None:
            return 0
        before = self.count
        last_page = entry_id >> PAGE_BITS
        first_page = max(empty_through + 1, 0) >> PAGE_BITS
        # The shorter way of two. A window of a million holes has thousands of pages, and its front moves by a few entries at
        # a time: a look at every page would then cost more than the acknowledgement itself, a hundred times over.
        if last_page - first_page < len(pages):
            left = [number for number in range(first_page, last_page) if number in pages]
        else:
            left = [number for number in pages if number < last_page]
        for number in left:
            self.count -= pages.pop(number).bit_count()
        page = pages.get(last_page, 0)
        kept = page & ~_mask(0, entry_id & _OFFSET)
        self.count -= (page ^ kept).bit_count()
        if kept:
            pages[last_page] = kept
        else:
            pages.pop(last_page, None)
        if not pages:
            del self._ledgers[ledger_id]
        return before - self.count

    def remove_ledger(self, ledger_id: int) -> int:
        """Removes the whole ledger; returns how many entries there were."""
        count = sum(page.bit_count() for page in self._ledgers.pop(ledger_id, {}).values())
        self.count -= count
        return count

    def copy(self) -> RangeSet:
        """Returns a set of the same entries, which later changes of this one do not reach.

        A page is an immutable integer, so a million ranges are copied within milliseconds.
        """
        twin = RangeSet()
        twin._ledgers = {ledger_id: pages.copy() for ledger_id, pages in self._ledgers.items()}
        twin.count = self.count
        return twin

    def missing(self, ledger_id: int, first: int, last: int, count_max: int) -> list[int]:
        """Returns the lowest `count_max` entries of `first`..`last` that are outside the set."""
        pages = self._ledgers.get(ledger_id, _NO_PAGES)
        found: list[int] = []
        for number in range(first >> PAGE_BITS, (last >> PAGE_BITS) + 1):
            base = number << PAGE_BITS
            left = ~pages.get(number, 0) & _FULL
            if first > base:
                left &= -_BIT[first & _OFFSET]
            if last < base + _OFFSET:
                left &= _BIT[last & _OFFSET] * 2 - 1
            while left:
                lowest = left & -left
                found.append(base + lowest.bit_length() - 1)
                if len(found) == count_max:
                    return found
                left ^= lowest
        return found

    def clear(self) -> None:
        """Removes everything."""
        self._ledgers.clear()
        self.count = 0

    def last(self) -> tuple[int, int]:
        """Returns the highest entry, (-1, -1) of an empty set."""
        if not self._ledgers:
            return -1, -1
        ledger_id = max(self._ledgers)
        pages = self._ledgers[ledger_id]
        number = max(pages)
        return ledger_id, (number << PAGE_BITS) + pages[number].bit_length() - 1

    def ledger_ids(self) -> list[int]:
        """Returns the ledgers with entries in the set, ascending."""
        return sorted(self._ledgers)

    def ranges(self) -> Iterator[EntryRange]:
        """Yields maximal ranges in order."""
        for ledger_id in sorted(self._ledgers):
            pages = self._ledgers[ledger_id]
            start = end = -2
            for number in _in_order(pages):
                for first, last in page_ranges(pages[number], number << PAGE_BITS):
                    if first != end + 1:
                        if end >= 0:
                            yield EntryRange(ledger_id, start, end)
                        start = first
                    end = last
            if end >= 0:
                yield EntryRange(ledger_id, start, end)

    def count_ranges(self) -> int:
        """Returns the number of maximal ranges, a page at a time: far cheaper than the ranges themselves."""
        count = 0
        for pages in self._ledgers.values():
            for number, page in pages.items():
                # A range that began in the page before counts there already.
                before = pages.get(number - 1, 0) >> _OFFSET & 1
                count += (page & ~(page << 1 | before)).bit_count()
        return count

    def lowest_pages(self, ranges_max: int) -> Iterator[tuple[int, int, int]]:
        """Yields the lowest `ranges_max` ranges as (ledger, first entry, bits).

        In order, a page at a time, which is far cheaper than the ranges themselves. Bit n stands for entry
        `first` + n.
        """
        left = ranges_max
        for ledger_id in sorted(self._ledgers):
            pages = self._ledgers[ledger_id]
            before = 0
            for number in _in_order(pages):
                page = pages[number]
                # A range that began in the page before counts there already.
                joined = page & 1 and pages.get(number - 1, 0) >> _OFFSET & before >> _OFFSET
                left -= (page & ~(page << 1)).bit_count() - joined
                while left < 0:  # Drop ranges from the top until the limit is kept.
                    page &= (1 << _last_range_start(page)) - 1
                    left += 1
                if page:
                    yield ledger_id, number << PAGE_BITS, page
                if left == 0 and page != pages[number]:
                    return
                before = page


def _mask(first: int, last: int) -> int:
    """Bits `first`..`last`."""
    return (1 << last + 1) - (1 << first)


def _last_range_start(page: int) -> int:
    """Returns the lowest place of the highest run of set bits."""
    top = page.bit_length()
    # The highest clear bit below the top one stands in front of that run.
    gaps = ~page & (1 << top) - 1
    return gaps.bit_length()


def _in_order(numbers: Collection[int]) -> Iterable[int]:
    """Returns the numbers ascending, sorted a part at a time."""
    if len(numbers) <= SORTED_AT_ONCE:
        return sorted(numbers)
    rest = iter(numbers)
    parts = iter(lambda: sorted(islice(rest, SORTED_AT_ONCE)), [])
    return merge(*parts)


def page_ranges(page: int, base: int) -> Iterator[tuple[int, int]]:
    """Yields the first and last entry of each run of set bits; bit 0 is entry `base`."""
    offset = 0
    while page:
        # page & -page is the lowest set bit; ~page & (page + 1) the lowest clear one.
        gap = (page & -page).bit_length() - 1
        page >>= gap
        offset += gap
        run = (~page & (page + 1)).bit_length() - 1
        yield base + offset, base + offset + run - 1
        page >>= run
        offset += run
