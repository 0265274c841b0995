"""`/admin/v2/magnetar/subscriptions/why` and `/admin/v2/magnetar/evictions`: where unacknowledged and missing messages are.

Pulsar has no such routes. `why` names the holes of a subscription, the place of each, and the time since which it is there;
`evictions` lists the messages that backlog quotas have taken. Both open a topic that is not open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from broker.admin.http.answers import BadParameter, answer, time_text, topic_of
from broker.admin.http.request_path import TOPIC_NAME
from broker.admin.service_view import BROKER
from broker.admin.topics.topic_access import one_persistent, subscription_of
from broker.service.policies.table import HOLE_REDELIVERY
from broker.service.policies.values import HoleRedelivery
from broker.service.subscriptions.backlog.evictions import QuotaEviction
from broker.service.subscriptions.backlog.hole_report import HoleReport, HoleRun, report
from broker.service.subscriptions.dispatch.places import Place
from broker.service.subscriptions.hole_watch import HoleLook
from broker.service.subscriptions.subscription import Subscription
from foundation.model.errors import LOST_ENTRY
from foundation.model.position import Position
from foundation.value import Json

LIMIT: Final = 100
"""Runs of holes that `why` answers by default."""
LIMIT_MAX: Final = 10_000
"""The most runs that it answers."""
_NAMES_MAX: Final = 3
"""Consumers that the conclusion names."""


async def why(request: web.Request) -> web.Response:
    """Answers the holes of a subscription: which, where and since when. 400 for a bad limit, 404 for no subscription."""
    broker, name = request.app[BROKER], topic_of(request)
    limit = _limit(request)
    topic = await one_persistent(broker, name, "The question for the holes of a subscription")
    subscription = subscription_of(topic, request.match_info["subscription"])
    policy = broker.registry.policies.of(topic.name, HOLE_REDELIVERY)
    found = await report(subscription, limit)
    cursor, watch = subscription.cursor, subscription.holes
    runs: list[Json] = [_run(one) for one in found.runs]
    places: dict[str, Json] = {place.value: found.places[place] for place in Place}
    consumers: dict[str, Json] = {**found.consumers}
    return answer(
        {
            "topic": str(topic.name),
            "subscription": subscription.name,
            "type": subscription.kind.label,
            "backlog": cursor.backlog,
            "markDeletePosition": _text(cursor.mark_delete_position),
            "readPosition": _text(cursor.read_position),
            "acknowledgedRanges": cursor.acks.beyond.count_ranges(),
            "acknowledgedInMemoryOnly": cursor.store.left_out,
            "awaitsAcknowledgements": cursor.on_acknowledged is not None,
            "redelivery": {
                "enabled": policy.active,
                "periodSeconds": policy.period_s,
                "pendingSeconds": policy.pending_s,
            },
            "redelivered": 0 if watch is None else watch.redelivered,
            "redeliveredFromConsumers": 0 if watch is None else watch.pending_redelivered,
            "lastRedelivery": None if watch is None or not watch.last_ms else time_text(watch.last_ms),
            "places": places,
            "consumers": consumers,
            "holes": runs,
            "holesLeftOut": found.runs_left_out,
            "conclusion": conclusion(subscription, found, policy),
        }
    )


def conclusion(subscription: Subscription, found: HoleReport, policy: HoleRedelivery) -> str:
    """Returns the answer in a sentence for each place that has entries, and one for entries that were not read."""
    sentences = [_sentence(place, found.places[place], found.consumers, policy) for place in Place]
    if not found.places.total():
        sentences = ["Everything that was read is acknowledged."]
    sentences.append(_unread(subscription, subscription.cursor.backlog - found.places.total()))
    text = " ".join(one for one in sentences if one)
    if subscription.cursor.on_acknowledged is not None:
        text += (
            " Nothing new is sent before acknowledgements fit into the cursor's info"
            " (dispatcherPauseOnAckStatePersistentEnabled)."
        )
    return text


def _unread(subscription: Subscription, entries: int) -> str:
    """Returns why the rest of the backlog was not read; an empty text without one."""
    if entries <= 0:
        return ""
    count = f"{entries:,} entries were" if entries > 1 else "1 entry was"
    error = subscription.cursor.last_error
    if error is not None:
        # No place counts the entries after a damaged one: they were never read, so they are no holes.
        remedy = "; bring its file back, or set autoSkipNonRecoverableData=true to skip lost entries"
        at = _text(subscription.cursor.read_position)
        return f"{count} not read, because reading fails at {at}: {error}{remedy if isinstance(error, LOST_ENTRY) else ''}."
    if not subscription.consumers:
        return f"{count} not read: no consumer is connected."
    return f"{count} not read: consumers must ask for more messages."


def _sentence(place: Place, entries: int, consumers: Mapping[str, int], policy: HoleRedelivery) -> str:
    if not entries:
        return ""
    count = f"{entries:,} entries" if entries > 1 else "1 entry"
    match place:
        case Place.CONSUMER:
            most = sorted(consumers.items(), key=lambda one: -one[1])
            names = ", ".join(f"{name} ({pending:,})" for name, pending in most[:_NAMES_MAX])
            more = f" and {len(most) - _NAMES_MAX} more" if len(most) > _NAMES_MAX else ""
            again = (
                f" The broker delivers one again that is pending before an acknowledged entry for {policy.pending_s} s."
                if policy.active and policy.pending_s
                else ""
            )
            return (
                f"{count} pending at {names}{more}: these consumers must acknowledge them, or leave.{again}"
            )
        case Place.REDELIVERY:
            return f"{count} waiting to be delivered again: consumers must ask for more messages."
        case Place.DELAYED:
            return f"{count} waiting for their delivery time."
        case Place.TRANSACTION:
            return f"{count} acknowledged by open transactions, which must end."
        case Place.AHEAD:
            return f"{count} to be read when a consumer asks for messages."
        case Place.FORGOTTEN if policy.active:
            return f"{count} pending at no consumer: the broker delivers them again within {policy.period_s + 60} s."
        case _:
            return f"{count} pending at no consumer: set unackedHoleRedeliveryEnabled=true to have them delivered again."


def _run(run: HoleRun) -> Json:
    return {
        "first": _text(run.first),
        "last": f"{run.first.ledger_id}:{run.last_entry}",
        "entries": run.last_entry - run.first.entry_id + 1,
        "place": run.where.place.value,
        "consumer": None if run.where.consumer is None else run.where.consumer.name,
        "readAfter": _seen(run.read_after),
        "readBefore": _seen(run.read_before),
    }


async def evictions(request: web.Request) -> web.Response:
    """Answers the newest evictions of a topic's backlog quotas, the oldest first."""
    broker, name = request.app[BROKER], topic_of(request)
    topic = await one_persistent(broker, name, "The question for evictions")
    kept = topic.quotas.evictions
    newest: list[Json] = [_eviction(one) for one in kept.newest]
    entries: dict[str, Json] = {**kept.entries}
    return answer({"topic": str(topic.name), "entriesEvicted": entries, "evictions": newest})


def _eviction(one: QuotaEviction) -> Json:
    return {
        "at": time_text(one.at_ms),
        "subscription": one.subscription,
        "quota": one.kind,
        "limit": one.limit,
        "after": _text(one.after),
        "through": _text(one.through),
        "entries": one.entries,
    }


def _limit(request: web.Request) -> int:
    text = request.query.get("limit", str(LIMIT))
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1
    if not 0 <= number <= LIMIT_MAX:
        raise BadParameter(f"limit={text[:50]}: allowed is 0 to {LIMIT_MAX}")
    return number


def _text(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"


def _seen(look: HoleLook | None) -> str | None:
    return None if look is None else time_text(look.wall_ms)


_TOPIC = f"/{TOPIC_NAME}"
HOLE_ROUTES = (
    web.get(f"/admin/v2/magnetar/subscriptions/why{_TOPIC}/{{subscription}}", why),
    web.get(f"/admin/v2/magnetar/evictions{_TOPIC}", evictions),
)
"""Magnetar's own routes about holes and evictions; they need a superuser."""
