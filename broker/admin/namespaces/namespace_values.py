"""Checks values of namespace policies before they are stored: types and ranges, with Pulsar's statuses. Pure.

A value that is stored unchecked comes back with each GET and with each start of the broker.
"""

from __future__ import annotations

from broker.admin.http.answers import BadRequest, whole_number
from broker.service.namespaces import Json

BUNDLES = 4
"""Bundles of a namespace that was created without a number of them; Pulsar's default."""
BUNDLES_MAX = 10_000
"""Bundles of one namespace. Pulsar has no limit below 2**31; each GET of the namespace lists them all."""


def checked_bundles(value: Json) -> int:
    """Returns the number of bundles in the object that creates a namespace; 0 or less is the default, as in Pulsar.

    BadRequest for a number above BUNDLES_MAX, and for a value that is no number.
    """
    if value is None:
        return BUNDLES
    if not isinstance(value, dict):
        raise BadRequest("bundles must be a JSON object with numBundles")
    given = value.get("numBundles")
    count = BUNDLES if given is None else whole_number(given, "numBundles")
    if count > BUNDLES_MAX:
        raise BadRequest(f"numBundles={count}: at most {BUNDLES_MAX} are allowed")
    return count if count > 0 else BUNDLES


def checked_clusters(value: Json) -> list[Json]:
    """Returns a list of cluster names. BadRequest for anything else."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise BadRequest("replication_clusters must be a JSON list of names")
    return value
