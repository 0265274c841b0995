"""The middleware for requests about a topic whose partitions several brokers own, and about a namespace: it asks all owners.

As Apache's brokers do, it sends the request on for each partition, or for each bundle of the namespace, and joins the
answers. Where this broker owns all partitions the handler does the whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast
from urllib.parse import quote

from aiohttp import web
from aiohttp.typedefs import Handler

from broker.admin.http.answers import (
    PreconditionFailed,
    answer,
    answer_names,
    body_of,
    done,
    empty,
    namespace_of,
    topic_of,
)
from broker.admin.http.pressure import before_asking_others
from broker.admin.http.principal import PRINCIPAL
from broker.admin.http.request_path import CHECK_ALONE, NAMESPACE, template_of
from broker.admin.service_view import BROKER, BrokerView
from broker.admin.topics.partitioned_stats import joined_stats
from broker.admin.topics.topic_access import partitioned_shown
from broker.peers.peers import PeerAnswer, PeerRefused
from broker.service.internal_cursors import INTERNAL_CURSORS
from broker.service.namespaces.bundles import bundles_of
from broker.service.namespaces.namespaces import Json
from broker.service.topics.topic_ownership import Addresses
from broker.service.transactions.coordinators import ASSIGN_TOPIC
from foundation.model.errors import BrokerError, Unauthorized
from foundation.model.topic_name import NON_PERSISTENT, TopicName

if TYPE_CHECKING:
    from broker.cluster.ownership import ClusterOwnership

Part = TypeVar("Part")

AT_ONCE: Final = 20
"""Requests to owners that are out at the same time for one request; none of them asks others."""
_MISSING: Final = 404
_CONFLICT: Final = 409


class OwnerAnswer(NamedTuple):
    """The answer of the owner of a partition or bundle."""

    name: str
    """Full name of the partition, or the bundle."""
    body: Json = None
    """The body of an answer that is no error."""
    error: BrokerError | None = None
    """The refusal."""


Join = Callable[[web.Request, Sequence[OwnerAnswer]], Awaitable[web.Response]]
"""Makes the answer of those of all parts, or raises the error that stands for all."""


class Rule(NamedTuple):
    """How a request is divided."""

    join: Join
    """Makes the answer."""
    path: str = ""
    """End of the path for a partition where it is not that of the request."""


def _bodies(outcomes: Iterable[OwnerAnswer]) -> list[tuple[str, Json]]:
    """Returns all bodies. Raises the first error."""
    found = []
    for one in outcomes:
        if one.error is not None:
            raise one.error
        found.append((one.name, one.body))
    return found


async def _done_in_some(status: int, _: web.Request, outcomes: Sequence[OwnerAnswer]) -> web.Response:
    """Succeeds where one part did it and all others answered `status`: it was done there, or there was nothing to do."""
    refused = [one.error for one in outcomes if one.error is not None]
    others = [error for error in refused if error.status != status]
    if others or (refused and len(refused) == len(outcomes)):
        raise (others or refused)[0]
    return done()


_done = partial(_done_in_some, 0)
_done_where_it_is = partial(_done_in_some, _MISSING)


def _sorted_names(outcomes: Sequence[OwnerAnswer]) -> list[str]:
    return sorted({str(name) for _, body in _bodies(outcomes) if isinstance(body, list) for name in body})


async def _names(_: web.Request, outcomes: Sequence[OwnerAnswer]) -> web.Response:
    return answer([*_sorted_names(outcomes)])


async def _emptied(request: web.Request, outcomes: Sequence[OwnerAnswer]) -> web.Response:
    await _done(request, outcomes)
    return empty()


async def _merged(_: web.Request, outcomes: Sequence[OwnerAnswer]) -> web.Response:
    merged: dict[str, Json] = {}
    for _name, body in _bodies(outcomes):
        if isinstance(body, dict):
            merged.update(body)
    return answer(merged)


async def _by_index(_: web.Request, outcomes: Sequence[OwnerAnswer]) -> web.Response:
    return answer({str(index): body for index, (_name, body) in enumerate(_bodies(outcomes))})


async def _by_partition(request: web.Request, outcomes: Sequence[OwnerAnswer]) -> web.Response:
    shown = await partitioned_shown(request.app[BROKER], topic_of(request))
    return answer({"metadata": shown, "partitions": dict(_bodies(outcomes))})


async def _info(_: web.Request, outcomes: Sequence[OwnerAnswer]) -> web.Response:
    return answer({"version": 0, "partitions": dict(_bodies(outcomes))})


async def _stats(request: web.Request, outcomes: Sequence[OwnerAnswer]) -> web.Response:
    found = [(name, body) for name, body in _bodies(outcomes) if isinstance(body, dict)]
    return joined_stats(request, found, await partitioned_shown(request.app[BROKER], topic_of(request)))


_TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
_SUBSCRIPTION: Final = "/subscription/{subscription}"
_SECONDS: Final = "{seconds}"
RULES: Final[dict[tuple[str, str], Rule]] = {
    ("GET", "/subscriptions"): Rule(_names),
    ("PUT", _SUBSCRIPTION): Rule(partial(_done_in_some, _CONFLICT)),
    ("DELETE", _SUBSCRIPTION): Rule(_done_where_it_is),
    ("POST", f"{_SUBSCRIPTION}/resetcursor/{{timestamp}}"): Rule(_done),
    ("GET", f"{_SUBSCRIPTION}/properties"): Rule(_merged),
    ("PUT", f"{_SUBSCRIPTION}/properties"): Rule(_done),
    ("GET", f"{_SUBSCRIPTION}/replicatedSubscriptionStatus"): Rule(_merged),
    ("POST", f"{_SUBSCRIPTION}/replicatedSubscriptionStatus"): Rule(_done),
    ("POST", f"{_SUBSCRIPTION}/skip_all"): Rule(_done_where_it_is),
    ("POST", f"{_SUBSCRIPTION}/expireMessages/{_SECONDS}"): Rule(_done_where_it_is),
    ("POST", f"/all_subscription/expireMessages/{_SECONDS}"): Rule(_done),
    ("PUT", "/unload"): Rule(_done),
    ("POST", "/terminate/partitions"): Rule(_by_index, "/terminate"),
    ("PUT", "/compaction"): Rule(_done),
    ("DELETE", "/truncate"): Rule(_done),
    ("POST", "/trim"): Rule(_emptied),
    ("GET", "/partitioned-stats"): Rule(_stats, "/stats"),
    ("GET", "/partitioned-internalStats"): Rule(_by_partition, "/internalStats"),
    ("GET", "/internal-info"): Rule(_info),
}
"""By method and end of the template, after the topic."""


async def _sum_of_role(request: web.Request, outcomes: Sequence[OwnerAnswer]) -> web.Response:
    found = [body["aborted"] for _, body in _bodies(outcomes) if isinstance(body, dict)]
    aborted = sum([count for count in found if isinstance(count, int)])
    return answer({"role": request.query.get("role", ""), "aborted": aborted})


async def _by_coordinator(_: web.Request, outcomes: Sequence[OwnerAnswer]) -> web.Response:
    return answer(dict(_bodies(outcomes)))


_OF_COORDINATORS: Final[dict[tuple[str, str], Join]] = {
    ("GET", "/admin/v3/transactions/coordinatorStats"): _by_coordinator,
    ("GET", "/admin/v3/transactions/slowTransactions/{timeout}"): _merged,
    ("POST", "/admin/v3/transactions/abortTransactionsOfRole"): _sum_of_role,
}
"""By method and template: requests about all transaction coordinators, unless the query names one."""
_ALL_SUBSCRIPTIONS: Final = f"/all_subscription/expireMessages/{_SECONDS}"
_LIST: Final = "GET", "/admin/v2/{domain}/{tenant}/{namespace}"
"""Persistent topics are in the store, and every broker lists them all."""
_IN_HANDLERS: Final = {
    ("POST", f"{_TOPIC}/partitions"),
    ("DELETE", f"{_TOPIC}/partitions"),
    ("DELETE", NAMESPACE),
    ("DELETE", "/admin/v2/tenants/{tenant}"),
}
"""By method and template: requests whose handlers ask the owners of topics."""
_OF_NAMESPACE: Final = {
    ("PUT", "/unload"),
    ("POST", "/clearBacklog"),
    ("POST", "/clearBacklog/{subscription}"),
    ("POST", "/unsubscribe/{subscription}"),
}
"""By method and end of the template, after the namespace; each route has one for a bundle."""


@web.middleware
async def ask_all_owners(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Sends a request about several bundles on to the owner of each, and answers with what they say together."""
    broker = request.app[BROKER]
    template = template_of(request)
    if not broker.registry.ownership.is_shared or template is None:
        return await handler(request)
    ownership = cluster_of(broker)
    if (request.method, template) in _IN_HANDLERS:
        await before_asking_others(request)
        return await handler(request)
    if (request.method, template) == _LIST and request.match_info["domain"] == NON_PERSISTENT:
        return await answer_names(await non_persistent_names(request), broker.registry.now_ns)
    of_coordinators = _OF_COORDINATORS.get((request.method, template))
    if of_coordinators is not None and "coordinatorId" not in request.query:
        await before_asking_others(request)
        return await of_coordinators(request, await _ask_coordinators(request, ownership))
    of_namespace = request.method, template.removeprefix(NAMESPACE)
    if of_namespace in _OF_NAMESPACE:
        await before_asking_others(request)
        return await _ask_bundles(request, ownership)
    rule = RULES.get((request.method, template.removeprefix(_TOPIC)))
    if rule is None:
        return await handler(request)
    name = topic_of(request)
    owners = await _owners_of_partitions(broker, ownership, name)
    if not owners:
        return await handler(request)
    await before_asking_others(request)
    if template.endswith(_ALL_SUBSCRIPTIONS):
        await _check_subscriptions(request, ownership, owners)
    ask = partial(_ask_partition, request, ownership, rule, await body_of(request))
    return await rule.join(request, await _all_of([*owners.items()], ask))


