"""Requests that look at single messages: by position in a backlog, from either end of the topic, by id, by time.

Nothing here moves a cursor or makes one: places are found by arithmetic over the ledgers, and one entry is read. The read
uses the entry cache where the entry is in it, and never fills it (`single_entry.read_entry`), so it lowers no expected reads
and evicts nothing that consumers want.
"""

from __future__ import annotations

from aiohttp import web

from broker.admin.http.answers import PreconditionFailed, answer, message_id, topic_of
from broker.admin.http.request_path import TOPIC
from broker.admin.service_view import BROKER
from broker.admin.topics.message_answer import entry_answer
from broker.admin.topics.topic_access import existing_persistent, one_persistent
from broker.service.entry_facts import facts_of
from broker.service.subscriptions.backlog.open_runs import nth_open
from broker.service.topics.persistent_topic import PersistentTopic, transaction_buffer
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, NoSuchEntry, NoSuchLedger, NotAllowed
from foundation.model.position import EARLIEST, Position
from protocol.broker_entry_metadata import decode

_LONG = "-?[0-9]{1,18}"
"""A number in a path; other text makes another path, which is a page of 404, as in Pulsar."""


class MessageNotFound(BrokerError):
    """The place that was asked for has no message."""

    status = 404


class NoSuchPlace(BrokerError):
    """A place before the first message, or after the last one; Pulsar answers 500."""

    status = 500


async def peek(request: web.Request) -> web.Response:
    """Shows the unacknowledged message of that number, counted from 1.

    A subscription that does not exist is shown as if it began at the first message. Pulsar creates it; this broker
    does not.
    """
    topic = await one_persistent(request.app[BROKER], topic_of(request), "Peek messages")
    number = int(request.match_info["number"])
    if number < 1:
        raise NoSuchPlace(f"{number}: messages are counted from 1")
    subscription = topic.subscriptions.get(request.match_info["subscription"])
    if subscription is not None:
        place = await nth_open(subscription.cursor, number)
    else:
        place = _entry_at(topic, number - 1)
    if place is None:
        raise MessageNotFound("Message not found")
    return await _shown(topic, place)


async def by_id(request: web.Request) -> web.Response:
    """Shows the message of that id. NoSuchPlace past the ends of a ledger."""
    broker, name = request.app[BROKER], topic_of(request)
    if await broker.registry.partitions.count(name):
        raise NotAllowed("GetMessageById is not allowed on partitioned-topic")
    topic = await one_persistent(broker, name, "GetMessageById")
    place = Position(int(request.match_info["ledger"]), int(request.match_info["entry"]))
    try:
        return await _shown(topic, place)
    except NoSuchLedger:
        raise MessageNotFound("Message id not found") from None
    except NoSuchEntry:
        last = topic.ledger.last_confirmed
        raise NoSuchPlace(f"LastConfirmedEntry is {last} when reading entry {place.entry_id}") from None


async def examine(request: web.Request) -> web.Response:
    """Shows the message of that number, counted from the first or from the last one."""
    topic = await one_persistent(request.app[BROKER], topic_of(request), "Examine messages")
    # Pulsar takes each other word for the last message, and each number below 1 for 1.
    number = max(1, _number(request, "messagePosition", 1))
    total = topic.ledger.ledgers.entries
    if not total:
        raise PreconditionFailed("Could not examine messages due to the total message is zero")
    from_first = request.query.get("initialPosition") == "earliest"
    index = min(number, total) - 1 if from_first else total - number
    place = _entry_at(topic, index) if index >= 0 else None
    if place is None:
        raise NoSuchPlace(f"messagePosition={number}: the topic has {total} entries")
    return await _shown(topic, place)


async def id_by_time(request: web.Request) -> web.Response:
    """Returns the id of the first message not older than the time, in ms since 1970; (-1, -1) for time 0.

    A time after the last message has the id of the next one, which is not written yet. Both as Pulsar 4.2.4.
    """
    name = topic_of(request)
    topic = await one_persistent(request.app[BROKER], name, "Get message ID by timestamp")
    since_ms = int(request.match_info["timestamp"])
    found = await topic.positions.first_since(since_ms)
    if found == EARLIEST and since_ms > 0:
        found = topic.ledger.ledgers.first()
    return answer(message_id(found, name.partition))


async def id_by_index(request: web.Request) -> web.Response:
    """Returns the id of the entry with the message of that index (PIP-70); the last entry for an index past the last one."""
    broker, name = request.app[BROKER], topic_of(request)
    if not broker.registry.settings.entry_index:
        raise PreconditionFailed("GetMessageIDByIndex is not allowed when broker entry metadata is disabled")
    topic = await one_persistent(broker, name, "Get message ID by index")
    wanted = _number(request, "index", 0)

    def before(entry: Entry) -> bool:
        # Entries from before the interceptor was switched on have no index, and stand before all others.
        index = decode(entry.header).index
        return index is None or index < wanted

    newest = await topic.ledger.find_newest(before)
    ledgers = topic.ledger.ledgers
    found = ledgers.first() if newest is None else ledgers.next_valid(newest)
    return answer(message_id(min(found, ledgers.last()), name.partition))


async def last_id(request: web.Request) -> web.Response:
    """Returns the id of the last message, in a batch with its index there; entry -1 for a topic without one."""
    broker, name = request.app[BROKER], topic_of(request)
    if not name.is_persistent:
        raise NotAllowed("GetLastMessageId on a non-persistent topic is not allowed")
    topic = await existing_persistent(broker, name)
    last = topic.ledger.last_confirmed
    facts = None if last.entry_id < 0 else facts_of(await topic.ledger.read_entry(last))
    shown = message_id(last, name.partition)
    if facts is not None and facts.batched:
        # Members that Pulsar adds for a batch, and zeros in all of them but the index.
        shown |= {"batchIndex": facts.messages - 1, "outstandingAcksInSameBatch": 0, "originalBatchSize": 0}
    return answer(shown)


def _entry_at(topic: PersistentTopic, index: int) -> Position | None:
    try:
        return topic.ledger.ledgers.position_at(index)
    except IndexError:
        return None


async def _shown(topic: PersistentTopic, place: Position) -> web.Response:
    entry = await topic.ledger.read_entry(place)
    facts = facts_of(entry)
    buffer = transaction_buffer(topic)
    in_transaction = facts is not None and facts.txn is not None and not facts.marker
    return await entry_answer(
        entry,
        uncommitted=in_transaction and place > topic.ledger.context.last_readable,
        aborted=in_transaction and buffer is not None and buffer.hides(facts),
    )


def _number(request: web.Request, parameter: str, default: int) -> int:
    """Returns a number of the query. Another text is a page of 404, as in Pulsar."""
    text = request.query.get(parameter, str(default))
    try:
        return int(text[:20])
    except ValueError:
        raise web.HTTPNotFound() from None


MESSAGE_ROUTES = (
    web.get(f"{TOPIC}/subscription/{{subscription}}/position/{{number:{_LONG}}}", peek),
    web.get(f"{TOPIC}/ledger/{{ledger:{_LONG}}}/entry/{{entry:{_LONG}}}", by_id),
    web.get(TOPIC + "/examinemessage", examine),
    web.get(f"{TOPIC}/messageid/{{timestamp:{_LONG}}}", id_by_time),
    web.get(TOPIC + "/getMessageIdByIndex", id_by_index),
    web.get(TOPIC + "/lastMessageId", last_id),
)
"""Requests that look at single messages."""
