"""LatestMessages: pass one of a compaction, which finds the messages that are kept.

A message is kept when no later message has its key. A message without payload deletes its key, so neither it nor any
earlier message of the key is kept. A chunked message is kept with all its chunks.

Memory: the keys, up to a limit; one byte per message; 8 bytes per entry. When the keys exceed the limit, the pass goes on
with half of the key space, chosen by a hash, and the other half gets a round of its own over the same entries.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import chain, islice
from typing import Final

from broker.compaction.entry_content import Chunk, MessageKey, read_content

DROP: Final = 0
"""No message of the entry is kept."""
KEEP: Final = 1
"""The entry is kept as it is."""
REWRITE: Final = 2
"""Some messages of the batch are kept."""

KEY_OVERHEAD_BYTES: Final = 170
"""Memory of one key beside its characters: the text, its number, and their place in a dictionary."""

KEYS_MIN: Final = 1000
"""Keys that a round may always have. Fewer would take more rounds than any topic is worth."""


class LatestMessages:
    """Takes the entries of a topic in order, in one round or several."""

    def __init__(self, *, retain_null_key: bool, memory_bytes: int) -> None:
        """`retain_null_key` keeps messages without a key; `memory_bytes` limits the memory of the keys."""
        self.messages = 0
        """Messages of all entries, without those that an earlier compaction has removed."""
        self.keys = 0
        """Keys whose latest message is kept."""
        self._retain_null_key = retain_null_key
        self._memory_bytes = memory_bytes
        self._starts = array("Q")
        """By entry: the number of its first message."""
        self._kept = bytearray()
        """By message: 1 = kept."""
        # The share of the key space that this round counts: keys whose hash has the low bits `_part` under `_mask`.
        self._mask = self._part = 0
        self._later_rounds: list[tuple[int, int]] = []
        """(mask, part) of the rounds to come."""
        self._first_round = True
        self._begin_round()

    def _begin_round(self) -> None:
        self._entry = 0
        self._latest: dict[MessageKey, int] = {}
        """By key: the number of its latest message."""
        self._key_chars = self._key_count = 0
        self._chunks: dict[str | bytes, tuple[MessageKey, list[int]]] = {}
        """By UUID: key and chunks so far of a message that is not complete."""
        self._earlier_chunks: dict[int, list[int]] = {}
        """By last chunk: the chunks before it."""

    def add(self, body: bytes | memoryview) -> None:
        """Takes the next entry."""
        content = read_content(body)
        if self._first_round:
            self._starts.append(self.messages)
            count = 1 if content is None else len(content.messages)
            self.messages += count
            # An opaque entry counts as one message, which is kept.
            self._kept.extend(b"\x01" if content is None else bytes(count))
        first = self._starts[self._entry]
        self._entry += 1
        if content is None:
            return
        if content.chunk is not None:
            self._add_chunk(content.messages[0][0], content.chunk, first)
            return
        self._add_messages(content.messages, first)
        count = len(self._latest)
        if count > KEYS_MIN and count * self._bytes_per_key() > self._memory_bytes:
            self._halve()

    def _add_messages(self, messages: Iterable[tuple[MessageKey, int]], first: int) -> None:
        latest, mask, part = self._latest, self._mask, self._part
        for number, (key, size) in enumerate(messages, first):
            if key is None:
                if self._retain_null_key:
                    self._kept[number] = 1
            elif mask and hash(key) & mask != part:
                continue
            elif size:
                latest[key] = number
                self._key_chars += len(key)
                self._key_count += 1
            else:
                latest.pop(key, None)

    def _add_chunk(self, key: MessageKey, chunk: Chunk, number: int) -> None:
        if key is None:
            self._kept[number] = self._retain_null_key
            return
        if self._mask and hash(key) & self._mask != self._part:
            return
        if not chunk.is_last:
            self._chunks.setdefault(chunk.uuid, (key, []))[1].append(number)
            return
        self._latest[key] = number
        _, earlier = self._chunks.pop(chunk.uuid, (key, []))
        if earlier:
            self._earlier_chunks[number] = earlier

    def _bytes_per_key(self) -> int:
        return KEY_OVERHEAD_BYTES + self._key_chars // max(1, self._key_count)

    def _halve(self) -> None:
        """Leaves half of this round's keys to a later round."""
        bit = self._mask + 1
        self._mask |= bit
        self._later_rounds.append((self._mask, self._part | bit))
        mask, part = self._mask, self._part
        self._latest = {key: at for key, at in self._latest.items() if hash(key) & mask == part}
        self._chunks = {uuid: found for uuid, found in self._chunks.items() if hash(found[0]) & mask == part}

    def end_round(self) -> bool:
        """Ends a round; True when all entries must be added once more, for keys that had no room."""
        kept = self._kept
        for number in self._latest.values():
            kept[number] = 1
            for chunk in self._earlier_chunks.get(number, ()):
                kept[chunk] = 1
        for key, chunks in self._chunks.values():
            # The rest of this message may still be on its way. An older message than the latest one is superseded.
            if self._latest.get(key, -1) < chunks[0]:
                for chunk in chunks:
                    kept[chunk] = 1
        self.keys += len(self._latest)
        self._first_round = False
        again = bool(self._later_rounds)
        if again:
            self._mask, self._part = self._later_rounds.pop()
        self._begin_round()
        return again

    @property
    def kept_messages(self) -> int:
        """Messages that are kept; complete after the last round."""
        return self._kept.count(1)

    def fates(self) -> bytes:
        """Returns DROP, KEEP or REWRITE for each entry; to be called after the last round."""
        ends = chain(islice(self._starts, 1, None), (self.messages,))
        count = self._kept.count
        fates = bytearray()
        for start, end in zip(self._starts, ends, strict=False):
            kept = count(1, start, end)
            fates.append(DROP if not kept else KEEP if kept == end - start else REWRITE)
        return bytes(fates)

    def kept_of(self, entry: int) -> bytes:
        """Returns for each message of the entry 1 = kept, 0 = removed, without those removed earlier."""
        end = self._starts[entry + 1] if entry + 1 < len(self._starts) else self.messages
        return bytes(self._kept[self._starts[entry] : end])
