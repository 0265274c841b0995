"""Routes of the policies of namespaces and topics, made from the table (`broker/service/policies/table.py`).

A value is read first (400), then its owner is looked for (404), then its range is checked (412); namespaces check the
range before the owner. That order and the answers are Pulsar's.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from broker.admin.http.answers import (
    BadRequest,
    PreconditionFailed,
    answer,
    body_of,
    bytes_of,
    check_type,
    done,
    empty,
    is_true,
    namespace_of,
    topic_of,
)
from broker.admin.namespaces.quota_rules import refuse_retention
from broker.admin.service_view import BROKER, BrokerView
from broker.service.namespaces.namespaces import GLOBAL, Json, NamespaceNotFound
from broker.service.policies.backlog_quota import QUOTA_TYPES
from broker.service.policies.forms import PolicyRefused, Structure, Whole, WrongType
from broker.service.policies.table import BACKLOG, POLICIES, PROPERTIES, Policy, Rest
from broker.service.policies.values import Retention
from foundation.model.errors import NotAllowed, TopicNotFound
from foundation.model.topic_name import TopicName

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""A function behind a route."""
Owner = Callable[[web.Request], Awaitable[str]]
"""Returns the namespace or topic of a path after checking that policies may be set on it."""

_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPIC = "/admin/v2/{domain:persistent|non-persistent}/{tenant}/{namespace}/{topic}"


def shown_policies(broker: BrokerView, namespace: str) -> dict[str, Json]:
    """Returns the policies that are set, by their keys in Pulsar's JSON of a namespace."""
    policies = broker.namespaces.policies(namespace)
    found: dict[str, Json] = {}
    for policy in POLICIES:
        value = policies.get(policy.name)
        if policy.name and value is not None:
            for key in (policy.name, policy.also):
                found[key] = {broker.namespaces.cluster: value} if policy.by_cluster else value
    found.pop("", None)
    return found


def policies_of_body(broker: BrokerView, body: Mapping[str, Json]) -> dict[str, Json]:
    """Returns the policies in Pulsar's JSON of a namespace that is to be created, for the store.

    Raises BadRequest or PolicyRefused for a wrong value.
    """
    found: dict[str, Json] = {}
    for policy in POLICIES:
        given = body.get(policy.name) if policy.name else None
        if policy.by_cluster and isinstance(given, dict):
            given = given.get(broker.namespaces.cluster)
        if given is not None and policy.namespace is not None:
            value = _read(policy, policy.name, given)
            _check(broker, policy, policy.namespace, value)
            found[policy.name] = policy.form.write(value)
    return found


# Values


def _read(policy: Policy[Any], name: str, given: Json) -> Any:
    try:
        return policy.form.read(given)
    except WrongType as error:
        raise BadRequest(f"{name}={error}") from None


async def _value_of(request: web.Request, policy: Policy[Any], rest: Rest) -> Any:
    """Returns the typed value of a request, None to remove the policy. Raises BadRequest for another type."""
    if rest.bodiless:
        return True
    given: Json = request.query.get(rest.word)
    if rest.raw:
        # As in Pulsar: a plain text needs no type.
        check_type(request.headers.get("Content-Type", "application/json"))
        given = _unquoted(await bytes_of(request))
    elif not rest.in_query:
        given = await body_of(request)
        if given is None and not rest.empty_removes and not (await bytes_of(request)).strip():
            raise BadRequest("The request entity cannot be empty.")
    return None if given is None else _read(policy, rest.word, given)


def _unquoted(body: bytes) -> str:
    """Returns a text that was sent as it is, or as JSON in quotes. Raises BadRequest unless it is UTF-8."""
    try:
        text = body.decode()
        quoted = json.loads(text) if text.startswith('"') else text
    except ValueError as error:
        raise BadRequest(f"The body cannot be read: {error}") from None
    return str(quoted)


def _check(broker: BrokerView, policy: Policy[Any], rest: Rest, value: Any) -> None:
    if value is None:
        return
    try:
        policy.form.check(value)
    except PolicyRefused as error:
        raise type(error)(_refusal(policy, rest, error)) from None
    if policy.at_most and value > broker.settings.int(policy.at_most):
        raise PreconditionFailed(rest.refusal)


