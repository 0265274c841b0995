"""Routes of the policies of namespaces and topics, made from the table (`broker/service/policies/table.py`).

A value is read first (400), then its owner is looked for (404), then its range is checked (412); namespaces check the
range before the owner. That order and the answers are Pulsar's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

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
)
from broker.admin.http.request_path import NAMESPACE, TOPIC
from broker.admin.namespaces.quota_rules import refuse_retention
from broker.admin.policy_owner import (
    FindOwner,
    PolicyOwner,
    existing_namespace,
    existing_topic,
    namespace_owner,
    topic_owner,
)
from broker.admin.service_view import BROKER, BrokerView
from broker.managed_ledger.settings import ManagedLedgerSettings
from broker.service.namespaces.stored_forms import LOCAL, RATES
from broker.service.policies.backlog_quota import QUOTA_TYPES
from broker.service.policies.forms import PolicyRefused, Structure, Whole, named
from broker.service.policies.offload import OffloadPolicies, refuse_closed
from broker.service.policies.table import (
    BACKLOG,
    POLICIES,
    PROPERTIES,
    SCHEMA_UPDATES,
    SCHEMA_UPDATES_BY_REPLICATORS,
    Policy,
    Rest,
)
from broker.service.policies.values import Retention
from foundation.model.topic_name import check_no_folder
from foundation.value import Json


def shown_policies(broker: BrokerView, namespace: str) -> dict[str, Json]:
    """Returns the policies that are set, by their keys in Pulsar's JSON of a namespace, which has no local ones."""
    policies = broker.namespaces.policies(namespace)
    keys = [key for policy in POLICIES for key in RATES.get(policy.name, (policy.name,))]
    return {key: policies[key] for key in keys if key not in LOCAL and policies.get(key) is not None}


def policies_of_body(broker: BrokerView, body: Mapping[str, Json]) -> dict[str, Json]:
    """Returns the policies in Pulsar's JSON of a namespace that is to be created, for the store.

    Raises PolicyRefused for a wrong value.
    """
    found: dict[str, Json] = {}
    for policy in POLICIES:
        given = body.get(policy.name) if policy.name and policy.name not in LOCAL else None
        keys = RATES.get(policy.name)
        if keys and isinstance(given, dict):
            given = given.get(broker.namespaces.cluster)
        # The caller reads quotas: a route sets them by their types.
        if given is not None and policy is not BACKLOG:
            value = _read(policy, policy.name, given)
            if policy.namespace is not None:
                _check(broker, policy, policy.namespace, value)
            written: Json = policy.form.write(value)
            for key in keys or (policy.name,):
                found[key] = {broker.namespaces.cluster: written} if keys else written
    return found


# Values


def _read(policy: Policy[Any], name: str, given: Json) -> Any:
    with named(name):
        return policy.form.read(given)


async def _value_of(request: web.Request, policy: Policy[Any], rest: Rest) -> Any:
    """Returns the typed value of a request, None to remove the policy. Raises BadRequest without one, WrongType."""
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
        if isinstance(value, OffloadPolicies):
            refuse_closed(ManagedLedgerSettings.of(broker.settings).offload, value)
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


def _refuse_below_quotas(owner: PolicyOwner, retention: Retention) -> None:
    """Refuses a retention that would end before a backlog quota."""
    if owner.topic is None:
        quotas = [*BACKLOG.form.read(owner.get(BACKLOG) or {}).values()]
    else:
        # Unlike for a namespace, Pulsar compares with the quotas in force, the broker's default included.
        policies = owner.broker.registry.policies
        quotas = [policies.backlog_quota(owner.topic, kind) for kind in QUOTA_TYPES]
    for quota in quotas:
        refuse_retention(retention, quota, owner.word)


def _unset(rest: Rest) -> web.Response:
    if rest.unset.value is not None:
        return answer(rest.unset.value)
    return done() if rest.unset.status == 204 else empty()


# Routes of the table


def _getter(find: FindOwner, policy: Policy[Any], rest: Rest) -> Handler:
    async def get_policy(request: web.Request) -> web.Response:
        owner = await find(request)
        value = owner.get(policy)
        # Without a setting nothing is in force where no policy is set.
        if value is None and rest.applied and policy.setting is not None and is_true(request, "applied"):
            value = policy.form.write(owner.in_force(policy))
        if value is not None and rest.raw:
            return web.Response(body=str(value).encode(), content_type="application/json")
        return _unset(rest) if value is None else answer(value)

    return get_policy


