"""`…/{topic}/{subscription}/dispatchRate`: the delivery rate of one subscription of a topic.

It wins over `subscriptionDispatchRate` of the topic, which holds for each subscription that has none of its own. The
subscription need not exist: its rate waits for it, as in Pulsar. Answers are those of Apache Pulsar 4.2.4.
"""

from __future__ import annotations

from aiohttp import web

from broker.admin.http.answers import answer, body_of, done, empty, is_true
from broker.admin.policy_owner import existing_topic
from broker.admin.service_view import BROKER
from broker.service.namespaces.namespaces import GLOBAL
from broker.service.policies.effective_policies import SUBSCRIPTION_POLICIES
from broker.service.policies.forms import named
from broker.service.policies.values import DISPATCH_RATE
from foundation.value import Json

_PATH = (
    "/admin/v2/{domain:persistent|non-persistent}/{tenant}/{namespace}/{topic}/{subscription}/dispatchRate"
)
_RATE = "dispatchRate"


def _key(request: web.Request) -> str:
    return GLOBAL + SUBSCRIPTION_POLICIES if is_true(request, "isGlobal") else SUBSCRIPTION_POLICIES


async def get(request: web.Request) -> web.Response:
    """Returns the rate that is set, 200 without a body if none is; with `applied` the one in force."""
    broker, name = request.app[BROKER], await existing_topic(request)
    subscription = request.match_info["subscription"]
    if is_true(request, "applied"):
        rate = broker.registry.policies.subscription_dispatch_rate(name, subscription)
        return answer(DISPATCH_RATE.write(rate))
    stored = broker.namespaces.topic_policy(str(name.base), _key(request))
    own = stored.get(subscription) if isinstance(stored, dict) else None
    value = own.get(_RATE) if isinstance(own, dict) else None
    return empty() if value is None else answer(value)


async def set_rate(request: web.Request) -> web.Response:
    """Sets the rate; a body without a value removes it."""
    given = await body_of(request)
    with named(_RATE):
        rate = None if given is None else DISPATCH_RATE.read(given)
    name = str((await existing_topic(request)).base)
    if rate is not None:
        with named(_RATE):
            DISPATCH_RATE.check(rate)
    await _store(request, name, None if rate is None else DISPATCH_RATE.write(rate))
    return done()


async def remove(request: web.Request) -> web.Response:
    """Removes the rate; one that is not set changes nothing."""
    await _store(request, str((await existing_topic(request)).base), None)
    return done()


async def _store(request: web.Request, topic: str, value: Json) -> None:
    namespaces, key = request.app[BROKER].namespaces, _key(request)
    subscription = request.match_info["subscription"]

    def changed(stored: Json) -> Json:
        rates = dict(stored) if isinstance(stored, dict) else {}
        rates.pop(subscription, None)
        if value is not None:
            rates[subscription] = {_RATE: value}
        return rates or None

    await namespaces.change_topic_policy(topic, key, changed)


SUBSCRIPTION_RATE_ROUTES = (
    web.get(_PATH, get),
    web.post(_PATH, set_rate),
    web.delete(_PATH, remove),
)
"""Three names stand in these paths, so routes with fixed words must come before them."""
