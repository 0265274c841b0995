"""`/admin/v2/bookies`: the bookies of this broker, and the racks that an administrator has stored for bookies.

Racks are stored under Pulsar's key and shown. The choice of bookies for a ledger does not look at them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, cast

from aiohttp import web

from broker.admin.http.answers import BadRequest, PreconditionFailed, answer, done, refused
from broker.admin.http.fields import fields_of
from broker.admin.service_view import BROKER
from broker.service.namespaces.documents import JsonDocuments
from broker.service.namespaces.namespaces import Json
from broker.service.policies.forms import Form, Text

_RACKS: Final = "/admin/v2/bookies/racks-info"
_STORED: Final = "bookies"
"""Pulsar keeps all racks in one value, `/bookies` of the metadata store."""
_FIELDS: Final[Mapping[str, Form[Any]]] = {"rack": Text(0, 1_000), "hostname": Text(0, 1_000)}
_CHANGING: Final = web.AppKey("racks_changing", asyncio.Lock)
"""All racks are one value, so two changes at once would lose one of them."""

Groups = dict[str, dict[str, Json]]
"""Racks of bookies by group."""


async def names(request: web.Request) -> web.Response:
    """Returns the bookies that get new entries, connected or not."""
    found: list[Json] = [{"bookieId": name} for name in request.app[BROKER].environment.ledgers.bookies.names]
    return answer({"bookies": found})


async def racks(request: web.Request) -> web.Response:
    """Returns the racks of all bookies by group."""
    return answer({**await _groups(request)})


async def rack(request: web.Request) -> web.Response:
    """Returns the rack of one bookie; 404 without one."""
    bookie = request.match_info["bookie"]
    for group in (await _groups(request)).values():
        if bookie in group:
            return answer(group[bookie])
    return _missing(bookie)


async def put(request: web.Request) -> web.Response:
    """Stores the rack of a bookie in the group of the parameter `group`, and takes it out of any other one."""
    bookie, group = request.match_info["bookie"], request.query.get("group")
    if group is None:
        raise PreconditionFailed("Bookie 'group' parameters is missing")
    given = await fields_of(request, _FIELDS)
    if given is None:
        raise BadRequest('Give the rack as a JSON object: {"rack": "/r1", "hostname": "host"}')
    if "/" in str(given.get("rack", "")).strip("/"):
        raise PreconditionFailed("Bookie 'rack' parameter is invalid: a slash may stand at its ends alone")
    async with request.app[_CHANGING]:
        groups = _without(await _groups(request), bookie)
        groups.setdefault(group, {})[bookie] = given
        await _documents(request).put(_STORED, {**groups})
    return done()


async def delete(request: web.Request) -> web.Response:
    """Forgets the rack of a bookie; 404 without one."""
    bookie = request.match_info["bookie"]
    async with request.app[_CHANGING]:
        groups = await _groups(request)
        if not any(bookie in group for group in groups.values()):
            return _missing(bookie)
        await _documents(request).put(_STORED, {**_without(groups, bookie)})
    return done()


def keep_racks(app: web.Application) -> None:
    """Gives the application the lock under which racks change."""
    app[_CHANGING] = asyncio.Lock()


def _missing(bookie: str) -> web.Response:
    return refused(404, f"Bookie rack placement configuration not found: {bookie}")


def _without(groups: Groups, bookie: str) -> Groups:
    kept = {
        name: {one: info for one, info in group.items() if one != bookie} for name, group in groups.items()
    }
    return {name: group for name, group in kept.items() if group}


async def _groups(request: web.Request) -> Groups:
    return cast(Groups, await _documents(request).get(_STORED) or {})


def _documents(request: web.Request) -> JsonDocuments:
    return JsonDocuments(request.app[BROKER].environment.metadata, "")


BOOKIE_ROUTES = (
    web.get("/admin/v2/bookies/all", names),
    web.get(_RACKS, racks),
    web.get(_RACKS + "/{bookie}", rack),
    web.post(_RACKS + "/{bookie}", put),
    web.delete(_RACKS + "/{bookie}", delete),
)
"""The routes."""
