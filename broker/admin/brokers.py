"""`/admin/v2/brokers`: health, readiness, and what this broker is."""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp import web

from broker.admin.answers import answer
from broker.admin.service_view import BROKER, HEALTH, BrokerView


async def health(request: web.Request) -> web.Response:
    """200 `ok` when the broker has just kept an entry and a metadata key; 503 says what failed."""
    await request.app[HEALTH].check()
    return _ok()


async def ready(request: web.Request) -> web.Response:
    """This port opens only when the broker takes clients."""
    return _ok()


async def names(request: web.Request) -> web.Response:
    return answer([_id(request.app[BROKER])])


async def leader(request: web.Request) -> web.Response:
    broker = request.app[BROKER]
    return answer({"serviceUrl": broker.addresses.admin_url, "brokerId": _id(broker)})


async def version(request: web.Request) -> web.Response:
    return web.Response(text=request.app[BROKER].version, content_type="text/plain")


def _ok() -> web.Response:
    return web.Response(body=b"ok", content_type="application/json")


def _id(broker: BrokerView) -> str:
    return urlsplit(broker.addresses.admin_url).netloc


BROKER_ROUTES = (
    web.get("/admin/v2/brokers/health", health),
    web.get("/admin/v2/brokers/ready", ready),
    web.get("/admin/v2/brokers/version", version),
    web.get("/admin/v2/brokers/leaderBroker", leader),
    web.get("/admin/v2/brokers", names),
    web.get("/admin/v2/brokers/{cluster}", names),
)
