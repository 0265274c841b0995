"""Checks values of namespace policies before they are stored: types and ranges, with Pulsar's statuses. Pure.

A value that is stored unchecked comes back with each GET and with each start of the broker.
"""

from __future__ import annotations

from broker.admin.http.answers import BadRequest, whole_number
from broker.service.administration.bundles import BUNDLES_MAX, Bundles
from broker.service.namespaces import Json
from settings.keys import LONG_MAX

_QUOTA_POLICIES = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")


def checked_bundles(value: Json, default: int) -> Bundles:
    """Returns the bundles of the object that creates a namespace; a number of 0 or less is `default`, as in Pulsar.

    BadRequest for a number above BUNDLES_MAX, and for a value that is no number.
    """
    if value is None:
        return Bundles.equal(default)
    if not isinstance(value, dict):
        raise BadRequest("bundles must be a JSON object with numBundles")
    boundaries = value.get("boundaries")
    if isinstance(boundaries, list) and boundaries:
        return Bundles.checked([str(text) for text in boundaries])
    given = value.get("numBundles")
    count = default if given is None else whole_number(given, "numBundles")
    if count > BUNDLES_MAX:
        raise BadRequest(f"numBundles={count}: at most {BUNDLES_MAX} are allowed")
    return Bundles.equal(count if count > 0 else default)


def checked_quota(quota: dict[str, Json]) -> dict[str, Json]:
    """Returns the fields of a backlog quota; others are dropped, as in Pulsar. BadRequest for a wrong value."""
    checked: dict[str, Json] = {}
    # `limitSize` is the newer name of `limit`; clients read either.
    size = quota.get("limitSize", quota.get("limit"))
    if size is not None:
        if type(size) is not int or not -LONG_MAX - 1 <= size <= LONG_MAX:
            raise BadRequest("limitSize must be a JSON number of bytes")
        checked["limit"] = size
        checked["limitSize"] = size
    if quota.get("limitTime") is not None:
        checked["limitTime"] = whole_number(quota["limitTime"], "limitTime")
    if quota.get("policy") not in _QUOTA_POLICIES:
        raise BadRequest(
            f"policy={str(quota.get('policy'))[:50]}: one of {', '.join(_QUOTA_POLICIES)} is allowed"
        )
    checked["policy"] = quota["policy"]
    return checked
