"""The clusters of a namespace: replication, allowed clusters, and anti-affinity groups.

A namespace is on this broker's own cluster. Replication to others is not built, so another cluster is refused with 501.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiohttp import web

from broker.admin.http.answers import (
    NotBuilt,
    PreconditionFailed,
    answer,
    body_of,
    done,
    empty,
)
from broker.admin.http.fields import names_of
from broker.admin.http.request_path import NAMESPACE
from broker.admin.policy_owner import existing_namespace
from broker.admin.service_view import BROKER, CLUSTERS
from broker.service.namespaces.stored_forms import REPLICATION
from broker.service.policies.forms import Flag, named
from broker.service.policies.table import ANTI_AFFINITY
from foundation.model.errors import BrokerError
from foundation.value import Json

ALLOWED: Final = "allowed_clusters"
"""Key of the clusters that it may have."""


class ClusterForbidden(BrokerError):
    """The tenant does not allow the cluster."""

    status = 403


class ClustersRefused(BrokerError):
    """The allowed clusters lack a cluster that the namespace is on."""

    status = 400


async def replication(request: web.Request) -> web.Response:
    """Returns the clusters of a namespace."""
    return answer(_clusters(request))


async def set_replication(request: web.Request) -> web.Response:
    """Sets the clusters of a namespace: this one is the only one possible. Errors as for `checked_clusters`."""
    namespace = existing_namespace(request)
    wanted = await names_of(request)
    if not wanted:
        raise PreconditionFailed("ClusterIds should not be null or empty")
    if "global" in wanted:
        raise ClusterForbidden("Invalid cluster id: global")
    clusters = await checked_clusters(request, wanted)
    await request.app[BROKER].namespaces.set_policy(namespace, REPLICATION, clusters)
    return empty()


async def allowed(request: web.Request) -> web.Response:
    """Returns the clusters that a namespace may have; [] leaves it to the tenant."""
    found = request.app[BROKER].namespaces.policies(existing_namespace(request)).get(ALLOWED)
    return answer(found or [])


async def set_allowed(request: web.Request) -> web.Response:
    """Sets the clusters that a namespace may have. 400 if one that it is on is missing."""
    namespace = existing_namespace(request)
    wanted = await names_of(request)
    if wanted is None:
        raise PreconditionFailed("ClusterIds should not be null or empty")
    _check_tenant(request, wanted)
    missing = [str(one) for one in _clusters(request) if one not in wanted]
    if missing:
        raise ClustersRefused(
            f"Allowed clusters do not contain the replication cluster [{', '.join(missing)}]. Please remove the"
            " replication cluster if the cluster is not allowed for this namespace"
        )
    await _check_existing(request, wanted)
    await request.app[BROKER].namespaces.set_policy(namespace, ALLOWED, list(wanted))
    return empty()


async def migrate(request: web.Request) -> web.Response:
    """Accepts that a namespace stays where it is. 501 for `true`: the broker cannot send its clients elsewhere."""
    existing_namespace(request)
    migrated = await body_of(request)
    with named("migration"):
        if migrated is not None and Flag().read(migrated):
            raise NotBuilt("migration: this version of Magnetar does not send its clients to another cluster")
    return done()


async def with_anti_affinity(request: web.Request) -> web.Response:
    """Returns the namespaces of a tenant that are in an anti-affinity group. 400 without `tenant`."""
    cluster, tenant = request.match_info["cluster"], request.query.get("tenant")
    if not await request.app[CLUSTERS].exists(cluster):
        raise PreconditionFailed(f"Cluster {cluster} does not exist.")
    if not tenant:
        raise ClustersRefused("Tenant should not be null")
    namespaces = request.app[BROKER].namespaces
    group = request.match_info["group"]
    return answer(
        [name for name in namespaces.names(tenant) if namespaces.policy(name, ANTI_AFFINITY.name) == group]
    )


async def checked_clusters(request: web.Request, wanted: Sequence[str]) -> list[Json]:
    """Returns the clusters of a namespace for the store.

    ClusterForbidden if the tenant lacks one, PreconditionFailed for an unknown one, NotBuilt for another than our own.
    """
    _check_tenant(request, wanted)
    await _check_existing(request, wanted)
    own = request.app[CLUSTERS].own
    for name in wanted:
        if name != own:
            raise NotBuilt(f"{name}: this version of Magnetar does not replicate; {own} is its own cluster")
    return list(wanted)


def _check_tenant(request: web.Request, wanted: Sequence[str]) -> None:
    tenant = request.match_info["tenant"]
    known = request.app[BROKER].namespaces.tenant(tenant).get("allowedClusters")
    for name in wanted:
        if not isinstance(known, list) or name not in known:
            raise ClusterForbidden(
                f"Cluster [{name}] is not in the list of allowed clusters list for tenant [{tenant}]"
            )


async def _check_existing(request: web.Request, wanted: Sequence[str]) -> None:
    for name in wanted:
        if not await request.app[CLUSTERS].exists(name):
            raise PreconditionFailed(f"Invalid replication cluster {name}")


def _clusters(request: web.Request) -> list[Json]:
    namespaces = request.app[BROKER].namespaces
    found = namespaces.policies(existing_namespace(request)).get(REPLICATION)
    return found if isinstance(found, list) and found else [namespaces.cluster]


NAMESPACE_CLUSTER_ROUTES = (
    # First: its fixed word stands in the place of a namespace's name.
    web.get("/admin/v2/namespaces/{cluster}/antiAffinity/{group}", with_anti_affinity),
    web.get(NAMESPACE + "/replication", replication),
    web.post(NAMESPACE + "/replication", set_replication),
    web.get(NAMESPACE + "/allowedClusters", allowed),
    web.post(NAMESPACE + "/allowedClusters", set_allowed),
    web.post(NAMESPACE + "/migration", migrate),
)
"""The routes."""
