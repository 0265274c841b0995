"""Replay: the positions that must be delivered again, in order, and under which key hash they wait."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

Key = tuple[int, int]
"""(ledger id, entry id)"""

_BULK = 64
"""More new positions than this are sorted in rather than inserted one by one."""


class Replay:
    __slots__ = ("_hashes", "_order", "_waiting")

    def __init__(self) -> None:
        self._order: list[Key] = []
        self._hashes: dict[Key, int] = {}
        self._waiting: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, key: Key) -> bool:
        return key in self._hashes

    def add(self, keys: Iterable[Key], sticky_hash: int = 0) -> None:
        """Positions that wait already are not added twice."""
        new = [key for key in dict.fromkeys(keys) if key not in self._hashes]
        for key in new:
            self._hashes[key] = sticky_hash
        if sticky_hash and new:
            self._waiting[sticky_hash] = self._waiting.get(sticky_hash, 0) + len(new)
        if len(new) > _BULK:
            self._order += new
            self._order.sort()
        else:
            for key in new:
                insort(self._order, key)

    def waits(self, sticky_hash: int) -> bool:
        """Key_Shared: an older message of this hash is still to come, so a newer one must not pass it."""
        return sticky_hash in self._waiting

    def take(self, count: int, allowed: Callable[[Key, int], bool] | None = None) -> dict[Key, int]:
        """Take out the first `count` positions with their hashes, of those that are `allowed` (key, hash)."""
        if allowed is None:
            taken = self._order[:count]
            del self._order[:count]
        else:
            taken = []
            for key in self._order:
                if len(taken) == count:
                    break
                if allowed(key, self._hashes[key]):
                    taken.append(key)
            if taken:
                gone = set(taken)
                self._order = [key for key in self._order if key not in gone]
        return {key: self._forget(key) for key in taken}

    def _forget(self, key: Key) -> int:
        sticky_hash = self._hashes.pop(key)
        if sticky_hash:
            left = self._waiting[sticky_hash] - 1
            if left:
                self._waiting[sticky_hash] = left
            else:
                del self._waiting[sticky_hash]
        return sticky_hash

    def keys(self) -> list[Key]:
        return list(self._order)

    def discard(self, key: Key) -> bool:
        """The position was acknowledged; whether it waited."""
        if key not in self._hashes:
            return False
        self._forget(key)
        del self._order[bisect_left(self._order, key)]
        return True

    def clear(self) -> None:
        self._order.clear()
        self._hashes.clear()
        self._waiting.clear()