def _refusal(policy: Policy[Any], rest: Rest, error: PolicyRefused) -> str:
    """Returns the reason for a value out of range: Pulsar's sentence where it has one, as clients look for it."""
    if isinstance(policy.form, Whole):
        # Numbers beyond the top of Java's type are refused when they are read, so this one is below 0.
        return rest.refusal or f"{rest.word} must be 0 or more"
    # The error of a structure names its member, or is a sentence of Pulsar's.
    return str(error) if isinstance(policy.form, Structure) else f"{rest.word}={error}"


def _refuse_below_quotas(broker: BrokerView, namespace: str, retention: Retention) -> None:
    """Refuses a retention of a namespace that would end before its own backlog quotas."""
    stored = broker.namespaces.policy(namespace, BACKLOG.name)
    for quota in BACKLOG.form.read(stored or {}).values():
        refuse_retention(retention, quota, "namespace")


def _unset(rest: Rest) -> web.Response:
    if rest.unset.value is not None:
        return answer(rest.unset.value)
    return done() if rest.unset.status == 204 else empty()


# Namespaces


def existing_namespace(request: web.Request) -> str:
    """Returns the namespace of the path. Raises NamespaceNotFound."""
    namespace = namespace_of(request)
    if not request.app[BROKER].namespaces.exists(namespace):
        raise NamespaceNotFound("Namespace does not exist")
    return namespace


def _namespace_getter(policy: Policy[Any], rest: Rest) -> Handler:
    async def get_policy(request: web.Request) -> web.Response:
        value = request.app[BROKER].namespaces.policies(existing_namespace(request)).get(policy.name)
        if value is not None and rest.raw:
            return web.Response(body=str(value).encode(), content_type="application/json")
        return _unset(rest) if value is None else answer(value)

    return get_policy


def _namespace_setter(policy: Policy[Any], rest: Rest) -> Handler:
    async def set_policy(request: web.Request) -> web.Response:
        broker = request.app[BROKER]
        value = await _value_of(request, policy, rest)
        _check(broker, policy, rest, value)
        namespace = existing_namespace(request)
        if isinstance(value, Retention):
            _refuse_below_quotas(broker, namespace, value)
        stored = None if value is None else policy.form.write(value)
        await broker.namespaces.set_policy(namespace, policy.name, stored)
        return done()

    return set_policy


def _namespace_remover(policy: Policy[Any], rest: Rest) -> Handler:
    async def remove_policy(request: web.Request) -> web.Response:
        namespace = existing_namespace(request)
        await request.app[BROKER].namespaces.set_policy(namespace, policy.name, None)
        return done()

    return remove_policy


async def property_of(request: web.Request) -> web.Response:
    """Returns one property of a namespace as text; 200 without a body if it is not set."""
    value = _properties(request).get(request.match_info["key"])
    return empty() if value is None else web.Response(text=value)


async def set_property(request: web.Request) -> web.Response:
    """Sets one property of a namespace."""
    values = {**_properties(request), request.match_info["key"]: request.match_info["value"]}
    await _store_properties(request, values)
    return done()


async def add_properties(request: web.Request) -> web.Response:
    """Adds the properties of the body; those of the same name are replaced. 400 for values that are no texts."""
    assert PROPERTIES.namespace is not None
    given = await _value_of(request, PROPERTIES, PROPERTIES.namespace)
    await _store_properties(request, {**_properties(request), **(given or {})})
    return done()


async def remove_property(request: web.Request) -> web.Response:
    """Removes one property of a namespace and returns its value."""
    values = _properties(request)
    value = values.pop(request.match_info["key"], None)
    await _store_properties(request, values)
    return empty() if value is None else web.Response(text=value)


def _properties(request: web.Request) -> dict[str, str]:
    stored = request.app[BROKER].namespaces.policies(existing_namespace(request)).get(PROPERTIES.name)
    return {} if stored is None else PROPERTIES.form.read(stored)


async def _store_properties(request: web.Request, values: dict[str, str]) -> None:
    namespaces = request.app[BROKER].namespaces
    await namespaces.set_policy(namespace_of(request), PROPERTIES.name, PROPERTIES.form.write(values) or None)


# Topics


