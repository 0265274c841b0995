"""Permissions over REST: those of a namespace, of its subscriptions and of its topics; grant, list, revoke.

Statuses are those of Apache 4.2.4. Where Apache stores an action that it does not know as nothing, this answers 400.
"""

from __future__ import annotations

import functools
from typing import Final

from aiohttp import web

from broker.admin.http.answers import BadRequest, answer, body_of, done, namespace_of, topic_of
from broker.admin.http.principal import PRINCIPAL
from broker.admin.http.request_path import NAMESPACE, TOPIC
from broker.admin.service_view import BROKER, BrokerView
from broker.security.authentication.credentials import AuthenticationFailed, checked_role
from broker.security.authorization.permissions import (
    Action,
    Granted,
    NamespacePermissions,
    parse_actions,
    stored_grants,
)
from broker.service.namespaces.namespaces import NamespaceNotFound
from foundation.model.errors import TopicNotFound, Unauthorized
from foundation.model.topic_name import TopicName, check_no_folder, parse_topic_name
from foundation.value import Json

TOPICS_MAX: Final = 1000
"""Topics that one request may name."""


def _permissions(request: web.Request, namespace: str) -> NamespacePermissions:
    granted = request.app[BROKER].namespaces.permissions(namespace)
    if granted is None:
        raise NamespaceNotFound("Namespace does not exist")
    return granted


def _texts(value: Json, missing: str) -> list[str]:
    if value is None:
        raise BadRequest(missing)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise BadRequest("The body must be a JSON list of texts")
    return [str(one) for one in value]


async def _actions(request: web.Request) -> frozenset[Action]:
    return _read_actions(_texts(await body_of(request), "Actions should not be null"))


def _read_actions(names: list[str]) -> frozenset[Action]:
    try:
        return parse_actions(names)
    except ValueError as error:
        raise BadRequest(str(error)) from None


def _role(request: web.Request) -> str:
    """Returns the role in the path. BadRequest for one that no client can prove."""
    return _provable([request.match_info["role"]])[0]


def _provable(roles: list[str]) -> list[str]:
    for role in roles:
        check_no_folder("Role", role)
        try:
            checked_role(role)
        except AuthenticationFailed as error:
            raise BadRequest(f"Role {role[:100]!r}: {error.reason}") from None
    return roles


def _shown(granted: Granted) -> web.Response:
    return answer({role: list[Json](names) for role, names in stored_grants(granted).items()})


# Namespaces


async def of_namespace(request: web.Request) -> web.Response:
    """Returns the actions by role."""
    return _shown(_permissions(request, namespace_of(request)).roles)


async def grant(request: web.Request) -> web.Response:
    """Gives a role these actions on the namespace, and takes away its others."""
    actions, role = await _actions(request), _role(request)
    await request.app[BROKER].namespaces.change_permissions(
        namespace_of(request), lambda now: now.grant(role, actions)
    )
    return done()


async def revoke(request: web.Request) -> web.Response:
    """Takes all actions on the namespace from a role; one without any is no error."""
    role = request.match_info["role"]
    await request.app[BROKER].namespaces.change_permissions(
        namespace_of(request), lambda now: now.revoke(role)
    )
    return done()


# Subscriptions


async def of_subscriptions(request: web.Request) -> web.Response:
    """Returns the roles that may use each subscription; a subscription that is missing is open to all."""
    subscriptions = _permissions(request, namespace_of(request)).subscriptions
    return answer({name: list[Json](sorted(roles)) for name, roles in subscriptions.items()})


async def grant_subscription(request: web.Request) -> web.Response:
    """Lets only these roles use a subscription."""
    roles = _provable(_texts(await body_of(request), "Roles should not be null"))
    subscription = request.match_info["subscription"]
    check_no_folder("Subscription", subscription)
    await request.app[BROKER].namespaces.change_permissions(
        namespace_of(request), lambda now: now.grant_on_subscription(subscription, roles)
    )
    return done()


async def revoke_subscription(request: web.Request) -> web.Response:
    """Takes a role from the roles of a subscription; 404 where Apache fails with 500: a subscription without roles."""
    subscription, role = request.match_info["subscription"], request.match_info["role"]
    namespace = namespace_of(request)
    if subscription not in _permissions(request, namespace).subscriptions:
        raise TopicNotFound(f"No role was granted the subscription {subscription}")
    await request.app[BROKER].namespaces.change_permissions(
        namespace, lambda now: now.revoke_on_subscription(subscription, role)
    )
    return done()


# Topics


async def _existing(broker: BrokerView, name: TopicName) -> TopicName:
    if broker.settings.bool("allowAclChangesOnNonExistentTopics"):
        return name
    if not await broker.registry.partitions.count(name) and not await broker.registry.exists(name):
        raise TopicNotFound(f"Topic {name} not found")
    return name


