"""The table of the facades: their routes, and the functions that check, store and show a value. No part of the broker obeys
these values. A feature that becomes real leaves the table.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from broker.admin.facades import offload, resource_quotas
from broker.admin.http.answers import answering, empty
from broker.admin.http.request_path import NAMESPACE

_QUOTAS: Final = "/admin/v2/resource-quotas"
_QUOTA: Final = _QUOTAS + "/{tenant}/{namespace}/{bundle}"


FACADE_ROUTES: Final = (
    web.get(_QUOTAS, answering(resource_quotas.default)),
    web.post(_QUOTAS, answering(resource_quotas.set_default)),
    web.get(_QUOTA, answering(resource_quotas.quota)),
    web.post(_QUOTA, answering(resource_quotas.set_quota)),
    web.delete(_QUOTA, answering(resource_quotas.remove_quota)),
    web.get(NAMESPACE + "/offloadThreshold", answering(offload.SIZE.show)),
    web.put(NAMESPACE + "/offloadThreshold", answering(offload.SIZE.store)),
    web.get(NAMESPACE + "/offloadThresholdInSeconds", answering(offload.AGE.show)),
    # 200 in place of 204, as in Pulsar.
    web.put(NAMESPACE + "/offloadThresholdInSeconds", answering(offload.AGE.store, empty)),
    web.get(NAMESPACE + "/offloadDeletionLagMs", answering(offload.LAG.show, empty)),
    web.put(NAMESPACE + "/offloadDeletionLagMs", answering(offload.LAG.store)),
    web.delete(NAMESPACE + "/offloadDeletionLagMs", answering(offload.LAG.remove)),
    web.delete(NAMESPACE + "/removeOffloadPolicies", answering(offload.remove_policies)),
    web.get(NAMESPACE + "/scanOffloadedLedgers", answering(offload.scan)),
)
"""All routes of the facades; `offloadPolicies` itself is a row of the table of policies."""
