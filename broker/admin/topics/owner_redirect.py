"""The middleware that sends a request about a topic or a bundle to the broker that owns it, as Apache 4.2.4 does.

A request that any broker can answer (policies of namespaces, lists, numbers of partitions, lookups) stays here, and so does
one about all partitions of a topic, which have owners of their own. The answer is 307 with the same path at the owner, or
at the broker that finds one; `authoritative` then says whether the asked broker leads.

A request of the console is asked here for its user, because a browser does not follow it to another broker.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from broker.admin.http.answers import answer, body_of, done
from broker.admin.http.pressure import before_asking_others
from broker.admin.http.principal import PRINCIPAL
from broker.admin.service_view import BROKER
from broker.admin.topics.over_owners import cluster_of
from broker.service.namespaces.bundles import bundles_of
from broker.service.namespaces.namespaces import NamespaceNotFound
from broker.service.topics.topic_ownership import Addresses, Owner
from broker.service.topics.topic_registry import TopicRegistry
from broker.service.transactions.coordinators import ASSIGN_TOPIC, COORDINATORS_MAX
from foundation.model.errors import InvalidTopicName, ServiceNotReady
from foundation.model.topic_name import PERSISTENT, TopicName, parse_topic_name

_ANYWHERE: Final = (
    "/partitions",
    "/partitioned-",
    "/createMissedPartitions",
    "/permissions",
    "/terminate/partitions",
)
"""Ends of paths of a topic, or their beginnings, that any broker answers."""
_TRANSACTIONS: Final = "/admin/v3/transactions/"
_BUNDLE: Final = "/admin/v2/namespaces/{tenant}/{namespace}/{bundle}"
_OF_BUNDLE: Final = (
    _BUNDLE + "/unload",
    _BUNDLE + "/split",
    _BUNDLE + "/clearBacklog",
    _BUNDLE + "/clearBacklog/{subscription}",
    _BUNDLE + "/unsubscribe/{subscription}",
    "/admin/v2/{domain}/{tenant}/{namespace}/{bundle}",
)
_ROOTS: Final = (
    "/admin/v2/{domain}",
    "/admin/v2/persistent",
    "/admin/v2/non-persistent",
    "/admin/v2/schemas",
    "/admin/v2/magnetar/subscriptions/why/{domain}",
    "/admin/v2/magnetar/evictions/{domain}",
    "/admin/v2/magnetar/cache/why/{domain}",
    "/topics/{domain}",
)
"""Paths before the topic."""
FROM_CONSOLE: Final = "Magnetar-Console"
"""The header of the console's requests."""
_CONSOLE: Final = "/admin/v2/magnetar/console/"
_CONSOLE_ROOTS: Final = (f"{_CONSOLE}topics/{{domain}}", f"{_CONSOLE}messages/{{domain}}")


