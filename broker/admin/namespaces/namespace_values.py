"""Checks values of namespace policies before they are stored: types and ranges, with Pulsar's statuses. Pure.

A value that is stored unchecked comes back with each GET and with each start of the broker.
"""

from __future__ import annotations

from broker.admin.http.answers import BadRequest, whole_number
from broker.service.namespaces.bundles import BUNDLES_MAX, Bundles
from foundation.value import Json


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
