"""`/admin/v3/transactions`: coordinators, single transactions, and the transactions of topics and subscriptions.

Paths, fields and statuses are those of Pulsar 4.2.4. Where its broker answers 500 with a stack trace for a thing that
does not exist, the answer here is the 404 that Pulsar documents.
"""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

from broker.admin.cluster.transaction_stats import (
    buffer_stats,
    coordinator_stats,
    in_buffer_stats,
    in_pending_ack_stats,
    pending_ack_stats,
    position_state,
    slow,
    transaction_metadata,
)
from broker.admin.http.answers import BadRequest, NotAcceptable, answer, body_of, done, is_true, whole_number
from broker.admin.service_view import BROKER
from broker.admin.topics.internals import ledger_stats
from broker.admin.topics.over_owners import cluster_of
from broker.admin.topics.topic_access import existing_persistent, subscription_of
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from broker.service.transactions.coordinator import Coordinator
from broker.service.transactions.coordinators import ASSIGN_TOPIC, COORDINATORS_MAX, Coordinators
from foundation.model.errors import (
    CoordinatorNotFound,
    InvalidTopicName,
    ServiceNotReady,
    SubscriptionNotFound,
    TransactionNotFound,
)
from foundation.model.position import Position
from foundation.model.topic_name import parse_topic_name
from foundation.model.txn_id import TxnId
from foundation.value import Json

TRANSACTIONS_PER_SLICE = 100
"""Transactions described between two pauses, so that thousands of slow ones do not hold the loop."""


def _coordinators(request: web.Request) -> Coordinators:
    coordinators = request.app[BROKER].coordinators
    if coordinators is None:
        raise ServiceNotReady("This Broker is not configured with transactionCoordinatorEnabled=true.")
    return coordinators


def _number(text: str, name: str) -> int:
    """Returns a number from a path or a query. Raises BadRequest for any other text."""
    digits = text.removeprefix("-")
    # Python reads more as a number than Java does, such as "1_0" and digits of other scripts.
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 20):
        raise BadRequest(f"{name}={text[:50]}: a whole number is needed")
    return int(text)


def _in_path(request: web.Request, name: str) -> int:
    return _number(request.match_info[name], name)


def _in_query(request: web.Request, name: str) -> int | None:
    text = request.query.get(name)
    return None if text is None else _number(text, name)


def _txn(request: web.Request) -> TxnId:
    return TxnId(_in_path(request, "mostSigBits"), _in_path(request, "leastSigBits"))


async def _asked(request: web.Request, number: int | None) -> list[Coordinator]:
    """Returns the coordinator with the number, None = all that are open. Raises CoordinatorNotFound."""
    coordinators = _coordinators(request)
    if number is None:
        return list(coordinators.by_number.values())
    try:
        return [await coordinators.at_owner(number)]
    except CoordinatorNotFound:
        raise CoordinatorNotFound(f"Transaction coordinator not found! coordinator id : {number}") from None


async def _topic(request: web.Request) -> PersistentTopic:
    _coordinators(request)
    match = request.match_info
    try:
        name = parse_topic_name(f"persistent://{match['tenant']}/{match['namespace']}/{match['topic']}")
    except InvalidTopicName:
        raise InvalidTopicName("Topic name is not valid") from None
    return await existing_persistent(request.app[BROKER], name)


async def _subscription(request: web.Request) -> Subscription:
    topic, name = await _topic(request), request.match_info["subName"]
    try:
        return subscription_of(topic, name)
    except SubscriptionNotFound:
        raise SubscriptionNotFound(f"{topic.name} not found subscription : {name}") from None


# Coordinators


