"""Bundles of a namespace, and requests for all topics of a namespace or of one bundle: unload, split, clear, unsubscribe."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from broker.admin.http.answers import (
    BadRequest,
    Conflict,
    PreconditionFailed,
    answer,
    body_of,
    done,
    is_true,
    namespace_of,
)
from broker.admin.http.request_path import CHECK_ALONE, NAMESPACE
from broker.admin.service_view import BROKER, RATES, BrokerView
from broker.admin.topics.owner_redirect import sent_to_owner
from broker.admin.topics.stats import rates_of_topic
from broker.config.server_keys import AT_POSITIONS, BY_TOPICS, EQUAL
from broker.service.lifecycle import bundle_division, namespace_topics
from broker.service.namespaces import bundles
from broker.service.namespaces.bundles import (
    Bundle,
    BundleRates,
    bundles_of,
    hashes_by_rates,
    middle_of,
)
from broker.service.namespaces.namespaces import Json, NamespaceNotFound
from foundation.loop.slices import in_slices

_BUNDLE: Final = NAMESPACE + "/{bundle}"
LARGEST: Final = "LARGEST"
"""In the place of a bundle: the one with most topics, open or not."""
HOT: Final = "HOT"
"""In the place of a bundle: the one with most messages per second, in and out."""


async def names(request: web.Request) -> web.Response:
    """Returns the boundaries and the number of the bundles."""
    return answer(bundles_of(request.app[BROKER].namespaces, namespace_of(request)).json())


async def split(request: web.Request) -> web.Response:
    """Splits a bundle, or the largest or hottest one, by `splitAlgorithmName`; with `unload` its parts get new owners."""
    broker, namespace = request.app[BROKER], _namespace(request)
    known_names = broker.settings.list("supportedNamespaceBundleSplitAlgorithms")
    named = request.query.get("splitAlgorithmName")
    if named and named not in known_names:
        raise PreconditionFailed(
            f"Unsupported namespace bundle split algorithm, supported algorithms are [{', '.join(known_names)}]"
        )
    algorithm = named or broker.settings.str("defaultNamespaceBundleSplitAlgorithm")
    positions = await _positions(request) if algorithm == AT_POSITIONS else []
    bundle = await _chosen(request)
    if (elsewhere := await _elsewhere(request, bundle)) is not None:
        return elsewhere
    at = positions or await _divided_at(request, bundle, algorithm)

    unloads = is_true(request, "unload")
    await bundle_division.divide(broker.registry, namespace, bundle, at, unloads=unloads)
    return done()


async def _divided_at(request: web.Request, bundle: Bundle, algorithm: str) -> list[int]:
    """Returns the hashes at which an algorithm divides a bundle; none where it does not."""
    if algorithm == EQUAL:
        return [bundle.middle()]
    broker, namespace = request.app[BROKER], namespace_of(request)
    hashes = {number: name async for name, number in _hashes(broker, namespace, bundle)}
    if algorithm == BY_TOPICS:
        middle = middle_of(hashes)
        return [] if middle is None else [middle]
    settings, rates = broker.settings, {}
    # A topic that is not open has no rates.
    for number, name in ((number, name) for number, name in hashes.items() if name in broker.registry.topics):
        found = rates_of_topic(request.app[RATES](name).row)
        rates[number] = BundleRates(
            found["msgRateIn"] + found["msgRateOut"], found["msgThroughputIn"] + found["msgThroughputOut"]
        )
    most = BundleRates(
        settings.int("loadBalancerNamespaceBundleMaxMsgRate"),
        settings.int("loadBalancerNamespaceBundleMaxBandwidthMbytes") << 20,
    )
    return hashes_by_rates(rates, most, settings.int("flowOrQpsDifferenceThresholdPercentage") / 100)


async def unload_bundle(request: web.Request) -> web.Response:
    """Closes the open topics of a bundle and gives it up, to `destinationBroker` if one is named; 409 where it is not."""
    broker, namespace = request.app[BROKER], _namespace(request)
    bundle = await _chosen(request)
    if (elsewhere := await _elsewhere(request, bundle)) is not None:
        return elsewhere
    ownership, destination = broker.registry.ownership, request.query.get("destinationBroker", "")
    if destination and destination not in ownership.brokers:
        raise Conflict("Not allowed unload namespace bundle to inactive destination broker")
    await ownership.unload(f"{namespace}/{bundle}", destination)
    return done()


async def unload(request: web.Request) -> web.Response:
    """Closes the open topics of a namespace; clients connect again and so open them again."""
    await namespace_topics.unload(request.app[BROKER].registry, _namespace(request))
    return done()


async def clear_backlog(request: web.Request) -> web.Response:
    """Acknowledges all stored messages of a namespace or bundle, for all subscriptions or for one."""
    namespace, match = _namespace(request), request.match_info
    registry = request.app[BROKER].registry
    await namespace_topics.clear_backlog(registry, namespace, _bundle(request), match.get("subscription"))
    return done()


async def unsubscribe(request: web.Request) -> web.Response:
    """Deletes a subscription from all topics of a namespace or bundle; 412 while it has consumers.

    With `CHECK_ALONE` in the query nothing is deleted.
    """
    namespace, match = _namespace(request), request.match_info
    registry = request.app[BROKER].registry
    checks_alone = request.query.get(CHECK_ALONE) == "true"
    act = namespace_topics.check_unused if checks_alone else namespace_topics.unsubscribe
    await act(registry, namespace, _bundle(request), match["subscription"])
    return done()


async def delete(request: web.Request) -> web.Response:
    """Refuses to delete a bundle: 409 while it has topics, 412 for an empty one, which no broker serves.

    Pulsar unloads an empty bundle that it served before, and no more; the range stays there too.
    """
    broker, namespace = request.app[BROKER], namespace_of(request)
    if not broker.namespaces.exists(namespace):
        raise NamespaceNotFound("Namespace does not exist")
    bundle = bundles_of(broker.namespaces, namespace).find(namespace, request.match_info["bundle"])
    async for name in in_slices(await broker.registry.names(namespace), broker.registry.now_ns):
        if bundle.has(name):
            raise Conflict("Cannot delete non empty bundle")
    raise PreconditionFailed(f"Failed to find ownership for ServiceUnit:{namespace}/{bundle}")


async def positions(request: web.Request) -> web.Response:
    """Returns the hashes of the topics of a bundle, or of those that the parameter `topics` names."""
    broker, namespace = request.app[BROKER], _namespace(request)
    bundle = bundles_of(broker.namespaces, namespace).find(namespace, request.match_info["bundle"])
    asked = [name for text in request.query.getall("topics", []) for name in text.split(",") if name]
    hashes: dict[str, Json]
    if asked:
        hashes = {name: bundles.hash_of(name) for name in asked if bundle.has(name)}
    else:
        hashes = {name: number async for name, number in _hashes(broker, namespace, bundle)}
    return answer({"namespace": namespace, "bundle": str(bundle), "topicHashPositions": hashes})


def _namespace(request: web.Request) -> str:
    namespace = namespace_of(request)
    if not request.app[BROKER].namespaces.exists(namespace):
        raise NamespaceNotFound("Namespace not found")
    return namespace


def _bundle(request: web.Request) -> Bundle | None:
    """Returns the bundle in the path, None if there is none in it."""
    text, namespace = request.match_info.get("bundle"), namespace_of(request)
    if text is None:
        return None
    return bundles_of(request.app[BROKER].namespaces, namespace).find(namespace, text)


async def _chosen(request: web.Request) -> Bundle:
    """Returns the bundle in the path, which may say LARGEST or HOT."""
    broker, namespace, text = request.app[BROKER], namespace_of(request), request.match_info["bundle"]
    known = bundles_of(broker.namespaces, namespace)
    if text not in (LARGEST, HOT):
        return known.find(namespace, text)
    weights: dict[Bundle, float] = {}
    names = [str(topic.name) for topic in broker.registry.open_in(namespace)]
    if text == LARGEST:
        names = await broker.registry.names(namespace)
    async for name in in_slices(names, broker.registry.now_ns):
        weight = 1.0
        if text == HOT:
            rates = rates_of_topic(request.app[RATES](name).row)
            weight = rates["msgRateIn"] + rates["msgRateOut"]
        bundle = known.of(name)
        weights[bundle] = weights.get(bundle, 0) + weight
    return max(known.all(), key=lambda bundle: weights.get(bundle, 0))


async def _elsewhere(request: web.Request, bundle: Bundle) -> web.Response | None:
    """Returns the answer that sends a request for the largest or hottest bundle to its owner, by name; None at the owner.

    A request for a bundle with a name is at its owner already.
    """
    text = request.match_info["bundle"]
    if text not in (LARGEST, HOT) or not request.app[BROKER].registry.ownership.is_shared:
        return None
    parts = request.rel_url.raw_path.split("/")
    # By its place: the client may have quoted the word.
    parts[_BUNDLE.count("/")] = str(bundle)
    return await sent_to_owner(request, f"{namespace_of(request)}/{bundle}", "/".join(parts))


async def _hashes(broker: BrokerView, namespace: str, bundle: Bundle) -> AsyncIterator[tuple[str, int]]:
    """Yields the topics of a bundle with their hashes, those that are not open here among them, as Pulsar counts."""
    async for name in in_slices(await broker.registry.names(namespace), broker.registry.now_ns):
        if bundle.has(name):
            yield name, bundles.hash_of(name)


async def _positions(request: web.Request) -> list[int]:
    body = await body_of(request)
    if not body:
        raise PreconditionFailed(f"With {AT_POSITIONS} split algorithm, splitBoundaries must not be empty")
    if not isinstance(body, list) or len(body) > bundles.BUNDLES_MAX:
        raise BadRequest(f"The body must be a JSON list of at most {bundles.BUNDLES_MAX} hashes")
    found = [one for one in body if type(one) is int]
    if len(found) != len(body):
        raise BadRequest("Each hash is a whole number")
    return found


OPERATION_ROUTES = (
    web.get(NAMESPACE + "/bundles", names),
    web.put(NAMESPACE + "/unload", unload),
    web.post(NAMESPACE + "/clearBacklog", clear_backlog),
    web.post(NAMESPACE + "/clearBacklog/{subscription}", clear_backlog),
    web.post(NAMESPACE + "/unsubscribe/{subscription}", unsubscribe),
)
"""Routes with fixed words after the namespace."""
BUNDLE_ROUTES = (
    web.put(_BUNDLE + "/split", split),
    web.put(_BUNDLE + "/unload", unload_bundle),
    web.post(_BUNDLE + "/clearBacklog", clear_backlog),
    web.post(_BUNDLE + "/clearBacklog/{subscription}", clear_backlog),
    web.post(_BUNDLE + "/unsubscribe/{subscription}", unsubscribe),
    web.get(_BUNDLE + "/topicHashPositions", positions),
    web.delete(_BUNDLE, delete),
)
"""The routes of bundles fit many requests for other things below a namespace, so they must be added last."""
