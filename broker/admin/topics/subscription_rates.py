"""`…/{topic}/{subscription}/dispatchRate`: the delivery rate of one subscription, a policy of its topic."""

from __future__ import annotations

from aiohttp import web

from broker.admin.http.answers import BadRequest, answer, body_of, done, empty, is_true
from broker.admin.namespaces.policies import existing_topic
from broker.admin.service_view import BROKER
from broker.service.effective_policies import subscription_rate_key
from broker.service.namespaces import GLOBAL
from broker.service.policies.forms import WrongType
from broker.service.policies.table import SUBSCRIPTION_DISPATCH

_PATH = (
    "/admin/v2/{domain:persistent|non-persistent}/{tenant}/{namespace}/{topic}/{subscription}/dispatchRate"
)


def _key(request: web.Request) -> str:
    key = subscription_rate_key(request.match_info["subscription"])
    return GLOBAL + key if is_true(request, "isGlobal") else key


async def rate(request: web.Request) -> web.Response:
    """Returns the rate; with `applied=true` the one in force."""
    broker, name = request.app[BROKER], await existing_topic(request)
    found = broker.namespaces.topic_policy(str(name.base), _key(request))
    if found is None and is_true(request, "applied"):
        in_force = broker.registry.policies.subscription_dispatch(name, request.match_info["subscription"])
        found = SUBSCRIPTION_DISPATCH.form.write(in_force)
    return empty() if found is None else answer(found)


async def set_rate(request: web.Request) -> web.Response:
    """Sets the rate; it holds for connected consumers at once. The subscription need not exist, as in Pulsar."""
    name, form = await existing_topic(request), SUBSCRIPTION_DISPATCH.form
    value = await body_of(request)
    if value is None:
        raise BadRequest("The request entity cannot be empty.")
    try:
        wanted = form.read(value)
    except WrongType as error:
        raise BadRequest(f"dispatchRate={error}") from None
    form.check(wanted)
    namespaces = request.app[BROKER].namespaces
    await namespaces.set_topic_policy(str(name.base), _key(request), form.write(wanted))
    return done()


async def remove_rate(request: web.Request) -> web.Response:
    """Removes the rate; that of the topic holds."""
    name = await existing_topic(request)
    await request.app[BROKER].namespaces.set_topic_policy(str(name.base), _key(request), None)
    return done()


SUBSCRIPTION_RATE_ROUTES = (
    web.get(_PATH, rate),
    web.post(_PATH, set_rate),
    web.delete(_PATH, remove_rate),
)
"""Requests about the rates of single subscriptions."""
