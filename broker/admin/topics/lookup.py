"""`/lookup/v2/topic`: the broker that serves a topic, for clients that were given an http address."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from broker.admin.http.answers import PreconditionFailed, answer, topic_of
from broker.admin.http.request_path import TOPIC_NAME
from broker.admin.service_view import BROKER, BrokerView
from broker.admin.topics.owner_redirect import sent_on
from broker.service.namespaces.bundles import bundles_of
from broker.service.namespaces.namespaces import NamespaceNotFound

_LISTENER: Final = "X-Pulsar-ListenerName"
_TOPIC: Final = f"/lookup/v2/topic/{TOPIC_NAME}"


async def topic(request: web.Request) -> web.Response:
    """Returns the addresses of the topic's owner; with `listenerName` those of that listener. 307 while nobody has it.

    A header names the listener too, where a proxy cannot change the query (PIP-95).
    """
    broker = request.app[BROKER]
    _check(request, broker)
    authoritative = request.query.get("authoritative") == "true"
    found_owner = await broker.registry.ownership.owner_of(topic_of(request), authoritative=authoritative)
    owner = found_owner.addresses
    if found_owner.is_redirect:
        return sent_on(request, owner, authoritative=found_owner.authoritative)
    name = request.query.get("listenerName", "") or request.headers.get(_LISTENER, "")
    listener = owner.listener(name)
    if listener is None:
        raise PreconditionFailed(
            f"There is no listener '{name}': add it to advertisedListeners, or leave it out"
        )
    found = {
        # The C++ client ends its process at a lookup without this field, also when it uses the one for TLS.
        "brokerUrl": listener.url or listener.url_tls,
        "brokerUrlTls": listener.url_tls,
        "httpUrl": owner.admin_url,
        "httpUrlTls": owner.admin_url_tls,
        "nativeUrl": listener.url,
    }
    # Pulsar leaves out the addresses that a broker does not have; its old name for TLS is always empty.
    return answer({**{field: url for field, url in found.items() if url}, "brokerUrlSsl": ""})


async def bundle(request: web.Request) -> web.Response:
    """Returns the range of the topic's bundle as text, which Pulsar calls JSON."""
    broker = request.app[BROKER]
    _check(request, broker)
    name = topic_of(request)
    found = bundles_of(broker.namespaces, name.namespace).of(str(name))
    return web.Response(body=str(found).encode(), content_type="application/json")


def _check(request: web.Request, broker: BrokerView) -> None:
    if not broker.namespaces.exists(topic_of(request).namespace):
        raise NamespaceNotFound("Namespace not found")


LOOKUP_ROUTES = (web.get(_TOPIC, topic), web.get(_TOPIC + "/bundle", bundle))
