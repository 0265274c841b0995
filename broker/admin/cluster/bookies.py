"""`/admin/v2/bookies`: the bookies of this broker, and the racks that an administrator has stored for bookies.

Racks are stored under Pulsar's key; new ledgers and changes of ensembles obey them (`bookkeeper/ensembles/racks.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from aiohttp import web

from bookkeeper.ensembles.racks import BookieRacks, Racks
from broker.admin.http.answers import BadRequest, PreconditionFailed, answer, done, refused
from broker.admin.http.fields import fields_of
from broker.admin.service_view import BROKER
from broker.service.policies.forms import Form, Text
from foundation.value import Json

_RACKS: Final = "/admin/v2/bookies/racks-info"
_FIELDS: Final[Mapping[str, Form[Any]]] = {"rack": Text(0, 1_000), "hostname": Text(0, 1_000)}


async def names(request: web.Request) -> web.Response:
    """Returns the bookies that get new entries, connected or not."""
    found: list[Json] = [{"bookieId": name} for name in request.app[BROKER].environment.ledgers.bookies.names]
    return answer({"bookies": found})


async def racks(request: web.Request) -> web.Response:
    """Returns the racks of all bookies by group."""
    return answer(cast(Json, _racks(request).racks))


async def rack(request: web.Request) -> web.Response:
    """Returns the rack of one bookie; 404 without one."""
    bookie = request.match_info["bookie"]
    for group in _racks(request).racks.values():
        if bookie in group:
            return answer(cast(Json, group[bookie]))
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

    def changed(before: Racks) -> Racks:
        groups = _without(before, bookie)
        groups.setdefault(group, {})[bookie] = {**given}
        return groups

    await _racks(request).change(changed)
    return done()


async def delete(request: web.Request) -> web.Response:
    """Forgets the rack of a bookie; 404 without one."""
    bookie = request.match_info["bookie"]
    if not any(bookie in group for group in _racks(request).racks.values()):
        return _missing(bookie)
    await _racks(request).change(lambda before: _without(before, bookie))
    return done()


def _missing(bookie: str) -> web.Response:
    return refused(404, f"Bookie rack placement configuration not found: {bookie}")


def _without(groups: Racks, bookie: str) -> Racks:
    kept = {
        name: {one: info for one, info in group.items() if one != bookie} for name, group in groups.items()
    }
    return {name: group for name, group in kept.items() if group}


def _racks(request: web.Request) -> BookieRacks:
    return request.app[BROKER].environment.ledgers.racks


BOOKIE_ROUTES = (
    web.get("/admin/v2/bookies/all", names),
    web.get(_RACKS, racks),
    web.get(_RACKS + "/{bookie}", rack),
    web.post(_RACKS + "/{bookie}", put),
    web.delete(_RACKS + "/{bookie}", delete),
)
"""The routes."""