@web.middleware
async def send_to_owner(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers 307 where another broker owns the topic or bundle in the path, or has to find the owner."""
    registry = request.app[BROKER].registry
    ownership = registry.ownership
    if not ownership.is_shared:
        return await handler(request)
    try:
        bundle = await _bundle_of(request, registry)
    except (InvalidTopicName, NamespaceNotFound):
        return await handler(request)  # The handler refuses it in its own words.
    if bundle is None:
        return await handler(request)
    elsewhere = await sent_to_owner(request, bundle)
    return await handler(request) if elsewhere is None else elsewhere


async def sent_to_owner(request: web.Request, bundle: str, path: str = "") -> web.Response | None:
    """Returns the answer that sends a request to the owner of a bundle; None where this broker is that, or is by now.

    `path` as in `sent_on`.
    """
    ownership = request.app[BROKER].registry.ownership
    authoritative = request.query.get("authoritative") == "true"
    owner = await ownership.owner_of_bundle(bundle, authoritative=authoritative)
    if owner.addresses == ownership.owner:
        return None
    if FROM_CONSOLE in request.headers and _may_all(request):
        return await _asked(request, owner, path or request.rel_url.raw_path)
    leads = ownership.leader == ownership.owner.broker_id
    return sent_on(request, owner.addresses, authoritative=leads, path=path)


def _may_all(request: web.Request) -> bool:
    """Returns True for a role that no check at the owner could refuse: this broker asks with rights of its own."""
    authorizer = request.app[BROKER].authorizer
    return not authorizer.enabled or authorizer.is_superuser(request[PRINCIPAL])


async def _asked(request: web.Request, owner: Owner, path: str) -> web.Response:
    """Returns the owner's answer. Raises as `Peers.request`, and QueueFull."""
    await before_asking_others(request)
    query = {**request.query, **({"authoritative": "true"} if owner.authoritative else {})}
    body = None if request.method == "GET" else await body_of(request)
    peers = cluster_of(request.app[BROKER]).peers
    found = await peers.request(owner.addresses, request.method, path, query=query, body=body)
    return done() if found.body is None else answer(found.body)


def sent_on(
    request: web.Request, to: Addresses, *, authoritative: bool | None, path: str = ""
) -> web.Response:
    """Returns the answer that sends a request to another broker. ServiceNotReady for one without a port of its kind.

    `authoritative` is None for a request about the broker itself, which goes there as it is. `path`: another one than that
    of the request, quoted.
    """
    # From TLS to TLS alone: the request may have a token.
    base = to.admin_url_tls if request.secure else to.admin_url or to.admin_url_tls
    if not base:
        raise ServiceNotReady("The broker that has to answer has no admin port of this kind")
    url = request.rel_url
    if authoritative is not None:
        url = url.update_query(authoritative="true" if authoritative else "false")
    query = f"?{url.raw_query_string}" if url.raw_query_string else ""
    # As a text: joined by yarl, the path of the subscription `..` would become that of its topic.
    return web.Response(status=307, headers={"Location": f"{base}{path or url.raw_path}{query}"})


async def _bundle_of(request: web.Request, registry: TopicRegistry) -> str | None:
    """Returns the bundle whose owner answers the request; None where every broker does."""
    resource = request.match_info.route.resource
    path = "" if resource is None else resource.canonical
    if path in _OF_BUNDLE:
        return _named_bundle(request, registry)
    if (number := _coordinator_of(request, path)) is not None:
        return registry.ownership.bundle_of(ASSIGN_TOPIC.with_partition(number))
    name = _topic_of(request, path)
    if name is None or await registry.partitions.count(name):
        return None
    return registry.ownership.bundle_of(name)


def _named_bundle(request: web.Request, registry: TopicRegistry) -> str | None:
    namespace = f"{request.match_info['tenant']}/{request.match_info['namespace']}"
    text = request.match_info["bundle"]
    known = {str(bundle) for bundle in bundles_of(registry.namespaces, namespace).all()}
    return f"{namespace}/{text}" if text in known else None


def _coordinator_of(request: web.Request, path: str) -> int | None:
    """Returns the number of the transaction coordinator that the request names; None where it names none."""
    if not path.startswith(_TRANSACTIONS) or "{topic}" in path:
        return None
    match = request.match_info
    text = match.get("mostSigBits") or match.get("coordinatorId") or request.query.get("coordinatorId", "")
    # The handler refuses every other text.
    return (
        int(text)
        if len(text) < len(str(COORDINATORS_MAX)) + 1 and text.isascii() and text.isdecimal()
        else None
    )


def _topic_of(request: web.Request, path: str) -> TopicName | None:
    root, found, rest = path.partition("/{tenant}/{namespace}/{topic}")
    is_known = (
        root in _ROOTS
        or root.startswith(_TRANSACTIONS)
        or (root in _CONSOLE_ROOTS and FROM_CONSOLE in request.headers and _may_all(request))
    )
    match = request.match_info
    publishes_to_one = root == "/topics/{domain}" and "partition" in match
    if not found or not is_known or (rest.startswith(_ANYWHERE) and not publishes_to_one):
        return None
    domain = match.get("domain", "non-persistent" if root.endswith("non-persistent") else PERSISTENT)
    name = parse_topic_name(f"{domain}://{match['tenant']}/{match['namespace']}/{match['topic']}")
    return name.with_partition(int(match["partition"])) if publishes_to_one else name