async def coordinators_list(request: web.Request) -> web.Response:
    """Returns each coordinator that clients find, with the broker that runs it."""
    _coordinators(request)
    broker = request.app[BROKER]
    ownership, found = broker.registry.ownership, list[Json]()
    uses_tls = broker.settings.bool("brokerClientTlsEnabled")
    for number in range(await broker.registry.partitions.count(ASSIGN_TOPIC)):
        owner = ownership.owner
        if ownership.is_shared:
            # As a client finds it: one that nobody runs is taken.
            owner = await cluster_of(broker).located(ASSIGN_TOPIC.with_partition(number))
        urls = owner.service_url, owner.service_url_tls
        # As Apache's brokers, which ask each other: TLS where brokers use it, and what there is otherwise.
        url = urls[uses_tls] or urls[not uses_tls]
        found.append({"id": number, "brokerServiceUrl": url})
    return answer(found)


async def stats_of_coordinators(request: web.Request) -> web.Response:
    """Returns the numbers of one coordinator, or those of all that are open, by number."""
    number = _in_query(request, "coordinatorId")
    asked = await _asked(request, number)
    if number is not None:
        return answer(coordinator_stats(asked[0]))
    return answer({str(one.number): coordinator_stats(one) for one in asked})


async def internal_stats_of_coordinator(request: web.Request) -> web.Response:
    """Returns the managed ledger of a coordinator's log."""
    (coordinator,) = await _asked(request, _in_path(request, "coordinatorId"))
    log = _coordinators(request).logs[coordinator.number]
    return answer({"transactionLogStats": _named(log.name, ledger_stats(log, log.cursors.by_name))})


async def scale(request: web.Request) -> web.Response:
    """Raises the number of coordinators that clients find."""
    _coordinators(request)
    partitions = request.app[BROKER].registry.partitions
    wanted = whole_number(await body_of(request), "replicas")
    if wanted <= await partitions.count(ASSIGN_TOPIC):
        raise NotAcceptable(
            "Number of transaction coordinators should be more than the current number of transaction coordinator"
        )
    if wanted > COORDINATORS_MAX:
        raise NotAcceptable(f"{wanted} transaction coordinators: at most {COORDINATORS_MAX} are possible")
    await partitions.set_count(ASSIGN_TOPIC, wanted)
    return done()


# Single transactions


async def metadata(request: web.Request) -> web.Response:
    """Returns the state of a transaction, with its topics and subscriptions."""
    txn = _txn(request)
    known = (await _coordinators(request).at_owner(txn.most)).transactions.get(txn)
    if known is None:
        # Pulsar's text, blanks included.
        raise TransactionNotFound(f"The transaction with this txdID `{txn}`not found ")
    return answer(transaction_metadata(known, request.app[BROKER].registry.topics))


async def slow_transactions(request: web.Request) -> web.Response:
    """Returns the open transactions whose time-out is longer than `timeout` ms, by id."""
    topics = request.app[BROKER].registry.topics
    asked = await _asked(request, _in_query(request, "coordinatorId"))
    found = [known for one in asked for known in slow(one, _in_path(request, "timeout"))]
    parts: list[str] = []
    for first in range(0, len(found), TRANSACTIONS_PER_SLICE):
        part = found[first : first + TRANSACTIONS_PER_SLICE]
        parts.append(json.dumps({str(one.txn): transaction_metadata(one, topics) for one in part})[1:-1])
        await asyncio.sleep(0)
    return web.Response(body=f"{{{', '.join(parts)}}}".encode(), content_type="application/json")


async def abort(request: web.Request) -> web.Response:
    """Aborts an open transaction; answered when every topic and subscription knows."""
    txn = _txn(request)
    await (await _coordinators(request).at_owner(txn.most)).end(txn, commit=False)
    return done()


async def abort_of_role(request: web.Request) -> web.Response:
    """Aborts the open transactions of the role in the query, at one coordinator or all; returns how many."""
    role = request.query.get("role", "")
    if not role:
        raise BadRequest("role: the name of a role is needed")
    asked = await _asked(request, _in_query(request, "coordinatorId"))
    return answer({"role": role, "aborted": sum([await one.abort_of(role) for one in asked])})


# Topics and subscriptions


async def in_buffer(request: web.Request) -> web.Response:
    """Returns the state of a transaction on a topic."""
    return answer(in_buffer_stats(await _topic(request), _txn(request)))


