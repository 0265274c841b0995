"""`…/internalStats` and `…/internal-info`: the ledgers and cursors of a topic, and of all its partitions.

Values of features without a counterpart are Pulsar's for "none". A cursor has a ledger of its own on a shared metadata store
alone (decision 0024); elsewhere `cursorLedger` is -1 and its state `NoLedger`.
"""

from __future__ import annotations

from collections.abc import Container

from aiohttp import web

from bookkeeper.ensembles.own_ledger import read_metadata
from broker.admin.http.answers import answer, is_true, time_text, topic_of
from broker.admin.http.request_path import TOPIC
from broker.admin.service_view import BROKER, BrokerView
from broker.admin.topics.topic_access import (
    check_namespace,
    existing,
    existing_persistent,
    partition_topics,
    partitioned_shown,
)
from broker.managed_ledger.ledger_list import LedgerInfo, LedgerList
from broker.managed_ledger.managed_cursor import ManagedCursor
from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.managed_ledger.managed_ledger_info import cursor_key, managed_ledger_key
from broker.service.compaction.compacted_ledger import CompactedLedger
from broker.service.namespaces.namespaces import Json
from broker.service.topics.non_persistent_topic import NonPersistentTopic
from broker.service.topics.persistent_topic import OWN_PROPERTIES, PersistentTopic
from broker.service.topics.topic import Topic
from foundation.model.range_set import RangeSet
from protocol.ledger_metadata import LedgerMetadata, LedgerState

RANGES_SHOWN_MAX = 1000
"""Ranges of acknowledged entries that the answer lists; the text of a million would be 30 MB."""
NEVER = "1970-01-01T00:00:00Z"
"""The time of something that never happened."""


async def stats(request: web.Request) -> web.Response:
    """Returns the ledgers and cursors of the topic, with `metadata=true` also the metadata of each ledger."""
    broker, name = request.app[BROKER], topic_of(request)
    topic = await existing(broker, name)
    shown = internal_stats(topic)
    if is_true(request, "metadata") and isinstance(topic, PersistentTopic):
        await _add_metadata(broker, shown)
    return answer(shown)


async def stats_of_partitions(request: web.Request) -> web.Response:
    """Returns the same for each partition."""
    broker, name = request.app[BROKER], topic_of(request)
    found: dict[str, Json] = {}
    async for topic in partition_topics(broker, name):
        found[str(topic.name)] = internal_stats(topic)
    return answer({"metadata": await partitioned_shown(broker, name), "partitions": found})


def internal_stats(topic: Topic) -> dict[str, Json]:
    """Returns the ledgers and cursors of a topic; a non-persistent one has neither."""
    if not isinstance(topic, PersistentTopic):
        return _without_log(topic)
    # A consumer that never asked for messages does not read.
    active = {
        name
        for name, one in topic.subscriptions.items()
        if any(consumer.last_consumed_flow_ms for consumer in one.consumers)
    }
    return {
        **ledger_stats(topic.ledger, active),
        "schemaLedgers": [],
        "compactedLedger": _compacted_ledger(topic.compaction.current),
    }


def ledger_stats(log: ManagedLedger, active: Container[str]) -> dict[str, Json]:
    """Returns the ledgers and cursors of a managed ledger; `active` are names of cursors in use."""
    infos = log.ledgers.infos()
    writable = not log.is_terminated
    waiting = {name for name, one in log.cursors.by_name.items() if name in active and not one.has_more()}
    return {
        "entriesAddedCounter": log.stats.entries_added,
        "numberOfEntries": log.ledgers.entries,
        "totalSize": log.ledgers.size_bytes,
        "currentLedgerEntries": infos[-1].entries,
        "currentLedgerSize": infos[-1].size_bytes,
        "lastLedgerCreatedTimestamp": time_text(_current_since_ms(log.store.created_ms, infos)),
        "waitingCursorsCount": len(waiting),
        "pendingAddEntriesCount": 0,
        "lastConfirmedEntry": str(log.last_confirmed),
        "state": "LedgerOpened" if writable else "Terminated",
        # As in Pulsar, a ledger that is written shows no counts; those above are its own.
        "ledgers": [_ledger(one, counted=one is not infos[-1] or not writable) for one in infos],
        "cursors": {
            name: _cursor(one, log, active=name in active, waiting=name in waiting)
            for name, one in log.cursors.by_name.items()
        },
        "properties": {name: text for name, text in log.properties.items() if name not in OWN_PROPERTIES},
    }


