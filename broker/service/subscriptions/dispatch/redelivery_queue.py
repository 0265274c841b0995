"""RedeliveryQueue: positions that wait to be delivered again, in order, each with its key hash.

A pure data structure: a sorted list of positions, the hash of each, and a count of waiting positions per hash.
`Redeliverer` puts positions in and reads their entries.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import Final

from foundation.model.position import PositionKey

_BULK = 64
"""Above this number of new positions one sort is cheaper than an insertion for each."""

_NO_ORDER: Final[list[PositionKey]] = []
_NO_HASHES: Final[dict[PositionKey, int]] = {}
_NONE_WAITING: Final[dict[int, int]] = {}
"""Of every queue that never had a position, as most of a broker have not. Nothing is ever put in."""


class RedeliveryQueue:
    """A sorted set of positions with a key hash each; hash 0 stands for "keys do not matter"."""

    __slots__ = ("_hashes", "_order", "_waiting")

    def __init__(self) -> None:
        self._order = _NO_ORDER
        self._hashes = _NO_HASHES
        # Positions per hash, so that `waits` is one look-up instead of a scan for each new entry.
        self._waiting = _NONE_WAITING

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, key: PositionKey) -> bool:
        return key in self._hashes

    def add(self, keys: Iterable[PositionKey], sticky_hash: int = 0) -> None:
        """Adds positions under one hash; a position that waits already keeps its place and hash."""
        if self._order is _NO_ORDER:
            self._order, self._hashes, self._waiting = [], {}, {}
        new = [key for key in dict.fromkeys(keys) if key not in self._hashes]
        for key in new:
            self._hashes[key] = sticky_hash
        if sticky_hash and new:
            self._waiting[sticky_hash] = self._waiting.get(sticky_hash, 0) + len(new)
        # Python's sort of a sorted list with a tail appended is close to a merge.
        if len(new) > _BULK:
            self._order += new
            self._order.sort()
        else:
            for key in new:
                insort(self._order, key)

    def waits(self, sticky_hash: int) -> bool:
        """Returns True while a position of this hash waits.

        Key_Shared then holds newer entries of the hash back, because they must not overtake the older one.
        """
        return sticky_hash in self._waiting

    def remove_first(
        self, count: int, allowed: Callable[[PositionKey, int], bool] | None = None
    ) -> dict[PositionKey, int]:
        """Removes the first `count` positions that `allowed(key, hash)` accepts; returns them with their hashes."""
        if allowed is None:
            removed = self._order[:count]
            del self._order[:count]
        else:
            removed = []
            for key in self._order:
                if len(removed) == count:
                    break
                if allowed(key, self._hashes[key]):
                    removed.append(key)
            if removed:
                # One pass over the list; a deletion per position would move its rest each time.
                gone = set(removed)
                self._order = [key for key in self._order if key not in gone]
        return {key: self._forget(key) for key in removed}

    def _forget(self, key: PositionKey) -> int:
        sticky_hash = self._hashes.pop(key)
        if sticky_hash:
            left = self._waiting[sticky_hash] - 1
            if left:
                self._waiting[sticky_hash] = left
            else:
                del self._waiting[sticky_hash]
        return sticky_hash

    def keys(self) -> list[PositionKey]:
        """Returns a copy of the waiting positions, in order."""
        return list(self._order)

    def discard(self, key: PositionKey) -> bool:
        """Removes an acknowledged position; returns False when it did not wait."""
        if key not in self._hashes:
            return False
        self._forget(key)
        del self._order[bisect_left(self._order, key)]
        return True

    def clear(self) -> None:
        """Removes all positions."""
        self._order.clear()
        self._hashes.clear()
        self._waiting.clear()
