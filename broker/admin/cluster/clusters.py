"""`/admin/v2/clusters`: the descriptions of clusters, this one's and those that an administrator has stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from broker.admin.http.answers import NotBuilt, answer, done, empty, is_true
from broker.admin.http.fields import fields_of, names_of
from broker.admin.service_view import BROKER, CLUSTERS
from broker.service.namespaces.clusters import PEERS
from broker.service.namespaces.namespaces import Json
from broker.service.policies.forms import Flag, Form, Names, Text
from foundation.model.errors import BrokerError

_CLUSTER = "/admin/v2/clusters/{cluster}"
_FLAGS: Final = ("brokerClientTlsEnabled", "tlsAllowInsecureConnection", "brokerClientTlsEnabledWithKeyStore")
_TEXTS: Final = (
    "serviceUrl",
    "serviceUrlTls",
    "brokerServiceUrl",
    "brokerServiceUrlTls",
    "proxyServiceUrl",
    "proxyProtocol",
    "authenticationPlugin",
    "authenticationParameters",
    "brokerClientTrustCertsFilePath",
    "brokerClientTlsTrustStoreType",
    "brokerClientTlsTrustStore",
    "brokerClientTlsTrustStorePassword",
    "brokerClientTlsKeyStoreType",
    "brokerClientTlsKeyStore",
    "brokerClientTlsKeyStorePassword",
    "brokerClientCertificateFilePath",
    "brokerClientKeyFilePath",
    "brokerClientSslFactoryPlugin",
    "brokerClientSslFactoryPluginParams",
    "listenerName",
)
_FIELDS: Final[Mapping[str, Form[Any]]] = {
    **{name: Text() for name in _TEXTS},
    PEERS: Names(),
    **{name: Flag() for name in _FLAGS},
}
_HOSTS: Final = r"(\[[0-9a-fA-F:.]+\]|[^/,:\s\[\]]+)(:[0-9]{1,5})?"
_URLS: Final = {
    "serviceUrl": ("http", "service url, example: http://pulsar.example.com:8080"),
    "serviceUrlTls": ("https", "service tls url, example: https://pulsar.example.com:8443"),
    "brokerServiceUrl": ("pulsar", "broker service url, example: pulsar://pulsar.example.com:6650"),
    "brokerServiceUrlTls": (
        "pulsar\\+ssl",
        "broker service tls url, example: pulsar+ssl://pulsar.example.com:6651",
    ),
}
_OWN_DEFAULTS: Final[dict[str, Json]] = {
    "brokerClientTlsTrustStoreType": "JKS",
    "brokerClientTlsKeyStoreType": "JKS",
    "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
}
"""Further members that Pulsar shows of the cluster that it made itself."""


class ClusterDataRefused(BrokerError):
    """The description of a cluster lacks a member, or has a wrong one."""

    status = 400


async def names(request: web.Request) -> web.Response:
    """Returns the names of all clusters."""
    return answer(list(await request.app[CLUSTERS].names()))


async def get(request: web.Request) -> web.Response:
    """Returns one cluster; of this cluster the addresses too, unless other ones were stored."""
    name = request.match_info["cluster"]
    stored = await request.app[CLUSTERS].get(name)
    own: dict[str, Json] = {}
    if name == request.app[CLUSTERS].own:
        own = {**request.app[BROKER].addresses.cluster_data, **_OWN_DEFAULTS}
    # Stored members win over our own addresses: an administrator may have put a proxy in front.
    return answer({**own, **dict.fromkeys(_FLAGS, False), **stored})


async def create(request: web.Request) -> web.Response:
    """Stores a new cluster; 409 if it exists."""
    await request.app[CLUSTERS].create(request.match_info["cluster"], await _data(request))
    return empty()


async def update(request: web.Request) -> web.Response:
    """Replaces the description of a cluster; 404 if it does not exist."""
    await request.app[CLUSTERS].update(request.match_info["cluster"], await _data(request))
    return empty()


async def delete(request: web.Request) -> web.Response:
    """Deletes a cluster; 412 for the own one, and while it has isolation policies."""
    await request.app[CLUSTERS].delete(request.match_info["cluster"])
    return done()


async def peers(request: web.Request) -> web.Response:
    """Returns the peers of a cluster; 200 without a body if it has none."""
    found = (await request.app[CLUSTERS].get(request.match_info["cluster"])).get(PEERS)
    return answer(found) if found else empty()


async def set_peers(request: web.Request) -> web.Response:
    """Replaces the peers of a cluster, by none for an empty list; 412 for a cluster that does not exist."""
    await request.app[CLUSTERS].set_peers(request.match_info["cluster"], await names_of(request) or [])
    return done()


async def migration(request: web.Request) -> web.Response:
    """Returns where the clients of a cluster shall go; 404 for a cluster that nothing is stored for, as in Pulsar."""
    return answer(await request.app[CLUSTERS].migration(request.match_info["cluster"]))


async def set_migration(request: web.Request) -> web.Response:
    """Stores where the clients of a cluster shall go, and with `migrated=true` that they shall do so.

    501 for `migrated=true` of this broker's own cluster: it cannot send its clients to another one.
    """
    name, migrated = request.match_info["cluster"], is_true(request, "migrated")
    url = await fields_of(request, {word: Text() for word in _URLS})
    if url is None:
        raise ClusterDataRefused("Give the addresses of the other cluster as a JSON object")
    _check_urls(url)
    if migrated and name == request.app[CLUSTERS].own:
        raise NotBuilt(f"{name}: this version of Magnetar does not send its clients to another cluster")
    await request.app[CLUSTERS].set_migration(
        name, {"migrated": migrated, "migratedClusterUrl": {**url, "empty": not any(url.values())}}
    )
    return empty()


async def _data(request: web.Request) -> dict[str, Json]:
    data = await fields_of(request, _FIELDS)
    if data is None:
        raise ClusterDataRefused("cluster data is required")
    _check_urls(data)
    return data


def _check_urls(data: Mapping[str, Json]) -> None:
    for name, (scheme, words) in _URLS.items():
        url = data.get(name)
        if isinstance(url, str) and url and not re.fullmatch(f"{scheme}://{_HOSTS}(,{_HOSTS})*/?", url):
            raise ClusterDataRefused(f"Illegal {words}")


CLUSTER_ROUTES = (
    web.get("/admin/v2/clusters", names),
    web.get(_CLUSTER, get),
    web.put(_CLUSTER, create),
    web.post(_CLUSTER, update),
    web.delete(_CLUSTER, delete),
    web.get(_CLUSTER + "/peers", peers),
    web.post(_CLUSTER + "/peers", set_peers),
    web.get(_CLUSTER + "/migrate", migration),
    web.post(_CLUSTER + "/migrate", set_migration),
)
"""The routes."""