def _without_log(topic: Topic) -> dict[str, Json]:
    cursors: dict[str, Json] = {}
    if isinstance(topic, NonPersistentTopic):
        cursors = {name: {**_NO_CURSOR} for name in topic.subscriptions}
    return {
        "entriesAddedCounter": 0,
        "numberOfEntries": 0,
        "totalSize": 0,
        "currentLedgerEntries": 0,
        "currentLedgerSize": 0,
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "cursors": cursors,
    }


def _current_since_ms(created_ms: int, infos: list[LedgerInfo]) -> int:
    """Returns the time from which on entries go into the current ledger."""
    closed = [one.closed_at_ms for one in infos[:-1] if one.closed_at_ms is not None]
    return max([created_ms, *closed])


def _ledger(info: LedgerInfo, *, counted: bool) -> dict[str, Json]:
    return {
        "ledgerId": info.ledger_id,
        "entries": info.entries if counted else 0,
        "size": info.size_bytes if counted else 0,
        "offloaded": info.is_offloaded,
        "underReplicated": False,
    }


def _cursor(cursor: ManagedCursor, log: ManagedLedger, *, active: bool, waiting: bool) -> dict[str, Json]:
    ledger_id, last_entry = cursor.store.ledger
    return {
        **_NO_CURSOR,
        # As in Pulsar, negative when the topic was opened with a backlog.
        "messagesConsumedCounter": log.stats.entries_added - cursor.backlog,
        "markDeletePosition": str(cursor.mark_delete_position),
        "readPosition": str(cursor.read_position),
        "waitingReadOp": waiting,
        "pendingReadOps": int(cursor.reading),
        "cursorLedger": ledger_id,
        "cursorLedgerLastEntry": last_entry,
        "individuallyDeletedMessages": _ranges(cursor.acks.beyond),
        "lastLedgerSwitchTimestamp": NEVER,
        "state": "NoLedger" if last_entry < 0 else "Open",
        "active": active,
        "numberOfEntriesSinceFirstNotAckedMessage": 1 + _entries_before(cursor, log.ledgers),
        "totalNonContiguousDeletedMessagesRange": cursor.acks.beyond.count_ranges(),
        "subscriptionHavePendingRead": cursor.reading,
        "properties": dict(cursor.acks.properties),
    }


def _entries_before(cursor: ManagedCursor, ledgers: LedgerList) -> int:
    """Counts the entries after the mark-delete position and before the read position."""
    read = cursor.read_position
    return ledgers.entries_between(cursor.mark_delete_position, (read.ledger_id, read.entry_id - 1))


def _ranges(acknowledged: RangeSet) -> str:
    """Returns the ranges as Pulsar writes them: open at the front, closed at the end; a long list is cut."""
    texts: list[str] = []
    for one in acknowledged.ranges():
        if len(texts) == RANGES_SHOWN_MAX:
            texts.append("...")
            break
        texts.append(f"({one.ledger_id}:{one.first - 1}..{one.ledger_id}:{one.last}]")
    return f"[{','.join(texts)}]"


def _compacted_ledger(compacted: CompactedLedger | None) -> dict[str, Json]:
    known = (compacted.ledger_id, compacted.entries, compacted.size_bytes) if compacted else (-1, -1, -1)
    ledger_id, entries, size = known
    return {
        "ledgerId": ledger_id,
        "entries": entries,
        "size": size,
        "offloaded": False,
        "underReplicated": False,
    }


async def _add_metadata(broker: BrokerView, shown: dict[str, Json]) -> None:
    """Adds the stored metadata of each ledger, as text."""
    ledgers = shown["ledgers"]
    assert isinstance(ledgers, list)
    for one in ledgers:
        assert isinstance(one, dict)
        ledger_id = one["ledgerId"]
        assert isinstance(ledger_id, int)
        stored = await read_metadata(broker.environment.metadata, ledger_id)
        # The current ledger has no metadata before its first entry.
        if stored is not None:
            one["metadata"] = _described(stored[0])


