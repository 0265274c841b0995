"""Lists of the topics of a namespace: all, partitioned ones, and those of one bundle."""

from __future__ import annotations

import re
import zlib
from itertools import pairwise

from aiohttp import web

from broker.admin.http.answers import PreconditionFailed, answer, is_true, namespace_of
from broker.admin.namespaces.namespace_values import BUNDLES
from broker.admin.service_view import BROKER, BrokerView
from broker.model.topic_name import parse_topic_name
from broker.service.namespaces import Json

_LIST = "/admin/v2/{domain:persistent|non-persistent}/{tenant}/{namespace}"
_RANGE = re.compile(r"0x([0-9a-f]{8})_0x([0-9a-f]{8})")
_LAST_HASH = 0xFFFFFFFF


async def names(request: web.Request) -> web.Response:
    """Returns the topics of a namespace, partitions included, of one bundle where `bundle` names it.

    System topics are listed with `includeSystemTopic=true`. 404 if the namespace does not exist.
    """
    found = await _names(request)
    bundle = request.query.get("bundle")
    if bundle is not None:
        bounds = _bounds(request.app[BROKER], namespace_of(request))
        # Each other text, as in Pulsar, is a bundle without topics.
        found = _in_bundle(found, bundle) if bundle in bounds else []
    return answer([*found])


async def names_in_bundle(request: web.Request) -> web.Response:
    """Returns the non-persistent topics of a bundle; 412 for a range that is no bundle of the namespace."""
    bundle = request.match_info["bundle"]
    found = await _names(request)
    if not _RANGE.fullmatch(bundle):
        raise PreconditionFailed(f"Invalid bundle range: {bundle}")
    if bundle not in _bounds(request.app[BROKER], namespace_of(request)):
        raise PreconditionFailed(f"Invalid bundle range: {bundle} is no bundle of {namespace_of(request)}")
    return answer([*_in_bundle(found, bundle)])


async def partitioned_names(request: web.Request) -> web.Response:
    """Returns the partitioned topics of a namespace; system topics with `includeSystemTopic=true`."""
    broker, namespace = request.app[BROKER], namespace_of(request)
    broker.namespaces.policies(namespace)  # Raises NamespaceNotFound for a namespace that does not exist.
    found = await broker.registry.partitions.names(namespace, request.match_info["domain"])
    return answer([*_without_system(request, found)])


async def _names(request: web.Request) -> list[str]:
    broker, namespace = request.app[BROKER], namespace_of(request)
    broker.namespaces.policies(namespace)
    persistent = request.match_info["domain"] == "persistent"
    found = await broker.registry.names(namespace, persistent=persistent, non_persistent=not persistent)
    return _without_system(request, found)


def _without_system(request: web.Request, found: list[str]) -> list[str]:
    # Only names with this sign can be those of system topics, so that ten thousand others need no parsing.
    if is_true(request, "includeSystemTopic") or namespace_of(request) == "pulsar/system":
        return found
    return [name for name in found if "/__" not in name or not parse_topic_name(name).is_system]


def _bounds(broker: BrokerView, namespace: str) -> list[str]:
    """Returns the bundles of a namespace as Pulsar writes their ranges."""
    stored = broker.namespaces.policies(namespace).get("bundles")
    count: Json = stored.get("numBundles") if isinstance(stored, dict) else None
    bounds: Json = stored.get("boundaries") if isinstance(stored, dict) else None
    if not isinstance(bounds, list):
        number = count if isinstance(count, int) and count > 0 else BUNDLES
        bounds = [f"0x{min(_LAST_HASH, (index << 32) // number):08x}" for index in range(number + 1)]
    return [f"{first}_{last}" for first, last in pairwise(bounds)]


def _in_bundle(found: list[str], bundle: str) -> list[str]:
    match = _RANGE.fullmatch(bundle)
    assert match is not None, "one of the namespace's bundles"
    first, last = int(match[1], 16), int(match[2], 16)
    # The end belongs to the next bundle, but for the last one.
    end = last if last < _LAST_HASH else last + 1
    return [name for name in found if first <= zlib.crc32(name.encode()) < end]


LIST_ROUTES = (
    web.get(_LIST, names),
    web.get(_LIST + "/partitioned", partitioned_names),
    web.get("/admin/v2/{domain:non-persistent}/{tenant}/{namespace}/{bundle}", names_in_bundle),
)
"""Lists of topics."""
