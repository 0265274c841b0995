"""The middleware that checks rights: before each handler, with the needs of the route in `table.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from aiohttp import web

from broker.admin.http.answers import refused
from broker.admin.http.principal import PRINCIPAL
from broker.admin.http.request_path import shown_path, template_of
from broker.admin.rights.needs import ROUTE_WITHOUT_ROW, Need, Right, parts_of_path
from broker.admin.rights.table import RIGHTS
from broker.admin.service_view import BROKER, BrokerView
from broker.security.authorization.permissions import Action
from broker.security.principal import Principal
from foundation.model.errors import InvalidTopicName
from foundation.model.topic_name import TopicName, parse_topic_name


@web.middleware
async def check_rights(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Runs the handler if the principal has every right that the route needs; otherwise answers 401, 403 or 404.

    Raises ServiceNotReady while rights are too old to be in force.
    """
    broker = request.app[BROKER]
    template = template_of(request)
    # Without a template there is no handler either: the answer is 404 or 405.
    if not broker.authorizer.enabled or template is None:
        return await handler(request)
    row = RIGHTS.find(request.method, template) or ROUTE_WITHOUT_ROW
    parts = parts_of_path(row, template, request.match_info)
    if row.needs:
        broker.authorizer.check_confirmed()
    for need in row.needs:
        refusal = _refusal(broker, request[PRINCIPAL], need, parts)
        if refusal is not None:
            reason = f"Unauthorized to {request.method} {shown_path(request)}: {refusal.reason}"
            return refused(refusal.status, reason if refusal.names_request else refusal.reason)
    return await handler(request)


def is_allowed(
    broker: BrokerView, principal: Principal, method: str, template: str, values: Mapping[str, str]
) -> bool:
    """Returns True if the principal may use a route; `values` are the varying parts of its path by their names."""
    if not broker.authorizer.enabled:
        return True
    row = RIGHTS.find(method, template) or ROUTE_WITHOUT_ROW
    parts = parts_of_path(row, template, values)
    return all(_refusal(broker, principal, need, parts) is None for need in row.needs)


class _Refusal(NamedTuple):
    """The answer to a principal that lacks a right."""

    status: int
    """HTTP status."""
    reason: str
    """Text for the client."""
    names_request: bool = False
    """The text is to be shown after method and path."""


def _refusal(
    broker: BrokerView, principal: Principal, need: Need, parts: Mapping[str, str]
) -> _Refusal | None:
    """Returns the answer to a principal that lacks the right, None if it has it."""
    authorizer, right = broker.authorizer, need.right
    if need.only_with and not broker.settings.bool(need.only_with):
        return None
    if right in (Right.AUTHENTICATED, Right.BODY) or authorizer.is_superuser(principal):
        if right is Right.NAMESPACE_EXISTS and not broker.namespaces.exists(_namespace(parts)):
            return _Refusal(need.status, "Namespace not found")
        return None
    tenant = parts.get("tenant", "")
    ask_tenant = right not in (Right.SUPERUSER, Right.TENANT) and principal.role is not None
    if ask_tenant and not authorizer.tenant_exists(tenant):
        # Pulsar tells every role that a tenant is missing, and a client without a role nothing.
        return _Refusal(404, "Tenant does not exist")
    if _has_right(broker, principal, right, parts):
        return None
    if right is Right.NAMESPACE_EXISTS:
        return _Refusal(need.status, "Namespace not found")
    return _Refusal(need.status, f"needs {right.value}", names_request=True)


def _has_right(broker: BrokerView, principal: Principal, right: Right, parts: Mapping[str, str]) -> bool:
    authorizer = broker.authorizer
    match right:
        case Right.TENANT | Right.WITHIN_TENANT:
            return authorizer.administers(principal, parts["tenant"])
        case Right.NAMESPACE_EXISTS:
            return broker.namespaces.exists(_namespace(parts))
        case Right.LIST_TOPICS:
            return authorizer.may_list_topics(principal, _namespace(parts))
        case Right.PACKAGES:
            return authorizer.may_act(principal, _namespace(parts), Action.PACKAGES)
        case Right.LOOK_UP:
            return authorizer.may_look_up(principal, _topic(parts))
        case Right.PRODUCE:
            return authorizer.may_produce(principal, _topic(parts))
        case Right.CONSUME:
            return authorizer.may_consume(principal, _topic(parts), parts.get("subscription"))
    return False


def _namespace(parts: Mapping[str, str]) -> str:
    return f"{parts['tenant']}/{parts['namespace']}"


def _topic(parts: Mapping[str, str]) -> TopicName:
    """Returns the topic as handlers read it. Raises InvalidTopicName (412) for a path that makes no name."""
    try:
        # Schemas and transactions have no domain in their paths; theirs are persistent topics.
        domain = parts.get("domain", "persistent")
        return parse_topic_name(f"{domain}://{_namespace(parts)}/{parts['topic']}")
    except InvalidTopicName:
        raise InvalidTopicName("Topic name is not valid") from None
