"""Thresholds and lag of offloading of a namespace: members of its offload policies that have routes of their own.

Stored and shown: there is no offloader (`broker/service/policies/offload.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import web

from broker.admin.http.answers import BadRequest, answer, body_of, done, empty
from broker.admin.namespaces.policies import existing_namespace
from broker.admin.service_view import BROKER
from broker.service.namespaces.namespaces import Json
from broker.service.policies.forms import LONG_MAX, Whole, WrongType
from broker.service.policies.table import OFFLOAD_POLICIES

_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_ANY_LONG: Final = Whole(-LONG_MAX - 1, LONG_MAX, LONG_MAX)
_SIZE: Final = "managedLedgerOffloadThresholdInBytes"
_AGE: Final = "managedLedgerOffloadThresholdInSeconds"
_LAG: Final = "managedLedgerOffloadDeletionLagInMillis"
_NEVER: Final = -1
_OLDER_NAMES: Final[Mapping[str, str]] = {
    "offload_threshold": _SIZE,
    "offload_threshold_in_seconds": _AGE,
    "offload_deletion_lag_ms": _LAG,
}
"""Keys in Pulsar's JSON of a namespace that older tools send in place of `offload_policies`."""


def add_older_members(policies: dict[str, Json], body: Mapping[str, Json]) -> None:
    """Adds the older keys in the JSON of a namespace that is to be created to its policies. Raises BadRequest."""
    given = {
        member: _number(key, body[key]) for key, member in _OLDER_NAMES.items() if body.get(key) is not None
    }
    if given:
        newer = policies.get(OFFLOAD_POLICIES.name)
        members = {**given, **newer} if isinstance(newer, dict) else given
        policies[OFFLOAD_POLICIES.name] = OFFLOAD_POLICIES.form.write(OFFLOAD_POLICIES.form.read(members))


def _number(word: str, given: Json) -> Json:
    try:
        return _ANY_LONG.read(given)
    except WrongType as error:
        raise BadRequest(f"{word}={error}") from None


def _stored(request: web.Request) -> dict[str, Json]:
    namespace = existing_namespace(request)
    stored = request.app[BROKER].namespaces.policies(namespace).get(OFFLOAD_POLICIES.name)
    return stored if isinstance(stored, dict) else {}


async def _store(request: web.Request, member: str, value: Json) -> None:
    policies = OFFLOAD_POLICIES.form.read({**_stored(request), member: value})
    await request.app[BROKER].namespaces.set_policy(
        existing_namespace(request), OFFLOAD_POLICIES.name, OFFLOAD_POLICIES.form.write(policies)
    )


def _getter(member: str, unset: int | None) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def get_offload_number(request: web.Request) -> web.Response:
        """Returns a number of the offload policies."""
        value = _stored(request).get(member, unset)
        return empty() if value is None else answer(value)

    return get_offload_number


def _setter(
    member: str, word: str, result: Callable[[], web.Response]
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def set_offload_number(request: web.Request) -> web.Response:
        """Sets a number of the offload policies; `null` removes it."""
        given = await body_of(request)
        await _store(request, member, None if given is None else _number(word, given))
        return result()

    return set_offload_number


async def remove_lag(request: web.Request) -> web.Response:
    """Removes the lag alone."""
    await _store(request, _LAG, None)
    return done()


async def remove_policies(request: web.Request) -> web.Response:
    """Removes all offload policies, the thresholds and the lag included."""
    namespace = existing_namespace(request)
    await request.app[BROKER].namespaces.set_policy(namespace, OFFLOAD_POLICIES.name, None)
    return done()


async def scan(request: web.Request) -> web.Response:
    """Returns the objects in other storage that hold ledgers of a namespace: there are none."""
    existing_namespace(request)
    return answer({"objects": [], "total": 0, "errors": 0, "unknown": 0})


OFFLOAD_ROUTES = (
    web.get(_NAMESPACE + "/offloadThreshold", _getter(_SIZE, _NEVER)),
    web.put(_NAMESPACE + "/offloadThreshold", _setter(_SIZE, "offloadThreshold", done)),
    web.get(_NAMESPACE + "/offloadThresholdInSeconds", _getter(_AGE, _NEVER)),
    # 200 in place of 204, as in Pulsar.
    web.put(_NAMESPACE + "/offloadThresholdInSeconds", _setter(_AGE, "offloadThresholdInSeconds", empty)),
    web.get(_NAMESPACE + "/offloadDeletionLagMs", _getter(_LAG, None)),
    web.put(_NAMESPACE + "/offloadDeletionLagMs", _setter(_LAG, "offloadDeletionLagMs", done)),
    web.delete(_NAMESPACE + "/offloadDeletionLagMs", remove_lag),
    web.delete(_NAMESPACE + "/removeOffloadPolicies", remove_policies),
    web.get(_NAMESPACE + "/scanOffloadedLedgers", scan),
)
"""Routes of single members; `offloadPolicies` itself is a row of the table."""
