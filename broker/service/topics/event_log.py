"""EventLog: the events of one topic `__change_events`, or of one of its partitions, and the policies that follow from them.

`catch_up` reads an open topic: the events of an earlier owner are complete then, because opening ends the ledger that the
owner wrote to. `follow` reads the ledgers while another broker has the topic open. That broker notes its last event in the
list of ledgers (`LAST_EVENT`), so that no bookie is asked for entries that are not confirmed.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from bookkeeper.ensembles.awaited_reads import read_entries
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_ledger_info import ManagedLedgerInfo
from broker.schemas.avro_schema import AvroType, parse_avro
from broker.schemas.decoding import Undecodable, decode_avro
from broker.schemas.schema import SchemaType
from broker.service.policies.topic_events import EVENT_TYPE, EventKey, PolicyChange, change_of
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.topics.topic_schemas import TopicSchemas, version_of
from foundation.model.entry import Entry
from foundation.model.position import EARLIEST, Position
from foundation.model.range_set import EntryRange
from foundation.model.topic_name import TopicName
from foundation.units import MIB
from foundation.value import Json
from protocol.errors import ProtocolError

log = logging.getLogger("magnetar")

LAST_EVENT: Final = "magnetar.lastPolicyEvent"
"""Property of the list of ledgers: position of the last confirmed event, as `ledger:entry`."""
_ENTRIES: Final = 100
"""Entries of one read."""


class LatestPolicies(NamedTuple):
    """The policies of a topic, as its latest event has them."""

    type: AvroType
    """The schema of the event, which may have fields that Magnetar's does not have."""
    version: bytes
    """The version of that schema."""
    fields: dict[str, Json]
    """By the names of Pulsar's `TopicPolicies`."""


class _Message(NamedTuple):
    key: str
    payload: bytes | None
    version: bytes


class Gone(Exception):
    """Ledgers that were not read may be trimmed: the caller reads everything anew."""


class EventLog:
    """The events read so far."""

    def __init__(self, name: TopicName, environment: ManagedLedgerEnvironment, schemas: TopicSchemas) -> None:
        """`name`: that of the topic with the events."""
        self.name = name
        """The topic with the events, or its partition."""
        self.stored: dict[EventKey, LatestPolicies] = {}
        """The policies of topics that have any."""
        self.read_to: Position = EARLIEST
        """The last event that was read."""
        self._environment = environment
        self._schemas = schemas
        self._types: dict[bytes, AvroType] = {}
        self._changed: set[str] = set()

    async def catch_up(self, topic: PersistentTopic) -> set[str]:
        """Reads the open topic to its end, and returns the topics whose policies have changed. Raises BrokerError."""
        compacted, ledger = topic.compaction.current, topic.ledger
        if compacted is not None and self.read_to < compacted.horizon:
            # Deletions that were not read may be missing from the compacted ledger.
            self._forget_all()
            number = 0
            while number < compacted.entries:
                entries = await compacted.read(number, _ENTRIES, MIB)
                await self._apply(entries)
                number += len(entries)
            self.read_to = compacted.horizon
        while (position := ledger.ledgers.next_valid(self.read_to)) <= ledger.last_confirmed:
            last = min(ledger.ledgers.last_entry(position.ledger_id), position.entry_id + _ENTRIES - 1)
            wanted = EntryRange(position.ledger_id, position.entry_id, last)
            skips = ledger.context.settings.skips_lost
            await self._apply(await (ledger.read_readable if skips else ledger.read_entries)(wanted))
            self.read_to = Position(position.ledger_id, last)
        return self._take_changed()

    async def follow(self, info: ManagedLedgerInfo | None) -> set[str]:
        """Reads the events that the list of ledgers names, and returns the topics whose policies have changed.

        None: the topic was deleted. Raises Gone; BrokerError.
        """
        if info is None or info.deleted:
            self._forget_all()
            return self._take_changed()
        listed = [ledger.ledger_id for ledger in info.ledgers]
        if listed and self.read_to != EARLIEST and self.read_to.ledger_id not in listed:
            raise Gone
        noted = _position(info.properties.get(LAST_EVENT, ""))
        for ledger in info.ledgers:
            last = ledger.entries - 1
            if ledger.closed_at_ms is None and noted is not None and noted.ledger_id == ledger.ledger_id:
                last = noted.entry_id
            if ledger.ledger_id >= self.read_to.ledger_id:
                await self._read(ledger.ledger_id, last)
        return self._take_changed()

    async def _read(self, ledger_id: int, last: int) -> None:
        first = self.read_to.entry_id + 1 if ledger_id == self.read_to.ledger_id else 0
        while first <= last:
            entries = await read_entries(self._environment.ledgers, ledger_id, first, last, MIB)
            await self._apply(entries)
            self.read_to = entries[-1].position
            first += len(entries)

    def _forget_all(self) -> None:
        self._changed.update(key.topic for key in self.stored)
        self.stored.clear()
        self.read_to = EARLIEST

    def _take_changed(self) -> set[str]:
        changed, self._changed = self._changed, set()
        return changed

    async def _apply(self, entries: list[Entry]) -> None:
        for entry in entries:
            try:
                for message in _messages(entry):
                    await self._apply_message(message)
            except (ProtocolError, Undecodable) as error:
                # Written by a client. Skipped, as an event that says nothing.
                log.error("! %s of %s is no event of policies: %s", entry.position, self.name, error)

    async def _apply_message(self, message: _Message) -> None:
        kind = EVENT_TYPE
        if message.payload is not None:
            kind = await self._type(message.version)
        value = None if message.payload is None else decode_avro(kind, message.payload)
        change = change_of(message.key, value, self.name.namespace)
        if change is not None:
            self._change(change, kind, message.version)

    def _change(self, change: PolicyChange, kind: AvroType, version: bytes) -> None:
        if change.fields is None:
            self.stored.pop(change.key, None)
        elif change.replaces or change.key not in self.stored:
            self.stored[change.key] = LatestPolicies(kind, version, change.fields)
        self._changed.add(change.key.topic)

    async def _type(self, version: bytes) -> AvroType:
        if version not in self._types:
            try:
                found = await self._schemas.get(self.name, version_of(version))
            except struct.error:
                found = None
            schema = None if found is None else found.schema
            is_avro = schema is not None and schema.type is SchemaType.AVRO
            self._types[version] = parse_avro(schema.data) if schema and is_avro else EVENT_TYPE
        return self._types[version]


def _messages(entry: Entry) -> Iterator[_Message]:
    """Yields the messages of an entry that have a key. Raises ProtocolError."""
    # Imported with the first event: the libraries of all codecs come with it.
    from broker.compaction.entry_content import batch_messages, read_entry, unpacked

    metadata, payload = read_entry(entry.body)
    if metadata.HasField("marker_type"):
        return
    plain = unpacked(metadata, payload)
    if not metadata.HasField("num_messages_in_batch"):
        if metadata.HasField("partition_key"):
            value = None if metadata.null_value or not plain else plain
            yield _Message(metadata.partition_key, value, metadata.schema_version)
        return
    for single, _, end in batch_messages(metadata, plain):
        if single.HasField("partition_key") and not single.compacted_out:
            value = (
                None
                if single.null_value or not single.payload_size
                else plain[end - single.payload_size : end]
            )
            yield _Message(single.partition_key, value, metadata.schema_version)


def _position(text: str) -> Position | None:
    ledger_id, _, entry_id = text.partition(":")
    return Position(int(ledger_id), int(entry_id)) if ledger_id.isdecimal() and entry_id.isdecimal() else None
