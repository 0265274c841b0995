"""`/admin/v2/resource-quotas`: the loads that bundles are expected to have.

Stored and shown: Pulsar's load manager reads them, and one broker has nothing to balance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from aiohttp import web

from broker.admin.http.answers import PreconditionFailed, answer, done, namespace_of, refused
from broker.admin.http.fields import fields_of
from broker.admin.namespaces.policies import existing_namespace
from broker.admin.service_view import BROKER
from broker.service.namespaces.bundles import Bundles, bundles_of
from broker.service.namespaces.documents import Documents
from broker.service.namespaces.namespaces import Json
from broker.service.policies.forms import Flag, Form, Fraction

_QUOTAS: Final = "/admin/v2/resource-quotas"
_BUNDLE: Final = _QUOTAS + "/{tenant}/{namespace}/{bundle}"
_NUMBERS: Final = ("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut", "memory")
_FIELDS: Final[Mapping[str, Form[Any]]] = {**{name: Fraction() for name in _NUMBERS}, "dynamic": Flag()}
_DEFAULT: Final[dict[str, Json]] = {
    "msgRateIn": 40.0,
    "msgRateOut": 120.0,
    "bandwidthIn": 100000.0,
    "bandwidthOut": 300000.0,
    "memory": 80.0,
    "dynamic": True,
}
"""Pulsar's quota of a bundle: messages per second, bytes per second, and MiB of memory."""
_STORED: Final = "resource-quota"
_IN_POLICIES: Final = "resource_quotas"
"""Key of the quotas of a namespace's bundles in its stored policies, so that they end with the namespace."""


async def default(request: web.Request) -> web.Response:
    """Returns the quota of bundles that have none of their own."""
    return answer(await _default(request))


async def set_default(request: web.Request) -> web.Response:
    """Stores that quota; members that are missing are 0, as in Pulsar."""
    await _documents(request).put(_STORED, await _quota(request))
    return done()


async def get(request: web.Request) -> web.Response:
    """Returns the quota of a bundle, or the default one."""
    _, quotas, bundle = _stored(request)
    return answer(quotas.get(bundle) or await _default(request))


async def put(request: web.Request) -> web.Response:
    """Stores the quota of a bundle."""
    namespace, quotas, bundle = _stored(request)
    quota = await _quota(request)
    existing_namespace(request)
    await request.app[BROKER].namespaces.set_policy(namespace, _IN_POLICIES, {**quotas, bundle: quota})
    return done()


async def delete(request: web.Request) -> web.Response:
    """Removes the quota of a bundle; 404 if it has none."""
    namespace, quotas, bundle = _stored(request)
    if bundle not in quotas:
        return refused(404, f"No quota is stored for {namespace}/{bundle}")
    kept = {name: quota for name, quota in quotas.items() if name != bundle}
    await request.app[BROKER].namespaces.set_policy(namespace, _IN_POLICIES, kept or None)
    return done()


async def _default(request: web.Request) -> dict[str, Json]:
    return await _documents(request).get(_STORED) or _DEFAULT


async def _quota(request: web.Request) -> dict[str, Json]:
    given = await fields_of(request, _FIELDS)
    if given is None:
        raise PreconditionFailed("Give the quota as a JSON object")
    for name in _NUMBERS:
        if cast("float", given.get(name, 0)) < 0:
            raise PreconditionFailed(f"{name}={given[name]}: allowed is 0 or more")
    return {**dict.fromkeys(_NUMBERS, 0.0), "dynamic": True, **given}


def _stored(request: web.Request) -> tuple[str, dict[str, Json], str]:
    """Returns the namespace of the path, the quotas of its bundles, and the bundle. Raises BundleRefused."""
    namespaces, namespace = request.app[BROKER].namespaces, namespace_of(request)
    known = namespaces.exists(namespace)
    # Pulsar takes a namespace that does not exist for one with a single bundle.
    bundles = bundles_of(namespaces, namespace) if known else Bundles.equal(1)
    bundle = bundles.find(namespace, request.match_info["bundle"])
    quotas = namespaces.policy(namespace, _IN_POLICIES)
    return namespace, quotas if isinstance(quotas, dict) else {}, str(bundle)


def _documents(request: web.Request) -> Documents:
    return Documents(request.app[BROKER].environment.metadata, "/loadbalance")


RESOURCE_ROUTES = (
    web.get(_QUOTAS, default),
    web.post(_QUOTAS, set_default),
    web.get(_BUNDLE, get),
    web.post(_BUNDLE, put),
    web.delete(_BUNDLE, delete),
)
"""The routes."""
