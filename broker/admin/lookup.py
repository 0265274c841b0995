"""`/lookup/v2/topic`: where a topic is served, for clients that were given an http address. Always here."""

from __future__ import annotations

from aiohttp import web

from broker.admin.answers import PreconditionFailed, answer, topic_of
from broker.admin.service_view import BROKER, BrokerView
from broker.service.namespaces import NamespaceNotFound

_TOPIC = "/lookup/v2/topic/{domain:persistent|non-persistent}/{tenant}/{namespace}/{topic}"


async def topic(request: web.Request) -> web.Response:
    broker = request.app[BROKER]
    _check(request, broker)
    url = _service_url(broker, request.query.get("listenerName", ""))
    return answer(
        {"brokerUrl": url, "httpUrl": broker.addresses.admin_url, "nativeUrl": url, "brokerUrlSsl": ""}
    )


async def bundle(request: web.Request) -> web.Response:
    _check(request, request.app[BROKER])
    return web.Response(body=b"0x00000000_0xffffffff", content_type="application/json")


def _check(request: web.Request, broker: BrokerView) -> None:
    if not broker.namespaces.exists(topic_of(request).namespace):
        raise NamespaceNotFound("Namespace not found")


def _service_url(broker: BrokerView, listener: str) -> str:
    """The address under the listener's name (`advertisedListeners`), else the broker's own."""
    if not listener:
        return broker.addresses.service_url
    for text in broker.settings.list("advertisedListeners"):
        name, _, url = text.partition(":")
        if name.strip() == listener:
            return url.strip()
    raise PreconditionFailed(f"There is no listener '{listener}' among the advertised ones")


LOOKUP_ROUTES = (web.get(_TOPIC, topic), web.get(_TOPIC + "/bundle", bundle))
