"""Functions, sources, sinks and packages: Pulsar's answers of a broker where these services are not enabled.

Magnetar has none of them. Pulsar's tools understand these answers, and users know them.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from broker.admin.http.answers import Conflict, PreconditionFailed
from broker.admin.http.pulsar_routes import pulsar_routes
from foundation.model.errors import BrokerError

_PACKAGES: Final = "/admin/v3/packages/"
_PACKAGE_TYPES: Final = ("function", "sink", "source")
_WORKER: Final = tuple(
    f"/admin/{name}/"
    for name in (
        "v2/functions",
        "v2/worker",
        "v2/worker-stats",
        "v3/functions",
        "v3/sink",
        "v3/sinks",
        "v3/source",
        "v3/sources",
    )
)


class Unavailable(BrokerError):
    """The service is not running."""

    status = 503


async def functions(request: web.Request) -> web.Response:
    """Refuses a request for functions, sources, sinks or the workers that run them: 409, as Pulsar does."""
    raise Conflict("Pulsar Function Worker is not enabled, probably functionsWorkerEnabled is set to false")


async def packages(request: web.Request) -> web.Response:
    """Refuses a request for packages: 503; 412 for a type of packages that Pulsar lacks."""
    kind = request.match_info.get("type", _PACKAGE_TYPES[0])
    if kind not in _PACKAGE_TYPES:
        raise PreconditionFailed(f"Invalid package domain: '{kind}'")
    raise Unavailable("Package Management Service is not enabled in the broker.")


REFUSING: Final = frozenset((functions, packages))
"""The handlers above. They read no body and change nothing."""

NOT_ENABLED_ROUTES = (
    *(web.route(one.method, one.path, functions) for one in pulsar_routes() if one.path.startswith(_WORKER)),
    *(web.route(one.method, one.path, packages) for one in pulsar_routes() if one.path.startswith(_PACKAGES)),
)
"""Each of Pulsar's routes of these services."""
