"""Passes: both passes of a compaction over one topic, as calls without I/O.

add, add, … end_round      until `end_round` returns a result instead of None
rewrite, rewrite, …        the batches of which some messages are kept
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.compaction.latest_messages import LatestMessages
from broker.compaction.rewriting import rewrite
from foundation.value import Value


class PassesSettings(Value):
    """The rules of a compaction."""

    retain_null_key: bool
    """True to keep messages without a key (`topicCompactionRetainNullKey`)."""
    memory_bytes: int
    """Memory for keys; more keys take more rounds over the entries."""


class PassOneResult(Value):
    """The outcome of pass one."""

    fates: bytes
    """DROP, KEEP or REWRITE for each entry."""
    messages: int
    """Messages in all entries."""
    kept: int
    """Messages that are kept."""


class Passes:
    """The passes of one compaction; a worker runs one after the other."""

    def __init__(self, settings: PassesSettings) -> None:
        self._latest = LatestMessages(
            retain_null_key=settings.retain_null_key, memory_bytes=settings.memory_bytes
        )

    def add(self, bodies: Sequence[bytes | memoryview]) -> None:
        """Takes the next entries for pass one."""
        for body in bodies:
            self._latest.add(body)

    def end_round(self) -> PassOneResult | None:
        """Ends a round; None when all entries must be added once more."""
        latest = self._latest
        if latest.end_round():
            return None
        return PassOneResult(latest.fates(), latest.messages, latest.kept_messages)

    def rewrite(self, entries: Sequence[tuple[int, bytes | memoryview]]) -> list[bytes]:
        """Returns each batch without its removed messages; `entries` are (number in pass one, body)."""
        return [rewrite(body, self._latest.kept_of(number)) for number, body in entries]
