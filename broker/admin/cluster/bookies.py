"""`/admin/v2/bookies`: the bookies of this broker. Racks are not built: no bookie has one, and setting one is refused."""

from __future__ import annotations

from aiohttp import web

from broker.admin.http.answers import answer, refused
from broker.admin.service_view import BROKER
from broker.service.namespaces import Json


async def names(request: web.Request) -> web.Response:
    """Returns the bookies that get new entries, connected or not."""
    found: list[Json] = [{"bookieId": name} for name in request.app[BROKER].environment.ledgers.bookies.names]
    return answer({"bookies": found})


async def racks(request: web.Request) -> web.Response:
    """Returns the racks of all bookies by group: none."""
    return answer({})


async def rack(request: web.Request) -> web.Response:
    """Returns 404, Pulsar's answer for a bookie without a rack."""
    return refused(404, f"Bookie rack placement configuration not found: {request.match_info['bookie']}")


BOOKIE_ROUTES = (
    web.get("/admin/v2/bookies/all", names),
    web.get("/admin/v2/bookies/racks-info", racks),
    web.get("/admin/v2/bookies/racks-info/{bookie}", rack),
)
"""The routes."""
