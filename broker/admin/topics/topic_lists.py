"""Lists of the topics of a namespace: all, partitioned ones, and those of one bundle."""

from __future__ import annotations

from aiohttp import web

from broker.admin.http.answers import answer_names, is_true, namespace_of
from broker.admin.service_view import BROKER
from broker.service.namespaces.bundles import Bundle, bundles_of
from broker.service.topics.namespace_names import without_system
from foundation.loop.slices import in_slices

_LIST = "/admin/v2/{domain:persistent|non-persistent}/{tenant}/{namespace}"


async def names(request: web.Request) -> web.Response:
    """Returns the topics of a namespace, partitions included, of one bundle where `bundle` names it.

    System topics are listed with `includeSystemTopic=true`. 404 if the namespace does not exist.
    """
    found = await _names(request)
    bundle = request.query.get("bundle")
    if bundle is not None:
        bundles = {
            str(one): one for one in bundles_of(request.app[BROKER].namespaces, namespace_of(request)).all()
        }
        # Each other text, as in Pulsar, is a bundle without topics.
        found = await _of_bundle(request, found, bundles[bundle]) if bundle in bundles else []
    return await _answer(request, found)


async def names_in_bundle(request: web.Request) -> web.Response:
    """Returns the non-persistent topics of a bundle; 412 for a range that is no bundle of the namespace."""
    namespace, found = namespace_of(request), await _names(request)
    bundle = bundles_of(request.app[BROKER].namespaces, namespace).find(
        namespace, request.match_info["bundle"]
    )
    return await _answer(request, await _of_bundle(request, found, bundle))


async def partitioned_names(request: web.Request) -> web.Response:
    """Returns the partitioned topics of a namespace; system topics with `includeSystemTopic=true`."""
    broker, namespace = request.app[BROKER], namespace_of(request)
    broker.namespaces.policies(namespace)  # Raises NamespaceNotFound for a namespace that does not exist.
    found = await broker.registry.partitions.names(namespace, request.match_info["domain"])
    return await _answer(request, shown_names(request, found))


async def _answer(request: web.Request, found: list[str]) -> web.Response:
    return await answer_names(found, request.app[BROKER].registry.now_ns)


async def _of_bundle(request: web.Request, found: list[str], bundle: Bundle) -> list[str]:
    now_ns = request.app[BROKER].registry.now_ns
    return [name async for name in in_slices(found, now_ns) if bundle.has(name)]


async def _names(request: web.Request) -> list[str]:
    broker, namespace = request.app[BROKER], namespace_of(request)
    broker.namespaces.policies(namespace)
    persistent = request.match_info["domain"] == "persistent"
    found = await broker.registry.names(namespace, persistent=persistent, non_persistent=not persistent)
    return shown_names(request, found)


def shown_names(request: web.Request, found: list[str]) -> list[str]:
    """Returns the names without those of system topics, unless the request asks for them."""
    if is_true(request, "includeSystemTopic") or namespace_of(request) == "pulsar/system":
        return found
    return without_system(found)


LIST_ROUTES = (
    web.get(_LIST, names),
    web.get(_LIST + "/partitioned", partitioned_names),
    web.get("/admin/v2/{domain:non-persistent}/{tenant}/{namespace}/{bundle}", names_in_bundle),
)
"""Lists of topics."""
