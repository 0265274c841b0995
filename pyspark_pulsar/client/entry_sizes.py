"""Reads the next entries of topics on the driver, and keeps only their positions and sizes.

No request of the protocol returns the number of messages or bytes between two positions. The index of PIP-70 would give
the messages, but brokers show it to clients only with exposingBrokerEntryMetadataToClientEnabled, which is off by
default, and it says nothing about bytes. So the entries themselves are received and their metadata is read.

Cost: the payload bytes of the entries cross the network once more, up to the amount that is asked for and what the
broker has sent by then (at most the permits). No payload is decompressed or kept.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from protocol import requests
from pyspark_pulsar.client.cluster import PEEK_QUIET_S, Cluster, ReaderStart, ask_last, open_readers
from pyspark_pulsar.client.connection import BrokerConnection
from pyspark_pulsar.cutting.entry_table import EntryTable, cut_entries
from pyspark_pulsar.cutting.protobuf_columns import Ints
from pyspark_pulsar.position import MessagePosition

PERMITS_MAX: Final = 1 << 20
"""Most messages that one FLOW of `read_sizes` grants."""


class EntrySizes(NamedTuple):
    """Consecutive entries of one topic, one array element per entry."""

    ledgers: Ints
    """Ledger ids."""
    entries: Ints
    """Entry ids."""
    rows: Ints
    """Messages in each entry, at least 1; a chunk and a broker's own marker count as one."""
    bytes: Ints
    """Length of each payload as stored, compressed or not."""

    def __len__(self) -> int:
        return len(self.ledgers)

    def from_row(self, row: int) -> EntrySizes:
        """Returns the entries from index `row` on."""
        return EntrySizes(*(column[row:] for column in self))

    def last(self) -> MessagePosition:
        """Returns the position after all entries; there must be at least one."""
        return MessagePosition(int(self.ledgers[-1]), int(self.entries[-1]))

    def count_up_to(self, position: tuple[int, int]) -> int:
        """Returns how many of the entries are at or before (ledger, entry)."""
        ledger, entry = position
        return int(
            ((self.ledgers < ledger) | ((self.ledgers == ledger) & (self.entries <= entry))).sum(
                dtype=np.int64
            )
        )


NO_ENTRIES: Final = EntrySizes(*(np.zeros(0, np.int64) for _ in range(4)))
"""No entries; shared, because the arrays of `EntrySizes` are never changed."""


def joined(parts: Sequence[EntrySizes]) -> EntrySizes:
    """Returns the entries of all parts in their order."""
    if not parts:
        return NO_ENTRIES
    return EntrySizes(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class SizesWanted(NamedTuple):
    """One topic, and how much of it to read; reading stops at the first limit that is reached."""

    start: ReaderStart
    """The topic, and the first entry to read."""
    last: MessagePosition
    """The newest entry of the topic; reading ends there."""
    permits: int
    """Messages to ask the broker for, from 1 to `PERMITS_MAX`."""
    entries: float
    """Entries that are enough."""
    rows: float
    """Messages that are enough."""
    bytes: float
    """Payload bytes that are enough."""


class SizesFound(NamedTuple):
    """The answer for one topic."""

    sizes: EntrySizes
    """The entries that came; more than asked for where the broker had sent them already."""
    is_gone: bool
    """True if nothing came because the topic has no entry from the start to `last` any more."""


def read_sizes(cluster: Cluster, wanted: Sequence[SizesWanted], subscription: str) -> list[SizesFound]:
    """Returns the next entries of each topic; none where the broker sends nothing for a second.

    Reads with non-durable subscriptions whose names begin with `subscription`; they vanish with the connection.
    BrokerLost, BrokerRefused, MalformedEntry.
    """
    return cluster.ask_owners(
        [one.start.topic for one in wanted],
        lambda connection, rows: _read(connection, [wanted[row] for row in rows], subscription),
    )


class _Reading:
    """The entries of one topic that have come so far."""

    def __init__(self, wanted: SizesWanted) -> None:
        self._wanted = wanted
        self.parts: list[EntrySizes] = []
        self.is_past = False
        """True if an entry after the newest one that was wanted came."""
        self._entries = self._rows = self._bytes = 0

    def add(self, sizes: EntrySizes) -> bool:
        """Appends entries; returns True if they are enough."""
        wanted = self._wanted
        kept = sizes
        if sizes.last() > wanted.last:
            # Entries published since the end was read: they belong to a later batch, whose end is later too.
            self.is_past = True
            kept = EntrySizes(*(column[: sizes.count_up_to(wanted.last[:2])] for column in sizes))
        self.parts.append(kept)
        self._entries += len(kept)
        self._rows += int(kept.rows.sum())
        self._bytes += int(kept.bytes.sum())
        return (
            sizes.last() >= wanted.last
            or self._entries >= wanted.entries
            or self._rows >= wanted.rows
            or self._bytes >= wanted.bytes
        )


def _read(connection: BrokerConnection, wanted: Sequence[SizesWanted], subscription: str) -> list[SizesFound]:
    consumers = open_readers(connection, [one.start for one in wanted], subscription)
    readings = {number: _Reading(one) for number, one in zip(consumers, wanted, strict=True)}
    connection.send(
        b"".join(requests.flow(number, one.permits) for number, one in zip(consumers, wanted, strict=True))
    )
    missing = set(consumers)
    deadline = time.monotonic() + PEEK_QUIET_S
    while missing and time.monotonic() < deadline:
        if not connection.poll(max(deadline - time.monotonic(), 0.001)):
            break
        if not connection.message_bytes:
            continue
        # Each entry that comes renews the deadline: all entries together may take longer than a second.
        deadline = time.monotonic() + PEEK_QUIET_S
        messages = connection.take_messages()
        arrived = cut_entries(messages)
        for number in np.unique(arrived.consumer_ids).tolist():
            if readings[number].add(_sizes_of(arrived, number)):
                missing.discard(number)
    sizes = {number: joined(reading.parts) for number, reading in readings.items()}
    silent = [number for number in missing if not len(sizes[number])]
    newest = dict(zip(silent, ask_last(connection, silent), strict=True)) if silent else {}
    found = []
    for number, one in zip(consumers, wanted, strict=True):
        # A broker that has the entries, and only sends them slowly, still returns an end that is not before theirs.
        trimmed = number in newest and newest[number] < one.last
        is_gone = not len(sizes[number]) and (trimmed or readings[number].is_past)
        found.append(SizesFound(sizes[number], is_gone))
    return found


def _sizes_of(arrived: EntryTable, consumer_id: int) -> EntrySizes:
    """Returns the entries of one consumer, as copies: the buffer below `arrived` is received into again."""
    mine = np.flatnonzero(arrived.consumer_ids == consumer_id)
    return EntrySizes(
        arrived.ledger_ids[mine],
        arrived.entry_ids[mine],
        arrived.message_counts()[mine],
        (arrived.payload_ends - arrived.payload_starts)[mine],
    )