async def of_topic(request: web.Request) -> web.Response:
    """Returns the actions by role that were granted on the topic and on its namespace."""
    name = await _existing(request.app[BROKER], topic_of(request))
    granted = _permissions(request, name.namespace)
    merged = {role: set(actions) for role, actions in granted.roles.items()}
    for role, actions in granted.topics.get(str(name), {}).items():
        merged.setdefault(role, set()).update(actions)
    return _shown({role: frozenset(actions) for role, actions in merged.items()})


async def grant_topic(request: web.Request) -> web.Response:
    """Gives a role these actions on the topic and its partitions, and takes away its others there."""
    actions, role = await _actions(request), _role(request)
    name = await _existing(request.app[BROKER], topic_of(request))
    await request.app[BROKER].namespaces.change_permissions(
        name.namespace, lambda now: now.grant_on_topics([str(name)], role, actions)
    )
    return done()


async def revoke_topic(request: web.Request) -> web.Response:
    """Takes all actions on the topic from a role; those on the namespace stay."""
    role = request.match_info["role"]
    name = await _existing(request.app[BROKER], topic_of(request))
    await request.app[BROKER].namespaces.change_permissions(
        name.namespace, lambda now: now.revoke_on_topics([str(name)], role)
    )
    return done()


# Several topics in one request


async def _items(request: web.Request) -> list[tuple[TopicName, dict[str, Json]]]:
    """Returns topic and object for each object in the body.

    Raises BadRequest for another body, Unauthorized unless the client administers the tenant of each topic, and
    TopicNotFound unless all of them exist.
    """
    given = await body_of(request)
    if not isinstance(given, list) or not 0 < len(given) <= TOPICS_MAX:
        raise BadRequest(f"The body must be a JSON list of 1 to {TOPICS_MAX} objects")
    items = []
    for one in given:
        topic = one.get("topic") if isinstance(one, dict) else None
        if not isinstance(one, dict) or not isinstance(topic, str) or not isinstance(one.get("role"), str):
            raise BadRequest("Each object needs the texts topic and role")
        items.append((parse_topic_name(topic), one))
    broker = request.app[BROKER]
    for name, _ in items:
        # Here and not in the table, which knows paths only.
        if not broker.authorizer.administers(request[PRINCIPAL], name.tenant):
            raise Unauthorized(
                f"Unauthorized to change permissions on {name}: needs its tenant's administrator"
            )
    for name, _ in items:
        await _existing(broker, name)
    return items


async def grant_topics(request: web.Request) -> web.Response:
    """Gives roles actions on several topics."""
    # Read before the first change: a fault in a later object must leave nothing stored.
    changes = [
        (
            name,
            _provable([str(one["role"])])[0],
            _read_actions(_texts(one.get("actions"), "Actions should not be null")),
        )
        for name, one in await _items(request)
    ]
    for name, role, actions in changes:
        change = functools.partial(_granted_on, topic=str(name), role=role, actions=actions)
        await request.app[BROKER].namespaces.change_permissions(name.namespace, change)
    return done()


def _granted_on(
    now: NamespacePermissions, topic: str, role: str, actions: frozenset[Action]
) -> NamespacePermissions:
    return now.grant_on_topics([topic], role, actions)


async def revoke_topics(request: web.Request) -> web.Response:
    """Takes all actions on several topics from roles."""
    for name, one in await _items(request):
        change = functools.partial(_revoked_on, topic=str(name), role=str(one["role"]))
        await request.app[BROKER].namespaces.change_permissions(name.namespace, change)
    return done()


def _revoked_on(now: NamespacePermissions, topic: str, role: str) -> NamespacePermissions:
    return now.revoke_on_topics([topic], role)


_NAMESPACE: Final = f"{NAMESPACE}/permissions"
_TOPIC: Final = f"{TOPIC}/permissions"

PERMISSION_ROUTES = (
    web.get(_NAMESPACE, of_namespace),
    web.get(_NAMESPACE + "/subscription", of_subscriptions),
    web.post(_NAMESPACE + "/subscription/{subscription}", grant_subscription),
    web.post(_NAMESPACE + "/{role}", grant),
    web.delete(_NAMESPACE + "/{role}", revoke),
    web.delete(_NAMESPACE + "/{subscription}/{role}", revoke_subscription),
    web.get(_TOPIC, of_topic),
    web.post(_TOPIC + "/{role}", grant_topic),
    web.delete(_TOPIC + "/{role}", revoke_topic),
    web.post("/admin/v2/namespaces/grantPermissionsOnTopics", grant_topics),
    web.post("/admin/v2/namespaces/revokePermissionsOnTopics", revoke_topics),
)
"""Routes of permissions. They come before the namespaces' routes, which have names in the same places."""
