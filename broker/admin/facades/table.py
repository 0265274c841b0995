"""The table of the facades: their routes, and the functions that check, store and show a value. No part of the broker obeys
these values. A feature that becomes real leaves the table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from broker.admin.facades import broker_groups, offload, resource_quotas
from broker.admin.http.answers import answer, done, empty
from broker.admin.http.request_path import NAMESPACE
from foundation.value import Json

_CLUSTER: Final = "/admin/v2/clusters/{cluster}"
_DOMAINS: Final = _CLUSTER + "/failureDomains"
_POLICIES: Final = _CLUSTER + "/namespaceIsolationPolicies"
_QUOTAS: Final = "/admin/v2/resource-quotas"
_QUOTA: Final = _QUOTAS + "/{tenant}/{namespace}/{bundle}"


def _handler(
    run: Callable[[web.Request], Awaitable[Json]], without_value: Callable[[], web.Response] = done
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        value = await run(request)
        return without_value() if value is None else answer(value)

    handle.__doc__ = run.__doc__
    return handle


FACADE_ROUTES: Final = (
    web.get(_DOMAINS, _handler(broker_groups.domains)),
    web.get(_DOMAINS + "/{domain}", _handler(broker_groups.domain)),
    web.post(_DOMAINS + "/{domain}", _handler(broker_groups.set_domain)),
    # Pulsar answers 200 here.
    web.delete(_DOMAINS + "/{domain}", _handler(broker_groups.delete_domain, empty)),
    web.get(_POLICIES, _handler(broker_groups.policies)),
    # `brokers` is a fixed word and cannot be the name of a policy in a GET, as in Pulsar.
    web.get(_POLICIES + "/brokers", _handler(broker_groups.brokers)),
    web.get(_POLICIES + "/brokers/{broker}", _handler(broker_groups.broker)),
    web.get(_POLICIES + "/{policy}", _handler(broker_groups.policy)),
    web.post(_POLICIES + "/{policy}", _handler(broker_groups.set_policy)),
    web.delete(_POLICIES + "/{policy}", _handler(broker_groups.remove_policy)),
    web.get(_QUOTAS, _handler(resource_quotas.default)),
    web.post(_QUOTAS, _handler(resource_quotas.set_default)),
    web.get(_QUOTA, _handler(resource_quotas.quota)),
    web.post(_QUOTA, _handler(resource_quotas.set_quota)),
    web.delete(_QUOTA, _handler(resource_quotas.remove_quota)),
    web.get(NAMESPACE + "/offloadThreshold", _handler(offload.SIZE.show)),
    web.put(NAMESPACE + "/offloadThreshold", _handler(offload.SIZE.store)),
    web.get(NAMESPACE + "/offloadThresholdInSeconds", _handler(offload.AGE.show)),
    # 200 in place of 204, as in Pulsar.
    web.put(NAMESPACE + "/offloadThresholdInSeconds", _handler(offload.AGE.store, empty)),
    web.get(NAMESPACE + "/offloadDeletionLagMs", _handler(offload.LAG.show, empty)),
    web.put(NAMESPACE + "/offloadDeletionLagMs", _handler(offload.LAG.store)),
    web.delete(NAMESPACE + "/offloadDeletionLagMs", _handler(offload.LAG.remove)),
    web.delete(NAMESPACE + "/removeOffloadPolicies", _handler(offload.remove_policies)),
    web.get(NAMESPACE + "/scanOffloadedLedgers", _handler(offload.scan)),
)
"""All routes of the facades; `offloadPolicies` itself is a row of the table of policies."""
