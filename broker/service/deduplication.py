"""Which messages a topic has already: the highest sequence id of each producer, on its way and stored (PIP-6).

A message whose sequence id is not above the stored one is answered as stored and dropped. One that is above the
stored but not above the one on its way cannot be decided yet, and the client is told to try again.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class Verdict(enum.Enum):
    NEW = enum.auto()
    DUPLICATE = enum.auto()
    UNKNOWN = enum.auto()


class Deduplication:
    __slots__ = ("_pushed", "_stored", "entries_since_snapshot", "producers_max")

    def __init__(self, stored: Mapping[str, int], *, producers_max: int) -> None:
        self._stored = dict(stored)
        self._pushed = dict(stored)
        self.producers_max = producers_max
        self.entries_since_snapshot = 0

    def last_sequence_id(self, producer_name: str) -> int:
        """The highest one stored, -1 for an unknown producer."""
        return self._stored.get(producer_name, -1)

    def judge(
        self, producer_name: str, sequence_id: int, highest_sequence_id: int, *, last_chunk: bool = True
    ) -> Verdict:
        """All chunks of a message carry its sequence id: it is on its way with the last one."""
        pushed = self._pushed.get(producer_name)
        if pushed is not None and sequence_id <= pushed:
            if sequence_id <= self._stored.get(producer_name, -1):
                return Verdict.DUPLICATE
            return Verdict.UNKNOWN
        if last_chunk:
            self._pushed[producer_name] = max(sequence_id, highest_sequence_id)
        return Verdict.NEW

    def stored(self, producer_name: str, sequence_id: int, highest_sequence_id: int) -> None:
        self.entries_since_snapshot += 1
        highest = max(sequence_id, highest_sequence_id)
        if highest > self._stored.get(producer_name, -1):
            self._stored[producer_name] = highest
            self._pushed[producer_name] = max(highest, self._pushed.get(producer_name, -1))

    def failed(self) -> None:
        """Adds failed: what was on its way is not, so the clients may send it again."""
        self._pushed = dict(self._stored)

    def forget(self, producer_names_in_use: set[str]) -> None:
        """Keep the number of remembered producers within bounds; those that are connected always stay."""
        excess = len(self._stored) - self.producers_max
        for name in [n for n in self._stored if n not in producer_names_in_use][: max(0, excess)]:
            del self._stored[name]
            self._pushed.pop(name, None)

    def snapshot(self) -> dict[str, int]:
        self.entries_since_snapshot = 0
        return dict(self._stored)