async def in_pending_ack(request: web.Request) -> web.Response:
    """Returns the cumulative acknowledgement of a transaction on a subscription, if it has made one."""
    return answer(in_pending_ack_stats(await _subscription(request), _txn(request)))


async def stats_of_buffer(request: web.Request) -> web.Response:
    """Returns the transactions of a topic in numbers."""
    topic = await _topic(request)
    by_number = _coordinators(request).by_number if is_true(request, "lowWaterMarks") else None
    return answer(buffer_stats(topic, by_number))


async def stats_of_pending_acks(request: web.Request) -> web.Response:
    """Returns the acknowledgements of open transactions on a subscription in numbers."""
    subscription = await _subscription(request)
    by_number = _coordinators(request).by_number if is_true(request, "lowWaterMarks") else None
    return answer(pending_ack_stats(subscription, by_number))


async def position(request: web.Request) -> web.Response:
    """Returns the state of one message among the acknowledgements of open transactions."""
    subscription = await _subscription(request)
    where = Position(_in_path(request, "ledgerId"), _in_path(request, "entryId"))
    return answer({"state": position_state(subscription, where, _in_query(request, "batchIndex"))})


async def internal_stats_of_buffer(request: web.Request) -> web.Response:
    """Returns the managed ledger that keeps a topic's snapshots: the topic's own."""
    topic = await _topic(request)
    return answer({"snapshotType": "Single", "singleSnapshotSystemTopicInternalStats": _log_of_topic(topic)})


async def internal_stats_of_pending_acks(request: web.Request) -> web.Response:
    """Returns the managed ledger that keeps pending acknowledgements: the topic's own."""
    subscription = await _subscription(request)
    if subscription.transactional is None:
        raise ServiceNotReady("Pending ack have not init success!")
    return answer({"pendingAckLogStats": _log_of_topic(await _topic(request))})


def _log_of_topic(topic: PersistentTopic) -> Json:
    active = {name for name, one in topic.subscriptions.items() if one.consumers}
    return _named(topic.ledger.name, ledger_stats(topic.ledger, active))


def _named(name: str, stats: dict[str, Json]) -> Json:
    return {"managedLedgerName": name, "managedLedgerInternalStats": stats}


_ROOT = "/admin/v3/transactions"
_TOPIC = "{tenant}/{namespace}/{topic}"
_TXN = "{mostSigBits}/{leastSigBits}"

TRANSACTION_ROUTES = (
    web.get(f"{_ROOT}/coordinators", coordinators_list),
    web.get(f"{_ROOT}/coordinatorStats", stats_of_coordinators),
    web.get(f"{_ROOT}/coordinatorInternalStats/{{coordinatorId}}", internal_stats_of_coordinator),
    web.post(f"{_ROOT}/transactionCoordinator/replicas", scale),
    web.get(f"{_ROOT}/transactionMetadata/{_TXN}", metadata),
    web.get(f"{_ROOT}/slowTransactions/{{timeout}}", slow_transactions),
    web.post(f"{_ROOT}/abortTransaction/{_TXN}", abort),
    web.post(f"{_ROOT}/abortTransactionsOfRole", abort_of_role),
    web.get(f"{_ROOT}/transactionInBufferStats/{_TOPIC}/{_TXN}", in_buffer),
    web.get(f"{_ROOT}/transactionInPendingAckStats/{_TOPIC}/{{subName}}/{_TXN}", in_pending_ack),
    web.get(f"{_ROOT}/transactionBufferStats/{_TOPIC}", stats_of_buffer),
    web.get(f"{_ROOT}/pendingAckStats/{_TOPIC}/{{subName}}", stats_of_pending_acks),
    web.get(f"{_ROOT}/transactionBufferInternalStats/{_TOPIC}", internal_stats_of_buffer),
    web.get(f"{_ROOT}/pendingAckInternalStats/{_TOPIC}/{{subName}}", internal_stats_of_pending_acks),
    web.get(f"{_ROOT}/positionStatsInPendingAck/{_TOPIC}/{{subName}}/{{ledgerId}}/{{entryId}}", position),
)
"""Requests about transactions."""