def cluster_of(broker: BrokerView) -> ClusterOwnership:
    """Returns the ownership of a broker that shares its store."""
    # The class is imported by brokers with such a store alone.
    return cast("ClusterOwnership", broker.registry.ownership)


async def _owners_of_partitions(
    broker: BrokerView, ownership: ClusterOwnership, name: TopicName
) -> dict[TopicName, Addresses]:
    """Returns all partitions of a topic with their owners, none where this broker owns all of them."""
    count = await broker.registry.partitions.count(name) if name.partition < 0 else 0
    found = await ownership.located_all(name.with_partition(index) for index in range(count))
    return {} if all(owner == ownership.owner for owner in found.values()) else found


async def _ask_partition(
    request: web.Request,
    ownership: ClusterOwnership,
    rule: Rule,
    body: Json,
    part: tuple[TopicName, Addresses],
) -> OwnerAnswer:
    name, owner = part
    path = _path_of(name, rule.path or _end_of(request, _TOPIC))
    try:
        found = await ownership.peers.request(owner, request.method, path, query=request.query, body=body)
    except BrokerError as error:
        return OwnerAnswer(str(name), error=error)
    return OwnerAnswer(str(name), found.body)


async def _bundles(request: web.Request) -> list[str]:
    """Returns the ranges of the namespace's bundles as they are stored now. Raises NamespaceNotFound, MetadataError."""
    broker, namespace = request.app[BROKER], namespace_of(request)
    # Another broker may have divided one a moment ago.
    await broker.environment.metadata.sync()
    await broker.namespaces.stored.read_newest(namespace)
    return [str(one) for one in bundles_of(broker.namespaces, namespace).all()]


