"""`/admin/v2/brokers`: the brokers of the cluster; readiness and version of this one, health and namespaces of any.

`/admin/v2/metadata/migration`, which Pulsar has for a move to another metadata store, is here too.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aiohttp import web

from broker.admin.http.answers import answer, done, refused
from broker.admin.service_view import BROKER, CLUSTERS, HEALTH
from broker.admin.topics.owner_redirect import sent_on
from broker.cluster.isolation import status_of
from broker.service.lifecycle.namespace_topics import find_owned_bundles
from broker.service.lifecycle.quota_rounds import QuotaRounds
from broker.service.namespaces.bundles import OwnedBundles
from broker.service.namespaces.clusters import ClusterNotFound
from broker.service.namespaces.documents import DocumentUnreadable
from broker.service.namespaces.namespaces import Json
from foundation.model.errors import BrokerError


class BrokerNotFound(BrokerError):
    """The request names a broker that is not in the cluster."""

    status = 404


class MigrationRefused(BrokerError):
    """The metadata cannot be moved to another store."""

    status = 400


async def health(request: web.Request) -> web.Response:
    """Returns 200 `ok` after it stored an entry and a metadata key; 503 names the part that failed.

    `brokerId` names the broker to look at: 307 for another one, 404 for one that is not there. `topicVersion` is
    ignored, as in Pulsar 4.
    """
    asked = request.query.get("brokerId")
    if asked and (elsewhere := _sent_to(request, asked)) is not None:
        return elsewhere
    await request.app[HEALTH].check()
    return _ok()


async def ready(request: web.Request) -> web.Response:
    """Returns 200 `ok` always: this port answers only after the data port is open."""
    return _ok()


async def names(request: web.Request) -> web.Response:
    """Returns the brokers of the cluster.

    Where rights are checked, a cluster that does not exist is 404; otherwise its name is not looked at, as in Pulsar.
    """
    broker, cluster = request.app[BROKER], request.match_info.get("cluster")
    if cluster is not None and broker.authorizer.enabled and not await request.app[CLUSTERS].exists(cluster):
        raise ClusterNotFound("Cluster does not exist")
    return answer([*sorted(broker.registry.ownership.brokers)])


async def check_quotas(request: web.Request) -> web.Response:
    """Compares the backlogs of all open topics with their quotas now, as the broker does from time to time."""
    broker = request.app[BROKER]
    await QuotaRounds(broker.registry, broker.environment.now_ns).run()
    return done()


async def migration_status(request: web.Request) -> web.Response:
    """Returns that the metadata is not being moved to another store: no request can begin that here."""
    return answer({"phase": "NOT_STARTED"})


async def migrate_metadata(request: web.Request) -> web.Response:
    """Refuses to move the metadata to another store with 400, as Pulsar does for a store that cannot be moved."""
    if not request.query.get("target"):
        raise MigrationRefused("Target URL is required")
    raise MigrationRefused(
        "This metadata store cannot be moved while the broker runs; `magnetar admin snapshot` copies it"
    )


async def leader(request: web.Request) -> web.Response:
    """Returns the leader of the cluster. 404 while nobody leads, or its registration is not read yet."""
    ownership = request.app[BROKER].registry.ownership
    leader = ownership.leader
    found = None if leader is None else ownership.brokers.get(leader)
    if found is None:
        raise BrokerNotFound("Couldn't find leader broker")
    return answer({"serviceUrl": found.admin_url or found.admin_url_tls, "brokerId": leader})


async def version(request: web.Request) -> web.Response:
    """Returns Magnetar's version as plain text, which Pulsar calls JSON."""
    return web.Response(text=request.app[BROKER].version, content_type="application/json")


async def internal_configuration(request: web.Request) -> web.Response:
    """Returns the addresses of the metadata store, for tools that read it themselves."""
    url = request.app[BROKER].settings.str("metadataStoreUrl")
    # Two names for each, because tools of older releases read the first two.
    stores: dict[str, Json] = dict.fromkeys(
        (
            "zookeeperServers",
            "configurationStoreServers",
            "metadataStoreUrl",
            "configurationMetadataStoreUrl",
        ),
        url,
    )
    return answer({**stores, "ledgersRootPath": "/ledgers"})


async def owned_namespaces(request: web.Request) -> web.Response:
    """Returns the bundles of the named broker that have open topics: 307 for another one, 404 for one that is not there."""
    broker = request.app[BROKER]
    elsewhere = _sent_to(request, request.match_info["broker"])
    if elsewhere is not None:
        return elsewhere
    owned = OwnedBundles()
    for _ in find_owned_bundles(broker.registry, owned):
        await asyncio.sleep(0)
    clusters = request.app[CLUSTERS]
    policies: dict[str, Json] = {}
    with suppress(ClusterNotFound, DocumentUnreadable):  # No policy was ever stored, or none can be read.
        policies = {**await clusters.isolation_policies(clusters.own)}
    name = broker.addresses.broker_id
    return answer({one: status_of(one.rpartition("/")[0], name, policies) for one in owned.names()})


async def shutdown(request: web.Request) -> web.Response:
    """Stops the process as SIGTERM does: confirmed messages and acknowledgements are stored first."""
    stop = request.app[BROKER].stop_process
    if stop is None:
        return refused(501, "This broker runs inside another program, which has to stop it")
    stop()
    return done()


def _sent_to(request: web.Request, name: str) -> web.Response | None:
    """Returns the answer that sends the request to the broker of this name; None for this broker. BrokerNotFound."""
    ownership = request.app[BROKER].registry.ownership
    # Older tools name a broker by the address of its admin port.
    broker_id = name.removeprefix("http://").removeprefix("https://")
    if broker_id == ownership.owner.broker_id:
        return None
    found = ownership.brokers.get(broker_id)
    if found is None:
        raise BrokerNotFound(f"Broker id '{name}' not found in available brokers.")
    return sent_on(request, found, authoritative=None)


def _ok() -> web.Response:
    return web.Response(body=b"ok", content_type="application/json")


BROKER_ROUTES = (
    web.get("/admin/v2/brokers/health", health),
    web.get("/admin/v2/brokers/ready", ready),
    web.get("/admin/v2/brokers/version", version),
    web.get("/admin/v2/brokers/leaderBroker", leader),
    web.get("/admin/v2/brokers/internal-configuration", internal_configuration),
    web.post("/admin/v2/brokers/shutdown", shutdown),
    web.get("/admin/v2/brokers", names),
    web.get("/admin/v2/brokers/backlog-quota-check", check_quotas),
    web.get("/admin/v2/brokers/{cluster}", names),
    web.get("/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces", owned_namespaces),
    web.get("/admin/v2/metadata/migration/status", migration_status),
    web.post("/admin/v2/metadata/migration/start", migrate_metadata),
)
"""The routes; fixed words come before the name of a cluster."""
