"""SIEVE: a FIFO queue and a hand that walks from old to new and takes the first object nobody asked for.

Unlike Clock, an object that is spared keeps its place, so new objects are sieved while old ones stay. The hand
goes on from where it stopped and, past the newest, starts again at the oldest.
"""

from __future__ import annotations

from pipeline.simulators.cache import Cache


class _Node:
    __slots__ = ("key", "newer", "older", "size", "visited")

    def __init__(self, key: int, size: int) -> None:
        self.key = key
        self.size = size
        self.visited = False
        self.older: _Node | None = None
        self.newer: _Node | None = None


class Sieve(Cache):
    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._nodes: dict[int, _Node] = {}
        self._used = 0
        self._oldest: _Node | None = None
        self._newest: _Node | None = None
        self._hand: _Node | None = None

    @property
    def used(self) -> int:
        return self._used

    def access(self, key: int, size: int = 1) -> bool:
        node = self._nodes.get(key)
        if node is not None:
            node.visited = True
            return True
        if size <= self.capacity:
            while self._used + size > self.capacity:
                self._evict()
            self._push(_Node(key, size))
        return False

    def _evict(self) -> None:
        node = self._hand or self._oldest
        while node is not None and node.visited:
            node.visited = False
            node = node.newer or self._oldest
        assert node is not None, "only a cache with contents evicts"
        self._hand = node.newer
        self._remove(node)

    def _push(self, node: _Node) -> None:
        self._nodes[node.key] = node
        self._used += node.size
        node.older = self._newest
        if self._newest is None:
            self._oldest = node
        else:
            self._newest.newer = node
        self._newest = node

    def _remove(self, node: _Node) -> None:
        del self._nodes[node.key]
        self._used -= node.size
        if node.older is None:
            self._oldest = node.newer
        else:
            node.older.newer = node.newer
        if node.newer is None:
            self._newest = node.older
        else:
            node.newer.older = node.older