async def _list(request: web.Request, ownership: ClusterOwnership, bundle: str) -> OwnerAnswer:
    """Asks the owner for the non-persistent topics of a bundle; one without an owner has none."""
    namespace = namespace_of(request)
    try:
        owner = await ownership.leases.owner(f"{namespace}/{bundle}")
        if owner is None:
            return OwnerAnswer(bundle, [])
        path = f"/admin/v2/{NON_PERSISTENT}/{namespace}/{bundle}"
        found = await ownership.peers.request(owner, "GET", path, query=request.query)
    except BrokerError as error:
        return OwnerAnswer(bundle, error=error)
    return OwnerAnswer(bundle, found.body)


async def non_persistent_names(request: web.Request) -> list[str]:
    """Returns the open non-persistent topics of the namespace in the path at all owners. Raises their errors."""
    ownership = cluster_of(request.app[BROKER])
    await before_asking_others(request)
    return _sorted_names(await _all_of(await _bundles(request), partial(_list, request, ownership)))


async def _ask_bundles(request: web.Request, ownership: ClusterOwnership) -> web.Response:
    namespace, end = namespace_of(request), _end_of(request, NAMESPACE)

    async def ask(bundle: str, further: Mapping[str, str] | None = None) -> OwnerAnswer:
        path = f"/admin/v2/namespaces/{namespace}/{bundle}{end}"
        return await _ask(request, ownership, bundle, f"{namespace}/{bundle}", path, further)

    bundles = await _bundles(request)  # Also for its refusal of a namespace that is missing.
    if end == "/unload":
        return await _done(request, await _of_all_owned(namespace, ownership, ask))
    if end.startswith("/unsubscribe/"):
        # The refusal of one owner changes no topic of another one.
        await _done(request, await _all_of(bundles, partial(ask, further={CHECK_ALONE: "true"})))
    return await _done(request, await _all_of(bundles, ask))


