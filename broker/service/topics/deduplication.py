"""Deduplication: knows which messages a topic has, by the highest sequence id of each producer (PIP-6).

Two ids per producer decide about a new message. At or below the id that is *stored*, it is a duplicate and is confirmed
without being stored again. Above it but at or below the id that was *pushed* to storage, the outcome is open: the
client gets an error and sends it again. Above both, it is new. Pure: no I/O, no clock.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class DuplicateVerdict(enum.Enum):
    """Result of judging one message."""

    NEW = enum.auto()
    """The message is to be stored."""
    DUPLICATE = enum.auto()
    """The message is stored already."""
    UNKNOWN = enum.auto()
    """The same message was pushed to storage, which has not confirmed it yet."""


class Deduplication:
    """Highest sequence ids, pushed and stored, by producer name."""

    __slots__ = ("_pushed", "_stored", "entries_since_saved", "producers_max")

    def __init__(self, stored: Mapping[str, int], *, producers_max: int) -> None:
        """`stored`: ids that were saved with the cursor."""
        self._stored = dict(stored)
        self._pushed = dict(stored)
        self.producers_max = producers_max
        """`brokerDeduplicationMaxNumberOfProducers`: above it `forget` drops the oldest."""
        self.entries_since_saved = 0
        """Entries stored since `sequence_ids_to_save` was called."""

    def last_sequence_id(self, producer_name: str) -> int:
        """Returns the highest stored id, -1 for an unknown producer."""
        return self._stored.get(producer_name, -1)

    def judge(
        self, producer_name: str, sequence_id: int, highest_sequence_id: int, *, last_chunk: bool = True
    ) -> DuplicateVerdict:
        """Judges a message, and notes a new one as pushed.

        `highest_sequence_id` is that of the last message of a batch, or of a run whose first SEND this is. All chunks of
        a message carry one sequence id, so it counts as pushed with the last chunk; noted earlier, the second chunk would
        look like a duplicate.
        """
        pushed = self._pushed.get(producer_name)
        if pushed is not None and sequence_id <= pushed:
            if sequence_id <= self._stored.get(producer_name, -1):
                return DuplicateVerdict.DUPLICATE
            return DuplicateVerdict.UNKNOWN
        if last_chunk:
            self._pushed[producer_name] = max(sequence_id, highest_sequence_id)
        return DuplicateVerdict.NEW

    def stored(
        self, producer_name: str, sequence_id: int, highest_sequence_id: int, entries: int = 1
    ) -> None:
        """Notes that so many entries of the producer are confirmed, with ids up to the higher of both."""
        self.entries_since_saved += entries
        highest = max(sequence_id, highest_sequence_id)
        if highest > self._stored.get(producer_name, -1):
            self._stored[producer_name] = highest
            # Entries that were read at the opening of the topic were never judged.
            self._pushed[producer_name] = max(highest, self._pushed.get(producer_name, -1))

    def failed(self) -> None:
        """Forgets all pushed ids after failed adds; clients send again."""
        self._pushed = dict(self._stored)

    def forget(self, producer_names_in_use: set[str]) -> None:
        """Drops the producers known longest above `producers_max`; connected ones always stay."""
        excess = len(self._stored) - self.producers_max
        for name in [n for n in self._stored if n not in producer_names_in_use][: max(0, excess)]:
            del self._stored[name]
            self._pushed.pop(name, None)

    def sequence_ids_to_save(self) -> dict[str, int]:
        """Returns the stored ids and restarts the count of entries."""
        self.entries_since_saved = 0
        return dict(self._stored)
