"""Reads the message fields of an entry once and keeps them.

An entry passes several dispatchers, one per subscription. The first one that needs a field parses the metadata;
`Entry.facts` and `Entry.messages` carry the result to the others. Called by the dispatchers, by deduplication and by
searches by time.
"""

from __future__ import annotations

from collections.abc import Iterable

from foundation.model.entry import Entry
from protocol.errors import ProtocolError
from protocol.message_metadata import MessageFacts, count_messages, read_facts


def facts_of(entry: Entry) -> MessageFacts | None:
    """Returns the metadata fields of an entry, None for unreadable bytes.

    The first call parses, later calls return the same object.
    """
    if entry.facts is None:
        try:
            entry.facts = read_facts(entry.body)
        except ProtocolError:
            # A client can publish anything. An error here would stop the subscription at this entry for ever.
            return None
    return entry.facts


def messages_of(entry: Entry) -> int:
    """Returns the number of messages in the entry, at least 1.

    An unreadable entry counts as one message and is delivered unchanged.
    """
    if entry.messages == 0:
        facts = entry.facts
        # The number alone is read in a fraction of the time; most subscriptions need nothing else.
        entry.messages = _count(entry.body) if facts is None else facts.messages
    return entry.messages


def _count(body: bytes | memoryview) -> int:
    try:
        return count_messages(body)
    except ProtocolError:
        return 1


def messages_left(ack_set: Iterable[int]) -> int:
    """Counts the messages of a batch that are not acknowledged yet.

    `ack_set` is a bit set in 64-bit words (PIP-54); a set bit is an unacknowledged message. Words may be negative,
    because protobuf carries them as int64.
    """
    return sum((word & 0xFFFF_FFFF_FFFF_FFFF).bit_count() for word in ack_set)