def _described(metadata: LedgerMetadata) -> str:
    """Returns the metadata in BookKeeper's words; the password stays out."""
    segments = ", ".join(f"{one.first_entry_id}=[{', '.join(one.members)}]" for one in metadata.segments)
    closed = metadata.state is LedgerState.CLOSED
    end = f", length={metadata.length}, lastEntryId={metadata.last_entry_id}" if closed else ""
    return (
        f"LedgerMetadata{{ensembleSize={metadata.ensemble_size}, writeQuorumSize={metadata.write_quorum},"
        f" ackQuorumSize={metadata.ack_quorum}, state={metadata.state.name}{end},"
        f" digestType={metadata.digest_type.name}, password=OMITTED, ensembles={{{segments}}}}}"
    )


async def info(request: web.Request) -> web.Response:
    """Returns the list of ledgers and the cursors as they are stored, by partition for a partitioned topic."""
    broker, name = request.app[BROKER], topic_of(request)
    check_namespace(broker, name)
    if not await broker.registry.partitions.count(name):
        return answer(await _info(broker, await existing_persistent(broker, name)))
    partitions: dict[str, Json] = {}
    async for topic in partition_topics(broker, name):
        if isinstance(topic, PersistentTopic):
            partitions[str(topic.name)] = await _info(broker, topic)
    return answer({"version": 0, "partitions": partitions})


async def _info(broker: BrokerView, topic: PersistentTopic) -> dict[str, Json]:
    log, metadata = topic.ledger, broker.environment.metadata
    stored = await metadata.get(managed_ledger_key(log.name))
    infos = log.ledgers.infos()
    cursors: dict[str, Json] = {}
    for name, cursor in list(log.cursors.by_name.items()):
        kept = await metadata.get(cursor_key(log.name, name)) if cursor.durable else None
        if kept is not None:
            place = cursor.mark_delete_position
            cursors[name] = {
                "version": kept.version,
                "cursorsLedgerId": cursor.store.ledger[0],
                "markDelete": {"ledgerId": place.ledger_id, "entryId": place.entry_id},
            }
    shown: dict[str, Json] = {
        # Pulsar writes the list of a new topic twice, so that its versions are one above ours.
        "version": -1 if stored is None else stored.version + 1,
        "creationDate": time_text(log.store.created_ms),
        # The store keeps no times. The list is written when a ledger begins or ends, most of all.
        "modificationDate": time_text(_current_since_ms(log.store.created_ms, infos)),
        "ledgers": [_stored_ledger(one) for one in infos],
        "cursors": cursors,
    }
    if properties := topic.properties:
        shown["properties"] = {**properties}
    if log.is_terminated:
        last = log.last_confirmed
        shown["terminatedPosition"] = {"ledgerId": last.ledger_id, "entryId": last.entry_id}
    return shown


def _stored_ledger(info: LedgerInfo) -> dict[str, Json]:
    shown: dict[str, Json] = {"ledgerId": info.ledger_id}
    if info.closed_at_ms is not None:
        shown |= {"entries": info.entries, "size": info.size_bytes}
    shown |= {"timestamp": info.closed_at_ms or 0, "isOffloaded": info.offload is not None}
    # As in Pulsar, also of a copy that was begun and is not complete.
    return shown if info.offload is None else {**shown, "offloadedContextUuid": str(info.offload.uuid)}


_NO_CURSOR: dict[str, Json] = {
    "waitingReadOp": False,
    "pendingReadOps": 0,
    "messagesConsumedCounter": 0,
    "cursorLedger": 0,
    "cursorLedgerLastEntry": 0,
    "active": False,
    "numberOfEntriesSinceFirstNotAckedMessage": 0,
    "totalNonContiguousDeletedMessagesRange": 0,
    "subscriptionHavePendingRead": False,
    "subscriptionHavePendingReplayRead": False,
}
"""A subscription without a cursor."""

INTERNAL_ROUTES = (
    web.get(TOPIC + "/internalStats", stats),
    web.get(TOPIC + "/partitioned-internalStats", stats_of_partitions),
    web.get(TOPIC + "/internal-info", info),
)
"""Requests about ledgers and cursors."""
