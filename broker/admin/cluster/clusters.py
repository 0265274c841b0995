"""`/admin/v2/clusters`: the descriptions of clusters, this one's and those that an administrator has stored."""

from __future__ import annotations

from aiohttp import web

from broker.admin.http.answers import answer, empty, object_of
from broker.admin.service_view import BROKER, CLUSTERS
from broker.service.namespaces import Json


async def names(request: web.Request) -> web.Response:
    """Returns the names of all clusters."""
    return answer(list(await request.app[CLUSTERS].names()))


async def get(request: web.Request) -> web.Response:
    """Returns one cluster; of this cluster the addresses too, unless other ones were stored."""
    name = request.match_info["cluster"]
    data: dict[str, Json] = {}
    addresses = request.app[BROKER].addresses
    if name == request.app[BROKER].namespaces.cluster:
        own = {
            "serviceUrl": addresses.admin_url,
            "serviceUrlTls": addresses.admin_url_tls,
            "brokerServiceUrl": addresses.service_url,
            "brokerServiceUrlTls": addresses.service_url_tls,
        }
        data = {field: url for field, url in own.items() if url}
    # Stored fields win over our own addresses: an administrator may have put a proxy in front.
    data.update(await request.app[CLUSTERS].get(name))
    return answer({**data, **_NO_TLS})


async def put(request: web.Request) -> web.Response:
    """Stores a cluster in place of the former description."""
    await request.app[CLUSTERS].put(request.match_info["cluster"], await object_of(request))
    return empty()


async def update(request: web.Request) -> web.Response:
    """Changes the given fields of a cluster."""
    name = request.match_info["cluster"]
    known = await request.app[CLUSTERS].get(name)
    await request.app[CLUSTERS].put(name, {**known, **await object_of(request)})
    return empty()


async def delete(request: web.Request) -> web.Response:
    """Deletes the stored description."""
    await request.app[CLUSTERS].delete(request.match_info["cluster"])
    return empty()


_NO_TLS: dict[str, Json] = {
    "brokerClientTlsEnabled": False,
    "tlsAllowInsecureConnection": False,
    "brokerClientTlsEnabledWithKeyStore": False,
    "brokerClientTlsTrustStoreType": "JKS",
    "brokerClientTlsKeyStoreType": "JKS",
    "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
}
"""Fields that Pulsar shows of a cluster without TLS."""

CLUSTER_ROUTES = (
    web.get("/admin/v2/clusters", names),
    web.get("/admin/v2/clusters/{cluster}", get),
    web.put("/admin/v2/clusters/{cluster}", put),
    web.post("/admin/v2/clusters/{cluster}", update),
    web.delete("/admin/v2/clusters/{cluster}", delete),
)