async def _of_all_owned(
    namespace: str, ownership: ClusterOwnership, ask: Callable[[str], Awaitable[OwnerAnswer]]
) -> list[OwnerAnswer]:
    """Asks about each bundle that has an owner: elsewhere nothing is open."""
    outcomes: dict[str, OwnerAnswer] = {}
    # Until none is new: one that is divided meanwhile, wherever, leaves its topics to parts that have an owner too.
    while new := sorted((owned := await ownership.leases.owned_in(namespace)) - outcomes.keys()):
        outcomes.update((one.name, one) for one in await _all_of(new, ask))
    return [one for one in outcomes.values() if one.error is None or one.name in owned]


async def _ask_coordinators(request: web.Request, ownership: ClusterOwnership) -> list[OwnerAnswer]:
    """Asks the owner of each transaction coordinator; those that nobody has opened have nothing to say."""
    count = await request.app[BROKER].registry.partitions.count(ASSIGN_TOPIC)

    async def ask(number: int) -> OwnerAnswer:
        bundle, query = (
            ownership.bundle_of(ASSIGN_TOPIC.with_partition(number)),
            {"coordinatorId": str(number)},
        )
        return await _ask(request, ownership, str(number), bundle, request.rel_url.raw_path, query)

    found = await _all_of(range(count), ask)
    return [one for one in found if one.error is None or one.error.status != _MISSING]


async def _ask(
    request: web.Request,
    ownership: ClusterOwnership,
    name: str,
    bundle: str,
    path: str,
    further: Mapping[str, str] | None = None,
) -> OwnerAnswer:
    """Sends the request, with `further` in its query, to the owner of the bundle, which may be this broker."""
    try:
        owner = await ownership.owner_of_bundle(bundle)
        query = {**request.query, **(further or {})}
        if owner.authoritative:
            query["authoritative"] = "true"
        found = await ownership.peers.request(owner.addresses, request.method, path, query=query)
    except BrokerError as error:
        return OwnerAnswer(name, error=error)
    return OwnerAnswer(name, found.body)


async def _check_subscriptions(
    request: web.Request, ownership: ClusterOwnership, owners: Mapping[TopicName, Addresses]
) -> None:
    """Raises Unauthorized unless the client may use each subscription: other brokers know this broker's role alone."""
    broker = request.app[BROKER]
    for name, owner in owners.items():
        found = (await ownership.peers.request(owner, "GET", _path_of(name, "/subscriptions"))).body
        for one in found if isinstance(found, list) else ():
            allowed = broker.authorizer.may_consume(request[PRINCIPAL], name, str(one))
            if one not in INTERNAL_CURSORS and not allowed:
                raise Unauthorized(f"Unauthorized to expire messages of subscription {one}: it needs consume")


def _end_of(request: web.Request, template: str) -> str:
    """Returns the part of the path after that of the template, quoted as the client has quoted it."""
    # By the number of parts: the client may have quoted the names before it.
    parts = template.count("/") + 1
    return "/" + request.rel_url.raw_path.split("/", parts)[parts]


