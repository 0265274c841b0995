"""The role of the page's user, and the actions that it may take: the page shows these and no others.

The answers come from the table of rights that guards the routes themselves, so page and server cannot disagree. The server
checks each request anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from aiohttp import web

from broker.admin.http.answers import answer
from broker.admin.http.principal import EXPIRES_AT_S, PRINCIPAL
from broker.admin.rights.guard import is_allowed
from broker.admin.service_view import BROKER
from broker.model.topic_name import TopicName, parse_topic_name
from broker.service.namespaces import Json

_TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
_SUBSCRIPTION: Final = _TOPIC + "/subscription/{subscription}"
ACTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "look": ("GET", f"{_TOPIC}/stats"),
    "produce": ("POST", "/topics/{domain}/{tenant}/{namespace}/{topic}"),
    "peek": ("GET", f"{_SUBSCRIPTION}/position/{{number}}"),
    "skip": ("POST", f"{_SUBSCRIPTION}/skip/{{count}}"),
    "reset": ("POST", f"{_SUBSCRIPTION}/resetcursor"),
    "expire": ("POST", f"{_SUBSCRIPTION}/expireMessages/{{seconds}}"),
    "unsubscribe": ("DELETE", _SUBSCRIPTION),
    "unload": ("PUT", f"{_TOPIC}/unload"),
    "delete": ("DELETE", _TOPIC),
}
"""Actions on a topic with the routes that do them."""
CONFIGURE: Final = ("POST", "/admin/v2/brokers/configuration/{key}/{value}")
"""The route that changes a setting."""
CONSOLE: Final = ("GET", "/admin/v2/magnetar/console/cache")
"""A route of data about the whole broker."""
LIST: Final = ("GET", "/admin/v2/{domain}/{tenant}/{namespace}")
"""The route that lists the topics of a namespace."""


async def rights(request: web.Request) -> web.Response:
    """Returns what the role may do: with the broker, and with the topic and subscription of the query."""
    broker, principal = request.app[BROKER], request[PRINCIPAL]
    found: dict[str, Json] = {
        "role": broker.authorizer.client_role(principal),
        "console": sees_broker(request),
        "configure": is_allowed(broker, principal, *CONFIGURE, {}),
        "topic": None,
    }
    text = request.query.get("topic")
    if text is not None:
        name = parse_topic_name(text)
        parts = {**_parts(name), "subscription": request.query.get("subscription", "")}
        found["topic"] = {
            action: is_allowed(broker, principal, method, template, parts)
            for action, (method, template) in ACTIONS.items()
        }
    return answer(found)


def session_of(request: web.Request) -> dict[str, Json]:
    """Returns the role of a request, the end of its proof, and the names of the broker."""
    broker, principal = request.app[BROKER], request[PRINCIPAL]
    expires_at_s = request.get(EXPIRES_AT_S)
    providers = () if broker.authenticator is None else broker.authenticator.providers
    return {
        "role": broker.authorizer.client_role(principal),
        "console": sees_broker(request),
        "authentication": broker.authenticator is not None,
        "authorization": broker.authorizer.enabled,
        "methods": [*dict.fromkeys(one.method for one in providers)],
        "expiresAtMs": None if expires_at_s is None else int(expires_at_s * 1000),
        "cluster": broker.settings.str("clusterName"),
        "version": broker.version,
        "nowMs": broker.environment.wall_ms(),
    }


def sees_broker(request: web.Request) -> bool:
    """Returns True if the role may see data about the whole broker."""
    return is_allowed(request.app[BROKER], request[PRINCIPAL], *CONSOLE, {})


def sees_topic(request: web.Request, name: TopicName) -> bool:
    """Returns True if the role may see the statistics of a topic."""
    return is_allowed(request.app[BROKER], request[PRINCIPAL], *ACTIONS["look"], _parts(name))


def listed_namespaces(request: web.Request) -> Callable[[str], bool]:
    """Returns a function that tells whether the role may list the topics of a `domain://tenant/namespace`."""
    broker, principal = request.app[BROKER], request[PRINCIPAL]

    @cache
    def listed(prefix: str) -> bool:
        domain, _, rest = prefix.partition("://")
        tenant, _, namespace = rest.partition("/")
        parts = {"domain": domain, "tenant": tenant, "namespace": namespace}
        return is_allowed(broker, principal, *LIST, parts)

    return listed


def _parts(name: TopicName) -> dict[str, str]:
    return {
        "domain": name.domain,
        "tenant": name.tenant,
        "namespace": name.namespace_local,
        "topic": name.local,
    }
