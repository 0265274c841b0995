"""The HTTP server of the admin port: routes, the one middleware that words errors, start and stop.

This module imports aiohttp, which takes longer than all the rest of the broker: whoever starts the broker imports
it after the data port listens. Requests are few; they share the broker's loop and its rules, and none of them
may keep it for long.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web

from broker.admin.answers import BadRequest, refused
from broker.admin.brokers import BROKER_ROUTES
from broker.admin.cache import CACHE_ROUTES
from broker.admin.clusters import CLUSTER_ROUTES
from broker.admin.configuration import CONFIGURATION_ROUTES
from broker.admin.lookup import LOOKUP_ROUTES
from broker.admin.namespaces import NAMESPACE_ROUTES
from broker.admin.partitions import PARTITION_ROUTES
from broker.admin.service_view import BROKER, CLUSTERS, HEALTH, RATES, BrokerView
from broker.admin.stats import NO_RATES, RatesOf
from broker.admin.subscriptions import SUBSCRIPTION_ROUTES
from broker.admin.tenants import TENANT_ROUTES
from broker.admin.topics import TOPIC_ROUTES
from broker.model.errors import BrokerError
from broker.service.clusters import Clusters
from broker.service.health import HealthProbe

log = logging.getLogger("magnetar")

BODY_BYTES_MAX = 1 << 20
SHUTDOWN_S = 2.0
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Admin:
    """The running server."""

    def __init__(self, runner: web.AppRunner, port: int) -> None:
        self.port = port
        self._runner = runner

    async def close(self) -> None:
        await self._runner.cleanup()


async def start_admin(
    broker: BrokerView,
    listening: socket.socket,
    more: Iterable[web.RouteDef] = (),
    rates: RatesOf | None = None,
) -> Admin:
    """Serve the socket, which is open already.

    `more` = routes of other rooms; `rates` = where the topics' rates come from, without it they are shown as 0.
    """
    runner = web.AppRunner(
        create_app(broker, more, rates), access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_S
    )
    await runner.setup()
    site = web.SockSite(runner, listening)
    try:
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    return Admin(runner, int(listening.getsockname()[1]))


def create_app(
    broker: BrokerView, more: Iterable[web.RouteDef] = (), rates: RatesOf | None = None
) -> web.Application:
    app = web.Application(middlewares=[word_errors], client_max_size=BODY_BYTES_MAX)
    app[BROKER] = broker
    app[CLUSTERS] = Clusters(broker.environment.metadata, broker.settings.str("clusterName"))
    app[RATES] = rates or (lambda _: NO_RATES)
    app[HEALTH] = HealthProbe(broker.environment)
    # The routes with fixed words stand before those that have a name in the same place.
    app.add_routes(CLUSTER_ROUTES)
    app.add_routes(CONFIGURATION_ROUTES)
    app.add_routes(BROKER_ROUTES)
    app.add_routes(CACHE_ROUTES)
    app.add_routes(TENANT_ROUTES)
    app.add_routes(NAMESPACE_ROUTES)
    app.add_routes(PARTITION_ROUTES)
    app.add_routes(SUBSCRIPTION_ROUTES)
    app.add_routes(TOPIC_ROUTES)
    app.add_routes(LOOKUP_ROUTES)
    app.add_routes(list(more))
    return app


@web.middleware
async def word_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except BadRequest as error:
        return web.Response(status=error.status, body=str(error).encode(), content_type="text/plain")
    except BrokerError as error:
        return refused(error.status, str(error))
    except web.HTTPException as error:
        return _page(error)
    except Exception:  # The last stop: whatever a handler did not foresee is logged and answered.
        log.exception("! %s %s failed", request.method, request.path)
        return refused(500, "An unexpected error occurred in the server")


def _page(error: web.HTTPException) -> web.Response:
    """Paths and methods that do not exist are answered by a page, as Pulsar's HTTP server does."""
    title = f"Error {error.status} {error.reason}"
    page = f"<html><head><title>{title}</title></head><body>{title}</body></html>"
    headers = {"Content-Type": "text/html;charset=iso-8859-1"}
    if isinstance(error, web.HTTPMethodNotAllowed):
        headers["Allow"] = ",".join(sorted({"OPTIONS", *error.allowed_methods} - {"HEAD"}))
        if error.method == "PATCH":  # Pulsar's server words this one without a page.
            return web.Response(status=error.status, headers={"Allow": headers["Allow"]})
    return web.Response(status=error.status, body=page.encode(), headers=headers)