async def _all_of(parts: Sequence[Part], ask: Callable[[Part], Awaitable[OwnerAnswer]]) -> list[OwnerAnswer]:
    """Asks about all parts, some at a time; returns the outcomes in their order."""
    found: list[OwnerAnswer] = []
    for first in range(0, len(parts), AT_ONCE):
        found += await asyncio.gather(*map(ask, parts[first : first + AT_ONCE]))
    return found


async def check_unused_elsewhere(broker: BrokerView, name: TopicName) -> None:
    """Raises PreconditionFailed while clients are connected to a partition at another broker."""
    ownership = cluster_of(broker)
    for part, owner in (await _owners_of_partitions(broker, ownership, name)).items():
        if owner == ownership.owner:
            continue
        try:
            shown = (await ownership.peers.request(owner, "GET", _path_of(part, "/stats"))).body
        except PeerRefused as error:
            if error.status == _MISSING:
                continue
            raise
        if _is_used(shown):
            raise PreconditionFailed(f"Topic {part} has connected clients")


def _is_used(shown: Json) -> bool:
    """Returns True where the statistics of a topic have producers or consumers."""
    found = shown if isinstance(shown, dict) else {}
    subscriptions = found.get("subscriptions")
    of_each = subscriptions.values() if isinstance(subscriptions, dict) else ()
    return bool(found.get("publishers")) or any(
        isinstance(one, dict) and one.get("consumers") for one in of_each
    )


async def copy_subscriptions(broker: BrokerView, name: TopicName, new: range) -> None:
    """Makes the durable subscriptions of the first partition on new ones, at their owners. Raises BrokerError."""
    ownership, first = cluster_of(broker), name.with_partition(0)
    shown = (await _ask_about(ownership, "GET", first, "/stats", None)).body
    subscriptions = shown.get("subscriptions") if isinstance(shown, dict) else None
    durable = [
        one
        for one, values in (subscriptions.items() if isinstance(subscriptions, dict) else ())
        if isinstance(values, dict) and values.get("isDurable") and one not in INTERNAL_CURSORS
    ]
    for index in new:
        for one in durable:
            end = f"/subscription/{quote(one, safe='')}"
            try:
                await _ask_about(ownership, "PUT", name.with_partition(index), end, "earliest")
            except PeerRefused as error:
                if error.status != _CONFLICT:  # A client has made it.
                    raise


async def _ask_about(
    ownership: ClusterOwnership, method: str, name: TopicName, end: str, body: Json
) -> PeerAnswer:
    """Sends a request about a topic to its owner, which may be this broker. Raises as `Peers.request`."""
    owner = await ownership.owner_of(name)
    query = {"authoritative": "true"} if owner.authoritative else {}
    return await ownership.peers.request(owner.addresses, method, _path_of(name, end), query=query, body=body)


async def owned_elsewhere(broker: BrokerView, parts: Iterable[TopicName]) -> dict[TopicName, Addresses]:
    """Returns the owners of those partitions that this broker does not own. Raises ServiceNotReady and MetadataError."""
    ownership = broker.registry.ownership
    found = await ownership.located_all(parts)
    return {part: owner for part, owner in found.items() if owner != ownership.owner}


async def publish_at_owners(
    broker: BrokerView, owners: Mapping[TopicName, Addresses], bodies: Mapping[TopicName, Json]
) -> list[OwnerAnswer]:
    """Sends each body of `POST /topics/…` to the owner of its partition; returns the outcomes in their order."""
    ownership = cluster_of(broker)

    async def ask(part: TopicName) -> OwnerAnswer:
        local = quote(part.base.local, safe="")
        path = f"/topics/{part.domain}/{part.namespace}/{local}/partitions/{part.partition}"
        try:
            found = await ownership.peers.request(owners[part], "POST", path, body=bodies[part])
        except BrokerError as error:
            return OwnerAnswer(str(part), error=error)
        return OwnerAnswer(str(part), found.body)

    return await _all_of([*bodies], ask)


def _path_of(name: TopicName, end: str) -> str:
    return f"/admin/v2/{name.domain}/{name.namespace}/{quote(name.local, safe='')}{end}"
