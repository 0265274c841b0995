"""The HTTP server of the admin port: its routes, the middleware that turns errors into answers, start and stop.

This module imports aiohttp, which takes 15 MiB and 0.2 s, so `compose/admin_port.py` imports it in a thread at the first
connection. Requests are few and share the broker's event loop: a handler must not hold it
for more than some milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence

from aiohttp import web
from aiohttp.typedefs import Handler

from broker.admin.cluster.audits import AUDIT_ROUTES
from broker.admin.cluster.bookies import BOOKIE_ROUTES
from broker.admin.cluster.broker_groups import BROKER_GROUP_ROUTES
from broker.admin.cluster.broker_stats import BROKER_STATS_ROUTES
from broker.admin.cluster.brokers import BROKER_ROUTES
from broker.admin.cluster.cache import CACHE_ROUTES
from broker.admin.cluster.clusters import CLUSTER_ROUTES
from broker.admin.cluster.configuration import CONFIGURATION_ROUTES
from broker.admin.cluster.ledgers import LEDGER_ROUTES
from broker.admin.cluster.not_enabled import NOT_ENABLED_ROUTES, REFUSING
from broker.admin.cluster.resource_groups import RESOURCE_GROUP_ROUTES
from broker.admin.cluster.tenants import TENANT_ROUTES
from broker.admin.cluster.transactions import TRANSACTION_ROUTES
from broker.admin.facades.table import FACADE_ROUTES
from broker.admin.http.answers import BODY_TIMEOUT_S, BadRequest, html_page, refused
from broker.admin.http.foreign_pages import refuse_foreign_pages
from broker.admin.http.http_limits import HttpConnections, OneLine
from broker.admin.http.pressure import Pressure, PressureSettings
from broker.admin.http.principal import find_principal
from broker.admin.http.request_path import shown_path
from broker.admin.namespaces.backlog_quotas import BACKLOG_QUOTA_ROUTES
from broker.admin.namespaces.bundles import BUNDLE_ROUTES, OPERATION_ROUTES
from broker.admin.namespaces.clusters import NAMESPACE_CLUSTER_ROUTES
from broker.admin.namespaces.namespaces import NAMESPACE_ROUTES
from broker.admin.namespaces.new_namespace import read_new_namespace
from broker.admin.namespaces.policies import POLICY_ROUTES
from broker.admin.openapi import openapi_route
from broker.admin.rights.audit import note_outcome
from broker.admin.rights.guard import check_rights
from broker.admin.rights.permissions import PERMISSION_ROUTES
from broker.admin.service_view import BROKER, CLUSTERS, HEALTH, RATES, BrokerView, RatesOf
from broker.admin.topics.backlogs import BACKLOG_ROUTES
from broker.admin.topics.compaction import COMPACTION_ROUTES
from broker.admin.topics.holes import HOLE_ROUTES
from broker.admin.topics.internals import INTERNAL_ROUTES
from broker.admin.topics.lookup import LOOKUP_ROUTES
from broker.admin.topics.messages import MESSAGE_ROUTES
from broker.admin.topics.over_owners import ask_all_owners
from broker.admin.topics.owner_redirect import send_to_owner
from broker.admin.topics.partitioned_stats import PARTITIONED_STATS_ROUTES
from broker.admin.topics.partitions import PARTITION_ROUTES
from broker.admin.topics.produce import PRODUCE_ROUTES
from broker.admin.topics.replication import replication_routes
from broker.admin.topics.schemas import SCHEMA_ROUTES
from broker.admin.topics.shadow_topics import SHADOW_ROUTES
from broker.admin.topics.subscription_rates import SUBSCRIPTION_RATE_ROUTES
from broker.admin.topics.subscriptions import SUBSCRIPTION_ROUTES
from broker.admin.topics.topic_lists import LIST_ROUTES
from broker.admin.topics.topic_properties import TOPIC_PROPERTY_ROUTES
from broker.admin.topics.topics import TOPIC_ROUTES
from broker.numbers.windows import NOTHING_YET
from broker.service.lifecycle.health import HealthProbe
from broker.service.namespaces.clusters import Clusters
from broker.service.policies.forms import WrongType
from broker.service.topics.topic_ownership import configured_broker_id
from foundation.loop import clock
from foundation.loop.rare_lines import RareLines
from foundation.loop.slices import in_slices
from foundation.model.errors import BrokerError
from foundation.tls.certificates import Certificates
from foundation.tls.listener import TlsListener

log = logging.getLogger("magnetar")

BODY_BYTES_MAX = 1 << 20
"""Largest body of a request; aiohttp answers a larger one with 413."""
SHUTDOWN_S = 2.0
"""Time for requests that have begun when the server stops."""


class Admin:
    """The running server."""

    def __init__(self, runner: web.AppRunner, servers: Sequence[asyncio.Server | TlsListener]) -> None:
        """`servers` listen already, and `runner` handles their connections."""
        self.ports = [_port(server) for server in servers]
        """The numbers of the ports; the one without TLS comes first."""
        self._runner = runner
        self._servers = servers

    async def close(self) -> None:
        """Closes the ports; requests that have begun get SHUTDOWN_S to end."""
        for server in self._servers:
            server.close()
        await self._runner.cleanup()


def _port(server: asyncio.Server | TlsListener) -> int:
    return server.port if isinstance(server, TlsListener) else int(server.sockets[0].getsockname()[1])


async def start_admin(
    broker: BrokerView,
    plain: socket.socket | None,
    more: Iterable[web.RouteDef] = (),
    rates: RatesOf | None = None,
    *,
    tls: tuple[socket.socket, Certificates] | None = None,
    on_shutdown: Iterable[Callable[[web.Application], Awaitable[None]]] = (),
) -> Admin:
    """Serves sockets that are bound already, one of them with TLS; None for a port that is switched off.

    `more` are routes of other rooms, and `on_shutdown` end their long answers; `rates` returns the rates of a topic,
    None shows them as 0.
    """
    idle_s = broker.settings.int("httpServerIdleTimeout") / 1000
    lines = RareLines(log, clock.monotonic_ns)
    connections = HttpConnections(broker.settings.int("maxHttpServerConnections"), idle_s, lines)
    app = await create_app(broker, more, rates)
    app[BODY_TIMEOUT_S] = idle_s
    app.on_shutdown.extend(on_shutdown)
    app.middlewares.insert(0, connections.count)
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        shutdown_timeout=SHUTDOWN_S,
        keepalive_timeout=idle_s,
        logger=OneLine(lines),
        # A small compressed body could become a large one, and no client compresses requests.
        auto_decompress=False,
    )
    await runner.setup()
    assert runner.server is not None, "made by setup"
    connections.serve(runner.server)
    servers: list[asyncio.Server | TlsListener] = []
    try:
        if plain is not None:
            # Not `web.SockSite`, which has no limit of connections.
            servers.append(
                await asyncio.get_running_loop().create_server(connections, sock=plain, backlog=128)
            )
        if tls is not None:
            listening, certificates = tls
            servers.append(TlsListener(listening, connections, certificates, connections, lines.warning))
    except OSError:
        await Admin(runner, servers).close()
        raise
    return Admin(runner, servers)


async def create_app(
    broker: BrokerView, more: Iterable[web.RouteDef] = (), rates: RatesOf | None = None
) -> web.Application:
    """Returns the application with all routes, added in slices; arguments as for `start_admin`."""
    pressure = Pressure(PressureSettings.of(broker.settings), clock.monotonic_ns)
    # A foreign page's request is refused before anything else looks at it. All that follows knows the principal. Only a
    # request that is allowed may wait in a queue.
    guards = [
        note_outcome,
        refuse_foreign_pages(broker.settings, REFUSING),
        find_principal(broker.authenticator),
        answer_errors,
        read_new_namespace(pressure),
        check_rights,
        pressure.guard,
        send_to_owner,
        ask_all_owners,
    ]
    app = web.Application(middlewares=guards, client_max_size=BODY_BYTES_MAX)
    app.on_cleanup.append(pressure.close)
    app[BROKER] = broker
    app[CLUSTERS] = Clusters(broker.environment.metadata, broker.settings.str("clusterName"))
    app[RATES] = rates or (lambda _: NOTHING_YET)
    app[HEALTH] = HealthProbe(broker.environment, configured_broker_id(broker.settings))
    served = routes(more)
    served.append(openapi_route([*served]))
    # All of them at once would hold the loop for 40 ms: aiohttp compiles a pattern for each.
    async for route in in_slices(served, clock.monotonic_ns):
        app.add_routes([_with_any_name(route)])
    return app


def _with_any_name(route: web.RouteDef) -> web.RouteDef:
    """Lets the names in a path have braces, which aiohttp excludes by default; topics and subscriptions may have them."""
    path = re.sub(r"\{(\w+)\}", r"{\1:[^/]+}", route.path)
    return web.RouteDef(route.method, path, route.handler, route.kwargs)


def routes(more: Iterable[web.RouteDef] = ()) -> list[web.RouteDef]:
    """Returns all routes in the order in which aiohttp tries them; `more` are those of other rooms."""
    # aiohttp takes the first route that fits: fixed words come before names in the same place of a path, or
    # /brokers/configuration would be read as the cluster named "configuration".
    return [
        *CLUSTER_ROUTES,
        *BOOKIE_ROUTES,
        *CONFIGURATION_ROUTES,
        *BROKER_ROUTES,
        *BROKER_GROUP_ROUTES,
        *BROKER_STATS_ROUTES,
        *RESOURCE_GROUP_ROUTES,
        *CACHE_ROUTES,
        *HOLE_ROUTES,
        *LEDGER_ROUTES,
        *AUDIT_ROUTES,
        *TENANT_ROUTES,
        *PERMISSION_ROUTES,
        *TRANSACTION_ROUTES,
        *NAMESPACE_CLUSTER_ROUTES,
        *NAMESPACE_ROUTES,
        *OPERATION_ROUTES,
        *BACKLOG_QUOTA_ROUTES,
        *POLICY_ROUTES,
        *FACADE_ROUTES,
        *PARTITION_ROUTES,
        *SUBSCRIPTION_ROUTES,
        *BACKLOG_ROUTES,
        *MESSAGE_ROUTES,
        *COMPACTION_ROUTES,
        *SCHEMA_ROUTES,
        *TOPIC_ROUTES,
        *LIST_ROUTES,
        *replication_routes(),
        *SHADOW_ROUTES,
        *INTERNAL_ROUTES,
        *PARTITIONED_STATS_ROUTES,
        *TOPIC_PROPERTY_ROUTES,
        *LOOKUP_ROUTES,
        *PRODUCE_ROUTES,
        *NOT_ENABLED_ROUTES,
        *more,
        *SUBSCRIPTION_RATE_ROUTES,
        *BUNDLE_ROUTES,
    ]


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns every error of a handler into an answer in Pulsar's form."""
    try:
        if "\0" in request.path:
            # As in Pulsar. No key of a metadata store may have this character.
            raise web.HTTPBadRequest
        return await handler(request)
    except (BadRequest, WrongType) as error:
        return web.Response(status=error.status, body=str(error).encode(), content_type="text/plain")
    except BrokerError as error:
        return refused(error.status, str(error))
    except web.HTTPException as error:
        return _page(error)
    except Exception:
        # Broad, because nothing above this would log an error that a handler did not expect.
        log.exception("! %s %s failed", request.method, shown_path(request))
        return refused(500, "An unexpected error occurred in the server")


def _page(error: web.HTTPException) -> web.Response:
    """Returns an HTML page for a path or method that does not exist, as Pulsar's HTTP server does.

    OPTIONS gets the methods of the path: no route serves it, and no header of CORS lets a foreign page go on.
    """
    headers = {}
    if isinstance(error, web.HTTPMethodNotAllowed):
        if error.method == "OPTIONS":
            methods = sorted({"OPTIONS", *error.allowed_methods})
            return web.Response(text=", ".join(methods), headers={"Allow": ",".join(methods)})
        headers["Allow"] = ",".join(sorted({"OPTIONS", *error.allowed_methods} - {"HEAD"}))
        if error.method == "PATCH":  # Pulsar's server answers this one without a page.
            return web.Response(status=error.status, headers={"Allow": headers["Allow"]})
    return html_page(error.status, error.reason, headers)
