"""`/admin/v2/brokers`: health, readiness, and the name, address and version of this broker."""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp import web

from broker.admin.http.answers import answer
from broker.admin.service_view import BROKER, HEALTH, BrokerView


async def health(request: web.Request) -> web.Response:
    """Returns 200 `ok` after it stored an entry and a metadata key; 503 names the part that failed."""
    await request.app[HEALTH].check()
    return _ok()


async def ready(request: web.Request) -> web.Response:
    """Returns 200 `ok` always: this port answers only after the data port is open."""
    return _ok()


async def names(request: web.Request) -> web.Response:
    """Returns the brokers of the cluster: this one."""
    return answer([_id(request.app[BROKER])])


async def leader(request: web.Request) -> web.Response:
    """Returns the leader of the cluster: this broker."""
    broker = request.app[BROKER]
    return answer({"serviceUrl": _url(broker), "brokerId": _id(broker)})


async def version(request: web.Request) -> web.Response:
    """Returns Magnetar's version as plain text."""
    return web.Response(text=request.app[BROKER].version, content_type="text/plain")


def _ok() -> web.Response:
    return web.Response(body=b"ok", content_type="application/json")


def _id(broker: BrokerView) -> str:
    """Returns `host:port` of the admin port, which is a broker's name in Pulsar."""
    return urlsplit(_url(broker)).netloc


def _url(broker: BrokerView) -> str:
    return broker.addresses.admin_url or broker.addresses.admin_url_tls


BROKER_ROUTES = (
    web.get("/admin/v2/brokers/health", health),
    web.get("/admin/v2/brokers/ready", ready),
    web.get("/admin/v2/brokers/version", version),
    web.get("/admin/v2/brokers/leaderBroker", leader),
    web.get("/admin/v2/brokers", names),
    web.get("/admin/v2/brokers/{cluster}", names),
)
