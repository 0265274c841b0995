"""CompactedLedger: the result of a compaction, read by position.

Its entries keep the positions that they have in the log, in rising order. The log may have lost those positions since.
"""

from __future__ import annotations

from bookkeeper.ensembles.awaited_reads import read_entries
from bookkeeper.ensembles.ledgers import Ledgers
from broker.compaction.compacted_entry import decode
from foundation.model.entry import Entry
from foundation.model.position import EARLIEST, Position
from protocol.errors import ProtocolError

NO_MESSAGE = (EARLIEST, 0)
"""The last message of an empty compacted ledger, with the batch index that Pulsar 4.2.4 answers (recorded)."""


class CompactedLedger:
    """A closed ledger of compacted entries."""

    __slots__ = ("_last_message", "_ledgers", "entries", "horizon", "ledger_id", "size_bytes")

    def __init__(
        self, ledgers: Ledgers, ledger_id: int, *, horizon: Position, entries: int, size_bytes: int
    ) -> None:
        self.ledger_id = ledger_id
        """The ledger in BookKeeper."""
        self.horizon = horizon
        """The last position of the log that was compacted."""
        self.entries = entries
        """Number of entries."""
        self.size_bytes = size_bytes
        """Bytes of those."""
        self._ledgers = ledgers
        self._last_message: tuple[Position, int] | None = None if entries else NO_MESSAGE

    @property
    def average_entry_bytes(self) -> int:
        """Mean size of an entry, at least 1."""
        return max(1, self.size_bytes // self.entries) if self.entries else 1

    async def read(self, first: int, count: int, bytes_max: int) -> list[Entry]:
        """Returns up to `count` entries from number `first` on, at least one, with their own positions.

        NoSuchLedger once a later compaction has replaced this ledger; PersistenceError as any read.
        """
        last = min(first + count, self.entries) - 1
        stored = await read_entries(self._ledgers, self.ledger_id, first, last, bytes_max)
        return [decode(entry) for entry in stored]

    async def find(self, position: Position) -> int:
        """Returns the number of the first entry at or after the position; `entries` when there is none."""
        low, high = 0, self.entries
        # A reader that begins at the start is the common case, and one look answers it.
        middle = 0
        while low < high:
            (entry,) = await self.read(middle, 1, 1)
            if entry.position < position:
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        return low

    @property
    def known_last_message(self) -> tuple[Position, int] | None:
        """The last message without waiting, None before the first `last_message`."""
        return self._last_message

    async def last_message(self) -> tuple[Position, int]:
        """Returns the position of the last entry and the batch index of its last message, -1 outside of a batch."""
        if self._last_message is None:
            (entry,) = await self.read(self.entries - 1, 1, 1)
            self._last_message = entry.position, _last_index(entry)
        return self._last_message


def _last_index(entry: Entry) -> int:
    # Imported with the first compacted ledger: the libraries of all codecs come with it.
    from broker.compaction.entry_content import batch_messages, read_entry, unpacked

    try:
        metadata, payload = read_entry(entry.body)
        if not metadata.HasField("num_messages_in_batch"):
            return -1
        if metadata.compacted_batch_indexes:
            return metadata.compacted_batch_indexes[-1]
        if metadata.encryption_keys:
            return metadata.num_messages_in_batch - 1
        messages = batch_messages(metadata, unpacked(metadata, payload))
        return max(index for index, (single, _, _) in enumerate(messages) if not single.compacted_out)
    except (ProtocolError, ValueError):
        # An opaque entry, copied whole: a client can publish anything.
        return -1
