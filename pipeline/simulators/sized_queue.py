"""A queue of keys with sizes, and the sum of them: what most policies are made of."""

from __future__ import annotations

from collections import OrderedDict


class SizedQueue:
    """Oldest first. `used` is the sum of the sizes; a key stands in it once."""

    __slots__ = ("_sizes", "used")

    def __init__(self) -> None:
        self._sizes: OrderedDict[int, int] = OrderedDict()
        self.used = 0

    def __contains__(self, key: int) -> bool:
        return key in self._sizes

    def __len__(self) -> int:
        return len(self._sizes)

    def push(self, key: int, size: int) -> None:
        """Append as the newest; the key must not be in the queue."""
        self._sizes[key] = size
        self.used += size

    def renew(self, key: int) -> None:
        """Make a key of the queue its newest."""
        self._sizes.move_to_end(key)

    def oldest(self) -> int:
        return next(iter(self._sizes))

    def newest(self) -> int:
        return next(reversed(self._sizes))

    def pop_oldest(self) -> tuple[int, int]:
        """Key and size."""
        key, size = self._sizes.popitem(last=False)
        self.used -= size
        return key, size

    def remove(self, key: int) -> int:
        """The size of the removed key, 0 if it was not in the queue."""
        size = self._sizes.pop(key, 0)
        self.used -= size
        return size
