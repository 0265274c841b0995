"""DurableDeduplication: deduplication of one persistent topic, with its sequence ids kept in a cursor (PIP-6).

A message of a replicator that names its position in the source cluster is judged by this position: the replicator passes on
messages of many producers under one name, and begins anew at its cursor. Two properties per replicator keep the
position, `<name>_LID` and `<name>_EID`, as in Pulsar.

The cursor `pulsar.dedup` is acknowledged through an entry, and its properties hold the sequence ids as of that entry.
Opening a topic reads the entries after it to learn the rest. The ids are saved again only after
`brokerDeduplicationEntriesInterval` entries: each save acknowledges, and an acknowledgement may let ledgers be
trimmed that readers still want. A topic with few entries saves them after the time of its policy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.service.entry_facts import facts_of
from broker.service.internal_cursors import DEDUPLICATION_CURSOR
from broker.service.ports import AddedSends, ReplicatedSends, Sends
from broker.service.settings import ServiceSettings
from broker.service.topics.deduplication import Deduplication, DuplicateVerdict
from foundation.model.entry import Entry
from foundation.model.errors import PersistenceError
from foundation.model.position import EARLIEST, Position
from foundation.units import NS_PER_SECOND
from protocol.message_metadata import read_facts, read_source

_LEDGER: Final = "_LID"
_ENTRY: Final = "_EID"
_ENTRY_BITS: Final = 64


class DurableDeduplication:
    """Judges messages and saves the sequence ids with a cursor."""

    __slots__ = ("_known", "_ledger", "_prefix", "_saved_ns")

    def __init__(self, ledger: ManagedLedger, known: Deduplication, prefix: str) -> None:
        """Called by `open` alone; `known` covers every confirmed entry of the ledger.

        `prefix`: that of names of replicators.
        """
        self._ledger = ledger
        self._known = known
        self._prefix = prefix
        self._saved_ns = ledger.environment.now_ns()

    @classmethod
    async def open(cls, ledger: ManagedLedger, settings: ServiceSettings) -> DurableDeduplication:
        """Loads the saved ids and reads the entries after them. Raises as `read_entry`."""
        cursor = await ledger.cursors.open(DEDUPLICATION_CURSOR, EARLIEST)
        prefix = settings.replicator_prefix
        ids = _joined(cursor.acks.properties, prefix)
        known = Deduplication(ids, producers_max=settings.deduplication_producers_max)
        position = ledger.ledgers.next_valid(cursor.mark_delete_position)
        while position <= ledger.last_confirmed:
            entry = await ledger.read_entry(position)
            facts = facts_of(entry)
            source = read_source(entry.body)
            # All chunks carry one sequence id; the last one completes the message.
            # Markers of transactions have no sequence id.
            if facts is not None and source is not None and source.position is not None:
                name = f"{prefix}.{source.from_cluster}-->{settings.cluster}"
                place = _number_of(source.position)
                known.stored((name if source.from_cluster else facts.producer_name) + _LEDGER, place, place)
            elif facts is not None and not facts.marker and facts.chunk >= facts.chunks - 1:
                known.stored(facts.producer_name, facts.sequence_id, facts.highest_sequence_id)
            position = ledger.ledgers.next_valid(position)
        if known.entries_since_saved >= settings.deduplication_snapshot_entries:
            cursor.acknowledge_cumulative(ledger.last_confirmed, properties=_divided(known, prefix))
        return cls(ledger, known, prefix)

    def last_sequence_id(self, producer_name: str) -> int:
        """Returns the highest stored id, -1 for an unknown producer."""
        return self._known.last_sequence_id(producer_name)

    def settle_repeated(self, sends: Sends) -> None:
        """Answers the SENDs at the front of a run that were stored, or pushed to storage, before; the others are new."""
        while sends.bodies:
            verdict = self._judge(sends)
            if verdict is DuplicateVerdict.NEW:
                return
            unknown = PersistenceError("Cannot determine whether the message is a duplicate at this time")
            sends.port.at_once(sends, 1, unknown if verdict is DuplicateVerdict.UNKNOWN else None)

    def _judge(self, sends: Sends) -> DuplicateVerdict:
        """Judges the first SEND that is left of a run; if it is new, all are.

        That of a chunk has a chunk number to read in its metadata.
        """
        if isinstance(sends, ReplicatedSends):
            if sends.source is None:
                return DuplicateVerdict.NEW
            place = _number_of(sends.source)
            return self._known.judge(sends.producer_name + _LEDGER, place, place)
        last_chunk = True
        if sends.chunk:
            facts = read_facts(sends.bodies[0])
            last_chunk = facts.chunk >= facts.chunks - 1
        highest = sends.last_id(len(sends.bodies))
        return self._known.judge(sends.producer_name, sends.sequence_id, highest, last_chunk=last_chunk)

    def entries_added(
        self,
        entries: list[Entry],
        added: list[AddedSends],
        connected: Collection[str],
        save_interval: int,
    ) -> None:
        """Notes confirmed entries; saves the ids after `save_interval` of them.

        `connected`: names of producers that must not be forgotten.
        """
        known = self._known
        place = 0
        for sends, count, _ in added:
            if isinstance(sends, ReplicatedSends):
                self._replicated(sends)
                place += count
                continue
            facts = facts_of(entries[place]) if sends.chunk else None
            if facts is None or facts.chunk >= facts.chunks - 1:
                known.stored(sends.producer_name, sends.sequence_id, sends.last_id(count), count)
            place += count
        if known.entries_since_saved >= save_interval:
            # Before saving, so that the cursor's properties lose forgotten producers too.
            self._forget(connected)
            self._save(entries[-1].position)

    def save_if_due(self, now_ns: int, interval_s: int, connected: Collection[str]) -> None:
        """Saves the ids when entries came and the last save is `interval_s` ago; 0 or less = never by time."""
        known = self._known
        if (
            interval_s > 0
            and known.entries_since_saved
            and now_ns - self._saved_ns >= interval_s * NS_PER_SECOND
        ):
            self._forget(connected)
            # All confirmed entries are noted: the ledger reports them in the turn in which it confirms them.
            self._save(self._ledger.last_confirmed)

    def _replicated(self, sends: ReplicatedSends) -> None:
        """Notes a confirmed message of a replicator; markers leave no trace."""
        if sends.source is not None:
            place = _number_of(sends.source)
            self._known.stored(sends.producer_name + _LEDGER, place, place)

    def _forget(self, connected: Collection[str]) -> None:
        replicators = {name + _LEDGER for name in connected if name.startswith(self._prefix)}
        self._known.forget({*connected, *replicators})

    def _save(self, through: Position) -> None:
        self._saved_ns = self._ledger.environment.now_ns()
        cursor = self._ledger.cursors.by_name[DEDUPLICATION_CURSOR]
        cursor.acknowledge_cumulative(through, properties=_divided(self._known, self._prefix))

    def add_failed(self) -> None:
        """Lets clients send messages again whose adds failed."""
        self._known.failed()


def _number_of(position: tuple[int, int]) -> int:
    """Returns one number for a position in a source cluster, in the order of positions."""
    return position[0] << _ENTRY_BITS | position[1]


def _joined(properties: Mapping[str, int], prefix: str) -> dict[str, int]:
    """Returns the saved ids, with one number in the place of ledger id and entry id of each replicator."""
    ids = dict(properties)
    for name in properties:
        entry = name.removesuffix(_LEDGER) + _ENTRY
        if name.startswith(prefix) and name.endswith(_LEDGER) and entry in ids:
            ids[name] = _number_of((ids[name], ids.pop(entry)))
    return ids


def _divided(known: Deduplication, prefix: str) -> dict[str, int]:
    """Returns the ids to save: the reverse of `_joined`."""
    ids = known.sequence_ids_to_save()
    for name in [name for name in ids if name.startswith(prefix) and name.endswith(_LEDGER)]:
        ids[name.removesuffix(_LEDGER) + _ENTRY] = ids[name] & ((1 << _ENTRY_BITS) - 1)
        ids[name] >>= _ENTRY_BITS
    return ids