_BESIDE: Final[Mapping[str, Mapping[str, Policy[bool]]]] = {
    SCHEMA_UPDATES.name: {"allowAutoUpdateSchemaWithReplicator": SCHEMA_UPDATES_BY_REPLICATORS}
}
"""By policy: further ones that parameters of its request set."""


def _setter(find: FindOwner, policy: Policy[Any], rest: Rest) -> Handler:
    async def set_policy(request: web.Request) -> web.Response:
        broker = request.app[BROKER]
        value = await _value_of(request, policy, rest)
        if rest is policy.namespace:
            _check(broker, policy, rest, value)
        owner = await find(request)
        if rest is policy.topic:
            _check(broker, policy, rest, value)
        if isinstance(value, Retention):
            _refuse_below_quotas(owner, value)
        beside = {
            word: is_true(request, word) for word in _BESIDE.get(policy.name, {}) if word in request.query
        }
        for word, allowed in beside.items():
            if value and not allowed:
                raise BadRequest(f"{rest.word}=true allows it to every producer; leave {word}=false out")
        await owner.set(policy, None if value is None else policy.form.write(value))
        for word, allowed in beside.items():
            await owner.set(_BESIDE[policy.name][word], allowed)
        return done()

    return set_policy


def _remover(find: FindOwner, policy: Policy[Any]) -> Handler:
    async def remove_policy(request: web.Request) -> web.Response:
        await (await find(request)).set(policy, None)
        return done()

    return remove_policy


def _routes() -> Iterator[web.RouteDef]:
    for policy in POLICIES:
        for start, find, rest in (
            (NAMESPACE, namespace_owner, policy.namespace),
            (TOPIC, topic_owner, policy.topic),
        ):
            if rest is not None:
                path = f"{start}/{rest.word}"
                yield web.get(path, _getter(find, policy, rest))
                yield web.route(rest.verb, path, _setter(find, policy, rest))
                if rest.removable:
                    yield web.delete(path, _remover(find, policy))


# Routes of their own


async def property_of(request: web.Request) -> web.Response:
    """Returns one property of a namespace as text; 200 without a body if it is not set."""
    value = _properties(request).get(request.match_info["key"])
    return empty() if value is None else web.Response(text=value)


async def set_property(request: web.Request) -> web.Response:
    """Sets one property of a namespace."""
    await _change_properties(request, {request.match_info["key"]: request.match_info["value"]})
    return done()


async def add_properties(request: web.Request) -> web.Response:
    """Adds the properties of the body; those of the same name are replaced. 400 for values that are no texts."""
    assert PROPERTIES.namespace is not None
    given = await _value_of(request, PROPERTIES, PROPERTIES.namespace)
    await _change_properties(request, given or {})
    return done()


async def remove_property(request: web.Request) -> web.Response:
    """Removes one property of a namespace and returns its value."""
    key = request.match_info["key"]
    value = _properties(request).get(key)
    await _change_properties(request, {}, without=key)
    return empty() if value is None else web.Response(text=value)


def _properties(request: web.Request) -> dict[str, str]:
    return _read_properties(
        request.app[BROKER].namespaces.policies(existing_namespace(request)).get(PROPERTIES.name)
    )


def _read_properties(stored: Json) -> dict[str, str]:
    return {} if stored is None else PROPERTIES.form.read(stored)


async def _change_properties(
    request: web.Request, given: Mapping[str, str], without: str | None = None
) -> None:
    def changed(stored: Json) -> Json:
        values = {**_read_properties(stored), **given}
        values.pop(without or "", None)
        return PROPERTIES.form.write(values) or None

    namespace = existing_namespace(request)
    for key in given:
        check_no_folder("Property", key)
    await request.app[BROKER].namespaces.change_policy(namespace, PROPERTIES.name, changed)


async def remove_topic_policies(request: web.Request) -> web.Response:
    """Removes all policies of a topic, global ones included."""
    name = await existing_topic(request)
    await request.app[BROKER].namespaces.forget_topic(str(name.base))
    return done()


POLICY_ROUTES = (
    web.put(NAMESPACE + "/properties", add_properties),
    *_routes(),
    web.get(NAMESPACE + "/property/{key}", property_of),
    web.put(NAMESPACE + "/property/{key}/{value}", set_property),
    web.delete(NAMESPACE + "/property/{key}", remove_property),
    web.delete(TOPIC + "/policies", remove_topic_policies),
)
"""All routes of policies. Those of `properties` come first: PUT adds, and the table's would replace."""
