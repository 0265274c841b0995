"""The role of the page's user, and the actions that it may take: the page shows these and no others.

The answers come from the table of rights that guards the routes themselves, so page and server cannot disagree. The server
checks each request anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import cache
from itertools import islice
from typing import Final

from aiohttp import web

from broker.admin.http.answers import answer
from broker.admin.http.principal import EXPIRES_AT_S, PRINCIPAL
from broker.admin.rights.guard import is_allowed
from broker.admin.service_view import BROKER
from broker.console.live_topic import CURSORS_MAX
from broker.managed_ledger.managed_ledger_info import cursor_name_of, managed_ledger_key
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.value import Json

_TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
_MESSAGES: Final = "/admin/v2/magnetar/console/messages/{domain}/{tenant}/{namespace}/{topic}"
_SUBSCRIPTION: Final = _TOPIC + "/subscription/{subscription}"
ACTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "look": ("GET", f"{_TOPIC}/stats"),
    "produce": ("POST", "/topics/{domain}/{tenant}/{namespace}/{topic}"),
    "read": ("GET", f"{_MESSAGES}/ledger/{{ledger}}/entry/{{entry}}"),
    "unload": ("PUT", f"{_TOPIC}/unload"),
    "delete": ("DELETE", _TOPIC),
}
"""Actions on a topic with the routes that do them."""
ON_SUBSCRIPTION: Final[Mapping[str, tuple[str, str]]] = {
    "peek": ("GET", f"{_MESSAGES}/subscription/{{subscription}}"),
    "skip": ("POST", f"{_SUBSCRIPTION}/skip/{{count}}"),
    "reset": ("POST", f"{_SUBSCRIPTION}/resetcursor"),
    "expire": ("POST", f"{_SUBSCRIPTION}/expireMessages/{{seconds}}"),
    "unsubscribe": ("DELETE", _SUBSCRIPTION),
}
"""Actions on a subscription. A permission on it decides, so one subscription may allow what another one refuses."""
PER_SLICE: Final = 20
"""Subscriptions between two turns of the loop: 1 ms."""
CONFIGURE: Final = ("POST", "/admin/v2/brokers/configuration/{key}/{value}")
"""The route that changes a setting."""
CONSOLE: Final = ("GET", "/admin/v2/magnetar/console/cache")
"""A route of data about the whole broker."""
LIST: Final = ("GET", "/admin/v2/{domain}/{tenant}/{namespace}")
"""The route that lists the topics of a namespace."""


async def rights(request: web.Request) -> web.Response:
    """Returns what the role may do: with the broker, and with the topic of the query and its open subscriptions."""
    broker, principal = request.app[BROKER], request[PRINCIPAL]
    found: dict[str, Json] = {
        "role": broker.authorizer.client_role(principal),
        "console": sees_broker(request),
        "configure": is_allowed(broker, principal, *CONFIGURE, {}),
        "topic": None,
        "subscriptions": {},
    }
    text = request.query.get("topic")
    if text is not None:
        name = parse_topic_name(text)
        found["topic"] = _allowed(request, ACTIONS, _parts(name))
        if sees_topic(request, name):
            found["subscriptions"] = await _on_subscriptions(request, name)
    return answer(found)


async def _on_subscriptions(request: web.Request, name: TopicName) -> Json:
    """Returns the rights on each subscription that the topic's page lists."""
    registry = request.app[BROKER].registry
    topic, dormant = registry.topics.get(str(name)), registry.dormant.get(str(name))
    found: dict[str, Json] = {}
    names = [] if dormant is None else [one.name for one in dormant.subscriptions[:CURSORS_MAX]]
    if topic is not None:
        names = [*islice(topic.subscriptions, CURSORS_MAX)]
    elif dormant is None and name.is_persistent and registry.ownership.is_shared:
        # Another broker may have the topic; its page is answered by that one.
        nodes = await registry.environment.metadata.children(managed_ledger_key(name.ledger_name))
        names = [cursor_name_of(node) for node in nodes[:CURSORS_MAX]]
    for number, subscription in enumerate(names, 1):
        found[subscription] = _allowed(
            request, ON_SUBSCRIPTION, {**_parts(name), "subscription": subscription}
        )
        if number % PER_SLICE == 0:
            await asyncio.sleep(0)
    return found


def _allowed(
    request: web.Request, actions: Mapping[str, tuple[str, str]], parts: Mapping[str, str]
) -> dict[str, Json]:
    """Returns for each action whether the role may take it."""
    broker, principal = request.app[BROKER], request[PRINCIPAL]
    return {
        action: is_allowed(broker, principal, method, template, parts)
        for action, (method, template) in actions.items()
    }


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
        "broker": broker.registry.ownership.owner.broker_id,
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
