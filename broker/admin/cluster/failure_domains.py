"""`/admin/v2/clusters/{cluster}/failureDomains`: brokers that may fail together. Stored and shown; one broker serves all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from broker.admin.http.answers import answer, done, empty
from broker.admin.http.fields import fields_of
from broker.admin.service_view import CLUSTERS
from broker.service.namespaces.clusters import BROKERS
from broker.service.policies.forms import Form, Names

_DOMAINS = "/admin/v2/clusters/{cluster}/failureDomains"
_FIELDS: Final[Mapping[str, Form[Any]]] = {BROKERS: Names()}


async def names(request: web.Request) -> web.Response:
    """Returns the failure domains of a cluster by name; {} for an unknown cluster, as in Pulsar."""
    return answer({**await request.app[CLUSTERS].domains(request.match_info["cluster"])})


async def get(request: web.Request) -> web.Response:
    """Returns one failure domain; 404 if it does not exist."""
    match = request.match_info
    return answer(await request.app[CLUSTERS].domain(match["cluster"], match["domain"]))


async def put(request: web.Request) -> web.Response:
    """Stores a failure domain; 409 for a broker that is in another one."""
    match = request.match_info
    data = await fields_of(request, _FIELDS) or {}
    await request.app[CLUSTERS].set_domain(match["cluster"], match["domain"], data)
    return done()


async def delete(request: web.Request) -> web.Response:
    """Deletes a failure domain; 404 if it does not exist. Pulsar answers 200 here."""
    await request.app[CLUSTERS].delete_domain(request.match_info["cluster"], request.match_info["domain"])
    return empty()


FAILURE_DOMAIN_ROUTES = (
    web.get(_DOMAINS, names),
    web.get(_DOMAINS + "/{domain}", get),
    web.post(_DOMAINS + "/{domain}", put),
    web.delete(_DOMAINS + "/{domain}", delete),
)
"""The routes."""