async def existing_topic(request: web.Request) -> TopicName:
    """Returns the topic. Raises NotAllowed, PreconditionFailed or TopicNotFound where it can have no policies."""
    broker, name = request.app[BROKER], topic_of(request)
    if not broker.settings.bool("topicLevelPoliciesEnabled"):
        raise NotAllowed("topicLevelPoliciesEnabled is false; set it to true to use policies of topics")
    if not broker.namespaces.exists(name.namespace):
        raise NamespaceNotFound("Namespace not found")
    if name.partition >= 0 and await broker.registry.partitions.count(name.base):
        raise PreconditionFailed(f"Not allowed to set/get topic policy for a partition; use {name.base}")
    if not await broker.registry.exists(name):
        raise TopicNotFound(f"Topic {name} not found")
    return name


def topic_key(request: web.Request, policy: Policy[Any]) -> str:
    """Returns the key of the policy in the stored policies of a topic, the global one with `isGlobal=true`."""
    return GLOBAL + policy.topic_name if is_true(request, "isGlobal") else policy.topic_name


def _topic_getter(policy: Policy[Any], rest: Rest) -> Handler:
    async def get_policy(request: web.Request) -> web.Response:
        broker, name = request.app[BROKER], await existing_topic(request)
        value = broker.namespaces.topic_policy(str(name.base), topic_key(request, policy))
        applied = rest.applied and is_true(request, "applied")
        # Without a setting nothing is in force where no policy is set.
        if value is None and applied and policy.setting is not None:
            value = policy.form.write(broker.registry.policies.of(name, policy))
        return _unset(rest) if value is None else answer(value)

    return get_policy


def _topic_setter(policy: Policy[Any], rest: Rest) -> Handler:
    async def set_policy(request: web.Request) -> web.Response:
        broker = request.app[BROKER]
        value = await _value_of(request, policy, rest)
        name = await existing_topic(request)
        _check(broker, policy, rest, value)
        if isinstance(value, Retention):
            # Unlike for a namespace, Pulsar compares with the quotas in force, the broker's default included.
            for kind in QUOTA_TYPES:
                refuse_retention(value, broker.registry.policies.backlog_quota(name, kind), "topic")
        stored = None if value is None else policy.form.write(value)
        await broker.namespaces.set_topic_policy(str(name.base), topic_key(request, policy), stored)
        return done()

    return set_policy


def _topic_remover(policy: Policy[Any], rest: Rest) -> Handler:
    async def remove_policy(request: web.Request) -> web.Response:
        name = await existing_topic(request)
        await request.app[BROKER].namespaces.set_topic_policy(
            str(name.base), topic_key(request, policy), None
        )
        return done()

    return remove_policy


async def remove_topic_policies(request: web.Request) -> web.Response:
    """Removes all policies of a topic, global ones included."""
    name = await existing_topic(request)
    await request.app[BROKER].namespaces.forget_topic(str(name.base))
    return done()


def _routes() -> list[web.RouteDef]:
    routes: list[web.RouteDef] = []
    for policy in POLICIES:
        if (rest := policy.namespace) is not None:
            path = f"{_NAMESPACE}/{rest.word}"
            routes.append(web.get(path, _namespace_getter(policy, rest)))
            routes.append(web.route(rest.verb, path, _namespace_setter(policy, rest)))
            if rest.removable:
                routes.append(web.delete(path, _namespace_remover(policy, rest)))
        if (rest := policy.topic) is not None:
            path = f"{_TOPIC}/{rest.word}"
            routes.append(web.get(path, _topic_getter(policy, rest)))
            routes.append(web.route(rest.verb, path, _topic_setter(policy, rest)))
            if rest.removable:
                routes.append(web.delete(path, _topic_remover(policy, rest)))
    return routes


POLICY_ROUTES = (
    web.put(_NAMESPACE + "/properties", add_properties),
    *_routes(),
    web.get(_NAMESPACE + "/property/{key}", property_of),
    web.put(_NAMESPACE + "/property/{key}/{value}", set_property),
    web.delete(_NAMESPACE + "/property/{key}", remove_property),
    web.delete(_TOPIC + "/policies", remove_topic_policies),
)
"""All routes of policies. Those of `properties` come first: PUT adds, and the table's would replace."""
