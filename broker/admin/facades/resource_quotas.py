"""Resource quotas: the loads that bundles are expected to have.

Pulsar's load manager reads them. One broker has nothing to balance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from aiohttp import web

from broker.admin.http.answers import PreconditionFailed, namespace_of
from broker.admin.http.fields import fields_of
from broker.admin.policy_owner import existing_namespace
from broker.admin.service_view import BROKER
from broker.service.namespaces.bundles import Bundles, bundles_of
from broker.service.namespaces.documents import JsonDocuments
from broker.service.policies.forms import Flag, Form, Fraction
from foundation.model.errors import BrokerError
from foundation.value import Json

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


class QuotaNotFound(BrokerError):
    """The bundle has no quota of its own."""

    status = 404


async def default(request: web.Request) -> Json:
    """Returns the quota of bundles that have none of their own."""
    return await _documents(request).get(_STORED) or _DEFAULT


async def set_default(request: web.Request) -> None:
    """Stores that quota; members that are missing are 0, as in Pulsar."""
    await _documents(request).put(_STORED, await _quota(request))


async def quota(request: web.Request) -> Json:
    """Returns the quota of a bundle, or the default one."""
    _, quotas, bundle = _stored(request)
    return quotas.get(bundle) or await default(request)


async def set_quota(request: web.Request) -> None:
    """Stores the quota of a bundle."""
    namespace, _, bundle = _stored(request)
    given = await _quota(request)
    existing_namespace(request)
    await request.app[BROKER].namespaces.change_policy(
        namespace, _IN_POLICIES, lambda stored: {**_quotas(stored), bundle: given}
    )


async def remove_quota(request: web.Request) -> None:
    """Removes the quota of a bundle; 404 if it has none."""
    namespace, quotas, bundle = _stored(request)
    if bundle not in quotas:
        raise QuotaNotFound(f"No quota is stored for {namespace}/{bundle}")

    def kept(stored: Json) -> Json:
        return {name: one for name, one in _quotas(stored).items() if name != bundle} or None

    await request.app[BROKER].namespaces.change_policy(namespace, _IN_POLICIES, kept)


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
    return namespace, _quotas(namespaces.policy(namespace, _IN_POLICIES)), str(bundle)


def _quotas(stored: Json) -> dict[str, Json]:
    return stored if isinstance(stored, dict) else {}


def _documents(request: web.Request) -> JsonDocuments:
    return JsonDocuments(request.app[BROKER].environment.metadata, "/loadbalance")
